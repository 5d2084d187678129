//! MariaDB, with atomic data and logs: four clients, one of which numbers its transactions; the server is killed at
//! random and restarted.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::place;
use famio_test_support::random::Random;
use famio_test_support::session::{self, Ended, Kill};
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Its data: InnoDB's and Aria's, and Aria's log.
const DATA: [&str; 6] =
    ["data/ibdata*", "data/undo*", "data/**/*.ibd", "data/aria_log*", "data/**/*.MA[ID]", "data/**/*.frm"];
/// InnoDB's log. In /dev/shm, the server maps it and makes it durable by cache flushes, without a visible SYNC: there
/// it is left an ordinary file.
const LOG: &str = "data/ib_logfile*";

/// The server falls back to calls in its own threads; its installation is a shell script; by default it has no undo
/// tablespaces, and a server that only starts and exits writes no table definition.
const EXPECTED: &[&str] = &[
    "io_uring refused",
    "libaio refused",
    "use as a standard stream",
    "/data/undo*' selected no file",
    "/data/**/*.frm' selected no file",
];

const TABLES: &str = "create database work;
use work;
create table work.ledger(n bigint primary key, filler varchar(200)) engine=innodb;
create table work.item(n bigint, seq int, text varchar(300), key(n)) engine=innodb;
create table work.slot(id int primary key, n bigint, text varchar(300)) engine=innodb;
insert into work.slot select seq, 0, repeat('0', 200) from seq_1_to_300;
create table work.account(id int primary key, balance bigint) engine=innodb;
insert into work.account select seq, 0 from seq_1_to_2000;
create table work.history(id int, delta bigint) engine=innodb;
create table work.log(n bigint) engine=aria transactional=1;
";

/// One line: 1 for each condition that holds, and the last number of the ledger.
const CHECK: &str = "select
 (select sum(balance) from work.account) = 0,
 (select count(*) from (select a.id from work.account a left join work.history h on a.id = h.id group by a.id, a.balance
   having a.balance <> coalesce(sum(h.delta), 0)) wrong) = 0,
 (select count(*) from (select l.n from work.ledger l left join work.item i on i.n = l.n group by l.n
   having count(i.n) <> 10 or count(distinct i.text) <> 10) torn) = 0,
 (select count(*) from work.item) = 10 * (select count(*) from work.ledger),
 (select count(*) from work.ledger) = (select coalesce(max(n), 0) from work.ledger),
 (select count(*) from work.slot where n = (select coalesce(max(n), 0) from work.ledger)) = 300,
 (select coalesce(max(n), 0) from work.log) between (select coalesce(max(n), 0) from work.ledger) - 1
   and (select coalesce(max(n), 0) from work.ledger),
 (select coalesce(max(n), 0) from work.ledger);
";

const INTACT: &str = "check table work.ledger, work.item, work.slot, work.account, work.history, work.log extended;\n";

/// Transactions numbered from `next` on. Each rewrites a table; the Aria table gets its number when it is committed.
fn numbered(next: u64) -> String {
    let mut text = String::new();
    for n in next..next + 3000 {
        let items: Vec<String> = (1..=10).map(|seq| format!("({n},{seq},repeat('{n}.{seq} ',20))")).collect();
        writeln!(
            text,
            "begin; insert into work.ledger values ({n}, repeat('{n}', 10)); insert into work.item values {}; \
             update work.slot set n = {n}, text = repeat('{n} ', 30); commit; \
             insert into work.log values ({n}); select 'ack {n}';",
            items.join(",")
        )
        .expect("memory");
    }
    text
}

/// Transfers from one account to another.
fn transfers(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..4000 {
        let (delta, one) = (1 + random.below(100), 1 + random.below(1000));
        // The lower one first, so that two clients do not wait for each other.
        let other = one + 1 + random.below(999);
        writeln!(
            text,
            "begin; update work.account set balance = balance - {delta} where id = {one}; \
             update work.account set balance = balance + {delta} where id = {other}; \
             insert into work.history values ({one}, -{delta}), ({other}, {delta}); commit;"
        )
        .expect("memory");
    }
    text
}

/// The server and its clients' place.
struct Server<'a, 'b> {
    job: &'a Job<'b>,
    globs: &'a [&'a str],
    options: &'a [&'a str],
}

impl Server<'_, '_> {
    fn path(&self, name: &str) -> PathBuf {
        self.job.under.folder.join(name)
    }

    fn start(&self, under_famio: bool) -> Result<Child, String> {
        let program = under::find("mariadbd").unwrap_or_else(|| DAEMON.into());
        let mut command = match under_famio {
            true => self.job.under.famio(self.globs, program),
            false => self.job.under.plain(program),
        };
        let path = |name: &str| self.path(name).display().to_string();
        command.arg("--no-defaults").args([
            format!("--datadir={}", path("data")),
            format!("--socket={}", path("socket")),
            format!("--pid-file={}", path("pid")),
        ]);
        command.args(["--skip-networking", "--skip-log-bin", "--skip-name-resolve", "--performance-schema=OFF"]);
        command.arg("--aria-checkpoint-interval=1").args(self.options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file(&self.path("log"))?).process_group(0);
        command.spawn().map_err(|error| format!("mariadbd: {error}"))
    }

    fn client(&self) -> Command {
        let mut command = self.job.under.plain("mariadb");
        command.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--unbuffered"]);
        command.arg(format!("--socket={}", self.path("socket").display()));
        command
    }

    fn ask(&self, text: &str) -> Result<Ended, String> {
        session::drive(self.client(), std::iter::once(text.to_string()), Kill::Never)
    }

    /// A client that works independently.
    fn work(&self, text: &str, name: &str) -> Result<Child, String> {
        let script = self.path(name);
        std::fs::write(&script, text).map_err(|error| format!("{}: {error}", script.display()))?;
        let input = File::open(&script).map_err(|error| format!("{}: {error}", script.display()))?;
        let mut command = self.client();
        command.stdin(input).stdout(file(&script.with_extension("said"))?).stderr(Stdio::null());
        command.spawn().map_err(|error| format!("mariadb: {error}"))
    }

    /// Whether the server answers.
    fn comes_up(&self, server: &mut Child) -> Result<bool, String> {
        let started = Instant::now();
        loop {
            if self.path("socket").exists() && self.ask("select 1;")?.is_ok() {
                return Ok(true);
            }
            if started.elapsed() > Duration::from_secs(120) || server.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const DAEMON: &str = "/usr/sbin/mariadbd";

fn file(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// With default settings: a server makes few checkpoints during its life.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let kills = job.kills;
    kill(job, report, &[], kills)
}

/// With so little memory and log that it writes pages and makes checkpoints all the time; with and without the
/// doublewrite buffer. It writes pages while it syncs their file, and considers them synced: some checkpoints skip
/// pages that no SYNC covers. A power loss may lose these, with or without Famio, and so may a mere kill unless
/// writes survive it.
pub fn with_checkpoints(job: &mut Job, report: &mut Report) -> Result<(), String> {
    if !job.under.offers("--on-kill")? {
        report.skipped =
            Some("some of its checkpoints go over pages that it has not synced: it needs on-kill=keep".into());
        return Ok(());
    }
    job.under.add_options(&["--on-kill", "keep"]);
    for (doublewrite, kills) in
        [("--innodb-doublewrite=ON", job.kills.div_ceil(2)), ("--innodb-doublewrite=OFF", job.kills / 2)]
    {
        under::clear(job.under.folder)?;
        kill(job, report, &[doublewrite, "--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M"], kills)?;
        if !report.is_clean() {
            break;
        }
    }
    Ok(())
}

/// After each kill, all tables must be intact, no acknowledged transaction lost, and none there in part; at the end
/// also without Famio.
fn kill(job: &mut Job, report: &mut Report, options: &[&str], kills: u64) -> Result<(), String> {
    if under::find("mariadbd").is_none() && !Path::new(DAEMON).exists() {
        report.skipped = Some("no MariaDB server is installed".into());
        return Ok(());
    }
    report.skipped = job.under.as_ordinary_user()?;
    if report.skipped.is_some() {
        return Ok(());
    }
    let globs: &[&str] = &[&DATA as &[&str], &[LOG]].concat();
    let is_in_memory = place::file_system(job.under.folder) == "tmpfs";
    let globs = if is_in_memory { &globs[..DATA.len()] } else { globs };
    let mut install = job.under.famio(globs, "mariadb-install-db");
    let data = job.under.folder.join("data");
    install.args([
        "--no-defaults",
        "--skip-test-db",
        "--skip-name-resolve",
        "--auth-root-authentication-method=normal",
    ]);
    install.arg(format!("--datadir={}", data.display()));
    let ended = under::run(install)?;
    report.said(&ended.messages, EXPECTED);
    if !report.check(ended.is_ok(), || format!("mariadb-install-db: {}\n{}", ended.status, ended.text().join("\n"))) {
        return Ok(());
    }
    let mut last = 0;
    for round in 0..=kills + 1 {
        // The last round is without Famio and ends by itself, as does the one before.
        let (under_famio, is_killed) = (round <= kills, round < kills);
        let _ = std::fs::remove_file(job.under.folder.join("socket"));
        let script = transfers(&mut job.random);
        let time = job.random.time_up_to(Duration::from_millis(1200));
        let server = Server { job, globs, options };
        let mut child = server.start(under_famio)?;
        let is_up = server.comes_up(&mut child)?;
        if report.check(is_up, || format!("round {round}: it did not come up")) {
            if round == 0 {
                let made = server.ask(TABLES)?;
                report.check(made.is_ok(), || made.messages.clone());
            } else {
                last = look(&server, report, round, last)?;
            }
        }
        if is_killed && report.is_clean() {
            let mut clients = vec![server.work(&numbered(last + 1), "numbered")?];
            for name in ["transfers1", "transfers2", "transfers3"] {
                clients.push(server.work(&script, name)?);
            }
            std::thread::sleep(time);
            report.kills += u64::from(session::kill_group(&mut child));
            for client in &mut clients {
                let _ = client.kill();
                let _ = client.wait();
            }
            let said = std::fs::read_to_string(server.path("numbered.said")).unwrap_or_default();
            let acknowledged = said.lines().filter_map(|line| line.strip_prefix("ack ")?.parse().ok()).max();
            report.acknowledged += acknowledged.map_or(0, |number: u64| number - last);
            last = acknowledged.unwrap_or(last);
        } else {
            // SAFETY: sends a signal to a child that is not waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        }
        child.wait().map_err(|error| format!("mariadbd: {error}"))?;
        let said = std::fs::read_to_string(server.path("log")).unwrap_or_default();
        let log = report.said(&said, EXPECTED);
        let wrong = log.lines().find(|line| line.contains("[ERROR]") || line.contains("orrupt"));
        report.check(wrong.is_none(), || format!("round {round}: {}", wrong.unwrap_or_default()));
        if round == kills || job.random.below(2) == 0 {
            job.under.recover()?;
        }
        if !report.is_clean() {
            let tail: Vec<&str> = log.lines().rev().take(12).collect();
            report.finding(tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            return Ok(());
        }
    }
    Ok(())
}

/// Checks all tables. Returns the number of the last transaction.
fn look(server: &Server, report: &mut Report, round: u64, last: u64) -> Result<u64, String> {
    let intact = server.ask(INTACT)?;
    let lines = intact.text();
    let good = intact.is_ok() && lines.len() == 6 && lines.iter().all(|line| line.ends_with("\tstatus\tOK"));
    report.check(good, || format!("round {round}: {} {}", lines.join("\n"), intact.messages));
    let found = server.ask(CHECK)?;
    let text = found.text().join(" ");
    let fields: Vec<&str> = text.split('\t').collect();
    let number = fields.last().and_then(|text| text.parse().ok()).unwrap_or(0);
    let good = fields.len() == 8 && fields[..7].iter().all(|field| *field == "1") && number >= last;
    report.check(good, || {
        format!("round {round}: {last} were acknowledged; what holds, and the last: {text} {}", found.messages)
    });
    Ok(number)
}
