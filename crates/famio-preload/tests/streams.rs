//! Streams on atomic files: as on plain ones, and atomic.

mod common;

use common::{Folder, build, same, succeed, under};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn a_stream_is_what_c_promises() {
    assert_eq!(same("streams"), "");
}

/// A record that was read, and is written back after a seek: the next read took it again, without end.
#[test]
fn records_are_updated_in_place() {
    let program = build("streams");
    let folder = Folder::new("streams-records");
    succeed(Command::new(&program).args(["plain", "records"]).current_dir(folder.path()).env_remove("LD_PRELOAD"));
    succeed(under(&folder, &program).args(["atomic", "records"]));
    assert!(folder.read("plain") == folder.read("atomic"));
    let _ = std::fs::remove_file(program);
}

/// One that stays ordinary, too, since only appending is allowed; it began at 0.
#[test]
fn a_stream_that_appends_begins_at_the_end() {
    let program = build("streams");
    let folder = Folder::on_disk("streams-end-of-file");
    let file = folder.path().join("atomic");
    let chattr = |how| Command::new("chattr").arg(how).arg(&file).status().is_ok_and(|status| status.success());
    for only in [false, true] {
        std::fs::write(&file, "begin\n").unwrap();
        if only && !chattr("+a") {
            println!("SKIPPED: no chattr +a here");
            continue;
        }
        let done = under(&folder, &program).args(["atomic", "end"]).output().unwrap();
        assert!(!only || chattr("-a"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(folder.read("atomic"), b"begin\nmore\n");
    }
    let _ = std::fs::remove_file(program);
}

/// Runs random sequences on a plain file and on an atomic one; shows the first line in which they differ.
fn random(name: &str, sequences: u32, more: &[&str]) {
    let program = build("random_streams");
    let folder = Folder::new(name);
    let range = ["1".to_owned(), sequences.to_string()];
    let mut plain = Command::new(&program);
    plain.current_dir(folder.path()).env_remove("LD_PRELOAD");
    let (wanted, _) = succeed(plain.arg("plain").args(&range).args(more));
    let (got, said) = succeed(under(&folder, &program).arg("atomic").args(&range).args(more));
    assert_eq!(said, "");
    // Each sequence begins with its mode, and each line with the number of its sequence.
    assert!(wanted.lines().count() > sequences as usize * 50);
    if let Some((wanted, got)) = wanted.lines().zip(got.lines()).find(|(wanted, got)| wanted != got) {
        panic!("plain:  {wanted}\natomic: {got}");
    }
    assert_eq!(wanted.len(), got.len());
    assert!(folder.read("plain") == folder.read("atomic"));
    assert_eq!(folder.names(), ["atomic", "plain"]);
    let _ = std::fs::remove_file(program);
}

#[test]
fn random_sequences_do_what_they_do_on_a_plain_file() {
    random("streams-random", 3000, &[]);
}

/// A read directly after a write, and a write directly after a read: not allowed, and yet the same.
#[test]
fn random_sequences_without_the_seeks_that_c_asks_for_do_what_they_do_on_a_plain_file() {
    random("streams-loose", 1000, &["loose"]);
}

/// It used to crash, or put bytes in the wrong place.
#[test]
fn what_a_stream_of_ours_is_not_fails() {
    let program = build("streams");
    let folder = Folder::new("streams-own");
    let (_, said) = succeed(under(&folder, &program).args(["atomic", "own"]));
    assert!(said.lines().count() == 3 && said.lines().all(|line| line.contains("freopen(3) refused")), "{said}");
    let _ = std::fs::remove_file(program);
}

#[test]
fn what_a_stream_holds_is_written_at_exit_and_gone_after_a_kill() {
    let program = build("streams");
    let folder = Folder::new("streams-end");
    succeed(under(&folder, &program).args(["atomic", "exit"]));
    assert_eq!(folder.read("atomic"), b"synced\nleft in the buffer\n");
    assert_eq!(folder.names(), ["atomic"]);
    let done = under(&folder, &program).args(["atomic", "kill"]).output().unwrap();
    assert_eq!(done.status.signal(), Some(libc::SIGKILL));
    let (out, _) = succeed(under(&folder, "cat").arg("atomic"));
    assert_eq!(out, "synced\n");
    assert_eq!(folder.names(), ["atomic"]);
    let _ = std::fs::remove_file(program);
}

#[test]
fn streams_of_cpp_use_the_descriptor() {
    let folder = Folder::new("streams-cpp");
    let source = folder.path().join("program.cc");
    std::fs::write(
        &source,
        r#"#include <cassert>
#include <fstream>
#include <string>
int main() {
  { std::ofstream out("atomic"); for (int i = 0; i < 5000; i++) out << "line " << i << '\n'; assert(out.flush()); }
  { std::fstream both("atomic", std::ios::in | std::ios::out); both.seekp(5); both << "X"; both.seekg(0);
    std::string line; assert(std::getline(both, line) && line == "line X"); both.seekg(-10, std::ios::end);
    assert(std::getline(both, line) && line == "line 4999"); }
  { std::ofstream end("atomic", std::ios::app); end << "end\n"; }
  std::ifstream in("atomic"); std::string line; int lines = 0; while (std::getline(in, line)) lines++; assert(lines == 5001);
}
"#,
    )
    .unwrap();
    let program = folder.path().join("program");
    let built = Command::new("c++").args(["-O1", "-o"]).arg(&program).arg(&source).output().expect("c++");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let (_, said) = succeed(under(&folder, &program).arg("atomic"));
    assert_eq!(said, "");
    assert_eq!(folder.read("atomic").iter().filter(|&&byte| byte == b'\n').count(), 5001);
}
