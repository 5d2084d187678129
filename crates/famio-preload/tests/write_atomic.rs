//! Writes that are each atomic and durable: with `atomicity = write`, and if descriptors or calls ask for it.

mod common;

use common::{Folder, build, succeed, under};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const THREADS: usize = 4;
const COMMON: usize = 1 << 16;
const OWN: usize = 1 << 18;

const WAYS: [&str; 5] = ["O_DSYNC", "O_SYNC", "RWF_DSYNC", "RWF_ATOMIC", "write"];

/// A name for folders, whether they are in memory, and the domain.
type Place = (&'static str, bool, &'static str);

const PLACES: [Place; 3] = [("tmpfs", true, ""), ("emulated", true, "emulated"), ("disk", false, "")];

fn folder(name: &str, (place, in_memory, _): Place) -> Folder {
    let name = format!("{name}-{place}");
    if in_memory { Folder::new(&name) } else { Folder::on_disk(&name) }
}

fn program(folder: &Folder, program: &Path, what: &str, how: &str, (.., domain): Place) -> Command {
    let mut command = under(folder, program);
    command.args(["atomic", what, how]);
    if how == "write" {
        command.env("FAMIO_ATOMICITY", "./atomic");
    }
    if !domain.is_empty() {
        command.env("FAMIO_DOMAIN", domain);
    }
    command
}

#[test]
fn what_a_call_has_done_is_there_after_a_kill() {
    let built = build("write_atomic");
    for place in PLACES {
        for how in WAYS {
            for journal in ["auto", "always"] {
                let folder = folder("write-calls", place);
                succeed(program(&folder, &built, "calls", how, place).env("FAMIO_JOURNAL", journal));
            }
        }
    }
    let _ = std::fs::remove_file(built);
}

#[test]
fn statx_tells_what_pwritev2_takes() {
    let built = build("write_atomic");
    for place in PLACES {
        let folder = folder("write-limits", place);
        succeed(&mut program(&folder, &built, "limits", "-", place));
        assert!(folder.names().is_empty(), "{:?}", folder.names());
    }
    let _ = std::fs::remove_file(built);
}

/// The value that all words at an offset have.
fn word_of(bytes: &[u8], at: usize, len: usize, what: &str) -> u64 {
    let words = bytes[at..at + len].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let mut words = words.collect::<Vec<_>>();
    words.dedup();
    assert_eq!(words.len(), 1, "{what}: torn at {at}: {words:x?}");
    words[0]
}

#[test]
fn a_kill_leaves_each_write_whole_or_not_at_all() {
    let built = build("write_atomic");
    let kills = std::env::var("FAMIO_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4);
    for place in PLACES {
        for how in WAYS {
            let folder = folder("write-kills", place);
            for kill in 0..kills {
                let mut child = program(&folder, &built, "forever", how, place).stdout(Stdio::piped()).spawn().unwrap();
                let mut told = child.stdout.take().unwrap();
                let reader = std::thread::spawn(move || {
                    let mut all = Vec::new();
                    told.read_to_end(&mut all).map(|_| all)
                });
                std::thread::sleep(Duration::from_millis(150 + kill * 37 % 100));
                child.kill().unwrap();
                child.wait().unwrap();
                let told = reader.join().unwrap().unwrap();
                let mut last = [0; THREADS];
                for told in told.chunks_exact(16) {
                    let word = |at: usize| u64::from_le_bytes(told[at..at + 8].try_into().unwrap());
                    last[word(0) as usize] = word(8);
                }
                let what = format!("{} {how}, kill {kill}", place.0);
                let shown = under(&folder, "cat").arg("atomic").output().unwrap();
                assert!(shown.status.success(), "{what}: {shown:?}");
                let bytes = shown.stdout;
                assert_eq!(bytes.len(), COMMON * 4 + THREADS * OWN, "{what}");
                assert!(bytes == folder.read("atomic"), "{what}: another file without Famio");
                for (thread, &last) in last.iter().enumerate() {
                    let found = word_of(&bytes, COMMON * 4 + thread * OWN, OWN / 2, &what);
                    // If a thread has reported nothing, the data of the previous program may be there.
                    assert!(found == last || found == last + 1 || last == 0, "{what}: {found}, told {last}");
                }
                word_of(&bytes, 0, COMMON, &what);
            }
        }
    }
    let _ = std::fs::remove_file(built);
}
