//! Calls under way that change the file, for `on-kill = keep`: before a call begins, it records what it is about to
//! do, with the bytes. The process that takes over completes the calls that were interrupted.

use crate::error::{Error, Result};
use crate::index::arena::Arena;
use crate::index::lock::Stuck;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::time::Timespec;

/// The most bytes of a call that are recorded at once. Longer calls are written in pieces.
pub(crate) const MOST_AT_ONCE: usize = 4 << 20;
/// Calls at the same time.
const CALLS: usize = 32;
/// The first size of a call's room for bytes.
const FIRST: usize = 64 << 10;
/// Looks for a free record until the wait is given up, about a minute; and those of them with only a yield in
/// between.
const LOOKS: u32 = 60_000;
const YIELDS: u32 = 1000;
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

const FREE: u64 = 0;
const TAKEN: u64 = 1;
const WRITE: u64 = 2;
const SIZE: u64 = 3;
const ZEROS: u64 = 4;

/// What a call is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Writes `len` bytes, which lie in the arena at `bytes`.
    Write { offset: u64, len: u64, bytes: u64 },
    /// Sets the file's size.
    Size(u64),
    /// Writes zeros, but not beyond the end of the file.
    Zeros { offset: u64, len: u64 },
}

/// One call. Other processes may have written any value: each is checked before it is used.
#[repr(C, align(64))]
#[derive(Default)]
struct Place {
    state: AtomicU64,
    at: AtomicU64,
    len: AtomicU64,
    /// Room in the arena, kept for the next call, and its size.
    bytes: AtomicU64,
    room: AtomicU64,
}

/// The records of a file.
#[repr(C)]
pub(crate) struct Calls([Place; CALLS]);

/// A call with a record. When it is dropped, the call is complete or has failed.
pub(crate) struct Call<'a> {
    arena: &'a Arena,
    place: &'a Place,
}

impl Calls {
    /// Makes the table, once per arena, while no call is under way.
    pub fn prepare(arena: &Arena) -> Result<()> {
        let word = &arena.shared().in_flight;
        if word.load(Ordering::Acquire) == 0 {
            word.store(arena.allocate(size_of::<Self>())?, Ordering::Release);
        }
        Self::of(arena)?.0.iter().for_each(|place| place.state.store(FREE, Ordering::Release));
        Ok(())
    }

    fn of(arena: &Arena) -> Result<&Self> {
        arena.at(arena.shared().in_flight.load(Ordering::Acquire)).ok_or(Error::new(libc::EIO))
    }

    /// Takes a record for a call of this thread, which is inside the gate or has closed it. `EDEADLK`: none becomes
    /// free.
    pub fn begin(arena: &Arena) -> Result<Call<'_>> {
        let table = Self::of(arena)?;
        for look in 0..LOOKS {
            let take = |place: &&Place| {
                place.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
            };
            if let Some(place) = table.0.iter().find(take) {
                return Ok(Call { arena, place });
            }
            if look < YIELDS {
                rustix::thread::sched_yield();
            } else {
                let _ = rustix::thread::nanosleep(&REST);
            }
        }
        Err(Stuck.into())
    }

    /// The calls under way, from the bytes of the table in a dead process's arena.
    pub fn read(bytes: &[u8; size_of::<Self>()]) -> impl Iterator<Item = What> {
        let words = bytes.chunks_exact(size_of::<Place>()).map(|place| {
            let word = |i: usize| u64::from_ne_bytes(core::array::from_fn(|b| place[8 * i + b]));
            core::array::from_fn(word)
        });
        words.filter_map(|[state, at, len, bytes, room]: [u64; 5]| match state {
            WRITE if len <= room && len <= MOST_AT_ONCE as u64 => Some(What::Write { offset: at, len, bytes }),
            SIZE => Some(What::Size(at)),
            ZEROS => Some(What::Zeros { offset: at, len }),
            _ => None,
        })
    }
}

impl Call<'_> {
    /// Room for `len` bytes of this call, at most [`MOST_AT_ONCE`]. `ENOSPC`: none is left.
    pub fn room(&self, len: usize) -> Result<*mut u8> {
        debug_assert!(len <= MOST_AT_ONCE);
        if (self.place.room.load(Ordering::Relaxed) as usize) < len {
            let room = len.max(FIRST).next_power_of_two();
            self.place.room.store(0, Ordering::Relaxed);
            self.place.bytes.store(self.arena.allocate(room)?, Ordering::Relaxed);
            self.place.room.store(room as u64, Ordering::Relaxed);
        }
        let (from, room) = (self.place.bytes.load(Ordering::Relaxed), self.place.room.load(Ordering::Relaxed));
        // Its end first: a mapping that has the end has all before it.
        let line = |at: u64| self.arena.at::<[AtomicU64; 8]>(at).ok_or(Error::new(libc::EIO));
        line(from.wrapping_add(room).wrapping_sub(64))?;
        Ok(line(from)?.as_ptr().cast_mut().cast())
    }

    /// The call is about to write the first `len` bytes of its room to `offset`.
    pub fn writes(&self, offset: u64, len: usize) {
        self.publish(WRITE, offset, len as u64);
    }

    /// The call is about to set the file's size.
    pub fn sets_size(&self, size: u64) {
        self.publish(SIZE, size, 0);
    }

    /// The call is about to write zeros.
    pub fn writes_zeros(&self, offset: u64, len: u64) {
        self.publish(ZEROS, offset, len);
    }

    fn publish(&self, what: u64, at: u64, len: u64) {
        self.place.at.store(at, Ordering::Relaxed);
        self.place.len.store(len, Ordering::Relaxed);
        self.place.state.store(what, Ordering::Release);
        // Nothing of the call is stored before this.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// The recorded step is complete; the call goes on.
    pub fn done(&self) {
        self.place.state.store(TAKEN, Ordering::Release);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.place.state.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arena: &Arena) -> Vec<What> {
        let table = Calls::of(arena).unwrap();
        // SAFETY: a table, which consists of words.
        let bytes = unsafe { &*core::ptr::from_ref(table).cast::<[u8; size_of::<Calls>()]>() };
        Calls::read(bytes).collect()
    }

    #[test]
    fn a_call_is_seen_as_long_as_it_is_under_way() {
        let arena = Arena::for_test();
        Calls::prepare(&arena).unwrap();
        let first = Calls::begin(&arena).unwrap();
        assert_eq!(read(&arena), []);
        let second = Calls::begin(&arena).unwrap();
        let room = second.room(100_000).unwrap();
        // SAFETY: room for this many bytes.
        unsafe { room.write_bytes(7, 100_000) };
        first.sets_size(5);
        second.writes(70, 100_000);
        let bytes = second.place.bytes.load(Ordering::Relaxed);
        assert_eq!(read(&arena), [What::Size(5), What::Write { offset: 70, len: 100_000, bytes }]);
        drop(first);
        assert_eq!(second.room(90_000).unwrap(), room);
        second.done();
        assert_eq!(read(&arena), []);
        second.writes_zeros(1, 2);
        assert_eq!(read(&arena), [What::Zeros { offset: 1, len: 2 }]);
        Calls::prepare(&arena).unwrap();
        assert_eq!(read(&arena), []);
    }
}
