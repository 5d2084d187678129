//! Recognizes a file's format by its first bytes.

use crate::program::elf::read_up_to;
use std::path::Path;

/// A database by its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// SQLite 3.
    Sqlite,
    /// LMDB.
    Lmdb,
    /// LMDB's lock table.
    LmdbLocks,
    /// Berkeley DB.
    BerkeleyDb,
    /// GNU dbm.
    Gdbm,
}

impl Format {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Format::Sqlite => "SQLite",
            Format::Lmdb => "LMDB",
            Format::LmdbLocks => "LMDB's lock table",
            Format::BerkeleyDb => "Berkeley DB",
            Format::Gdbm => "GNU dbm",
        }
    }
}

/// The format, if known.
pub fn look(path: &Path) -> Option<Format> {
    let mut head = [0u8; 64];
    let file = crate::look::open(path).ok()?;
    let length = read_up_to(&file, &mut head).ok()?;
    of(&head[..length])
}

fn of(head: &[u8]) -> Option<Format> {
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    if head.starts_with(b"SQLite format 3\0") {
        return Some(Format::Sqlite);
    }
    match (word(0), word(12), word(16)) {
        // After the page header: the magic number and the version of the format.
        (_, _, Some(0xbeef_c0de)) => Some(Format::Lmdb),
        (Some(0xbeef_c0de), ..) => Some(Format::LmdbLocks),
        // A hash, a B-tree, a queue, a heap.
        (_, Some(0x0006_1561 | 0x0005_3162 | 0x0004_2253 | 0x0007_4582), _) => Some(Format::BerkeleyDb),
        (Some(0x1357_9acd..=0x1357_9ad1), ..) => Some(Format::Gdbm),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let at = |at: usize, word: u32| {
            let mut head = [0u8; 64];
            head[at..at + 4].copy_from_slice(&word.to_le_bytes());
            of(&head)
        };
        assert_eq!(of(b"SQLite format 3\0rest"), Some(Format::Sqlite));
        assert_eq!(at(16, 0xbeef_c0de), Some(Format::Lmdb));
        assert_eq!(at(0, 0xbeef_c0de), Some(Format::LmdbLocks));
        assert_eq!(at(12, 0x0005_3162), Some(Format::BerkeleyDb));
        assert_eq!(at(0, 0x1357_9ace), Some(Format::Gdbm));
        assert_eq!(of(b"SQLite"), None);
        assert_eq!(of(b""), None);
    }
}
