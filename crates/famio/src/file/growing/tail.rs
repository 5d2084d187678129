//! The uncommitted part of a growing file, while that gets a session: cut off the kernel's file, and in the session, or
//! put back.

use crate::error::{Error, Result};
use crate::file::state::growing_state::{Moving, State};
use crate::index::BLOCK;
use crate::journal::folder_of;
use crate::pmem::{Medium, unnamed_file_in};
use crate::sys::{InternalFd, each_data, read_at, write_at};
use std::os::fd::{AsFd, BorrowedFd};

/// The most bytes of an open epoch that move through memory; more go through a file.
const IN_MEMORY: u64 = 1 << 20;

/// The bytes beyond the committed size, and the state of the file that they were cut off, with its overwrites.
pub(in crate::file) struct Tail<'a> {
    /// The committed size, where the bytes begin.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: Bytes,
    /// The state while it grew.
    pub(super) state: Box<State>,
    pub(super) is_taken: bool,
    pub(super) _moving: Moving<'a>,
}

pub(super) enum Bytes {
    InMemory(Vec<u8>),
    InFile(InternalFd),
}

impl Bytes {
    pub(super) fn of(fd: BorrowedFd<'_>, from: u64, to: u64) -> Result<Self> {
        if to - from <= IN_MEMORY {
            let mut bytes = vec![0; (to - from) as usize];
            let read = read_at(fd, from, &mut bytes)?;
            return if read == bytes.len() { Ok(Self::InMemory(bytes)) } else { Err(Error::new(libc::EIO)) };
        }
        let file = unnamed_file_in(folder_of(fd)?.0.as_fd())?;
        rustix::fs::ftruncate(&file, to - from)?;
        let is_whole = each_data(fd, from..to, |at, piece| write_at(&file, at - from, piece))?;
        if is_whole { Ok(Self::InFile(file)) } else { Err(Error::new(libc::EIO)) }
    }

    /// The bytes piece by piece with their offsets, without holes, for which a full disk may have no room.
    pub(super) fn each(&self, from: u64, to: u64, mut put: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        match self {
            Self::InMemory(bytes) => each_run(bytes, from, put),
            Self::InFile(file) => {
                let is_whole = each_data(file, 0..to - from, |at, piece| put(from + at, piece))?;
                if is_whole { Ok(()) } else { Err(Error::new(libc::EIO)) }
            }
        }
    }

    /// Puts the bytes back into the file, which was cut.
    pub(super) fn put_back(&self, fd: BorrowedFd<'_>, (from, to): (u64, u64), medium: &dyn Medium) -> Result<()> {
        medium.ftruncate(fd, to)?;
        self.each(from, to, |offset, piece| medium.pwritev(fd, &[piece], offset))
    }
}

/// Calls `put` for the runs of blocks that are not all zeros. `from`: the offset of `bytes`.
fn each_run(bytes: &[u8], from: u64, mut put: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut run = 0..0;
    while run.end < bytes.len() {
        let block_end = BLOCK - (from as usize + run.end) % BLOCK;
        let end = bytes.len().min(run.end + block_end);
        let is_hole = bytes[run.end..end].iter().all(|&byte| byte == 0);
        if is_hole {
            if !run.is_empty() {
                put(from + run.start as u64, &bytes[run.clone()])?;
            }
            run = end..end;
        } else {
            run.end = end;
        }
    }
    if run.is_empty() { Ok(()) } else { put(from + run.start as u64, &bytes[run]) }
}

impl Tail<'_> {
    /// Puts the bytes back into the file, which was cut.
    pub(super) fn put_back(&self, fd: BorrowedFd<'_>) -> Result<()> {
        self.bytes.put_back(fd, (self.from, self.to), self.state.medium)
    }
}

impl State {
    /// The file was cut to `from`, but could not be made one without a mark because of `error`. Makes it again the
    /// growing file of `to` bytes that it was. If that is impossible, or a flush may have failed, it takes no more
    /// changes.
    pub(super) fn grow_again(
        &mut self,
        fd: BorrowedFd<'_>,
        bytes: &Bytes,
        (from, to): (u64, u64),
        error: Error,
    ) -> Error {
        self.mark = self.mark.of_size_with_room(from);
        let is_again = self.mark_again(fd).and_then(|()| bytes.put_back(fd, (from, to), self.medium));
        self.is_suspect |= error.errno() == libc::EIO || is_again.is_err();
        match is_again {
            Ok(()) => error,
            Err(e) => self.lost(fd, from, e),
        }
    }

    /// What lay beyond `from` could not be put back: the file has what is committed, and takes no more changes.
    pub(super) fn lost(&mut self, fd: BorrowedFd<'_>, from: u64, error: Error) -> Error {
        self.is_suspect = true;
        let _ = self.medium.ftruncate(fd, from); // a part of it may be there; a recovery cuts it off, too
        let what = "what was written since its last SYNC could neither be kept in a journal nor put back";
        Error::with(libc::EIO, format!("{what} ({error})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let from = 3 * BLOCK as u64 - 2;
        let mut bytes = vec![0; 5 * BLOCK];
        let runs = |bytes: &[u8]| {
            let mut runs = Vec::new();
            each_run(bytes, from, |at, piece| {
                runs.push((at, piece.len()));
                Ok(())
            })
            .unwrap();
            runs
        };
        assert_eq!(runs(&bytes), []);
        bytes[1] = 1; // the first block has two bytes
        assert_eq!(runs(&bytes), [(from, 2)]);
        bytes[2] = 1;
        assert_eq!(runs(&bytes), [(from, 2 + BLOCK)]);
        bytes[5 * BLOCK - 1] = 1;
        assert_eq!(runs(&bytes), [(from, 2 + BLOCK), (from + 2 + 4 * BLOCK as u64, BLOCK - 2)]);
        bytes.truncate(BLOCK);
        assert_eq!(runs(&bytes), [(from, BLOCK)]);
    }
}
