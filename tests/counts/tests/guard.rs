//! The guard can fail: one path, compared with counts that were changed by hand.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A path of the crate, which needs no interposer.
const PATH: &str = "transaction";

/// The guard's output for a file, and its exit status.
fn guard(file: &Path, options: &[&str]) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio-counts"));
    let output = command.args(["--only", PATH, "--file"]).arg(file).args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (said.into_owned(), output.status.code().unwrap())
}

/// A copy of the counts, multiplied by `factor`.
fn doctored(file: &Path, factor: f64) -> PathBuf {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(PATH)).unwrap();
    let count: f64 = line.split_whitespace().last().unwrap().parse().unwrap();
    assert!(count > 100.0, "{line}");
    let copy = file.with_extension(format!("{factor}.txt"));
    std::fs::write(&copy, text.replace(line, &format!("{PATH} {}", count * factor))).unwrap();
    copy
}

#[test]
fn a_path_that_has_grown_fails() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("counts-{}.txt", std::process::id()));
    let (said, status) = guard(&file, &["--bless"]);
    if said.contains("SKIPPED") {
        eprint!("{said}");
        return;
    }
    assert!(status == 0 && said.contains("has the counts of 1 paths"), "{said}");

    let (said, status) = guard(&file, &[]);
    assert!(status == 0 && said.ends_with("counts: 1 paths, none has grown\n"), "{said}");

    let (said, status) = guard(&doctored(&file, 0.9), &[]);
    assert!(status == 1 && said.ends_with("NOT OK\n"), "{said}");
    assert!(said.contains("counts: transaction: more than 5 % more instructions. If that is meant"), "{said}");

    let (said, status) = guard(&doctored(&file, 1.1), &[]);
    assert!(status == 0 && said.contains("counts: transaction: more than 5 % fewer instructions"), "{said}");

    // Of another compiler: no comparison is possible.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("rustc: ", "rustc: another ")).unwrap();
    let (said, status) = guard(&file, &[]);
    assert!(status == 0 && said.contains("SKIPPED") && said.contains("rustc: another"), "{said}");

    // A path that no longer exists, and one without a count.
    std::fs::write(&file, text.replace(PATH, "no-such-path")).unwrap();
    let (said, status) = guard(&file, &[]);
    assert!(status == 1 && said.contains("transaction: not in") && said.contains("no-such-path: in "), "{said}");
    for factor in [0.9, 1.1] {
        std::fs::remove_file(file.with_extension(format!("{factor}.txt"))).unwrap();
    }
    std::fs::remove_file(file).unwrap();
}
