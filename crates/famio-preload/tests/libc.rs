//! Every function of this machine's libc is either in the table or known to do no file I/O.

#[allow(dead_code, reason = "this crate uses a part of the file")]
#[path = "../table.rs"]
mod table;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Parts of a name that suggest file I/O: such a name has to be listed in full.
const LOOKS_LIKE_FILES: [&str; 30] = [
    "open", "close", "creat", "read", "write", "file", "sync", "seek", "trunc", "falloc", "stat", "link", "rename",
    "unlink", "remove", "dup", "sendf", "copy_", "splice", "map", "dir", "aio", "uring", "fd", "xattr", "mkst",
    "mktemp", "range", "ioctl", "handle",
];

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Names in the table.
fn in_table() -> BTreeSet<String> {
    let sections = table::parse(&read("hooks.txt"));
    sections.iter().flat_map(|section| &section.rows).flat_map(|row| row.names.clone()).collect()
}

/// Names and patterns of `not_file_io.txt`.
fn others() -> Vec<String> {
    let text = read("not_file_io.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let (reason, names) = line.split_once(" | ").unwrap_or_else(|| panic!("not_file_io.txt: {line}"));
            assert!(!reason.trim().is_empty(), "not_file_io.txt: {line}");
            names.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// Except misleading ones: threads do not read, and a state is not a stat.
fn looks_like_files(name: &str) -> bool {
    let innocent = ["thread", "mutexattr", "create", "state", "status"];
    let name = innocent.iter().fold(name.to_owned(), |name, part| name.replace(part, ""));
    LOOKS_LIKE_FILES.iter().any(|part| name.contains(part))
}

fn takes(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        _ if pattern == name => true,
        _ if looks_like_files(name) => false,
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => false,
    }
}

/// The libc with which this test runs.
fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so."));
    path.expect("glibc").into()
}

/// Its exports to programs; private versions are for its own parts.
fn exported() -> BTreeSet<String> {
    let bytes = std::fs::read(libc()).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let versions = sections.versions(endian, &*bytes).unwrap().expect("symbol versions");
    let private: BTreeSet<usize> = file
        .dynamic_symbols()
        .filter(|symbol| {
            let index = versions.version_index(endian, symbol.index());
            let version = versions.version(index.into()).ok().flatten();
            version.is_some_and(|version| version.name() == b"GLIBC_PRIVATE")
        })
        .map(|symbol| symbol.index().0)
        .collect();
    let defined =
        file.dynamic_symbols().filter(|symbol| symbol.is_definition() && !private.contains(&symbol.index().0));
    // The names of versions are symbols, too.
    let names = defined.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    names.filter(|name| !name.starts_with("GLIBC_")).collect()
}

#[test]
fn every_function_of_libc_is_in_a_list() {
    let (table, others) = (in_table(), others());
    let exported = exported();
    assert!(exported.len() > 1500 && exported.contains("open"), "{} names", exported.len());
    let known = |name: &str| table.contains(name) || others.iter().any(|pattern| takes(pattern, name));
    let missing: Vec<_> = exported.iter().filter(|name| !known(name)).collect();
    assert!(
        missing.is_empty(),
        "{} has names that are in no list: {missing:?}\nIf a name can reach the data or the size of a file, or gives a \
         descriptor: put it into hooks.txt with its treatment (and FAMIO_BLESS=1 cargo test -p famio-preload --test table). \
         If not: into not_file_io.txt, beside its kin.",
        libc().display()
    );
}

#[test]
fn no_name_is_in_both_lists() {
    let table = in_table();
    let both: Vec<_> = others().into_iter().filter(|name| table.contains(name)).collect();
    assert!(both.is_empty(), "in hooks.txt and in not_file_io.txt: {both:?}");
    let mut seen = BTreeMap::new();
    for name in others() {
        assert!(seen.insert(name.clone(), ()).is_none(), "{name} stands twice in not_file_io.txt");
    }
}

/// A pattern must not cover what a future libc adds.
#[test]
fn a_new_file_function_is_noticed() {
    let (table, others) = (in_table(), others());
    let known = |name: &str| table.contains(name) || others.iter().any(|pattern| takes(pattern, name));
    for name in [
        "openat2",
        "memfd_secret",
        "pthread_open_file_np",
        "string_writev3",
        "posix_getdents_read",
        "sigfd_open",
        "copy_file",
        "strread",
        "wcsopen",
        "splice2",
        "aio_write2",
        "fclosefrom",
        "resolve_openat",
        "is_sync_file",
        "getrpcfile_open",
    ] {
        assert!(!known(name), "{name} is taken for no file I/O");
    }
    for name in ["strnew", "pthread_new_np", "pthread_rwlock_new", "wcsnew", "__isoc23_strtonew"] {
        assert!(known(name), "{name}");
    }
}
