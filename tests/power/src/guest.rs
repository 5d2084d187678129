//! In the virtual machine: checks what the last cut left, then goes on writing until the next one.

use crate::cache::{Cache, Lose};
use crate::names::{self, Names};
use crate::options::Broken;
use crate::stamped;
use famio::pmem::stand_in;
use famio::recovery::{Options, Outcome, Silent, recover_path};
use famio_kill::harness::{Tally, judge_check};
use famio_kill::workload;
use famio_test_support::launch::{Famio, Launcher};
use famio_test_support::random::Random;
use famio_test_support::session::{self, Kill};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// A cut should come long before.
const LONGEST: Duration = Duration::from_secs(120);

/// For SQLite, until it has acknowledged something.
const HEAD_START: Duration = Duration::from_secs(15);

/// The host's parameters.
#[derive(clap::Args)]
pub struct Args {
    /// What was acknowledged: NAME=NUMBER
    #[arg(long, value_delimiter = ',', value_parser = pair)]
    acked: Vec<(String, u64)>,
    /// Where the power is cut after this many operations: NAME, or recover:NAME
    #[arg(long)]
    cut: Option<String>,
    #[arg(long, default_value_t = 0)]
    after: u64,
    #[arg(long, value_enum, default_value = "nothing")]
    lose: Lose,
    #[arg(long)]
    seed: u64,
    /// What the clock is set to, in seconds since 1970
    #[arg(long)]
    clock: i64,
    #[arg(long)]
    broken: Option<Broken>,
    /// Only tiered files
    #[arg(long)]
    tiered: bool,
    /// Only check
    #[arg(long)]
    check_only: bool,
}

fn pair(text: &str) -> Result<(String, u64), String> {
    let (name, number) = text.split_once('=').ok_or("NAME=NUMBER")?;
    Ok((name.into(), number.parse().map_err(|_| "NAME=NUMBER")?))
}

/// Sends a line to the host at once.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(format!("{}\n", text.replace('\n', "; ")).as_bytes());
}

/// Checks, and goes on writing.
pub fn main(args: &Args) -> Result<(), String> {
    set_clock(args.clock)?;
    let acked: BTreeMap<&str, u64> = args.acked.iter().map(|(name, number)| (name.as_str(), *number)).collect();
    let acknowledged = |name: &str| acked.get(name).copied().unwrap_or(0);
    let mut random = Random::new(args.seed);
    let Names { stamped, sqlite } = Names::of(args.tiered);
    let names: &[&str] = if args.broken.is_some() { &[] } else { sqlite };
    let mut found = BTreeMap::new();
    for pool in stamped.iter().chain(names).filter_map(|name| names::pool(name)) {
        make_pool(&pool)?;
    }
    for &name in stamped {
        found.insert(name, stamped_file(args, name, acknowledged(name))?);
    }
    for name in names {
        database(name, acknowledged(name), &mut random)?;
    }
    say("checked");
    if args.check_only {
        return Ok(());
    }
    let (acknowledged, acknowledgements) = channel();
    for name in names {
        let launcher = launcher(name, &mut random)?;
        let (seed, name, acknowledged) = (random.next_u64(), name.to_string(), acknowledged.clone());
        std::thread::spawn(move || {
            let why = feed(&launcher, &name, seed, &acknowledged);
            say(&format!("damage {name} sqlite3 ended by itself: {why:?}"));
        });
    }
    // The stamped writers are much faster, so most cuts hit them: SQLite starts first.
    let until = Instant::now() + HEAD_START;
    for _ in 0..names.len() as u64 * (1 + random.below(3)) {
        let _ = acknowledgements.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
    let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    for (name, epoch) in found {
        let cut_after = if args.cut.as_deref() == Some(name) { args.after } else { 0 };
        let mut command = Command::new(&me);
        command.args(["write", name, &epoch.to_string(), &cut_after.to_string()]);
        command.arg(format!("{:?}", args.lose).to_lowercase()).arg(random.next_u64().to_string());
        // The defect shows only where it applies.
        if let Some(broken) = args.broken.filter(|broken| broken.concerns(name)) {
            command.arg("--broken").arg(broken.word());
        }
        command.spawn().map_err(|error| format!("{}: {error}", me.display()))?;
    }
    std::thread::sleep(LONGEST);
    Err("the power was not cut".into())
}

/// On a busy host, the clock of an emulated machine sometimes began up to five seconds before the last boot's end,
/// whose writes then look like an outsider's. A real machine's clock is right, or keeps running; here, the host sets
/// it.
fn set_clock(seconds: i64) -> Result<(), String> {
    let time = libc::timespec { tv_sec: seconds, tv_nsec: 0 };
    // SAFETY: a valid time.
    match unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &time) } {
        0 => Ok(()),
        _ => Err(format!("setting the clock: {}", std::io::Error::last_os_error())),
    }
}

/// Recovers a stamped file, and reports its epoch; a damaged file is started again.
fn stamped_file(args: &Args, name: &str, acknowledged: u64) -> Result<u64, String> {
    let path = names::file(name);
    if path.exists() {
        if args.cut.as_deref().and_then(|cut| cut.strip_prefix("recover:")) == Some(name) {
            stand_in(Some(Cache::new(names::domain(name), args.after, args.lose, args.seed, None)?));
        }
        let outcome = recover(&path, name);
        stand_in(None);
        let found = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        match outcome.and_then(|()| stamped::check(&found, acknowledged)) {
            // The check goes through all epochs: it must not take ever longer.
            Ok(epoch) if epoch < 1500 => {
                say(&format!("found {name} {epoch}"));
                return Ok(epoch);
            }
            Ok(epoch) => say(&format!("found {name} {epoch}")),
            Err(error) => say(&format!("damage {name} {error}{}", clocks(&path))),
        }
    }
    anew(name)?;
    say(&format!("anew {name}"));
    Ok(0)
}

fn recover(path: &Path, name: &str) -> Result<(), String> {
    let reports = recover_path(path, &names::settings(name), &Options::default(), &Silent);
    for report in reports.map_err(|error| format!("unrecoverable: {error}"))? {
        match report.outcome {
            Outcome::NothingToDo | Outcome::Clean => {}
            Outcome::Recovered => say(&format!("recovered {name} {}", report.epoch)),
            other => return Err(format!("unrecoverable: {other:?}")),
        }
    }
    // A cut between the creation of the folder and of the journal can leave an empty folder.
    let pool = names::pool(name).unwrap_or_else(|| path.with_file_name(".famio"));
    let left: Vec<_> = fs::read_dir(pool).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let left: Vec<_> = left.iter().filter(|path| path.extension().is_some_and(|end| end == "journal")).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("leftovers: {left:?}")) }
}

/// For debugging.
fn clocks(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let Ok(stat) = fs::metadata(path) else { return String::new() };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let up = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let up = up.split(' ').next().unwrap_or("");
    format!(" [ctime {}.{:09}, now {:.3}, up {up}]", stat.ctime(), stat.ctime_nsec(), now.as_secs_f64())
}

/// Creates a folder for journals, durably.
fn make_pool(pool: &Path) -> Result<(), String> {
    let made = fs::create_dir_all(pool).and_then(|()| File::open("/mnt/pmem")?.sync_all());
    made.map_err(|error| format!("{}: {error}", pool.display()))
}

/// Creates an empty file, durably.
fn anew(name: &str) -> Result<(), String> {
    let folder = names::folder(name);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let _ = fs::remove_dir_all(&folder);
    if let Some(pool) = names::pool(name) {
        let _ = fs::remove_dir_all(&pool);
        make_pool(&pool)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    File::create(names::file(name)).and_then(|file| file.sync_all()).map_err(failed)?;
    for folder in [Some(folder.as_path()), folder.parent()].into_iter().flatten() {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    }
    Ok(())
}

fn launcher(name: &str, random: &mut Random) -> Result<Launcher, String> {
    let policies = ["auto", "undo", "redo", "alternate"];
    let policy = policies[random.below(4) as usize];
    let pool = names::pool(name).map(|pool| pool.to_string_lossy().into_owned());
    let mut options = match &pool {
        Some(pool) => vec!["--pool", pool, "--tier", "auto"],
        None if names::on_disk(name) => vec!["--durability", "power"],
        None => vec!["--policy", policy],
    };
    if names::is_tight(name) {
        options.extend(names::TIGHT_OPTIONS);
    }
    Launcher::new(Some(Famio::beside_me(&options)?))
}

/// Recovers a database, sometimes by `famio recover`, and checks it with SQLite.
fn database(name: &str, acknowledged: u64, random: &mut Random) -> Result<(), String> {
    let path = names::file(name);
    if !path.exists() {
        if acknowledged > 0 {
            say(&format!("damage {name} lost: the file is gone"));
        }
        fs::create_dir_all(names::folder(name)).map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok(());
    }
    let by_hand = random.below(2) == 0;
    if by_hand && let Err(error) = recover(&path, name) {
        say(&format!("damage {name} {error}"));
    }
    let text = workload::pragmas("OFF") + &workload::check();
    let ended = session::run(&launcher(name, random)?, &path, std::iter::once(text), Kill::Never)?;
    let mut tally = Tally::default();
    let sound = judge_check(&ended, acknowledged, &mut tally);
    let last = ended.text().iter().find_map(|line| line.strip_prefix("last ")?.parse::<u64>().ok()).unwrap_or(0);
    if sound {
        say(&format!("found {name} {last}"));
    } else {
        say(&format!("damage {name} {} {}", tally, tally.findings.join("; ")));
        let _ = fs::remove_dir_all(names::folder(name));
        fs::create_dir_all(names::folder(name)).map_err(|error| format!("{}: {error}", path.display()))?;
        say(&format!("anew {name}"));
    }
    Ok(())
}

/// Runs transactions endlessly, and passes each acknowledgement on to the host at once.
fn feed(launcher: &Launcher, name: &str, seed: u64, acknowledged: &Sender<()>) -> Result<String, String> {
    let mut command = launcher.command(&names::file(name));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("no pipes".into());
    };
    std::thread::spawn(move || {
        let mut random = Random::new(seed);
        let mut text = workload::pragmas("OFF") + &workload::schema();
        while input.write_all(text.as_bytes()).is_ok() {
            text = workload::transaction(&mut random);
        }
    });
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some(number) = line.strip_prefix("ack ") {
            say(&format!("ack {name} {number}"));
            let _ = acknowledged.send(());
        }
    }
    child.wait().map(|status| status.to_string()).map_err(|error| error.to_string())
}
