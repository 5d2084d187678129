//! What is forged: journals and marks that a crash has left.

use super::files::{c, entries, write_file};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The originals: journals with marks that a crash of the neighbour's own program has left.
pub struct Originals {
    /// With their names.
    pub journals: Vec<(PathBuf, Vec<u8>)>,
    pub marks: Vec<(PathBuf, Vec<u8>)>,
}

impl Originals {
    /// Reads the originals in the folder.
    pub fn new(folder: &Path) -> Self {
        let read = |path: PathBuf| {
            let file = File::open(&path).ok()?;
            let mut bytes = vec![0; file.metadata().ok()?.len().min(2 << 20) as usize];
            let count = file.read_at(&mut bytes, 0).ok()?;
            bytes.truncate(count);
            Some((path, bytes))
        };
        let mark = |path: PathBuf| {
            let mut bytes = vec![0; 2000];
            // SAFETY: a valid string, and room for as many bytes as are said.
            let length = unsafe {
                libc::getxattr(c(&path).as_ptr(), c"user.famio".as_ptr(), bytes.as_mut_ptr().cast(), bytes.len())
            };
            bytes.truncate(usize::try_from(length).ok()?);
            Some((path, bytes))
        };
        Self {
            journals: entries(&folder.join(".famio")).into_iter().filter_map(read).collect(),
            marks: entries(folder).into_iter().filter_map(mark).collect(),
        }
    }

    /// Copies each journal to a folder that is moved about.
    pub fn copy_to(&self, folder: &Path) {
        let _ = std::fs::create_dir(folder);
        for (path, bytes) in &self.journals {
            if let Some(name) = path.file_name() {
                write_file(&folder.join(name), bytes);
            }
        }
    }
}
