//! The command's output, and where it goes.

#[path = "common/documented.rs"]
mod documented;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn famio(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAMIO_") {
            command.env_remove(name);
        }
    }
    command.current_dir(folder);
    command
}

fn said(output: &Output) -> String {
    format!(
        "{}{}status {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status.code().unwrap_or(-1)
    )
}

/// It used to be a panic.
#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.db"), "x").unwrap();
    let commands: [&[&str]; 9] = [
        &["status", "."],
        &["status", "--json", "."],
        &["check", "."],
        &["recover", "."],
        &["flush", "."],
        &["doctor", "."],
        &["run", "--dry-run", "--atomic", "a.db", "--", "true"],
        &["--help"],
        &["bench", "io", "--help"],
    ];
    for args in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = famio(folder.path()).args(args).stdout(full).output().unwrap();
        let said = said(&output);
        assert!(said.ends_with("status 1") && !said.contains("panicked"), "{args:?}: {said}");
    }
}

#[test]
fn a_reader_that_has_left_ends_the_command_quietly() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["status", "."][..], &["doctor", "."]] {
        let mut child = famio(folder.path()).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.stderr.is_empty(), "{args:?}: {}", said(&output));
    }
}

/// Lines broken in the source used to be broken again on a terminal of 80 columns.
#[test]
fn help_fits_a_terminal_and_is_broken_once() {
    const WIDTH: usize = 80;
    let folder = tempfile::tempdir().unwrap();
    let commands = [
        "run", "recover", "flush", "forget", "check", "status", "ps", "backup", "restore", "stats", "metrics", "top",
        "doctor", "pool", "torture", "trace", "bench",
    ];
    // Examples are never broken.
    for command in commands.iter().copied() {
        let output = famio(folder.path()).args([command, "--help"]).env("COLUMNS", "100").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let examples = text.lines().skip_while(|line| *line != "Examples:").skip(1);
        for line in examples {
            assert!(line.chars().count() <= WIDTH && line.starts_with("  "), "{command:?}: {line}");
        }
    }
    for command in commands.iter().copied().map(Some).chain([None]) {
        let output =
            famio(folder.path()).args(command).arg("--help").env("COLUMNS", WIDTH.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let (line, next) = (pair[0], pair[1]);
            assert!(line.chars().count() <= WIDTH, "{command:?}: {line}");
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            let first = next.split(' ').next().unwrap_or_default();
            let would_fit = line.chars().count() + 1 + first.chars().count() <= WIDTH;
            assert!(
                !(is_prose(line) && is_prose(next) && would_fit),
                "{command:?}: '{line}' ends early before '{next}'"
            );
        }
    }
}

/// As installed by `cargo install`.
#[test]
fn a_command_without_its_library_says_where_that_is_to_be_had() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    let alone = folder.path().join("bin/famio");
    // A hard link, not a copy: while another test forks, a file just written cannot be executed.
    std::fs::hard_link(env!("CARGO_BIN_EXE_famio"), &alone).unwrap();
    let mut command = Command::new(alone);
    command.args(["run", "--no-config", "--atomic", "a.db", "--", "true"]).env_remove("FAMIO_PRELOAD");
    let said = said(&command.output().unwrap());
    assert!(said.contains("lib/famio/libfamio_preload.so") && said.contains("make install PREFIX="), "{said}");
    assert!(said.ends_with("status 125"), "{said}");
}

/// The fields of each command's JSON are exactly those in docs/json.md.
#[test]
fn json_is_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.db"), "x").unwrap();
    let journal = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a.journal";
    let commands: [(&str, &[&str]); 10] = [
        ("stats", &["stats", "--json"]),
        ("bench io", &["bench", "io", "--json", "--control", "--size", "1", "--rounds", "1", "--calls", "5"]),
        ("check", &["check", "--json", "a.db"]),
        ("check", &["check", "--json", "nosuch"]),
        ("recover", &["recover", "--json", "a.db"]),
        ("recover", &["recover", "--json", "nosuch"]),
        ("forget", &["forget", "--json", journal]),
        ("doctor", &["doctor", "--json", "."]),
        ("doctor", &["doctor", "--json", "--", "true"]),
        ("run", &["run", "--dry-run", "--json", "--no-config", "--atomic", "a.db"]),
    ];
    for (command, args) in commands {
        let output = famio(folder.path()).args(args).output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        if command == "run" && text.is_empty() && !output.stderr.is_empty() {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr)); // the library is not built
            continue;
        }
        assert!(output.stderr.is_empty(), "{args:?}: {}", said(&output));
        let value: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"));
        documented::all_are_in(&documented::section(&format!("## `famio {command} ")), command, &value);
    }
}

#[test]
fn completions_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = famio(folder.path()).args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
        let script = String::from_utf8(output.stdout).unwrap();
        for word in [
            "run",
            "recover",
            "forget",
            "check",
            "status",
            "ps",
            "stats",
            "metrics",
            "top",
            "doctor",
            "torture",
            "trace",
            "bench",
            "no-config",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        if shell == "bash" {
            let file = folder.path().join("script");
            std::fs::write(&file, script).unwrap();
            assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
        }
    }
}

/// Examples stay on lines of their own, and groff reports nothing.
#[test]
fn manual_pages_are_made_of_the_help() {
    let folder = tempfile::tempdir().unwrap();
    let output = famio(folder.path()).args(["man", "."]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let pages: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().path()).collect();
    for name in ["famio", "famio-run", "famio-forget", "famio-status", "famio-bench-io"] {
        let text = std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        assert!(text.contains(".SH EXAMPLES\n.nf\n  famio "), "{name}: {text}");
    }
    assert!(!folder.path().join("famio-man.1").exists());
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/famio.toml.5").into();
    for page in pages.into_iter().chain([own]) {
        let Ok(output) = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page).output() else {
            eprintln!("SKIPPED: groff is not installed");
            return;
        };
        assert!(output.status.success() && output.stderr.is_empty(), "{}: {}", page.display(), said(&output));
    }
}

/// The page lists every key of `famio.toml`, and no other.
#[test]
fn the_page_of_the_configuration_has_its_keys() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/famio.toml.5")).unwrap();
    let page = page.replace("\\-", "-");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("famio.toml"), "nonsense = 1\n").unwrap();
    let output = famio(folder.path()).args(["status", "."]).output().unwrap();
    let said = said(&output);
    let (_, keys) = said.split_once("expected one of ").expect(&said);
    let keys: Vec<_> = keys.split('`').skip(1).step_by(2).collect();
    let documented: Vec<_> = page.split(".TP\n.B ").skip(1).map(|text| text.lines().next().unwrap()).collect();
    let sorted = |mut names: Vec<_>| {
        names.sort_unstable();
        names.into_iter().map(String::from).collect::<Vec<String>>()
    };
    assert_eq!(sorted(keys), sorted(documented));
}

/// A file's name could clear the screen, or add a line to the output.
#[test]
fn names_of_files_are_no_commands_for_a_terminal() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let name = "a\u{1b}[2J\nfamio: all is well";
    std::fs::write(folder.path().join(name), "x").unwrap();
    let commands: [&[&str]; 8] = [
        &["status", name],
        &["status", "--color=always", "none\u{1b}[2J"],
        &["check", name],
        &["recover", name],
        &["doctor", name],
        &["forget", name],
        &["backup", name, "copy\u{1b}[2J\nfamio: all is well"],
        &["restore", "none\u{1b}[2J", name],
    ];
    for args in commands {
        let said = said(&famio(folder.path()).args(args).output().unwrap());
        assert!(!said.contains("\u{1b}[2J"), "{args:?}: {said}");
    }
    for command in ["check", "recover", "doctor", "forget"] {
        let said = said(&famio(folder.path()).args([command, name]).output().unwrap());
        assert!(!said.contains("\nfamio: all is well"), "{command}: {said}");
    }
}

#[test]
fn no_row_of_doctor_is_a_head() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let output = famio(folder.path()).args(["doctor", ".", "--color", "always"]).output().unwrap();
    assert!(!said(&output).contains('\u{1b}'), "{}", said(&output));
}

/// The variable used to be checked first.
#[test]
fn a_variable_that_the_command_line_overrides_is_not_looked_at() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(folder.path().join("a.db"), "x").unwrap();
    let run = |args: &[&str]| {
        let mut command = famio(folder.path());
        command.env("FAMIO_POLICY", "maybe").args(["run", "--dry-run", "--no-config", "--atomic", "a.db"]);
        said(&command.args(args).args(["--", "true"]).output().unwrap())
    };
    let refused = run(&[]);
    assert!(refused.contains("FAMIO_POLICY: 'maybe' is not one of") && refused.ends_with("status 125"), "{refused}");
    let obeyed = run(&["--policy", "redo"]);
    assert!(obeyed.contains("redo") && obeyed.ends_with("status 0"), "{obeyed}");
}
