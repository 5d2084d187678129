//! What a process says about its commits: records in a file on tmpfs, which a SIGKILL leaves.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

const WORDS: usize = 5;

/// One commit; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    pub epoch: u64,
    /// When its first write began, in monotonic time.
    pub begun: u64,
    /// How long its writes took.
    pub writing: u64,
    /// How long its SYNC took.
    pub sync: u64,
    /// How long the thread meanwhile was ready to run, and the machine ran something else.
    pub not_run: u64,
}

impl Commit {
    /// Appends it to a file that was opened for that.
    pub fn append(&self, board: &mut File) -> std::io::Result<()> {
        let words = [self.epoch, self.begun, self.writing, self.sync, self.not_run];
        board.write_all(&words.map(u64::to_le_bytes).concat())
    }

    /// From the first write to the return of the SYNC.
    pub fn total(&self) -> u64 {
        self.writing + self.sync
    }
}

/// All commits on the board, which is empty then.
pub fn take(board: &mut File) -> std::io::Result<Vec<Commit>> {
    let mut bytes = Vec::new();
    board.seek(SeekFrom::Start(0))?;
    board.read_to_end(&mut bytes)?;
    board.set_len(0)?;
    let word = |record: &[u8], index: usize| {
        let bytes = record[index * 8..].first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    let commit = |record: &[u8]| Commit {
        epoch: word(record, 0),
        begun: word(record, 1),
        writing: word(record, 2),
        sync: word(record, 3),
        not_run: word(record, 4),
    };
    Ok(bytes.chunks_exact(WORDS * 8).map(commit).collect())
}

/// Monotonic time, the same in all containers.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
