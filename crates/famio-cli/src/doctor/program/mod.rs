//! What a program and its libraries do that would bypass the preload library.

mod image;
mod libraries;
mod names;
mod raw;

use super::finding::Finding;
use crate::program;
use crate::program::elf::{self, Kind};
use image::Image;
use names::Names;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Whether a path is a program or library, rather than a place for data.
pub fn is_one(path: &Path) -> bool {
    // Checked before it is opened: opening a FIFO would wait for a writer.
    let Ok(found) = std::fs::metadata(path) else { return false };
    if !found.is_file() {
        return false;
    }
    let Ok(file) = crate::look::open(path) else { return false };
    let executable = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o111 != 0;
    match elf::read(&file) {
        Ok(Kind::NotElf) => {
            let mut start = [0; 2];
            executable && elf::read_up_to(&file, &mut start).is_ok_and(|length| start[..length] == *b"#!")
        }
        Ok(_) => executable || image::read(path).is_ok_and(|image| image.is_library),
        Err(_) => executable,
    }
}

/// All findings about one program or library.
pub fn look(path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let library = image::read(&whole).is_ok_and(|image| image.is_library);
    let main = if library {
        findings.push(Finding::fine("library", "checked as part of the program that loads it"));
        whole
    } else {
        match program::check(&whole) {
            Ok(main) => {
                findings.push(entered(&whole, &main));
                main
            }
            Err(failure) => {
                findings.push(Finding::problem("program", format!("{}{}", failure.message, advice(&whole))));
                // A program that Famio cannot enter is not examined further.
                return findings;
            }
        }
    };
    let listed = match libraries::of(&main) {
        Ok(listed) => listed,
        Err(error) => {
            findings.push(Finding::note("libraries", format!("can't be listed, so they were not checked: {error}")));
            libraries::Listed::default()
        }
    };
    if !listed.missing.is_empty() {
        let missing = listed.missing.join(", ");
        findings.push(Finding::problem("libraries", format!("not found: {missing}; the program would not start")));
    }
    let mut images = Vec::new();
    for file in std::iter::once(&main).chain(&listed.found) {
        match image::read(file) {
            Ok(image) => images.push(image),
            Err(error) => findings.push(Finding::note("libraries", format!("{}: {error}", file.display()))),
        }
    }
    if images.len() > 1 {
        let names: Vec<_> = images[1..].iter().map(|image| image.name.as_str()).collect();
        findings.push(Finding::fine("libraries", names.join(", ")));
    }
    let names = Names::new();
    findings.extend(judge(&images, !library, &names));
    findings.extend(preloads(&names));
    findings
}

fn entered(program: &Path, main: &Path) -> Finding {
    if program == main {
        Finding::fine("program", "dynamically linked with this C library: Famio can enter it")
    } else {
        Finding::fine("program", format!("a script for {}, which Famio can enter", main.display()))
    }
}

/// Advice for a program that is refused.
fn advice(path: &Path) -> &'static str {
    match image::read(path) {
        Ok(image) if image.is_go => ". A Go program makes its system calls itself: Famio cannot enter it",
        Ok(image) if image.is_static => ". Link it dynamically with this machine's C library, if you can build it",
        _ => "",
    }
}

/// Findings about the program, which is the first image, and its libraries.
fn judge(images: &[Image], has_main: bool, names: &Names) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(image) = images.iter().find(|image| image.is_go) {
        let text = format!(
            "{} is built with Go, which makes its system calls itself: files that Go code opens are not protected; those of C \
             libraries in it are",
            image.name
        );
        findings.push(Finding::note("Go", text));
    }
    let foreign: Vec<&Image> = images.iter().filter(|image| !image.is_libc).collect();
    for image in &foreign {
        let calls = raw::names(&image.raw);
        if !image.is_go && !calls.is_empty() {
            let text = format!(
                "{} seems to make these itself, without libc: {}; on atomic files these bypass Famio, unprotected",
                image.name,
                calls.join(", ")
            );
            findings.push(Finding::note("system calls", text));
        }
    }
    if let Some(main) = images.first().filter(|_| has_main) {
        let own: Vec<&str> = main.exports.iter().map(String::as_str).filter(|name| names.is_hooked(name)).collect();
        if !own.is_empty() {
            let text = format!(
                "{} has its own functions with these names, which come before Famio's: {}; calls to them bypass Famio",
                main.name,
                own.join(", ")
            );
            findings.push(Finding::problem("own functions", text));
        }
    }
    for (topic, wanted, text) in IMPORTS {
        let users = users(&foreign, |name| wanted.iter().any(|wanted| names::takes(wanted, name)));
        if !users.is_empty() {
            findings.push(Finding::note(topic, format!("{}: {text}", shown(&users))));
        }
    }
    let handed = users(&foreign, |name| names.treatment(name) == Some("demote") && !name.contains("io_"));
    if !handed.is_empty() {
        let text =
            format!("{}: an atomic file used by these is demoted to an ordinary file, with a notice", shown(&handed));
        findings.push(Finding::note("demoted", text));
    }
    let unknown = unknown(&foreign, names);
    if !unknown.is_empty() {
        let text = format!("{}: of a C library newer than this Famio, which does not know them", shown(&unknown));
        findings.push(Finding::note("unknown", text));
    }
    findings
}

/// Topic, names, and their meaning.
type Import = (&'static str, &'static [&'static str], &'static str);

const IMPORTS: [Import; 5] = [
    (
        "io_uring",
        &["io_uring_*"],
        "refused with ENOSYS under famio run, and most programs then make ordinary calls; if this one does not, \
         --async-io allow lets it, without protection for what io_uring writes",
    ),
    (
        "kernel AIO",
        &["io_setup", "io_submit", "io_queue_init"],
        "refused with ENOSYS under famio run, and most programs then make ordinary calls; if this one does not, --async-io \
         allow permits it, and atomic files that it is used on are demoted",
    ),
    ("syscall(2)", &["syscall"], "file calls by number are handled like the functions"),
    (
        "dlopen(3)",
        &["dlopen"],
        "libraries that are loaded later are not looked at here (famio doctor LIBRARY does); their calls go to Famio like the \
         program's, but for functions that are looked up (dlsym) in libc itself",
    ),
    (
        "dlmopen(3)",
        &["dlmopen"],
        "a library in its own namespace has its own C library: its calls bypass Famio, unprotected",
    ),
];

/// The imported names, and the files that import them.
type Users = BTreeMap<String, Vec<String>>;

fn users(images: &[&Image], wanted: impl Fn(&str) -> bool) -> Users {
    let mut users = Users::new();
    for image in images {
        for import in image.imports.iter().filter(|import| wanted(&import.name)) {
            users.entry(import.name.clone()).or_default().push(image.name.clone());
        }
    }
    users
}

fn unknown(images: &[&Image], names: &Names) -> Users {
    let mut users = Users::new();
    for image in images {
        for import in image.imports.iter().filter(|import| import.of_glibc && !names.is_known(&import.name)) {
            users.entry(import.name.clone()).or_default().push(image.name.clone());
        }
    }
    users
}

/// `write, writev (program, lib.so)`: names with the same users are listed together.
fn shown(users: &Users) -> String {
    let mut groups: Vec<(&Vec<String>, Vec<&str>)> = Vec::new();
    for (name, by) in users {
        match groups.iter_mut().find(|(others, _)| *others == by) {
            Some((_, names)) => names.push(name),
            None => groups.push((by, vec![name])),
        }
    }
    let parts = groups.iter().map(|(by, names)| format!("{} ({})", names.join(", "), by.join(", ")));
    parts.collect::<Vec<_>>().join("; ")
}

/// Other libraries that are loaded into every program.
fn preloads(names: &Names) -> Vec<Finding> {
    let system = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    let named = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let of = |source: &'static str, text: &OsStr| {
        let text = text.to_string_lossy().into_owned();
        let words = text.split([' ', ':', '\n', '\t']).filter(|word| !word.is_empty());
        words.map(|word| (source, PathBuf::from(word))).collect::<Vec<_>>()
    };
    let mut all = of("LD_PRELOAD", &named);
    all.extend(of("/etc/ld.so.preload", OsStr::new(&system)));
    all.into_iter().map(|(source, path)| preload(source, &path, names)).collect()
}

fn preload(source: &str, path: &Path, names: &Names) -> Finding {
    const TOPIC: &str = "preloaded";
    let shown = path.display();
    match image::read(path) {
        Err(error) => Finding::note(TOPIC, format!("{shown} ({source}) can't be read: {error}")),
        Ok(image) => {
            let own: Vec<&str> =
                image.exports.iter().map(String::as_str).filter(|name| names.is_hooked(name)).collect();
            if own.is_empty() || image.exports.iter().any(|name| name == "famio_is_managed") {
                return Finding::fine(TOPIC, format!("{shown} ({source})"));
            }
            let own = own.join(", ");
            let text = format!(
                "{shown} ({source}) intercepts file calls too: {own}; under famio run Famio's come first, and of an atomic \
                 file this library sees none"
            );
            Finding::note(TOPIC, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Import;

    fn image(name: &str, imports: &[&str], exports: &[&str]) -> Image {
        Image {
            name: name.into(),
            imports: imports.iter().map(|name| Import { name: name.to_string(), of_glibc: true }).collect(),
            exports: exports.iter().map(|name| name.to_string()).collect(),
            ..Image::default()
        }
    }

    fn found(images: &[Image], topic: &str) -> Option<String> {
        let findings = judge(images, true, &Names::new());
        findings.into_iter().find(|finding| finding.topic == topic).map(|finding| finding.text)
    }

    #[test]
    fn what_steps_around_is_found() {
        let main = image("server", &["write", "pthread_create", "syscall", "dlopen"], &["main"]);
        let ring = image("liburing.so.2", &["io_uring_setup", "openat2_new"], &["io_uring_queue_init"]);
        let images = [main, ring];
        assert!(found(&images, "io_uring").unwrap().starts_with("io_uring_setup (liburing.so.2): refused"));
        assert!(found(&images, "syscall(2)").unwrap().contains("(server)"));
        assert!(found(&images, "dlopen(3)").is_some());
        assert!(found(&images, "unknown").unwrap().starts_with("openat2_new (liburing.so.2)"));
        assert!(found(&images, "own functions").is_none());
        assert!(found(&images, "kernel AIO").is_none());
        assert!(found(&[image("x", &[], &["fsync", "helper"])], "own functions").unwrap().contains(": fsync;"));
        let go = Image { is_go: true, ..image("go", &[], &[]) };
        assert!(found(&[go], "Go").is_some());
    }

    #[test]
    fn names_go_with_their_users() {
        let images = [image("a", &["write", "writev"], &[]), image("b", &["write", "writev", "read"], &[])];
        let users = users(&images.iter().collect::<Vec<_>>(), |_| true);
        assert_eq!(shown(&users), "read (b); write, writev (a, b)");
    }
}
