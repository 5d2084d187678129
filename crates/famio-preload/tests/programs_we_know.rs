//! Common programs on atomic files.

mod common;

use common::{Folder, succeed, under};
use std::process::Command;

fn there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("{program} is not installed: skipped");
    }
    there
}

#[test]
fn sqlite_inserts_and_stays_sound() {
    if !there("sqlite3") {
        return;
    }
    for journal in ["MEMORY", "OFF", "DELETE", "WAL"] {
        let folder = Folder::new(&format!("sqlite-{journal}"));
        let script = format!(
            "PRAGMA journal_mode={journal}; PRAGMA synchronous=FULL; CREATE TABLE t(a, b);
             BEGIN; WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<2000)
             INSERT INTO t SELECT x, hex(randomblob(50)) FROM n; COMMIT;
             DELETE FROM t WHERE a % 3 = 0; UPDATE t SET b = 'short' WHERE a % 5 = 0; VACUUM; PRAGMA integrity_check;"
        );
        let (out, said) =
            succeed(under(&folder, "sqlite3").env("FAMIO_ATOMIC", "atomic.db").arg("atomic.db").arg(script));
        assert!(out.ends_with("ok\n"), "{journal}: {out}");
        assert_eq!(said, "", "{journal}");
        // Without the library: an ordinary database.
        let check = "SELECT count(*), sum(a) FROM t; PRAGMA integrity_check;";
        let (out, _) = succeed(Command::new("sqlite3").current_dir(folder.path()).arg("atomic.db").arg(check));
        assert_eq!(out, "1334|1334667\nok\n", "{journal}");
        assert_eq!(folder.names(), ["atomic.db"], "{journal}");
    }
}

#[test]
fn python_calls() {
    if !there("python3") {
        return;
    }
    let folder = Folder::new("python");
    let script = r#"
import os, mmap, shutil, tempfile
fd = os.open("atomic", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
assert os.write(fd, b"hello") == 5 and os.lseek(fd, 0, os.SEEK_CUR) == 5
assert os.pwritev(fd, [b"HE", b"L"], 0) == 3 and os.pread(fd, 10, 0) == b"HELlo"
assert os.fstat(fd).st_size == 5 == os.stat("atomic").st_size == os.path.getsize("atomic")
os.ftruncate(fd, 2); os.fsync(fd); os.truncate("atomic", 3)
assert os.pread(fd, 10, 0) == b"HE\0"
again = os.dup(fd); os.close(fd)
os.lseek(again, 0, 0); os.set_inheritable(again, False)
with os.fdopen(again, "r+b") as f:
    f.write(b"from python"); f.flush(); os.fsync(f.fileno()); f.seek(0); assert f.read() == b"from python"
with open("atomic", "a") as f: f.write("!")
assert open("atomic").read() == "from python!"
shutil.copyfile("atomic", "copy"); shutil.copyfile("copy", "atomic2")
assert open("copy").read() == open("atomic2").read() == "from python!"
os.rename("atomic2", "atomic3"); assert open("atomic3").read() == "from python!"; os.unlink("atomic3")
with open("atomic", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[0:4] = b"FROM"; assert f.read(4) == b"FROM"; m.flush()
"#;
    let (_, said) = succeed(under(&folder, "python3").args(["-c", script]));
    assert_eq!(said, "");
    assert_eq!(folder.read("atomic"), b"FROM python!");
    assert_eq!(folder.names(), ["atomic", "copy"]);
}

/// The kernel tells no path of more than a page. Writes and later opens failed.
#[test]
fn a_file_whose_path_is_too_long_is_demoted() {
    if !there("python3") {
        return;
    }
    let folder = Folder::new("deep");
    let script = r#"
import os
for _ in range(21):
    os.mkdir("d" * 200); os.chdir("d" * 200)
for _ in range(2):
    fd = os.open("atomic", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"hello"); os.fsync(fd); os.pwrite(fd, b"HE", 0); os.pwrite(fd, b"O", 4); os.fsync(fd); os.close(fd)
assert open("atomic").read() == "HEllO"
"#;
    let (_, said) = succeed(under(&folder, "python3").args(["-c", script]));
    assert!(said.contains("demoted to an ordinary file") && said.contains("the name is too long"), "{said}");
}

#[test]
fn coreutils_copy_and_show() {
    let folder = Folder::new("coreutils");
    let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
    std::fs::write(folder.path().join("source"), &data).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let (out, said) = succeed(under(&folder, program).args(arguments));
        assert_eq!(said, "", "{program} {arguments:?}");
        out
    };
    run("cp", &["source", "atomic"]);
    assert!(folder.read("atomic") == data);
    run("cp", &["--sparse=always", "atomic", "atomic2"]);
    assert!(folder.read("atomic2") == data);
    // dd reads its standard input, and writes its standard output.
    let dd = |arguments: &[&str]| {
        let (_, said) = succeed(under(&folder, "dd").args(arguments));
        assert!(said.contains("standard stream"), "{said}");
    };
    dd(&["if=atomic", "of=copy", "bs=1000", "status=none"]);
    assert!(folder.read("copy") == data);
    dd(&["if=source", "of=atomic", "bs=4096", "conv=notrunc,fsync", "seek=10", "status=none"]);
    assert_eq!(run("stat", &["-c", "%s", "atomic"]), format!("{}\n", 40_960 + data.len()));
    run("truncate", &["-s", "100", "atomic"]);
    assert!(folder.read("atomic") == data[..100]);
    run("cmp", &["-n", "100", "atomic", "source"]);
    run("sh", &["-c", "cat source > plain; cat atomic2 | cmp - source"]);
    run("sh", &["-c", "printf 'one\\ntwo\\n' | tee atomic > plain"]);
    assert_eq!(run("cat", &["atomic"]), "one\ntwo\n");
    run("mv", &["atomic", "atomic5"]);
    run("tail", &["-n1", "atomic5"]);
    // tee writes by a stream.
    run("sh", &["-c", "echo by a stream | tee atomic6 > /dev/null"]);
    assert_eq!(folder.read("atomic6"), b"by a stream\n");
    assert!(folder.names().iter().all(|name| !name.contains("famio")), "{:?}", folder.names());
}

/// libc's own `stdout` writes past the library: beyond the file's end, not at the kernel's position; the file is
/// demoted, with a notice.
#[test]
fn a_standard_stream_makes_an_ordinary_file() {
    for shell in ["sh", "bash"] {
        let folder = Folder::new(&format!("shell-{shell}"));
        let run = |script: &str| {
            let (_, said) = succeed(under(&folder, shell).args(["-c", script]));
            assert!(said.contains("because of its use as a standard stream"), "{shell}: {script}: {said}");
        };
        run("exec > atomic; echo mine; echo child | cat; echo still mine");
        assert_eq!(folder.read("atomic"), b"mine\nchild\nstill mine\n", "{shell}");
        run("echo one > atomic; echo two >> atomic; (echo three; echo four) >> atomic");
        run("read line < atomic; test $line = one && { cat; echo five; } < atomic > atomic2");
        assert_eq!(folder.read("atomic"), b"one\ntwo\nthree\nfour\n", "{shell}");
        assert_eq!(folder.read("atomic2"), b"one\ntwo\nthree\nfour\nfive\n", "{shell}");
        assert_eq!(folder.names(), ["atomic", "atomic2"]);
    }
}
