//! Which files a glob selects, and what `famio run` reports about other files: with the real library.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

/// Writes each file in its arguments; `-FILE` is not synced, `=FILE` is synced by `msync`, `+FILE` by `O_SYNC`,
/// `<FILE` is only read.
const WRITER: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    char how = argv[i][0];
    const char *name = argv[i] + (how == '-' || how == '=' || how == '+' || how == '<');
    char text[5];
    int fd = how == '<' ? open(name, O_RDONLY) : open(name, O_RDWR | O_CREAT | (how == '+' ? O_SYNC : 0), 0644);
    if (fd < 0) return 3;
    if (how == '<') {
      if (read(fd, text, 5) < 0) return 4;
    } else if (write(fd, "hello", 5) != 5) {
      return 4;
    } else if (how == '=') {
      char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      map[0] = 'H';
      if (msync(map, 4096, MS_SYNC)) return 5;
    } else if (how != '-' && how != '+' && fsync(fd)) {
      return 5;
    }
    if (close(fd)) return 6;
  }
  return getenv("STATUS") ? atoi(getenv("STATUS")) : 0;
}
"#;

struct Place(tempfile::TempDir);

impl Place {
    /// None: the library is not built.
    fn new() -> Option<Self> {
        common::built("libfamio_preload.so")?;
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::write(place.path("writer.c"), WRITER).unwrap();
        for (name, options) in [("w", &[][..]), ("static", &["-static"][..])] {
            let mut command = Command::new("cc");
            command.args(options).arg("-o").arg(place.path(name)).arg(place.path("writer.c"));
            assert!(command.status().unwrap().success());
        }
        std::fs::create_dir(place.path("data")).unwrap();
        std::fs::create_dir(place.path("home")).unwrap();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn famio(&self) -> Command {
        let mut command = common::famio();
        command.current_dir(self.path("")).env("HOME", self.path("home")).env("XDG_RUNTIME_DIR", self.path("home"));
        command
    }

    /// Runs it; returns exit status and output, with `$` for the folder.
    fn run(&self, args: &[&str]) -> (i32, String) {
        self.said(self.famio().arg("run").args(args).output().unwrap())
    }

    fn said(&self, output: Output) -> (i32, String) {
        let text = String::from_utf8(output.stderr).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(self.path("home")).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("famio-run-")), "{left:?}: {text}");
        (
            output.status.code().unwrap_or(-1),
            text.replace(&format!("{}/", self.path("").to_string_lossy().trim_end_matches('/')), "$/"),
        )
    }

    #[track_caller]
    fn says(&self, args: &[&str], status: i32, lines: &[&str]) {
        let (code, said) = self.run(args);
        let expected: String = lines.iter().map(|line| format!("famio: {line}\n")).collect();
        assert_eq!((code, said.as_str()), (status, expected.as_str()), "{args:?}");
    }

    /// Whether the glob selects the file, according to `--verbose`.
    #[track_caller]
    fn selects(&self, glob: &str, file: &str) -> bool {
        let (code, said) = self.run(&["--verbose", "--atomic", glob, "--", "./w", file]);
        assert_eq!(code, 0, "{said}");
        said.contains(&format!("selected: $/{file} by --atomic "))
    }
}

#[test]
fn a_glob_that_selects_nothing_is_said() {
    let Some(place) = Place::new() else { return };
    let unprotected = "not protected: $/app.db was written and synced, and no glob selects it";
    let nothing = "--atomic '*.sqlite' selected no file that the program wrote";
    place.says(&["--atomic", "*.sqlite", "./w", "app.db"], 0, &[unprotected, nothing]);
    place.says(&["--atomic", "*.sqlite", "./w", "=app.db"], 0, &[unprotected, nothing]);
    place.says(&["--atomic", "*.sqlite", "./w", "+app.db"], 0, &[unprotected, nothing]);
    // Without a SYNC nothing was promised for the file; still, the glob is idle.
    place.says(&["--atomic", "*.sqlite", "./w", "-app.db"], 0, &[nothing]);
    place.says(&["--atomic", "app.db", "./w", "app.db"], 0, &[]);
    place.says(&["--atomic", "app.db", "./w", "-app.db"], 0, &[]);
    place.says(&["--atomic", "app.db", "./w", "app.db", "other"], 0, &[]);
    place.says(&["--atomic", "app.db", "./w", "<app.db"], 0, &[]);
    place.says(
        &["--atomic", "app.db", "./w", "<app.db", "other"],
        0,
        &[
            "not protected: $/other was written and synced, and no glob selects it",
            "--atomic app.db selected no file that the program wrote, only files that it read",
        ],
    );
    place.says(
        &["--atomic", "*.sqlite", "--", "./w", "1", "2", "3", "4", "5"],
        0,
        &[
            "not protected: $/1, $/2, $/3 and 2 more files were written and synced, and no glob selects any of them",
            nothing,
        ],
    );
    let file = format!("atomic 'no*' of {} selected no file that the program wrote", "$/famio.toml");
    std::fs::write(place.path("famio.toml"), "atomic = ['no*']\n").unwrap();
    place.says(&["--atomic", "app.db", "./w", "app.db"], 0, &[&file]);
}

/// Coreutils close standard error in an exit handler: the report was lost, and with `--require` the status was 125
/// without a reason.
#[test]
fn programs_that_close_standard_error_at_their_end_are_reported_on() {
    let Some(place) = Place::new() else { return };
    std::fs::write(place.path("source"), "text").unwrap();
    let nothing = "--atomic '*.sqlite' selected no file that the program wrote";
    for program in [&["cp", "source", "copy"][..], &["dd", "if=source", "of=copy", "status=none"], &["touch", "new"]] {
        place.says(&[&["--atomic", "*.sqlite", "--"], program].concat(), 0, &[nothing]);
        let failed = "--require: an exit status of 0 becomes 125";
        place.says(&[&["--require", "--atomic", "*.sqlite", "--"], program].concat(), 125, &[nothing, failed]);
    }
    // A program that closes it itself does not mean to say anything more.
    place.says(&["--atomic", "*.sqlite", "--", "bash", "-c", "exec 2>&-; exit 0"], 0, &[]);
}

/// A duplicate of standard error that was kept for the report kept its reader from seeing the end.
#[test]
fn a_program_that_waits_for_the_reader_of_its_standard_error_ends() {
    let Some(place) = Place::new() else { return };
    std::fs::write(place.path("waits.c"), WAITS).unwrap();
    let mut command = Command::new("cc");
    command.arg("-o").arg(place.path("waits")).arg(place.path("waits.c"));
    assert!(command.status().unwrap().success());
    place.says(&["--atomic", "app.db", "--", "./waits"], 0, &[]);
}

const WAITS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static pid_t reader;
static void at_end(void) {
  int status;
  close(2);
  waitpid(reader, &status, 0);
}
int main(void) {
  int ends[2], fd;
  atexit(at_end);
  if (pipe(ends)) return 1;
  reader = fork();
  if (reader == 0) {
    dup2(ends[0], 0);
    close(ends[0]);
    close(ends[1]);
    execlp("cat", "cat", NULL);
  }
  close(ends[0]);
  dup2(ends[1], 2);
  close(ends[1]);
  fd = open("app.db", O_RDWR | O_CREAT, 0644);
  if (write(fd, "x", 1) != 1 || fsync(fd) || close(fd)) return 2;
  fprintf(stderr, "hello\n");
}
"#;

/// Such a file was written without protection, and the run succeeded.
#[test]
fn with_require_a_standard_stream_is_refused() {
    let Some(place) = Place::new() else { return };
    for program in [&["sh", "-c", "echo x > app.db"][..], &["dd", "if=writer.c", "of=app.db", "status=none"]] {
        let (code, said) = place.run(&[&["--require", "--atomic", "app.db", "--"], program].concat());
        assert_ne!(code, 0, "{said}");
        let why = "it is to be protected (require), and can't be demoted to an ordinary file because of its use as a standard stream";
        assert!(said.contains(why), "{program:?}: {said}");
        assert_eq!(std::fs::read(place.path("app.db")).unwrap(), b"", "{program:?}");
    }
    // What standard output was stays open.
    let script = "import os; fd = os.open('app.db', os.O_RDWR | os.O_CREAT)\ntry: os.dup2(fd, 1)\nexcept OSError: os.fstat(1); os._exit(7)";
    assert_eq!(place.run(&["--require", "--atomic", "app.db", "--", "python3", "-c", script]).0, 7);
}

#[test]
fn what_was_nearly_selected_is_said() {
    let Some(place) = Place::new() else { return };
    place.says(
        &["--atomic", "App.db", "./w", "app.db"],
        0,
        &[
            "not protected: $/app.db (nearly --atomic App.db) was written and synced, and no glob selects it",
            "--atomic App.db selected no file that the program wrote; it nearly selected $/app.db, except for the case of letters",
        ],
    );
    place.says(
        &["--atomic", "./app.db", "./w", "data/app.db"],
        0,
        &[
            "not protected: $/data/app.db (nearly --atomic ./app.db) was written and synced, and no glob selects it",
            "--atomic ./app.db selected no file that the program wrote; it nearly selected $/data/app.db, in another folder",
        ],
    );
}

#[test]
fn globs_mean_what_a_shell_user_expects() {
    let Some(place) = Place::new() else { return };
    for (glob, file, selected) in [
        ("{app,log}.db", "log.db", true),
        ("{app,log}.db", "other.db", false),
        ("./{data/{a,b},c}.db", "data/b.db", true),
        ("./{data/{a,b},c}.db", "c.db", true),
        (r"\{a\,b\}.db", "{a,b}.db", true),
        (r"a\,b.db", "a,b.db", true),
        ("data", "data/x", true),
        ("data/", "data/y", true),
        ("~", "home/x", true),
        ("~/x.db", "home/x.db", true),
        ("./data/*.db", "data/z.db", true),
        ("./data/*.db", "z.db", false),
    ] {
        assert_eq!(place.selects(glob, file), selected, "{glob} {file}");
    }
    for (glob, word) in [
        ("a.db,b.db", "{a.db,b.db}"),
        ("{a,b", "'{' without '}'"),
        ("a[b", "'[' without ']'"),
        ("{1..3}.db", "{1,2,3}"),
        ("~nobody/a.db", "your own home"),
        ("a**b", "**"),
    ] {
        let (code, said) = place.run(&["--atomic", glob, "./w", "x"]);
        assert!(code == 125 && said.contains(word) && said.lines().count() == 1, "{glob}: {code} {said}");
    }
    assert!(!place.path("x").exists());
}

/// One warning for all processes of a run, at its end.
#[test]
fn a_run_has_one_voice() {
    let Some(place) = Place::new() else { return };
    let script = "./w a.db; ./w b.db & wait; (./w c.db)";
    place.says(&["--atomic", "{a,b,c}.db", "sh", "-c", script], 0, &[]);
    place.says(
        &["--atomic", "no", "sh", "-c", script],
        0,
        &[
            "not protected: $/a.db, $/b.db and $/c.db were written and synced, and no glob selects any of them",
            "--atomic no selected no file that the program wrote",
        ],
    );
    // A process that still runs when the first one ends may yet write the file; the last process reports that none
    // did.
    let script = "(read line; ./w data/x) <fifo & exec 3>fifo; exit 0";
    assert!(Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
    let output = place.famio().args(["run", "--atomic", "data/", "sh", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // A nested run reports about its own processes.
    let me = env!("CARGO_BIN_EXE_famio");
    let (code, said) = place.run(&["--atomic", "no", "--", me, "run", "--atomic", "a.db", "--", "./w", "a.db"]);
    let line = "famio: FAMIO_ATOMIC no selected no file that the program wrote\n";
    assert!(code == 0 && said.ends_with(line) && said.matches("selected no file").count() == 1, "{code} {said}");
}

/// The command died of SIGXFSZ, and left the folder of its record.
#[test]
fn a_limit_on_file_sizes_leaves_no_record() {
    let Some(place) = Place::new() else { return };
    let limited = |options: &str| {
        let run = format!("ulimit -f 8; exec {} run {options} --atomic x.db ./w x.db", env!("CARGO_BIN_EXE_famio"));
        let mut famio = place.famio();
        let settings = famio.arg("x").get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)));
        let mut shell = Command::new("sh");
        shell.current_dir(place.path("")).args(["-c", &run]);
        for (name, value) in settings.filter_map(|(name, value)| Some((name, value?))) {
            shell.env(name, value);
        }
        // Which also checks that no record is left.
        place.said(shell.output().unwrap())
    };
    let (status, said) = limited("");
    assert_eq!(status, 0, "{said}");
    assert_eq!(std::fs::read(place.path("x.db")).unwrap(), b"hello");
    let (status, said) = limited("--require");
    assert!(status == 125 && said.contains("ulimit -f"), "{status}: {said}");
}

#[test]
fn programs_that_lose_the_library_are_named() {
    let Some(place) = Place::new() else { return };
    let lost = |programs: &str| format!("a part of the run was without Famio: {programs}");
    let idle = "--atomic app.db selected no file that the program wrote";
    let cleaned = "$/w (its environment has no LD_PRELOAD or FAMIO_ATOMIC)";
    place.says(&["--atomic", "app.db", "--", "env", "-i", "./w", "app.db"], 0, &[&lost(cleaned), idle]);
    let both = lost(&format!("{cleaned} and $/static (statically linked)"));
    let script = "env -i ./w app.db; ./static x; ./static y; true";
    place.says(&["--atomic", "app.db", "sh", "-c", script], 0, &[&both, idle]);
    place.says(
        &["--atomic", "app.db", "sh", "-c", "./static x; ./w app.db"],
        0,
        &[&lost("$/static (statically linked)")],
    );
    // A program that could not be started was not part of the run.
    let (code, said) = place.run(&["--atomic", "app.db", "sh", "-c", "env -i ./nothing; ./w app.db"]);
    assert!(code == 0 && said.contains("nothing") && !said.contains("Famio"), "{code} {said}");
}

#[test]
fn require_makes_it_an_error() {
    let Some(place) = Place::new() else { return };
    let run = |args: &[&str]| place.run(&[&["--require"], args].concat());
    let instead = "famio: --require: exit status 125 instead of 0\n";
    assert_eq!(run(&["--atomic", "app.db", "./w", "app.db"]), (0, String::new()));
    for args in [
        &["--atomic", "no.db", "./w", "-app.db"][..],
        &["--atomic", "no.db", "./w", "app.db"],
        &["--atomic", "app.db", "sh", "-c", "./w app.db; ./static x"],
        &["--atomic", "app.db", "sh", "-c", "./w app.db; env -i ./w x"],
    ] {
        let (code, said) = run(args);
        assert!(code == 125 && said.ends_with(instead), "{args:?}: {code} {said}");
    }
    // The program's own failure is kept.
    let (code, said) = run(&["--atomic", "no.db", "env", "STATUS=7", "./w", "-app.db"]);
    assert!(code == 7 && !said.contains(instead), "{code} {said}");
    // Output in libc's buffer is not lost.
    let output = place.famio().args(["run", "--require", "--atomic", "no.db", "echo", "text"]).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(125), "text\n"));
    // A program that would run without the library is not started.
    let (code, said) = run(&["--atomic", "app.db", "env", "-i", "./w", "unstarted"]);
    assert!(code == 125 && said.contains("not started") && !place.path("unstarted").exists(), "{code} {said}");
    // Known beforehand.
    for (glob, word) in
        [("./none/app.db", "no folder"), ("/proc/app.db", "can't be protected"), ("/proc/*", "can't be protected")]
    {
        let (code, said) = run(&["--atomic", glob, "./w", "unstarted"]);
        assert!(code == 125 && said.contains(word) && !place.path("unstarted").exists(), "{glob}: {code} {said}");
    }
    std::fs::write(place.path("famio.toml"), "require = true\n").unwrap();
    assert_eq!(place.run(&["--atomic", "no.db", "./w", "-app.db"]).0, 125);
}

#[test]
fn a_dry_run_shows_what_is_selected() {
    let Some(place) = Place::new() else { return };
    for file in ["a.db", "data/b.db", "data/c.txt"] {
        std::fs::write(place.path(file), "").unwrap();
    }
    std::fs::write(place.path("famio.toml"), "atomic = ['data']\npolicy = 'redo'\n").unwrap();
    let dry = |args: &[&str]| {
        let output = place.famio().arg("run").arg("--dry-run").args(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text.replace(&place.path("").to_string_lossy().into_owned(), "$/"))
    };
    let (code, text) = dry(&["--atomic", "./{a,b}.db", "--", "./w", "unstarted"]);
    assert_eq!(code, 0, "{text}");
    for line in [
        "--atomic './{a,b}.db'\n  stands for $/a.db\n  stands for $/b.db\n  matches 1 file now\n    $/a.db\n",
        "atomic data of $/famio.toml\n  stands for $/data/**\n  matches 2 files now\n    $/data/b.db\n    $/data/c.txt\n",
        "  policy: redo (policy of $/famio.toml)\n",
        "  durability: power (default)\n",
        "program\n  ./w: can be entered\n",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    assert!(!place.path("unstarted").exists());
    let (code, text) = dry(&["--atomic", "*.none"]);
    assert!(code == 1 && text.contains("matches no file now"), "{code} {text}");
    assert_eq!(dry(&["--atomic", "a.db", "./static"]).0, 125);
}

#[test]
fn a_configuration_is_named_and_can_be_left_out() {
    let Some(place) = Place::new() else { return };
    std::fs::write(place.path("a.db"), "").unwrap();
    std::fs::write(place.path("famio.toml"), "atomic = ['data']\npolicy = 'redo'\n").unwrap();
    let out = |args: &[&str]| {
        let output = place.famio().args(args).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat())
            .unwrap()
            .replace(&place.path("").to_string_lossy().into_owned(), "$/")
    };
    let dry = ["run", "--dry-run", "--atomic", "a.db"];
    let with = out(&dry);
    assert!(
        with.contains("  config: $/famio.toml (read; --no-config leaves it out)\n") && with.contains("data"),
        "{with}"
    );
    let without = out(&[&dry[..], &["--no-config"]].concat());
    assert!(without.contains("  config: no famio.toml (default)\n"), "{without}");
    assert!(!without.contains("data") && without.contains("policy: auto (default)"), "{without}");
    let verbose = out(&["run", "--verbose", "--atomic", "a.db", "--", "./w", "a.db"]);
    assert!(verbose.contains("setting: config: $/famio.toml"), "{verbose}");
    assert!(out(&["doctor"]).contains("config: $/famio.toml"));
    assert!(!out(&["doctor", "--no-config"]).contains("famio.toml"));
    let both = out(&["run", "--no-config", "--config", "famio.toml", "--atomic", "a.db", "./w"]);
    assert!(both.contains("cannot be used with"), "{both}");
}

/// `--atomic data/*.db prog` without quotes runs `data/b.db`.
#[test]
fn a_glob_without_quotes_is_recognised() {
    let Some(place) = Place::new() else { return };
    for file in ["a.db", "b.db", "data/a.db", "data/b.db", "data/c.db"] {
        std::fs::write(place.path(file), "").unwrap();
    }
    for (first, others, status) in
        [("data/a.db", &["data/b.db", "data/c.db"][..], 126), ("a.db", &["b.db"], 127), ("./a.db", &["./b.db"], 126)]
    {
        for end in [&["./w", "x"][..], &["--", "./w", "x"]] {
            let (code, said) = place.run(&[&["--atomic", first][..], others, end].concat());
            assert!(code == status && said.contains("put the glob in quotes"), "{first}: {code} {said}");
            assert!(said.contains(others[0]) && said.contains(&format!("{first} went to --atomic")), "{said}");
        }
    }
    let (code, said) = place.run(&["--atomic", "data/a.db", "--", "b.db"]);
    assert!(code == 127 && !said.contains("quotes"), "{code} {said}");
}

#[test]
fn doctor_says_what_selects_a_file() {
    let Some(place) = Place::new() else { return };
    let doctor = |globs: &str, path: &str| {
        let output = place.famio().env("FAMIO_ATOMIC", globs).args(["doctor", path]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let is_told = |line: &&str| ["selected", "glob "].iter().any(|topic| line.contains(topic));
        text.lines()
            .filter(is_told)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
            .collect::<String>()
    };
    std::fs::write(place.path("app.db"), "").unwrap();
    assert_eq!(
        doctor("", "app.db"),
        "note selected no: FAMIO_ATOMIC and famio.toml have no glob; famio run --atomic ./app.db would\n"
    );
    assert_eq!(doctor("*.sqlite\n*.db", "app.db"), "ok selected by FAMIO_ATOMIC '*.db'\n");
    assert_eq!(
        doctor("APP.db\nx", "app.db"),
        "note selected no: by none of 2 globs (FAMIO_ATOMIC APP.db differs in the case of letters); famio run --atomic \
         ./app.db would\n"
    );
    let of_folder = doctor("*.db", ".");
    assert!(of_folder.starts_with("ok glob FAMIO_ATOMIC '*.db': selects 1 file now, first "), "{of_folder}");
}

#[test]
fn the_files_of_a_group_are_selected_and_told() {
    let Some(place) = Place::new() else { return };
    for file in ["data/a.ibd", "data/redo1", "other"] {
        std::fs::write(place.path(file), "").unwrap();
    }
    let config = "policy = 'redo'\n[[group]]\natomic = ['data/*.ibd', 'data/redo*']\n[[group]]\natomic = ['./other', 'data/redo2']\n";
    std::fs::write(place.path("famio.toml"), config).unwrap();
    let out = |args: &[&str]| {
        let output = place.famio().args(args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let text = text.replace(&place.path("").to_string_lossy().into_owned(), "$/");
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect::<String>()
    };
    for (file, line) in [
        ("data/a.ibd", "ok group committed together with $/data/*.ibd $/data/redo*\n"),
        ("other", "ok group committed together with $/other $/data/redo2\n"),
        ("data/redo2", "PROBLEM group it belongs to several groups: $/data/*.ibd $/data/redo*; $/other $/data/redo2\n"),
    ] {
        let said = out(&["doctor", file]);
        assert!(said.contains(line) && said.contains("ok selected by atomic "), "{file}: {said}");
    }
    assert!(!out(&["doctor", "data/b"]).contains(" group committed"));
    let dry = out(&["run", "--dry-run"]);
    assert!(dry.contains("group: $/data/*.ibd $/data/redo*; $/other $/data/redo2 (group of $/famio.toml)"), "{dry}");
    // The library gets the groups, also within a run.
    let (code, said) = place.run(&["--", "./w", "data/a.ibd", "data/redo1"]);
    assert_eq!((code, said.contains("data/a.ibd")), (0, false), "{said}");
    let (code, said) = place.run(&["--", "./w", "data/redo2"]);
    assert!(code == 3 && said.contains("it belongs to two groups"), "{code} {said}");
}

/// A daemon's descriptor 2 may be a file of its own.
#[test]
fn messages_go_to_no_file_of_the_programs() {
    let Some(place) = Place::new() else { return };
    let program = r#"
        #include <fcntl.h>
        #include <unistd.h>
        int main(void) {
          for (int fd = 0; fd < 3; fd++) close(fd);
          for (int fd = 0; fd < 3; fd++) if (open("own", O_RDWR | O_CREAT, 0644) != fd) return 1;
          return write(2, "data", 4) != 4;
        }"#;
    std::fs::write(place.path("closes.c"), program).unwrap();
    assert!(
        Command::new("cc").arg("-o").arg(place.path("closes")).arg(place.path("closes.c")).status().unwrap().success()
    );
    assert_eq!(place.run(&["--atomic", "no", "./closes"]), (0, String::new()));
    assert_eq!(std::fs::read_to_string(place.path("own")).unwrap(), "data");
    // A log may get messages.
    let (code, said) = place.run(&["--atomic", "no", "sh", "-c", "exec 2>>log; ./w own"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(std::fs::read_to_string(place.path("log")).unwrap().contains("--atomic no selected no file"));
}

/// Unseen parts are not judged: a process of another user cannot take part.
#[test]
fn another_users_part_is_not_judged() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: skipped");
        return;
    }
    let Some(place) = Place::new() else { return };
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(""), open).unwrap();
    let script = "exec setpriv --reuid=1234 --clear-groups ./w other";
    // The loader must be able to read the library, which root's folder may prevent; then the loader reports that.
    let (code, said) = place.run(&["--atomic", "no", "sh", "-c", script]);
    assert!(code == 0 && !said.contains("selected no file"), "{code} {said}");
    let (code, said) = place.run(&["--require", "--atomic", "no", "sh", "-c", script]);
    assert!(code == 0 && said.contains("could not be watched"), "{code} {said}");
}
