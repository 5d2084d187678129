//! Streams on atomic files: as on plain ones, and atomic.

mod common;

use common::{Folder, build, same, succeed, under};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn a_stream_is_what_c_promises() {
    assert_eq!(same("streams"), "");
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
