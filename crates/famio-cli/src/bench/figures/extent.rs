//! How much of each figure is measured.

use crate::bench::document::effort::{Effort, Length};
use crate::bench::io::side::Side;
use std::path::PathBuf;

/// How much of each.
#[derive(Clone, Debug)]
pub struct Extent {
    pub rounds: u32,
    pub seconds: f64,
    /// Size of a file.
    pub file_size: u64,
    /// Total size of mapped files.
    pub map_size: u64,
    /// For figures on a disk. `None`: there is none.
    pub disk: Option<PathBuf>,
    /// Other libraries that take file calls over, in figures of file calls.
    pub preload: Vec<Side>,
}

impl Extent {
    pub const WHOLE: Self =
        Self { rounds: 7, seconds: 0.5, file_size: 512 << 20, map_size: 2 << 30, disk: None, preload: Vec::new() };
    pub const QUICK: Self =
        Self { rounds: 5, seconds: 0.15, file_size: 64 << 20, map_size: 256 << 20, disk: None, preload: Vec::new() };

    /// Whether only small files fit the time.
    pub fn is_quick(&self) -> bool {
        self.file_size <= Self::QUICK.file_size
    }

    pub fn effort(&self) -> Effort {
        Effort { rounds: self.rounds, length: Length::Seconds(self.seconds), file_size: self.file_size }
    }
}
