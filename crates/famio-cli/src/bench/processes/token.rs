//! The token with which two processes write alternately: a futex in a file that both map. Passing it costs next to
//! nothing compared with what is measured.

use crate::bench::clock::now;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::fs::File;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Room for the word: a page.
const SIZE: usize = 4096;

/// Counts the turns taken; even ones belong to the first process.
pub struct Token(NonNull<AtomicU32>);

impl Token {
    /// Creates the file.
    pub fn prepare(path: &Path) -> std::io::Result<()> {
        std::fs::write(path, [0; SIZE])
    }

    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file that only the bench uses, and never cuts.
        let at = unsafe { mmap(null_mut(), SIZE, access, MapFlags::SHARED, &file, 0) }?;
        NonNull::new(at.cast()).map(Self).ok_or(std::io::Error::other("mapped at 0"))
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped as long as the value lives, aligned, and only used as an atomic word.
        unsafe { self.0.as_ref() }
    }

    /// Waits for ownership of process `me`; returns its number. `None`: the other process did not pass it on before
    /// `end`.
    pub fn wait(&self, me: u32, end: u64) -> Option<u64> {
        loop {
            let turn = self.word().load(Ordering::Acquire);
            if turn % 2 == me {
                return Some(turn.into());
            }
            let left = end.saturating_sub(now());
            if left == 0 {
                return None;
            }
            let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as _ };
            let _ = futex::wait(self.word(), futex::Flags::empty(), turn, Some(&timeout));
        }
    }

    /// Passes ownership to the other process.
    pub fn pass(&self) {
        self.word().fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(self.word(), futex::Flags::empty(), 1);
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, with no reference into it left.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        Token::prepare(&path).unwrap();
        let end = now() + 10_000_000_000;
        let ownership = |me: u32| -> Vec<u64> {
            let token = Token::open(&path).unwrap();
            (0..100).map(|_| token.wait(me, end).inspect(|_| token.pass()).unwrap()).collect()
        };
        std::thread::scope(|scope| {
            let second = scope.spawn(|| ownership(1));
            assert_eq!(ownership(0), (0..200).step_by(2).collect::<Vec<_>>());
            assert_eq!(second.join().unwrap(), (1..200).step_by(2).collect::<Vec<_>>());
        });
        let token = Token::open(&path).unwrap();
        assert_eq!(token.wait(1, now()), None);
    }
}
