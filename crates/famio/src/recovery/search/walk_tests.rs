//! Walks, and the search for a journal's file: what they look at, and how often.

use super::find::Place;
use super::walk::{Visitor, walk};
use crate::error::Error;
use crate::journal::testing::{KERNEL, Scratch};
use crate::journal::{Header, Identity, journal_name};
use crate::pmem::Domain;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

#[derive(Default)]
struct All {
    said: Vec<String>,
    looked: usize,
    found: usize,
}

impl Visitor for All {
    fn journal(&mut self, place: &Place, name: &str) {
        self.said.push(format!("journal {}", place.pool.path_of(name).display()));
        self.found += usize::from(place.file_of(name).is_ok());
        self.looked = place.looked();
    }

    fn marked(&mut self, _: BorrowedFd<'_>, name: &CStr, path: &Path) {
        assert!(path.ends_with(name.to_str().unwrap()));
        self.said.push(format!("marked {}", path.display()));
    }

    fn unexamined(&mut self, path: &Path, why: Error) {
        self.said.push(format!("unexamined {}: {why}", path.display()));
    }
}

fn mark(path: &Path) {
    let file = File::create(path).unwrap();
    rustix::fs::fsetxattr(&file, c"user.famio", b"x", rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn journals_come_before_the_marked_files_beside_them() {
    let dir = Scratch::new();
    let root = dir.root().display().to_string();
    for folder in [".famio", "a/.famio", "pool"] {
        fs::create_dir_all(dir.path(folder)).unwrap();
    }
    let journal = "1b".repeat(16) + ".journal";
    for folder in [".famio", "pool"] {
        fs::write(dir.path(folder).join(&journal), b"").unwrap();
    }
    for file in ["-first", "last", "a/marked", "pool/marked"] {
        mark(&dir.path(file));
    }
    fs::write(dir.path("plain"), b"").unwrap();
    std::os::unix::fs::symlink(dir.path("a"), dir.path("link")).unwrap();
    let mut all = All::default();
    walk(dir.root(), &mut all).unwrap();
    let expected = [
        format!("journal {root}/.famio/{journal}"),
        format!("marked {root}/-first"),
        format!("marked {root}/last"),
        format!("marked {root}/a/marked"),
        format!("journal {root}/pool/{journal}"),
        format!("marked {root}/pool/marked"),
    ];
    assert_eq!(all.said, expected);
    // A file's pool, found through the file.
    let mut all = All::default();
    walk(&dir.path(".famio"), &mut all).unwrap();
    assert_eq!(all.said, expected[..1]);
}

/// Each file beside a `.famio/` must be asked for its identity once, not once for each journal: a thousand orphaned
/// journals beside a thousand files took half a minute.
#[test]
fn a_file_is_asked_once_who_it_is() {
    const JUNK: u64 = 100;
    const FILES: usize = 50;
    let dir = Scratch::new();
    fs::create_dir(dir.path(".famio")).unwrap();
    for i in 0..FILES {
        fs::write(dir.path(&format!("file{i}")), b"").unwrap();
    }
    let put = |identity: Identity, hint: &Path| {
        let kind = crate::journal::header::Kind::Records;
        let mut header = Header::new(kind, Domain::PageCache, Domain::PageCache, identity, hint).unwrap();
        let journal = File::create(dir.path(".famio").join(journal_name(&identity))).unwrap();
        header.store(journal.as_fd(), &KERNEL).unwrap();
    };
    let own = Identity::of_path(dir.root()).unwrap();
    for i in 0..JUNK {
        let mut bytes = own.encode();
        bytes[8..16].copy_from_slice(&i.to_le_bytes());
        put(Identity::decode(&bytes).unwrap(), &dir.path("none"));
    }
    // A file that was moved here.
    put(Identity::of_path(&dir.path("file7")).unwrap(), &dir.path("elsewhere"));
    let mut all = All::default();
    walk(dir.root(), &mut all).unwrap();
    assert_eq!((all.said.len(), all.looked, all.found), (JUNK as usize + 1, FILES, 1));
}
