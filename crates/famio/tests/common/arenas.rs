//! Finds the arena of a file whose process was killed: the file's control file names it.
#![allow(dead_code)] // each test uses a part

use famio::journal::{Identity, journal_name};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The control file of a file, in a pool below the file's folder or beside that.
pub fn control(path: &Path) -> Option<PathBuf> {
    let name = journal_name(&Identity::of_path(path).ok()?).replace(".journal", ".control");
    let folder = path.parent()?;
    let beside = folder.join(".famio").join(&name);
    if beside.exists() {
        return Some(beside);
    }
    below(folder.parent()?, &name, 3)
}

fn below(folder: &Path, name: &str, levels: u32) -> Option<PathBuf> {
    let here = folder.join(name);
    if here.exists() {
        return Some(here);
    }
    let entries = std::fs::read_dir(folder).ok().filter(|_| levels > 0)?;
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).find_map(|path| below(&path, name, levels - 1))
}

/// The arena; if there is none, a path where nothing is.
pub fn arena(path: &Path) -> PathBuf {
    let page = control(path).and_then(|control| std::fs::read(control).ok()).unwrap_or_default();
    let word = |at: usize| page.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap()));
    match word(24) {
        0 => "/dev/shm/famio-none".into(),
        number => {
            let (device, inode) =
                control(path).and_then(|path| path.metadata().ok()).map_or((0, 0), |of| (of.dev(), of.ino()));
            format!("/dev/shm/famio-{device:x}-{inode:x}-{:016x}-{number:016x}.arena", word(16)).into()
        }
    }
}
