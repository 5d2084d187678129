//! Applications that share a pool with a size: each gets its share, while others write on; nothing is lost.

mod common;

use common::agent::{Agent, program, shared_memory};
use common::{Folder, under};
use famio::journal::{PoolUse, pool_use, set_pool_size};
use std::process::Command;

const MIB: u64 = 1 << 20;
const FULL: &str = "No space left on device";

/// Waits until `is_so`; a test that would wait for ever fails.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "in vain until {what}");
        std::thread::sleep(std::time::Duration::from_millis(5)); // pause between two checks
    }
}

/// A kind of journal: where files and pool lie, and sizes that fit its segments.
struct Kind {
    name: &'static str,
    data: Folder,
    pool: Folder,
    /// The size at which one application can take so much that another one lacks its share, in MiB;
    size: u64,
    /// an epoch of the first;
    large: u64,
    /// and one within half of the pool.
    half: u64,
}

impl Kind {
    fn all(name: &str) -> [Self; 3] {
        let (on_tmpfs, on_disk) = (
            |what: &str| Folder::new(&format!("shares-{name}-{what}")),
            |what: &str| Folder::on_disk(&format!("shares-{name}-{what}")),
        );
        [
            // Segments of 0.25, 4 x 1, 4 x 2, 4 x 4 MiB.
            Self {
                name: "tiered",
                data: on_disk("tiered"),
                pool: on_tmpfs("tiered-pool"),
                size: 32,
                large: 20,
                half: 10,
            },
            Self {
                name: "records",
                data: on_disk("records"),
                pool: on_disk("records-pool"),
                size: 32,
                large: 20,
                half: 8,
            },
            // Segments of 0.25, 0.5, 1, 2, 4, 8 MiB.
            Self {
                name: "in place",
                data: on_tmpfs("place"),
                pool: on_tmpfs("place-pool"),
                size: 20,
                large: 14,
                half: 6,
            },
        ]
    }

    fn with_size(self) -> Self {
        set_pool_size(self.pool.path(), Some(self.size * MIB)).unwrap();
        self
    }

    fn command(&self, application: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = under(&self.data, program);
        command.env("FAMIO_POOL", self.pool.path()).env("FAMIO_APPLICATION", application);
        command.env("FAMIO_JOURNAL", "always").stderr(std::process::Stdio::null());
        if self.name == "tiered" {
            command.env("FAMIO_DURABILITY", "process").env("FAMIO_DOMAIN", "emulated");
        }
        command
    }

    /// A process of an application, with its own file of 24 MiB.
    fn agent(&self, application: &str) -> Agent {
        self.agent_of(application, self.command(application, program()))
    }

    fn agent_of(&self, file: &str, command: Command) -> Agent {
        let path = self.data.path().join(format!("atomic-{file}"));
        if !path.exists() {
            std::fs::write(&path, ".".repeat(24 << 20)).unwrap();
        }
        let mut agent = Agent::of(command);
        agent.ok(&format!("open atomic-{file}"));
        agent
    }

    fn looks(&self) -> PoolUse {
        pool_use(self.pool.path()).unwrap()
    }

    /// Share and use of an application, in bytes.
    fn has(&self, application: &str) -> (u64, u64) {
        let seen = self.looks();
        let found = seen.applications.iter().find(|one| one.name == application);
        let found = found.unwrap_or_else(|| panic!("{}: {application} is not in {seen:?}", self.name));
        (found.share, found.used)
    }

    /// For how many bytes all applications wait.
    fn wants(&self) -> u64 {
        self.looks().applications.iter().map(|one| one.wants).sum()
    }

    /// The file of an application is `len` MiB of a letter, and dots.
    #[track_caller]
    fn holds(&self, application: &str, letter: char, len: u64) {
        let bytes = self.data.read(&format!("atomic-{application}"));
        let (filled, rest) = bytes.split_at((len * MIB) as usize);
        assert!(filled.iter().all(|&byte| byte == letter as u8), "{}: {application}", self.name);
        assert!(rest.iter().all(|&byte| byte == b'.'), "{}: {application}", self.name);
    }

    fn nothing_left(&self) {
        assert!(self.pool.names().iter().all(|name| name == "famio.pool"), "{:?}", self.pool.names());
        assert!(shared_memory::of_folder(self.data.path()).is_empty());
    }
}

/// (a) One takes all that there is; another one comes and gets its share while the first still writes. Both go on.
#[test]
fn a_newcomer_gets_its_share_while_the_first_writes() {
    for kind in Kind::all("newcomer").map(Kind::with_size) {
        let mut first = kind.agent("first");
        // An open epoch keeps its room; of what is committed the rest would go in a quiet moment.
        first.ok(&format!("fill {} a", kind.large));
        let (alone, used) = kind.has("first");
        assert_eq!(alone, kind.size * MIB / 8 * 7, "{}", kind.name);
        assert!(used > alone / 2, "{}: more than half: {used} of {alone}", kind.name);
        // It goes on, while the other one comes.
        first.ok("sync");
        let on = ["write 0 bbbb", "sync"];
        (0..200).for_each(|_| on.iter().for_each(|what| first.ask(what)));
        let mut second = kind.agent("second");
        second.each(&[&format!("fill {} x", kind.half), "sync"]);
        (0..400).for_each(|_| assert_eq!(first.answer(), "ok", "{}", kind.name));
        let ((share, used), (of_first, has)) = (kind.has("second"), kind.has("first"));
        assert_eq!([share, of_first], [alone / 2; 2], "{}", kind.name);
        assert!(used + has <= kind.size * MIB, "{}: {has} and {used}", kind.name);
        for round in ["c", "d", "e"] {
            first.each(&[&format!("fill {} {round}", kind.half), "sync"]);
            second.each(&[&format!("fill {} {}", kind.half, round.to_uppercase()), "sync"]);
        }
        first.ok(&format!("fill {} z", kind.half));
        first.kill();
        second.end();
        kind.holds("second", 'E', kind.half);
        // What the killed one has left is recovered by the next who opens its file, to its last SYNC.
        kind.agent("first").end();
        let bytes = kind.data.read("atomic-first");
        let (filled, rest) = bytes.split_at((kind.half * MIB) as usize);
        assert!(filled.iter().all(|&byte| byte == b'e') && rest[..1 << 20].iter().all(|&byte| byte == b'a'));
        kind.nothing_left();
    }
}

/// (b) Shares by weight.
#[test]
fn shares_follow_the_weights() {
    for kind in Kind::all("weights").map(Kind::with_size) {
        let weighing = |name: &str, weight: &str| {
            let mut command = kind.command(name, program());
            command.env("FAMIO_POOL_WEIGHT", weight);
            kind.agent_of(name, command)
        };
        let (mut light, mut heavy) = (weighing("light", "100"), weighing("heavy", "300"));
        light.each(&["fill 1 a", "sync"]);
        heavy.each(&[&format!("fill {} b", kind.half), "sync"]);
        let ((little, _), (much, _)) = (kind.has("light"), kind.has("heavy"));
        assert_eq!((little, much), (kind.size * MIB / 32 * 7, kind.size * MIB / 32 * 21), "{}", kind.name);
        light.end();
        heavy.end();
        kind.nothing_left();
    }
}

/// (c) A killed application: its slot is free at once, its journal is what is left until it is recovered.
#[test]
fn the_share_of_a_killed_application_is_taken_back() {
    for kind in Kind::all("killed").map(Kind::with_size) {
        let mut first = kind.agent("first");
        first.each(&[&format!("fill {} a", kind.large), "sync", &format!("fill {} b", kind.half)]);
        first.kill();
        let seen = kind.looks();
        assert!(seen.applications.is_empty() && seen.left == seen.used && seen.left > kind.half * MIB, "{seen:?}");
        let mut second = kind.agent("second");
        second.each(&["fill 1 x", "sync"]);
        // Until no segment is being made, or given back, in the background.
        until("the background rests", || kind.looks().left == seen.left);
        let usable = kind.size * MIB - seen.left;
        assert_eq!(kind.has("second").0, usable - usable / 8, "{}", kind.name);
        // Recovered, it is free again.
        kind.agent("first").end();
        kind.holds("first", 'a', kind.large);
        second.each(&[&format!("fill {} y", kind.large), "sync"]);
        assert_eq!((kind.has("second").0, kind.looks().left), (kind.size * MIB / 8 * 7, 0), "{}", kind.name);
        second.end();
        kind.holds("second", 'y', kind.large);
        kind.nothing_left();
    }
}

/// (d) An epoch larger than the share: the write that does not fit has no room, what was written before is committed,
/// and the next epoch finds room.
#[test]
fn an_epoch_larger_than_the_share() {
    for mut kind in Kind::all("large") {
        kind.size = 16;
        let kind = kind.with_size();
        let mut agent = kind.agent("one");
        assert_ne!(agent.tell("fill 24 a"), "ok", "{}: a call that ends in the middle", kind.name);
        let full =
            (5000..6000).map(|block| agent.tell(&format!("write {} zz", block * 4096))).find(|said| said != "ok");
        assert_eq!(full.as_deref(), Some(FULL), "{}", kind.name);
        agent.ok("sync");
        agent.each(&["fill 3 b", "sync"]);
        agent.end();
        let bytes = kind.data.read("atomic-one");
        let written = bytes.iter().position(|&byte| byte == b'.').unwrap();
        // In place, 7.75 MiB; 2 MiB less if the background did not get to a piece that it had reserved.
        assert!((6 << 20..16 << 20).contains(&written), "{}: {written}", kind.name);
        assert!(bytes[..3 << 20].iter().all(|&byte| byte == b'b'));
        assert!(bytes[3 << 20..written].iter().all(|&byte| byte == b'a'), "{}", kind.name);
        assert!(bytes[written..5000 * 4096].iter().all(|&byte| byte == b'.'), "{}", kind.name);
        kind.nothing_left();
    }
}

/// (e) Containers that have nothing in common but pool and files.
#[test]
fn containers_share_a_pool() {
    let tried = Command::new("unshare").args(["--mount", "--pid", "--fork", "--mount-proc", "true"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("NOT TESTED: namespaces take root: {}", String::from_utf8_lossy(&tried.stderr));
        return;
    }
    for kind in Kind::all("containers").map(Kind::with_size) {
        let contained = |name: &str| {
            let mut command = kind.command(name, "unshare");
            let script = "mount -t tmpfs -o size=128m shm /dev/shm 2>/dev/null; exec \"$@\"";
            // A tmpfs of its own hides the pool there.
            let inside = if kind.name == "records" { script } else { "exec \"$@\"" };
            command.args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", inside, "sh"]).arg(program());
            kind.agent_of(name, command)
        };
        let (mut first, mut second) = (contained("first"), contained("second"));
        first.each(&[&format!("fill {} a", kind.large), "sync"]);
        second.each(&[&format!("fill {} x", kind.half), "sync"]);
        let seen = kind.looks();
        assert_eq!(seen.applications.len(), 2, "{seen:?}");
        assert!(seen.applications.iter().all(|one| one.pids.is_empty()), "other ids than here: {seen:?}");
        assert!(seen.applications.iter().map(|one| one.used).sum::<u64>() <= kind.size * MIB, "{seen:?}");
        first.kill_contained();
        second.each(&["fill 2 y", "sync"]);
        assert_eq!(kind.looks().applications.len(), 1);
        second.end();
        kind.agent("first").end();
        kind.holds("first", 'a', kind.large);
        kind.nothing_left();
    }
}

/// Who has borrowed and is stopped gives nothing back: others go on with what is free, and are told when that is not
/// enough, instead of waiting for ever.
#[test]
fn a_stopped_application_is_waited_for_only_so_long() {
    let [kind, ..] = Kind::all("stopped").map(Kind::with_size);
    let mut first = kind.agent("first");
    first.each(&[&format!("fill {} a", kind.large), "sync", &format!("fill {} b", kind.large)]);
    first.stop();
    let mut second = kind.agent("second");
    second.each(&["fill 2 x", "sync"]);
    assert_ne!(second.tell(&format!("fill {} y", kind.half)), "ok");
    second.each(&["sync", "fill 2 z", "sync"]);
    first.signal(libc::SIGCONT);
    first.ok("sync");
    // Until the other one has given back.
    until("the other one gives back", || second.tell(&format!("fill {} w", kind.half)) == "ok");
    second.ok("sync");
    first.end();
    second.end();
    kind.holds("first", 'b', kind.large);
    kind.holds("second", 'w', kind.half);
    kind.nothing_left();
}

/// An epoch that was handed over lost its room to others: the new owner, which had not written, gave it back, and its
/// SYNC failed.
#[test]
fn an_epoch_that_is_handed_over_keeps_its_room() {
    for mut kind in Kind::all("handed") {
        // As in `others_use_a_file_whose_writer_waits`.
        kind.size = kind.size.min(30);
        let kind = kind.with_size();
        let mut first = kind.agent("first");
        first.ok(&format!("fill {} a", kind.large));
        let mut owner = kind.agent_of("first", kind.command("first", program()));
        owner.ok("write 0 aaaa"); // nothing new
        let mut other = kind.agent("other");
        // It needs what the epoch has, and takes all that there is besides.
        other.ask(&format!("fill {} x", kind.half));
        until("it waits for the rest", || kind.wants() > 0);
        owner.ok("sync");
        assert_eq!(other.answer(), "ok", "{}", kind.name);
        for agent in [other, first, owner] {
            agent.end();
        }
        kind.holds("first", 'a', kind.large);
        kind.holds("other", 'x', kind.half);
        kind.nothing_left();
    }
}

/// A writer that waits for what others have borrowed holds up nobody else at its file.
#[test]
fn others_use_a_file_whose_writer_waits() {
    for mut kind in Kind::all("waits") {
        // What is free is not enough, and the share is, also for the whole epoch in a new journal.
        kind.size = kind.size.min(30);
        let kind = kind.with_size();
        let mut first = kind.agent("first");
        first.ok(&format!("fill {} a", kind.large));
        let mut second = kind.agent("second");
        second.each(&["fill 1 y", "sync"]);
        first.stop();
        second.ask(&format!("fill {} y", kind.half));
        until("it waits", || kind.wants() > 0);
        let mut third = kind.agent_of("second", kind.command("second", program()));
        third.ok("write 0 yyyy"); // nothing new
        // Had the second one to give up before, it would not have written all of it.
        first.signal(libc::SIGCONT);
        first.ok("sync");
        assert_eq!(second.answer(), "ok", "{}", kind.name);
        second.ok("sync");
        for agent in [first, second, third] {
            agent.end();
        }
        kind.holds("second", 'y', kind.half);
        kind.nothing_left();
    }
}

/// (f) Without a size: no file of shares, and as much as the journal's own limit.
#[test]
fn a_pool_without_a_size() {
    for kind in Kind::all("none") {
        let mut agent = kind.agent("one");
        agent.each(&["fill 22 a", "sync"]);
        let seen = kind.looks();
        assert!(seen.size.is_none() && seen.applications.is_empty() && seen.used > 22 * MIB, "{seen:?}");
        assert!(kind.pool.names().iter().all(|name| name != "famio.pool"));
        agent.end();
        kind.holds("one", 'a', 22);
        assert!(kind.pool.names().is_empty(), "{:?}", kind.pool.names());
    }
}

/// Processes of one application have one share, and one file of it does not take the room of another.
#[test]
fn files_of_an_application_share_its_share() {
    for kind in Kind::all("files").map(Kind::with_size) {
        let mut other = kind.agent("other");
        other.each(&["fill 1 o", "sync"]);
        let mut first = kind.agent_of("one", kind.command("app", program()));
        let mut second = kind.agent_of("two", kind.command("app", program()));
        first.each(&[&format!("fill {} a", kind.half), "sync"]);
        second.each(&["fill 2 b", "sync"]);
        let seen = kind.looks();
        let app = seen.applications.iter().find(|one| one.name == "app").unwrap();
        assert_eq!((app.processes, app.journals, app.share), (2, 2, kind.size * MIB / 16 * 7), "{}", kind.name);
        first.each(&["fill 2 c", "sync"]);
        for agent in [first, second, other] {
            agent.end();
        }
        kind.holds("two", 'b', 2);
        kind.nothing_left();
    }
}
