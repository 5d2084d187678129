//! The short form of `famio-kill containers`; ten minutes of it are part of `make test-long`.

use std::process::Command;

/// Runs it. `None`: there can be no containers here, which is said.
fn containers(options: &[&str]) -> Option<(bool, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio-kill"));
    let output = command.arg("containers").args(options).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.code() {
        Some(77) => {
            eprintln!("NOT TESTED: {said}");
            None
        }
        code => Some((code == Some(0), said)),
    }
}

/// Other tests use the machine meanwhile: what a commit may take is measured by the long form.
#[test]
fn nothing_is_lost_and_no_share_exceeded() {
    let options = ["--for", "5s", "--kills", "2", "--size", "24", "--file", "12", "--limit", "10s"];
    if let Some((is_right, said)) = containers(&options) {
        assert!(is_right, "{said}");
        assert!(said.contains(" kills ("), "{said}");
    }
}

/// What a kill leaves of an epoch that is not committed is found, also in what Famio recovers.
#[test]
fn with_on_kill_keep_epochs_are_torn() {
    let options = ["--for", "20s", "--kills", "3", "--size", "24", "--file", "12", "--", "--on-kill", "keep"];
    if let Some((is_right, said)) = containers(&options) {
        assert!(!is_right && said.contains(" torn") && !said.contains(" 0 torn"), "{said}");
        let kept = said.lines().find_map(|line| line.strip_prefix("left for a look: ")).unwrap();
        assert!(std::path::Path::new(kept).join("pool/famio.pool").exists(), "{said}");
        std::fs::remove_dir_all(kept).unwrap();
    }
}

/// A test that finds nothing here proves nothing.
#[test]
fn without_famio_epochs_are_torn() {
    if let Some((is_right, said)) = containers(&["--for", "20s", "--kills", "5", "--file", "12", "--without-famio"]) {
        assert!(is_right, "{said}");
    }
}
