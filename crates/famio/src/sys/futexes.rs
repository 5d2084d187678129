//! Waiting for several words at once (`futex_waitv`, Linux 5.16).

use super::syscall;
use core::sync::atomic::AtomicU32;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The most words that the kernel takes.
pub(crate) const WORDS_MAX: usize = 128;
const SIZE_U32: u32 = 2;
const PRIVATE: u32 = 128;

/// A word, and its value while there is nothing to do: `struct futex_waitv`.
#[repr(C)]
#[derive(PartialEq, Eq)]
pub(crate) struct Word {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

impl Word {
    /// A word that other processes change, too.
    pub fn shared(word: &AtomicU32, value: u32) -> Self {
        Self { value: value.into(), address: word.as_ptr().expose_provenance() as u64, flags: SIZE_U32, reserved: 0 }
    }

    /// A word of this process.
    pub fn private(word: &AtomicU32, value: u32) -> Self {
        Self { flags: SIZE_U32 | PRIVATE, ..Self::shared(word, value) }
    }

    /// Wakes all waiters of a shared word, in any process.
    pub fn wake(&self) {
        let args = [self.address as usize, libc::FUTEX_WAKE as usize, i32::MAX as usize, 0, 0, 0];
        // SAFETY: the kernel takes the address as a name and does not access it; an invalid one is refused.
        unsafe { syscall(libc::SYS_futex, args) };
    }
}

/// How a wait for several words ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The waiters of this word were woken.
    Woken(usize),
    /// The time is over.
    InTime,
    /// A word had another value before, or is not there any more; or a signal came.
    Otherwise,
    /// The kernel lacks the call.
    Unknown,
}

/// Sleeps until one of the words has another value and its waiters are woken, or for `limit`.
pub(crate) fn wait_for_any(words: &[Word], limit: Option<&Timespec>) -> Ended {
    let until = limit.map(|limit| {
        let now = clock_gettime(ClockId::Monotonic);
        let nanos = now.tv_nsec + limit.tv_nsec;
        Timespec { tv_sec: now.tv_sec + limit.tv_sec + nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 }
    });
    let time = until.as_ref().map_or(0, |until| core::ptr::from_ref(until) as usize);
    let args = [words.as_ptr() as usize, words.len(), 0, time, libc::CLOCK_MONOTONIC as usize, 0];
    // SAFETY: `words` and the time are only read; the kernel checks the addresses in them, and only reads there.
    let result = unsafe { syscall(libc::SYS_futex_waitv, args) };
    match usize::try_from(result) {
        Ok(index) => Ended::Woken(index),
        Err(_) if [libc::ENOSYS, libc::EINVAL].contains(&(-result as i32)) => Ended::Unknown,
        Err(_) if -result as i32 == libc::ETIMEDOUT => Ended::InTime,
        Err(_) => Ended::Otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;
    use rustix::thread::futex;

    #[test]
    fn either_word_ends_the_wait() {
        let words = [AtomicU32::new(5), AtomicU32::new(6)];
        for changed in 0..2 {
            let values = words.each_ref().map(|word| word.load(Ordering::SeqCst));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    words[changed].fetch_add(1, Ordering::SeqCst);
                    let _ = futex::wake(&words[changed], futex::Flags::PRIVATE, 1);
                });
                let both = [Word::private(&words[0], values[0]), Word::private(&words[1], values[1])];
                assert!([Ended::Woken(changed), Ended::Otherwise].contains(&wait_for_any(&both, None)));
            });
        }
        let short = Timespec { tv_sec: 0, tv_nsec: 1000 };
        let same = [Word::shared(&words[0], words[0].load(Ordering::SeqCst))];
        assert_eq!(wait_for_any(&same, Some(&short)), Ended::InTime);
    }
}
