//! The runtimes of other languages load libfamio with `dlopen` into a program that has been running for long, with
//! threads.

mod common;

use common::{Folder, command, libraries, root, succeed};
use std::path::PathBuf;
use std::process::Command;

/// The output of a command; `None`, with a loud message, if it is not installed.
fn asked(command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).trim().into()),
        _ => {
            eprintln!("SKIPPED: {command:?} does not run");
            None
        }
    }
}

/// A shared library of one C file, with the headers of a runtime, linked with libfamio.
fn extension(source: &str, headers: &[String], name: &str) -> PathBuf {
    let made = libraries().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-shared", "-fPIC", "-O1", "-I"]).arg(root().join("include"));
    for headers in headers {
        compiler.arg("-isystem").arg(headers);
    }
    compiler.arg(root().join("crates/famio-capi/tests/programs").join(source)).arg("-o").arg(&made);
    compiler.arg("-L").arg(libraries()).arg("-lfamio").arg(format!("-Wl,-rpath,{}", libraries().display()));
    succeed(&mut compiler);
    made
}

/// Thread-local variables have to fit beside those of other libraries: glibc keeps 1664 bytes for all libraries that
/// are loaded later.
#[test]
fn the_library_asks_for_little_thread_local_storage() {
    for library in [libraries().join("libfamio.so"), common::beside("libfamio_preload.so")] {
        let said = succeed(Command::new("readelf").arg("-lW").arg(&library));
        let line = said.lines().find(|line| line.trim_start().starts_with("TLS ")).expect("a TLS segment");
        let size = line.split_whitespace().nth(5).unwrap().trim_start_matches("0x");
        let size = u64::from_str_radix(size, 16).unwrap();
        assert!(size <= 480, "{}: {size} bytes of thread-local storage", library.display());
    }
}

const CTYPES: &str = r#"
import ctypes, os, sys, threading
ready, go = threading.Event(), threading.Event()
famio, said = None, {}

def later(name):
    ready.wait()
    famio.nverrmsg.restype = famio.nvstrerror.restype = ctypes.c_char_p
    for errno in (2, 9):
        if errno == 2:
            assert famio.nvopen(f"/nowhere/{name}".encode(), os.O_RDWR) == -1
        else:
            assert famio.nvfsync(-1) == -1
        assert ctypes.get_errno() == errno
        words = famio.nverrmsg().decode()
        assert words, words
        assert famio.nvstrerror(errno).decode() == os.strerror(errno)
    famio.nvopen(f"/nowhere/{name}".encode(), os.O_RDWR)
    said[name] = famio.nverrmsg().decode()

# A thread that was there before the library.
threads = [threading.Thread(target=later, args=(f"before{n}",), daemon=True) for n in range(3)]
for thread in threads: thread.start()
famio = ctypes.CDLL(sys.argv[1], use_errno=True)
threads += [threading.Thread(target=later, args=(f"after{n}",), daemon=True) for n in range(3)]
for thread in threads[3:]: thread.start()
ready.set()
for thread in threads: thread.join()
assert len(said) == 6, said

fd = famio.nvopen(sys.argv[2].encode(), os.O_RDWR | os.O_CREAT, 0o644)
assert fd >= 0, famio.nverrmsg()
assert famio.nvwrite(fd, b"from Python", 11) == 11
assert famio.nvfsync(fd) == 0
# A child has its parent's words, and then its own.
assert famio.nvfsync(-1) == -1
pid = os.fork()
if pid == 0:
    famio.nverrmsg.restype = ctypes.c_char_p
    ok = famio.nverrmsg().decode() != "" and famio.nvopen(b"/nowhere/child", os.O_RDWR) == -1
    os._exit(0 if ok and famio.nverrmsg() else 1)
assert os.waitpid(pid, 0)[1] == 0
assert famio.nvclose(fd) == 0
print(open(sys.argv[2]).read())
"#;

#[test]
fn python_loads_it_by_ctypes() {
    if asked(command("python3").arg("--version")).is_none() {
        return;
    }
    let folder = Folder::new("runtimes-ctypes");
    let file = folder.path().join("file");
    let mut python = command("python3");
    let said = succeed(python.args(["-c", CTYPES]).arg(libraries().join("libfamio.so")).arg(&file));
    assert_eq!(said, "from Python\n");
    assert_eq!(folder.names(), ["file"]);
}

#[test]
fn python_loads_an_extension_that_is_linked_with_it() {
    let place = "import sysconfig; print(sysconfig.get_paths()['include'])";
    let Some(headers) = asked(command("python3").args(["-c", place])) else { return };
    if !PathBuf::from(&headers).join("Python.h").exists() {
        eprintln!("SKIPPED: no Python.h in {headers}");
        return;
    }
    let made = extension("python_module.c", &[headers], "extension.so");
    let folder = Folder::new("runtimes-extension");
    let file = folder.path().join("file");
    let script = "import sys; sys.path.insert(0, sys.argv[1]); import extension\n\
                  extension.commit(sys.argv[2], b'by an extension')\n\
                  try: extension.commit('/nowhere/file', b'')\n\
                  except OSError as error: print(error)\n\
                  print(open(sys.argv[2]).read())";
    let said = succeed(command("python3").args(["-c", script]).arg(made.parent().unwrap()).arg(&file));
    assert!(said.ends_with("by an extension\n") && said.lines().count() == 2, "{said}");
    assert_eq!(folder.names(), ["file"]);
}

#[test]
fn node_loads_an_addon_that_is_linked_with_it() {
    let Some(node) = asked(command("node").args(["-p", "process.execPath"])) else { return };
    let beside = PathBuf::from(&node).join("../../include/node");
    let found = [beside, "/usr/include/node".into()].into_iter().find(|path| path.join("node_api.h").exists());
    let Some(headers) = found else {
        eprintln!("SKIPPED: no node_api.h");
        return;
    };
    let made = extension("node_addon.c", &[headers.display().to_string()], "addon.node");
    let folder = Folder::new("runtimes-node");
    let file = folder.path().join("file");
    let script = "const [addon, file] = process.argv.slice(1); const famio = require(addon);\n\
                  famio.commit(file, 'from Node');\n\
                  try { famio.commit('/nowhere/file', 'x') } catch (error) { console.log(error.message) }\n\
                  console.log(require('fs').readFileSync(file, 'utf8'))";
    let said = succeed(command("node").args(["-e", script]).arg(&made).arg(&file));
    assert!(said.ends_with("from Node\n") && said.lines().count() == 2, "{said}");
    assert_eq!(folder.names(), ["file"]);
}

#[test]
fn java_loads_a_native_library_that_is_linked_with_it() {
    let compiler =
        asked(command("sh").args(["-c", "readlink -f \"$(command -v javac)\""])).filter(|path| !path.is_empty());
    let Some(compiler) = compiler else { return };
    let headers = PathBuf::from(&compiler).join("../../include");
    if !headers.join("jni.h").exists() {
        eprintln!("SKIPPED: no jni.h in {}", headers.display());
        return;
    }
    let headers = [headers.display().to_string(), headers.join("linux").display().to_string()];
    let made = extension("java_native.c", &headers, "libcommit.so");
    let folder = Folder::new("runtimes-java");
    let (file, classes) = (folder.path().join("file"), libraries().join("classes"));
    let source = root().join("crates/famio-capi/tests/programs/Commit.java");
    succeed(command(&compiler).arg("-d").arg(&classes).arg(source));
    let java = PathBuf::from(&compiler).with_file_name("java");
    let said = succeed(command(java).arg("-cp").arg(&classes).arg("Commit").arg(&made).arg(&file));
    assert!(said.starts_with("committed; ") && !said.contains("; committed"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "from Java");
    assert_eq!(folder.names(), ["file"]);
}
