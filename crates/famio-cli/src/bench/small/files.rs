//! The files that are made, and what is done with each.

use clap::ValueEnum;
use std::path::{Path, PathBuf};

/// What is done with each file after it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// It is closed.
    Close,
    /// It is synced and closed.
    Sync,
    /// It is synced, closed and renamed over another file, and the folder is synced.
    Replace,
    /// It exists before, is overwritten, and closed.
    Overwrite,
    /// Its first half exists before; the second is appended.
    Append,
    /// It exists before, is opened, read, and closed.
    Read,
    /// It exists before; its size is asked for by its name.
    Look,
}

impl Way {
    pub fn title(self) -> &'static str {
        match self {
            Self::Close => "made, written, closed",
            Self::Sync => "made, written, synced, closed",
            Self::Replace => "replaced: made, written, synced, renamed",
            Self::Overwrite => "existing: opened, overwritten, closed",
            Self::Append => "existing: opened, appended to, closed",
            Self::Read => "existing: opened, read, closed",
            Self::Look => "existing: its size asked for",
        }
    }
}

/// The name of the file that is replaced.
pub const REPLACED: &str = "current";

/// The path of file number `n`.
pub fn path(folder: &Path, n: u32) -> PathBuf {
    folder.join(format!("file-{n}"))
}

/// The content of file number `n`, which no other file has.
pub fn bytes_of(n: u32, len: usize) -> Vec<u8> {
    let word = |at: u64| (u64::from(n) << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_differ() {
        assert_ne!(bytes_of(1, 10), bytes_of(2, 10));
        assert_eq!(bytes_of(3, 4097).len(), 4097);
    }
}
