//! Groups of files, for unmodified programs: whatever one SYNC or another event commits, both files show the same.

mod common;

use common::agent::{self, Agent};
use common::{Folder, build, under};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const GROUPS: &str = "./atomic-a\n./atomic-b\n./atomic-both\n\n./atomic-both";

/// A name for folders, whether they are in memory, and the domain.
const PLACES: [(&str, bool, &str); 3] = [("tmpfs", true, ""), ("emulated", true, "emulated"), ("disk", false, "")];

fn folder(name: &str, (place, in_memory, _): (&str, bool, &str)) -> Folder {
    let name = format!("{name}-{place}");
    if in_memory { Folder::new(&name) } else { Folder::on_disk(&name) }
}

fn program(folder: &Folder, program: &Path, what: &str, domain: &str) -> Command {
    let mut command = under(folder, program);
    command.arg(what).env("FAMIO_GROUPS", GROUPS);
    if !domain.is_empty() {
        command.env("FAMIO_DOMAIN", domain);
    }
    command
}

/// The number of which both files are full, after a recovery of `first` before the other.
fn number(folder: &Folder, first: &str, what: &str) -> u64 {
    let second = if first == "atomic-a" { "atomic-b" } else { "atomic-a" };
    let [one, other] = [first, second].map(|name| {
        let shown = under(folder, "cat").arg(name).env("FAMIO_GROUPS", GROUPS).output().unwrap();
        assert!(shown.status.success(), "{what}: {shown:?}");
        let mut words: Vec<u64> =
            shown.stdout.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        words.truncate(6000 / 8);
        words.dedup();
        assert!(words.len() <= 1, "{what}: {name} has several: {words:?}");
        words.first().copied().unwrap_or(0)
    });
    assert_eq!(one, other, "{what}: {first} and {second}");
    one
}

fn is_killed(output: &Output) -> bool {
    output.status.signal() == Some(libc::SIGKILL)
}

#[test]
fn a_kill_leaves_both_files_as_of_the_same_sync() {
    let built = build("groups");
    let kills = std::env::var("FAMIO_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8);
    for place in PLACES {
        let folder = folder("groups-kills", place);
        for kill in 0..kills {
            let mut child = program(&folder, &built, "rounds", place.2).stdout(Stdio::piped()).spawn().unwrap();
            let mut told = child.stdout.take().unwrap();
            let mut words = [0; 8];
            told.read_exact(&mut words).unwrap();
            std::thread::sleep(Duration::from_micros(kill * 3701 % 20_000)); // the moment of the kill
            child.kill().unwrap();
            child.wait().unwrap();
            let mut rest = Vec::new();
            told.read_to_end(&mut rest).unwrap();
            let last = rest.chunks_exact(8).last().map_or(words, |word| word.try_into().unwrap());
            let (last, what) = (u64::from_le_bytes(last), format!("{} kill {kill}", place.0));
            let found = number(&folder, ["atomic-a", "atomic-b"][kill as usize % 2], &what);
            assert!(found == last || found == last + 1, "{what}: {found}, told {last}");
        }
    }
    let _ = std::fs::remove_file(built);
}

#[test]
fn whatever_commits_one_file_commits_both() {
    let built = build("groups");
    for place in PLACES {
        for (what, committed) in [
            ("mapped", 2),
            ("forked", 8),
            ("closed", 3),
            ("renamed", 4),
            ("kept", 5),
            ("exited", 9),
            ("executed", 10),
            ("inherited", 11),
        ] {
            let folder = folder(&format!("groups-{what}"), place);
            let output = program(&folder, &built, what, place.2).output().unwrap();
            let what = format!("{} {what}: {}", place.0, String::from_utf8_lossy(&output.stderr));
            assert!(is_killed(&output), "{what}: {:?}", output.status);
            // A map of 4096 bytes: the rest is older.
            let found = if committed == 2 { mapped(&folder, &what) } else { number(&folder, "atomic-b", &what) };
            assert_eq!(found, committed, "{what}");
        }
    }
    let _ = std::fs::remove_file(built);
}

fn mapped(folder: &Folder, what: &str) -> u64 {
    let [a, b] = ["atomic-a", "atomic-b"].map(|name| {
        let shown = under(folder, "cat").arg(name).env("FAMIO_GROUPS", GROUPS).output().unwrap();
        assert!(shown.status.success(), "{what}: {shown:?}");
        shown.stdout
    });
    assert_eq!(a, b, "{what}");
    a.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

#[test]
fn what_would_weaken_the_promise_is_an_error() {
    let built = build("groups");
    for place in PLACES {
        let folder = folder("groups-errors", place);
        let output = program(&folder, &built, "errors", place.2).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(is_killed(&output), "{}: {said}", place.0);
        for part in
            ["can't be demoted", "the files of a group have their journals in one pool", "belongs to two groups"]
        {
            assert!(said.contains(part), "{}: {part}: {said}", place.0);
        }
        assert_eq!(number(&folder, "atomic-a", place.0), 2);
    }
    let _ = std::fs::remove_file(built);
}

/// Runs a test in each place, with processes that have `atomic-a` and `atomic-b` as a group.
fn everywhere(name: &str, test: impl Fn(&Folder, &dyn Fn() -> Agent)) {
    for place in PLACES {
        let folder = folder(&format!("groups-{name}"), place);
        for name in ["atomic-a", "atomic-b"] {
            std::fs::write(folder.path().join(name), ".".repeat(10_000)).unwrap();
        }
        test(&folder, &|| Agent::of(program(&folder, agent::program(), "", place.2)));
        agent::nothing_left(&folder);
    }
}

const BUSY: &str = "Device or resource busy";

/// The map once became writable without ownership: another process committed what was stored there, which the group of
/// this one had not committed.
#[test]
fn a_map_that_becomes_writable_takes_ownership() {
    everywhere("protect", |folder, agent| {
        let [mut a, mut b] = [agent(), agent()];
        b.each(&["open atomic-a", "mapread"]);
        a.each(&["open atomic-a", "write 0 aa"]);
        assert_eq!(b.tell("load 0 4"), "aa..");
        assert_eq!(b.tell("protect"), BUSY);
        a.ok("sync");
        b.each(&["protect", "store 2 bb", "write 4 bb"]);
        // What this process has stored is its own to commit.
        assert_eq!([a.tell("write 9 x"), a.tell("sync")], [BUSY; 2]);
        a.sees(0, "aabbbb..");
        b.kill();
        a.sees(0, "aa......");
        a.each(&["write 9 x", "sync"]);
        a.end();
        assert_eq!(folder.read("atomic-a")[..10], *b"aa.......x");
    });
}

/// The process that had changed the file beside a map of another one once kept it until it closed it.
#[test]
fn a_committed_file_is_handed_over_though_it_was_mapped_for_reading() {
    everywhere("was-mapped", |folder, agent| {
        let [mut a, mut b, mut c] = [agent(), agent(), agent()];
        b.each(&["look atomic-a", "mapread"]);
        a.each(&["open atomic-a", "write 0 aa", "sync"]);
        assert_eq!(b.tell("load 0 4"), "aa..");
        c.each(&["open atomic-a", "write 2 cc"]);
        assert_eq!(b.tell("load 0 6"), "aacc..");
        c.ok("sync");
        b.ok("unmap");
        b.end();
        a.each(&["write 4 aa", "sync"]);
        c.each(&["write 6 cc", "sync"]);
        a.end();
        c.end();
        assert_eq!(folder.read("atomic-a")[..10], *b"aaccaacc..");
    });
}

/// Such a map once needed ownership: it failed as long as another process stored, and always without a descriptor for
/// writing.
#[test]
fn a_file_is_mapped_for_reading_while_another_process_stores() {
    everywhere("readers", |folder, agent| {
        let [mut a, mut b, mut c] = [agent(), agent(), agent()];
        a.each(&["open atomic-a", "map", "store 0 aa"]);
        b.each(&["look atomic-a", "mapread"]);
        c.each(&["open atomic-a", "mapread"]);
        a.ok("store 2 aa");
        assert_eq!([b.tell("load 0 6"), c.tell("load 0 6")], ["aaaa.."; 2]);
        assert_eq!([c.tell("protect"), c.tell("write 4 c")], [BUSY; 2]);
        // Its stores are committed, and it does not store any more.
        a.each(&["unmap", "sync"]);
        c.each(&["protect", "store 4 cc", "sync"]);
        assert_eq!(b.tell("load 0 8"), "aaaacc..");
        assert_eq!(a.tell("write 6 a"), BUSY);
        [c, b, a].into_iter().for_each(Agent::end);
        assert_eq!(folder.read("atomic-a")[..8], *b"aaaacc..");
    });
}
