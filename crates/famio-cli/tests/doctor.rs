//! `famio doctor` on programs: what they import, and how its arguments are interpreted.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A place with an empty library instead of the interposer.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.compile("libempty.so", "int famio_test_empty;\n", &["-shared", "-fPIC"]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn compile(&self, name: &str, text: &str, options: &[&str]) {
        let source = self.path(&format!("{name}.c"));
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new("cc");
        command.current_dir(self.0.path()).arg("-o").arg(self.path(name)).arg(&source).args(options);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_famio"));
        command.current_dir(self.0.path()).env("HOME", self.0.path()).env_remove("LD_PRELOAD");
        command.env("FAMIO_PRELOAD", self.path("libempty.so")).arg("doctor").args(args);
        command
    }

    fn doctor(&self, args: &[&str]) -> String {
        said(&self.command(args).output().unwrap())
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}status {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status.code().unwrap_or(-1)
    )
}

/// The findings of a topic.
fn topic(said: &str, topic: &str) -> Option<String> {
    let lines = said.lines().filter(|line| {
        let line = line.trim_start_matches("note").trim_start_matches("ok").trim_start_matches("PROBLEM").trim_start();
        line.starts_with(topic)
    });
    let lines: Vec<_> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[test]
fn an_ordinary_program() {
    let place = Place::new();
    let said = place.doctor(&["cat"]);
    assert!(topic(&said, "program").unwrap().contains("Famio can enter it"), "{said}");
    assert!(topic(&said, "libraries").unwrap().contains("libc.so.6"), "{said}");
    for word in ["system calls", "io_uring", "kernel AIO", "own functions", "unknown", "dlopen"] {
        assert!(topic(&said, word).is_none(), "{word}: {said}");
    }
    assert!(said.ends_with("can be protected\nstatus 0"), "{said}");
}

#[test]
fn what_goes_past_famio() {
    let place = Place::new();
    place.compile(
        "libfamiotest.so.2",
        "int io_uring_queue_init(unsigned n, void *r, unsigned f) { return n && r && f; }\n\
         int io_setup(int n, void *c) { return n && c; }\n",
        &["-shared", "-fPIC", "-Wl,-soname,libfamiotest.so.2"],
    );
    place.compile(
        "server",
        "#include <dlfcn.h>\n#include <unistd.h>\n\
         int io_uring_queue_init(unsigned n, void *r, unsigned f);\nint io_setup(int n, void *c);\nint acute(int);\n\
         long syscall(long, ...);\n\
         int main(void) { return io_uring_queue_init(0, 0, 0) + io_setup(0, 0) + !dlopen(\"x\", 1) + syscall(39); }\n",
        &["./libfamiotest.so.2", "-ldl", "-Wl,-rpath,$ORIGIN"],
    );
    let said = place.doctor(&["./server"]);
    assert!(topic(&said, "io_uring").unwrap().contains("io_uring_queue_init (server): refused with ENOSYS"), "{said}");
    assert!(topic(&said, "kernel AIO").unwrap().contains("io_setup (server)"), "{said}");
    assert!(topic(&said, "dlopen(3)").unwrap().contains("dlopen (server)"), "{said}");
    assert!(topic(&said, "syscall(2)").unwrap().contains("syscall (server)"), "{said}");
    assert!(topic(&said, "libraries").unwrap().contains("libfamiotest.so.2"), "{said}");
    assert!(said.ends_with("status 0"), "{said}");
    // The library alone.
    let said = place.doctor(&["libfamiotest.so.2"]);
    assert!(topic(&said, "library").is_some() && said.ends_with("status 0"), "{said}");
    // Without its library.
    std::fs::remove_file(place.path("libfamiotest.so.2")).unwrap();
    let said = place.doctor(&["./server"]);
    assert!(said.contains("not found: libfamiotest.so.2") && said.ends_with("status 1"), "{said}");
}

#[test]
fn system_calls_without_libc_and_functions_of_ones_own() {
    let place = Place::new();
    #[cfg(target_arch = "x86_64")]
    let instructions = "mov $1, %eax\\n syscall\\n cmp $-4095, %rax";
    #[cfg(target_arch = "aarch64")]
    let instructions = "mov x8, #64\\n svc 0\\n cmn x0, #4095";
    let text = format!("int main(void) {{ __asm__ volatile(\"{instructions}\"); return 0; }}\n");
    place.compile("raw", &text, &[]);
    let said = place.doctor(&["./raw"]);
    let found = topic(&said, "system calls").unwrap();
    assert!(found.contains("raw seems to make these itself, without libc: write;"), "{said}");
    let text =
        "long write(int fd, const void *b, unsigned long n) { return fd + !b + n; }\nint main(void) { return 0; }\n";
    place.compile("own", text, &["-rdynamic"]);
    let said = place.doctor(&["./own"]);
    assert!(topic(&said, "own functions").unwrap().contains("write") && said.ends_with("status 1"), "{said}");
}

#[test]
fn programs_that_famio_cannot_enter() {
    let place = Place::new();
    place.compile("static", "int main(void) { return 0; }\n", &["-static"]);
    place.compile("static-pie", "int main(void) { return 0; }\n", &["-static-pie"]);
    for program in ["./static", "./static-pie"] {
        let said = place.doctor(&[program]);
        let found = topic(&said, "program").unwrap();
        assert!(found.contains("statically linked") && found.contains("Link it dynamically"), "{said}");
        assert!(said.ends_with("status 1"), "{said}");
    }
    place.compile("setuid", "int main(void) { return 0; }\n", &[]);
    std::fs::set_permissions(place.path("setuid"), std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let said = place.doctor(&["./setuid"]);
    assert!(said.contains("set-user-id") && said.ends_with("status 1"), "{said}");
}

/// A section of this name identifies a Go program, also if it is linked dynamically.
#[test]
fn a_go_program() {
    let place = Place::new();
    let text = "__attribute__((section(\".go.buildinfo\"))) int go = 1;\nint main(void) { return 0; }\n";
    place.compile("dynamic", text, &[]);
    let said = place.doctor(&["./dynamic"]);
    assert!(topic(&said, "Go").unwrap().contains("makes its system calls itself"), "{said}");
    place.compile("static", text, &["-static"]);
    assert!(place.doctor(&["./static"]).contains("Famio cannot enter it"));
}

#[test]
fn other_preloaded_libraries() {
    let place = Place::new();
    place.compile("libeat.so", "int fsync(int fd) { return fd - fd; }\n", &["-shared", "-fPIC"]);
    place.compile("libelse.so", "int something_else(int fd) { return fd; }\n", &["-shared", "-fPIC"]);
    let both = format!("{}:{}", place.path("libeat.so").display(), place.path("libelse.so").display());
    // The libraries belong to the examined program, and have no effect here.
    let said = said(&place.command(&["cat"]).env("LD_PRELOAD", both).output().unwrap());
    let found = topic(&said, "preloaded").unwrap();
    assert!(found.contains("libeat.so (LD_PRELOAD) intercepts file calls too: fsync"), "{said}");
    assert!(found.contains("libelse.so (LD_PRELOAD)\n") || found.ends_with("libelse.so (LD_PRELOAD)"), "{said}");
}

#[test]
fn which_word_means_what() {
    let place = Place::new();
    std::fs::write(place.path("data"), "text").unwrap();
    std::fs::create_dir(place.path("cat")).unwrap();
    std::fs::write(place.path("script"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(place.path("script"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let place_of = |args: &[&str]| topic(&place.doctor(args), "domain").is_some();
    let program_of = |args: &[&str]| topic(&place.doctor(args), "program").is_some();
    // A folder with a program's name is a folder; after --, the name is the program.
    for (args, is_place, is_program) in [
        (&["."][..], true, false),
        (&[], true, false),
        (&["data"], true, false),
        (&["cat"], true, false),
        (&["--", "cat", "-n"], false, true),
        (&["data", "--", "cat"], true, true),
        (&["script"], false, true),
        (&["ls"], false, true),
        (&["./ls"], false, false),
        (&["/bin/ls"], false, true),
        (&["not-there.db"], false, false),
    ] {
        assert_eq!((place_of(args), program_of(args)), (is_place, is_program), "{args:?}: {}", place.doctor(args));
    }
    let said = place.doctor(&["--", "no-such-program"]);
    assert!(said.contains("no such program") && said.ends_with("status 127"), "{said}");
}
