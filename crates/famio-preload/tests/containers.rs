//! Containers that share a file: each with its own mount and PID namespaces and its own `/dev/shm`.

mod common;

use common::agent::{Agent, program, shared_memory};
use common::{Folder, library};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const BUSY: &str = "Device or resource busy";

/// What containers share: the file `atomic` in `data`, and memory in `shm`. Each sees them in `at`, under different
/// paths.
struct Host {
    data: Folder,
    shm: Folder,
    at: Folder,
}

/// Whether this process may make namespaces; if not, prints a loud message.
fn may_contain() -> bool {
    let tried = Command::new("unshare").args(["--mount", "--pid", "--fork", "--mount-proc", "true"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("NOT TESTED: namespaces take root: {}", String::from_utf8_lossy(&tried.stderr));
    }
    tried.status.success()
}

impl Host {
    fn new(name: &str, data: Folder) -> Self {
        std::fs::write(data.path().join("atomic"), ".".repeat(10_000)).unwrap();
        let (shm, at) =
            (Folder::new(&format!("containers-{name}-shm")), Folder::on_disk(&format!("containers-{name}")));
        std::fs::set_permissions(shm.path(), Permissions::from_mode(0o1777)).unwrap();
        Self { data, shm, at }
    }

    /// A process in a container called `name`; `shares`: with access to the host's shared memory.
    fn contain(&self, name: &str, shares: bool, domain: &str) -> Agent {
        let root = self.at.path().join(name);
        for folder in ["data", "shm"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let (data, shm, here) = (self.data.path().display(), self.shm.path().display(), root.display());
        let script = format!(
            "mount --bind {data} {here}/data && mount --bind {shm} {here}/shm && \
             mount -t tmpfs -o size=64m shm /dev/shm && cd {here}/data && exec env LD_PRELOAD={} \"$@\"",
            library().display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", &script, "sh"]).arg(program());
        command.env("FAMIO_ATOMIC", "atomic*").stderr(std::fs::File::create(self.said_by(name)).unwrap());
        if shares {
            command.env("FAMIO_SHM", root.join("shm"));
        }
        match domain {
            "emulated" => command.env("FAMIO_DOMAIN", "emulated"),
            "keep" => command.env("FAMIO_ON_KILL", "keep"),
            _ => &mut command,
        };
        Agent::of(command)
    }

    fn said_by(&self, name: &str) -> PathBuf {
        self.at.path().join(format!("{name}.said"))
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.said_by(name)).unwrap()
    }

    #[track_caller]
    fn nothing_left(&self) {
        assert_eq!(self.data.names(), ["atomic"]);
        assert!(self.shm.names().is_empty(), "{:?}", self.shm.names());
    }
}

fn everywhere(name: &str, test: impl Fn(&Host, &str)) {
    if !may_contain() {
        return;
    }
    for domain in ["process", "emulated"] {
        let name = format!("{name}-{domain}");
        test(&Host::new(&name, Folder::new(&format!("containers-{name}-data"))), domain);
    }
    test(&Host::new(name, Folder::on_disk(&format!("containers-{name}-data"))), "power");
}

/// Both used to believe that they were alone: a process that merely read the file "recovered" the other one's
/// journal, and the other one's next SYNC had no effect.
#[test]
fn containers_with_memory_of_their_own_keep_out_of_each_other() {
    everywhere("apart", |host, domain| {
        let (mut a, mut b) = (host.contain("a", false, domain), host.contain("b", false, domain));
        a.each(&["open atomic", "write 0 first", "sync", "write 0 second"]);
        b.ok("open atomic");
        let left = (host.data.names(), host.data.read("atomic").len());
        for what in ["read 0 6", "write 0 other", "cut 3", "sync", "mapread"] {
            assert_eq!(b.tell(what), BUSY, "{domain}: {what}");
        }
        assert!(host.said("b").contains("FAMIO_SHM") && host.said("b").contains("--shm"), "{}", host.said("b"));
        b.each(&["close", "look atomic"]);
        assert_eq!(b.tell("read 0 6"), BUSY);
        b.ok("close");
        assert_eq!((host.data.names(), host.data.read("atomic").len()), left, "{domain}");
        // Nothing of the first one's was touched.
        a.sees(0, "second");
        a.each(&["sync", "write 0 gone.."]);
        // Its container ends with it: the other process recovers what it had committed.
        a.kill_contained();
        b.ok("open atomic");
        b.sees(0, "second");
        b.each(&["write 0 third.", "sync"]);
        b.end();
        assert!(host.data.read("atomic").starts_with(b"third.."), "{domain}");
        host.nothing_left();
    });
}

/// A process that opened the file before the other container changed it must notice the change.
#[test]
fn what_another_container_changes_is_not_read_in_the_middle() {
    everywhere("quiet", |host, domain| {
        let (mut a, mut b) = (host.contain("a", false, domain), host.contain("b", false, domain));
        a.ok("open atomic");
        b.ok("open atomic");
        for _ in 0..100 {
            b.sees(0, ".....");
        }
        a.sees(0, ".....");
        a.ok("write 0 first");
        assert_eq!(b.tell("read 0 5"), BUSY, "{domain}");
        a.ok("sync");
        assert_eq!(b.tell("read 0 5"), BUSY, "{domain}");
        a.ok("close");
        b.sees(0, "first");
        b.each(&["write 0 other", "sync"]);
        a.ok("open atomic");
        assert_eq!(a.tell("read 0 5"), BUSY, "{domain}");
        b.end();
        a.sees(0, "other");
        a.ok("write 0 again");
        a.end();
        assert!(host.data.read("atomic").starts_with(b"again."), "{domain}");
        host.nothing_left();
    });
}

/// Both have process id 1, and see the file, its journal and the memory under different paths.
#[test]
fn containers_with_one_shm_are_processes_like_others() {
    everywhere("shared", |host, domain| {
        let (mut a, mut b) = (host.contain("a", true, domain), host.contain("b", true, domain));
        a.ok("open atomic");
        b.ok("open atomic");
        a.each(&["write 0 one", "sync", "write 3 two"]);
        b.sees(0, "onetwo");
        for i in 0..50 {
            a.ok(&format!("write {} a{i}", 100 + i * 10));
            b.ok(&format!("write {} b{i}", 105 + i * 10));
        }
        a.sees(595, "b49");
        b.sees(590, "a49");
        assert!(!host.shm.names().is_empty(), "{domain}: it lies elsewhere");
        b.ok("sync");
        // If a process is killed, its writes are rolled back, and the other one's are not.
        a.ok("write 0 gone");
        b.ok("write 200 stays");
        a.kill_contained();
        b.sees(0, "onetwo");
        b.sees(200, "stays");
        let mut c = host.contain("c", true, domain);
        c.ok("open atomic");
        c.sees(200, "stays");
        c.ok("sync");
        // The same with maps.
        b.each(&["map", "store 0 mapped"]);
        c.sees(0, "mapped");
        c.each(&["mapread", "write 10 written"]);
        assert_eq!(b.tell("load 10 7"), "written", "{domain}");
        b.kill_contained();
        c.sees(10, "written");
        c.ok("sync");
        c.end();
        assert!(host.data.read("atomic")[10..].starts_with(b"written"), "{domain}");
        host.nothing_left();
        let said = ["a", "b", "c"].map(|name| host.said(name));
        assert!(said.iter().all(|said| !said.contains("in use") && !said.contains("demoted")), "{said:?}");
    });
}

/// The memory that a killed process leaves may or may not be accessible to the next container.
#[test]
fn what_a_killed_container_wrote_stays_if_its_memory_is_shared() {
    if !may_contain() {
        return;
    }
    for (shares, left) in [(true, "second"), (false, "first.")] {
        let host = Host::new(&format!("keep-{shares}"), Folder::on_disk(&format!("containers-keep-{shares}-data")));
        let mut a = host.contain("a", shares, "keep");
        a.each(&["open atomic", "write 0 first.", "sync", "write 0 second"]);
        a.kill_contained();
        let mut b = host.contain("b", shares, "keep");
        b.ok("open atomic");
        b.sees(0, left);
        b.each(&["write 6 third", "sync"]);
        b.end();
        assert!(host.data.read("atomic").starts_with(format!("{left}third").as_bytes()), "{shares}");
        host.nothing_left();
    }
}

/// The commands recover nothing that a living container uses, even at a moment when no process there owns the file.
#[test]
fn the_commands_leave_alone_what_another_container_uses() {
    if !may_contain() {
        return;
    }
    use famio::recovery::{Options, Outcome, Silent, recover_path, survey};
    let host = Host::new("recover", Folder::on_disk("containers-recover-data"));
    let (mut a, mut b) = (host.contain("a", false, "power"), host.contain("a", false, "power"));
    a.each(&["open atomic", "write 0 first", "sync", "write 0 second"]);
    let path = host.data.path().join("atomic");
    let reports = recover_path(&path, &Default::default(), &Options::default(), &Silent).unwrap();
    assert!(matches!(reports[0].outcome, Outcome::InUse(Some(owner)) if owner.is_contained), "{reports:?}");
    let found = survey(host.data.path(), &Default::default()).unwrap();
    assert!(
        found.iter().any(|found| found.owner.is_some_and(|owner| owner.is_contained && owner.pid == 1)),
        "{found:?}"
    );
    a.sees(0, "second");
    a.ok("sync");
    // It has the file open, without a session.
    a.each(&["close", "open atomic"]);
    for _ in 0..300 {
        a.sees(0, "second");
    }
    b.ok("open atomic");
    assert_eq!(b.tell("write 0 third"), BUSY);
    a.end();
    b.ok("write 0 third");
    b.end();
    host.nothing_left();
}

/// A process cannot tell whether a file that it does not see is gone. It used to remove the memory of living
/// processes.
#[test]
fn memory_of_files_that_another_container_sees_stays() {
    if !may_contain() {
        return;
    }
    let host = Host::new("sweep", Folder::on_disk("containers-sweep-data"));
    let other = Folder::on_disk("containers-sweep-other");
    let mut a = host.contain("a", true, "power");
    a.each(&["open atomic", "map", "store 0 mapped", "write 100 written", "sync", "write 100 stays.."]);
    let there = host.shm.names();
    assert!(there.iter().any(|name| name.ends_with(".shadow")), "{there:?}");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let age = |name: &String| {
        std::fs::File::options().write(true).open(host.shm.path().join(name)).unwrap().set_modified(old).unwrap()
    };
    there.iter().for_each(age);
    // Sweeps; here the other container's paths lead nowhere.
    let sweep = || {
        let mut b = Command::new(program());
        b.current_dir(other.path()).env("LD_PRELOAD", library()).env("FAMIO_ATOMIC", "atomic*");
        let mut b = Agent::of({
            b.env("FAMIO_SHM", host.shm.path());
            b
        });
        b.each(&["open atomic", "write 0 x", "sync"]);
        b.end();
    };
    sweep();
    assert_eq!(host.shm.names(), there);
    // Also memory that a killed process has left: its file may still be recovered.
    a.kill_contained();
    let left = host.shm.names();
    left.iter().for_each(age);
    sweep();
    assert_eq!(host.shm.names(), left);
    let mut c = host.contain("c", true, "power");
    c.ok("open atomic");
    c.sees(100, "written.");
    c.end();
    host.nothing_left();
}

/// Everything that lies in `/dev/shm` by default lies in the folder that is named; an unusable folder is reported.
#[test]
fn the_folder_of_shared_memory_is_the_one_that_is_named() {
    let (folder, shm) = (Folder::on_disk("shm-named"), Folder::new("shm-named"));
    let agent = |value: &std::path::Path| {
        let mut command = common::under(&folder, program());
        command.env("FAMIO_SHM", value);
        command
    };
    let mode = |mode| std::fs::set_permissions(shm.path(), Permissions::from_mode(mode)).unwrap();
    mode(0o700);
    let mut a = Agent::of(agent(shm.path()));
    a.each(&["open atomic", "write 0 first", "sync", "map", "store 0 F"]);
    let kinds = |end: &str| shm.names().iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((kinds(".arena"), kinds(".shadow")), (1, 1));
    assert!(shared_memory::of_folder(folder.path()).is_empty());
    // With another folder, it belongs to another container.
    let mut b = Agent::new(&folder, "power");
    b.ok("open atomic");
    assert_eq!(b.tell("read 0 5"), BUSY);
    b.end();
    let mut c = Agent::of(agent(shm.path()));
    c.ok("open atomic");
    c.sees(0, "First");
    c.end();
    a.end();
    assert!(shm.names().is_empty(), "{:?}", shm.names());
    // Not a folder on tmpfs: the program is not started.
    for (value, word) in [(shm.path().join("none"), "made first"), (folder.path().to_owned(), "not on tmpfs")] {
        let done = agent(&value).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(125), "{said}");
        assert!(said.contains("FAMIO_SHM") && said.contains(word) && said.contains("not started"), "{said}");
    }
    // Others could replace what lies there: the file is not protected, which is a notice or an error.
    mode(0o777);
    for (require, answer) in [("0", "ok"), ("1", "Permission denied")] {
        let mut command = agent(shm.path());
        let said = folder.path().join("said");
        command.env("FAMIO_REQUIRE", require).stderr(std::fs::File::create(&said).unwrap());
        let mut agent = Agent::of(command);
        agent.ok("open atomic");
        assert_eq!(agent.tell("write 0 plain"), answer);
        agent.end();
        let said = std::fs::read_to_string(said).unwrap();
        assert!(said.contains("FAMIO_SHM") && said.contains("chmod +t"), "{said}");
    }
    assert!(shm.names().is_empty(), "{:?}", shm.names());
}
