//! Transactions as C names them: numbers instead of pointers, so that using one after its end is an error.
//!
//! A handle holds the number of a slot and how often that slot was used. Slots lie in chunks that are never freed.

use crate::error::{Error, Result};
use crate::sys::process_id;
use crate::transaction::Transaction;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::alloc::{Layout, alloc_zeroed};

/// Slots of a chunk, and number of chunks: their product is the most transactions that can be open at once.
const CHUNK: usize = 128;
const CHUNKS: usize = 4096;
/// States in a slot's word: free; holds a transaction that no call is using; in use by one call. The bits above count
/// the uses of the slot.
const FREE: u64 = 0;
const IDLE: u64 = 1;
const BUSY: u64 = 2;
const STATE: u64 = 3;
const ONE_USE: u64 = 4;
/// Bits of a handle for the slot's number, plus one.
const PLACE_BITS: u32 = 20;
/// Bits for the count: the rest of the positive numbers of a pointer's size.
const USES: u64 = (1 << 40) - 1;

/// Zeros are a valid value.
struct Place {
    word: AtomicU64,
    /// The process that began the transaction.
    process: AtomicU32,
    transaction: UnsafeCell<Option<Transaction>>,
}

// SAFETY: only the call that has made the word busy touches the transaction.
unsafe impl Sync for Place {}

static ALL: [AtomicPtr<[Place; CHUNK]>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
/// Where the search for a free slot begins.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// Exclusive use of a transaction by one call, until dropped.
pub(super) struct InUse {
    place: &'static Place,
    word: u64,
}

fn place(number: usize) -> Option<&'static Place> {
    let chunk = ALL.get(number / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: null, or a chunk that is never freed.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[number % CHUNK])
}

fn handle_of(number: usize, word: u64) -> usize {
    (((word / ONE_USE) & USES) << PLACE_BITS) as usize | (number + 1)
}

/// Gives a transaction a handle, never 0.
///
/// # Errors
/// `ENOMEM`: there are too many transactions.
pub(super) fn put(transaction: Transaction) -> Result<usize> {
    let hint = HINT.load(Ordering::Relaxed);
    for step in 0..CHUNK * CHUNKS {
        let number = (hint + step) % (CHUNK * CHUNKS);
        if place(number).is_none() {
            if !number.is_multiple_of(CHUNK) {
                continue;
            }
            add_chunk(number / CHUNK)?;
        }
        let Some(place) = place(number) else { continue };
        let free = place.word.load(Ordering::Relaxed);
        if free & STATE != FREE
            || place.word.compare_exchange(free, free | BUSY, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            continue;
        }
        place.process.store(process_id(), Ordering::Relaxed);
        // SAFETY: this call has made the word busy.
        unsafe { *place.transaction.get() = Some(transaction) };
        place.word.store(free | IDLE, Ordering::Release);
        HINT.store(number, Ordering::Relaxed);
        return Ok(handle_of(number, free));
    }
    Err(Error::with(libc::ENOMEM, "too many transactions are open"))
}

#[cold]
fn add_chunk(index: usize) -> Result<()> {
    // SAFETY: the type has a size. Zeros are a valid chunk: free places, and `None` below is stored before one is read.
    let chunk = unsafe { alloc_zeroed(Layout::new::<[Place; CHUNK]>()) }.cast::<[Place; CHUNK]>();
    if chunk.is_null() {
        return Err(Error::new(libc::ENOMEM));
    }
    for number in 0..CHUNK {
        // SAFETY: in the chunk, which no other thread has yet.
        unsafe { (&raw mut (*chunk)[number].transaction).write(UnsafeCell::new(None)) };
    }
    if ALL[index].compare_exchange(ptr::null_mut(), chunk, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was first; this one was never shared.
        unsafe { std::alloc::dealloc(chunk.cast(), Layout::new::<[Place; CHUNK]>()) };
    }
    Ok(())
}

/// The transaction of a handle, for one call.
///
/// # Errors
/// `EINVAL`: it has ended or never existed. `EBUSY`: another call is using it.
pub(super) fn get(handle: usize) -> Result<InUse> {
    let ended = || Error::with(libc::EINVAL, "the transaction was committed or aborted already, or is invalid");
    let number = (handle & ((1 << PLACE_BITS) - 1)).checked_sub(1).ok_or_else(ended)?;
    let place = place(number).ok_or_else(ended)?;
    let word = place.word.load(Ordering::Relaxed);
    if word & STATE == FREE || handle_of(number, word) != handle {
        return Err(ended());
    }
    let idle = word & !STATE | IDLE;
    match place.word.compare_exchange(idle, word & !STATE | BUSY, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(InUse { place, word: idle }),
        Err(now) if now & !STATE == idle & !STATE && now & STATE == BUSY => match place.process.load(Ordering::Relaxed)
        {
            // A thread of the parent was using it at the fork.
            process if process != process_id() => Err(crate::transaction::of_parent()),
            _ => Err(Error::with(libc::EBUSY, "another call uses the transaction at this moment")),
        },
        Err(_) => Err(ended()),
    }
}

impl InUse {
    /// The transaction.
    pub fn transaction(&mut self) -> Result<&mut Transaction> {
        // SAFETY: this call has made the word busy.
        unsafe { &mut *self.place.transaction.get() }.as_mut().ok_or(Error::new(libc::EINVAL))
    }

    /// Takes the transaction out; the handle is invalid from now on.
    pub fn take(mut self) -> Option<Transaction> {
        // SAFETY: this call has made the word busy.
        let transaction = unsafe { &mut *self.place.transaction.get() }.take();
        self.word = (self.word & !STATE).wrapping_add(ONE_USE) | FREE;
        transaction
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.place.word.store(self.word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::file::{Access, AtomicFile};
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn a_transaction_is_one_calls_at_a_time() {
        let path = format!("/dev/shm/famio-handles-{}", std::process::id());
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let name = std::ffi::CString::new(path.clone()).unwrap();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
        let begin = || put(Transaction::begin(&atomic, false).unwrap()).unwrap();
        let errno = |handle| get(handle).map(drop).map_err(|e| e.errno());
        let (first, second) = (begin(), begin());
        let in_use = get(first).unwrap();
        assert_eq!((errno(first), errno(second)), (Err(libc::EBUSY), Ok(())));
        drop(in_use);
        drop(get(first).unwrap().take());
        assert_eq!(
            (errno(first), errno(0), errno(usize::MAX)),
            (Err(libc::EINVAL), Err(libc::EINVAL), Err(libc::EINVAL))
        );
        // The slot is used again, under another handle.
        let many: Vec<usize> = (0..3 * CHUNK).map(|_| begin()).collect();
        assert!(!many.contains(&first) && !many.contains(&second));
        assert!(many.iter().all(|&handle| errno(handle) == Ok(())) && errno(first) == Err(libc::EINVAL));
        many.into_iter().chain([second]).for_each(|handle| drop(get(handle).unwrap().take()));
        atomic.remove_descriptor(file.as_raw_fd()).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
