//! Groups of files, for unmodified programs: whatever one SYNC or another event commits, both files show the same.

mod common;

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
