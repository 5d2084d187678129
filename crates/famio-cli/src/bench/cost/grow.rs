//! What grows from row to row, and how far.

use clap::ValueEnum;

/// What a cost should not depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Growing {
    /// The size of the file, which has no blocks yet.
    FileSize,
    /// How many atomic files are open.
    OpenFiles,
    /// How many writes one SYNC commits.
    Epoch,
    /// How many small files are made, one after the other.
    SmallFiles,
}

impl Growing {
    pub fn title(self) -> &'static str {
        match self {
            Self::FileSize => "size of the file",
            Self::OpenFiles => "open files",
            Self::Epoch => "writes in an epoch",
            Self::SmallFiles => "small files",
        }
    }

    /// What is timed, in the order in which the work prints it. Each time is divided by the number of calls.
    pub fn steps(self) -> &'static [&'static str] {
        match self {
            Self::FileSize => {
                &["open", "first write of 4 KiB", "its SYNC", "later writes of 4 KiB", "their SYNC", "close"]
            }
            Self::OpenFiles => &["open", "first write of 4 KiB", "later writes of 4 KiB, each with a SYNC", "close"],
            Self::Epoch => &["writes of 64 B", "the SYNC, for each write", "the close, for each write"],
            Self::SmallFiles => &["made, written, synced, closed"],
        }
    }

    /// The numbers of the rows. `all`: also those that may take minutes.
    pub fn numbers(self, all: bool) -> Vec<u64> {
        let (usual, large): (&[u64], &[u64]) = match self {
            Self::FileSize => (&[1 << 20, 1 << 30, 1 << 36, 1 << 43], &[]),
            Self::OpenFiles => (&[1, 100, 1_000], &[10_000]),
            Self::Epoch => (&[1, 1_000, 100_000, 1_000_000], &[10_000_000]),
            Self::SmallFiles => (&[100, 1_000], &[50_000]),
        };
        if all { [usual, large].concat() } else { usual.to_vec() }
    }

    /// A number as the table shows it.
    pub fn shown(self, number: u64) -> String {
        if self == Self::FileSize { crate::text::bytes(number) } else { number.to_string() }
    }
}
