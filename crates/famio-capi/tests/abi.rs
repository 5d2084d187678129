//! The interface that programs are built against must not change: names, versions, constants, sizes and offsets, as
//! in `abi.txt`.
//!
//! `FAMIO_BLESS=1` rewrites that file after additions. Removals and changes break programs.

mod common;

use common::{Linked, build, command, libraries, root, succeed};
use object::{Object, ObjectSymbol};
use std::process::Command;

/// What the shared library exports, by name and version; objdump reads versions.
fn exported() -> Vec<String> {
    let said = succeed(Command::new("objdump").arg("-T").arg(libraries().join("libfamio.so")));
    let defined = said.lines().filter(|line| line.contains(" g ") && !line.contains("*UND*"));
    let mut names: Vec<String> = defined
        .filter(|line| !line.contains("*ABS*"))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().rev().take(2).collect();
            format!("symbol {} {}", words[0], words[1])
        })
        .collect();
    names.sort();
    names
}

#[test]
fn the_interface_is_as_checked_in() {
    let mut now = exported();
    let program = build("crates/famio-capi/tests/programs/layout.c", Linked::Shared);
    now.extend(succeed(&mut command(program)).lines().map(String::from));
    let now = now.join("\n") + "\n";
    let path = root().join("crates/famio-capi/abi.txt");
    if std::env::var_os("FAMIO_BLESS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let then = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(now == then, "the interface has changed; it was\n{then}\nand is\n{now}");
}

#[test]
fn the_archive_shows_no_other_names() {
    let symbols = succeed(Command::new("nm").args(["-g", "--defined-only"]).arg(libraries().join("libfamio.a")));
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(" T ").nth(1)).collect();
    let others: Vec<&str> =
        symbols.lines().filter(|line| line.split_whitespace().count() == 3 && !line.contains(" T nv")).collect();
    assert_eq!((names.len(), others), (exported().len(), Vec::new()));
}

#[test]
fn the_shared_library_says_its_name_and_stays() {
    let data = std::fs::read(libraries().join("libfamio.so")).unwrap();
    let file = object::File::parse(&*data).unwrap();
    assert!(file.dynamic_symbols().any(|symbol| symbol.name() == Ok("nvopen") && symbol.is_definition()));
    let said = succeed(Command::new("readelf").arg("-d").arg(libraries().join("libfamio.so")));
    assert!(said.contains("[libfamio.so.0]") && said.contains("NODELETE"), "{said}");
}

/// As C99 and as C++17, included once and twice.
#[test]
fn the_header_compiles_without_a_warning() {
    for (compiler, standard, language) in [("cc", "c99", "c"), ("cc", "c11", "c"), ("c++", "c++17", "c++")] {
        let source = libraries().join(format!("header-{standard}.txt"));
        std::fs::write(
            &source,
            "#include <famio_vnvml.h>\n#include <famio_vnvml.h>\n#include <famio.h>\n#include <famio.h>\nint main(void) { return nvclose(-1) == nv_release(); }\n",
        )
        .unwrap();
        let mut command = Command::new(compiler);
        command.args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"]);
        succeed(command.arg(root().join("include")).args(["-c", "-o", "/dev/null"]).arg(&source));
    }
}
