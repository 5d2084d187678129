//! Several processes with one atomic file: what each sees, what one leaves that dies, and what is there after a SYNC.

mod common;

use common::{Folder, build, under};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::OnceLock;

/// A process that does what it is told.
struct Agent {
    child: Child,
    told: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("agent"))
}

impl Agent {
    fn new(folder: &Folder, domain: &str) -> Self {
        let mut command = under(folder, program());
        if domain == "emulated" {
            command.env("FAMIO_DOMAIN", "emulated");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (told, says) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, told, says }
    }

    fn with(folder: &Folder, domain: &str) -> Self {
        let mut agent = Self::new(folder, domain);
        assert_eq!(agent.tell("open atomic"), "ok");
        agent
    }

    fn tell(&mut self, what: &str) -> String {
        writeln!(self.told.as_mut().unwrap(), "{what}").unwrap();
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[track_caller]
    fn ok(&mut self, what: &str) {
        assert_eq!(self.tell(what), "ok", "{what}");
    }

    #[track_caller]
    fn sees(&mut self, at: u64, what: &str) {
        assert_eq!(self.tell(&format!("read {at} {}", what.len())), what);
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self) {
        drop(self.told.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each way of keeping a journal: in memory with and without flushes, on a disk.
fn everywhere(name: &str, test: impl Fn(&Folder, &str)) {
    for domain in ["process", "emulated"] {
        let folder = Folder::new(&format!("turns-{name}-{domain}"));
        std::fs::write(folder.path().join("atomic"), ".".repeat(10_000)).unwrap();
        test(&folder, domain);
        nothing_left(&folder);
    }
    let folder = Folder::on_disk(&format!("turns-{name}"));
    std::fs::write(folder.path().join("atomic"), ".".repeat(10_000)).unwrap();
    test(&folder, "power");
    nothing_left(&folder);
}

fn nothing_left(folder: &Folder) {
    use std::os::unix::fs::MetadataExt;
    assert!(folder.names().iter().all(|name| !name.contains("famio")), "{:?}", folder.names());
    let stat = std::fs::metadata(folder.path().join("atomic")).unwrap();
    let of_it = format!("famio-{:x}-{:x}.", stat.dev(), stat.ino());
    let left: Vec<_> = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(&of_it)), "{left:?}");
}

#[test]
fn each_sees_what_the_others_write() {
    everywhere("see", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("write 0 AAAA");
        b.sees(0, "AAAA..");
        b.ok("write 2 BBBB");
        a.sees(0, "AABBBB..");
        a.ok("write 5000 CC");
        a.sees(0, "AABBBB..");
        b.sees(4998, "..CC..");
        assert_eq!(b.tell("size"), "10000");
        b.ok("append tail");
        assert_eq!((a.tell("size"), b.tell("size")), ("10004".into(), "10004".into()));
        a.ok("append more");
        b.sees(9998, "..tailmore");
        b.ok("cut 5001");
        a.sees(4999, ".C");
        a.ok("cut 5003");
        b.sees(4999, ".C00");
        // Nothing of it is committed.
        assert!(folder.read("atomic") == ".".repeat(10_000).as_bytes() || domain != "power");
        a.ok("sync");
        let after = [&b"AABBBB"[..], &b".".repeat(4994), b"C\0\0"].concat();
        b.end();
        a.end();
        assert!(folder.read("atomic") == after);
    });
}

#[test]
fn what_one_wrote_who_died_is_rolled_back_and_nobody_elses() {
    everywhere("die", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        b.ok("write 100 bbbb");
        a.ok("write 200 aaaa"); // takes the turn: what b wrote travels
        b.ok("write 300 BBBB"); // and so does what a wrote
        b.kill();
        // In one block; b had the turn.
        a.sees(98, "......");
        a.sees(198, "..aaaa..");
        a.sees(298, "......");
        a.ok("sync");
        let mut c = Agent::with(folder, domain);
        c.ok("write 104 cc");
        a.ok("write 108 dd"); // what c wrote travels, and a has the turn
        c.kill();
        a.sees(98, "..........dd..");
        a.ok("sync");
        a.end();
        let file = folder.read("atomic");
        assert_eq!(
            (&file[98..112], &file[198..206], &file[298..306]),
            (&b"..........dd.."[..], &b"..aaaa.."[..], &b"........"[..])
        );
    });
}

#[test]
fn what_somebody_relies_on_stays() {
    everywhere("rely", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        // Read; written over in part; synced by another; left unlocked; appended to.
        a.ok("write 100 read");
        b.sees(100, "read");
        a.ok("write 200 over");
        b.ok("write 202 OVER");
        a.ok("append end");
        b.ok("append END");
        a.ok("lock");
        a.ok("write 300 free");
        a.ok("unlock");
        a.ok("write 400 gone");
        b.sees(500, "....");
        a.kill();
        b.sees(98, "..read..");
        b.sees(198, "..ovOVER..");
        b.sees(298, "..free..");
        b.sees(398, "........");
        b.sees(9998, "..endEND");
        b.ok("sync");
        b.end();
        let file = folder.read("atomic");
        assert_eq!((&file[298..306], &file[398..406], file.len()), (&b"..free.."[..], &b"........"[..], 10_006));
    });
}

#[test]
fn a_sync_commits_what_all_have_written() {
    everywhere("sync", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("write 0 one");
        b.ok("write 4096 two");
        a.ok("write 8192 three");
        b.ok("sync");
        a.ok("write 0 lost");
        a.kill();
        b.kill();
        let mut c = Agent::with(folder, domain);
        c.sees(0, "one.");
        c.sees(4096, "two.");
        c.sees(8192, "three.");
        c.end();
    });
}

#[test]
fn who_leaves_cleanly_leaves_what_it_wrote() {
    everywhere("leave", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("write 10 a");
        a.ok("close"); // b is still there: nothing is committed
        b.sees(9, ".a.");
        a.ok("open atomic");
        a.ok("write 20 b");
        a.end();
        b.sees(19, ".b.");
        b.end(); // the last: all is
        let file = folder.read("atomic");
        assert_eq!((file[10], file[20]), (b'a', b'b'));
    });
}

#[test]
fn after_all_have_died_there_is_the_last_sync() {
    everywhere("all", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("write 0 kept");
        b.ok("sync");
        b.ok("write 0 LOST");
        a.ok("write 9 LOST");
        b.ok("append LOST");
        b.kill();
        a.kill();
        let mut c = Agent::with(folder, domain);
        c.sees(0, "kept.........");
        assert_eq!(c.tell("size"), "10000");
        c.end();
    });
}

#[test]
fn who_only_reads_sees_it_all() {
    everywhere("read", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::new(folder, domain));
        b.ok("look atomic");
        b.sees(0, "....");
        a.ok("write 0 one");
        b.sees(0, "one.");
        a.ok("append XY");
        b.sees(9998, "..XY");
        assert_eq!(b.tell("size"), "10002");
        a.ok("sync");
        a.ok("write 0 two");
        a.kill(); // nobody has seen it
        b.sees(0, "one.");
        b.end();
        assert_eq!(&folder.read("atomic")[..4], b"one.");
    });
}

#[test]
fn a_mapped_file_stays_with_its_process() {
    everywhere("map", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("map");
        assert_eq!(b.tell("write 0 no"), "Device or resource busy");
        a.end();
        b.ok("write 0 yes");
        b.end();
        assert_eq!(&folder.read("atomic")[..4], b"yes.");
    });
}
