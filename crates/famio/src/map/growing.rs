//! A mapping that is replaced by a longer one when its file outgrows it. Those before it stay, as long as their file's
//! last: others may still use their addresses.

use super::Mapping;
use crate::error::Result;
use crate::thread::{Guard, Mutex};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The mappings of one file.
pub(crate) struct GrowingMapping {
    current: AtomicPtr<Mapping>,
    /// What [`ptr`](Self::ptr) needs of the current one. The length is stored last: the address is at least as new.
    base: AtomicPtr<u8>,
    len: AtomicUsize,
    /// All that were ever made, the current one last.
    #[allow(clippy::vec_box, reason = "others hold pointers to them")]
    all: Mutex<Vec<Box<Mapping>>>,
}

/// Keeps others from making longer ones.
pub(crate) struct Growing<'a> {
    of: &'a GrowingMapping,
    #[allow(clippy::vec_box, reason = "as above")]
    all: Guard<'a, Vec<Box<Mapping>>>,
}

impl GrowingMapping {
    pub fn new(first: Mapping) -> Self {
        let first = Box::new(first);
        Self {
            current: AtomicPtr::new(core::ptr::from_ref(&*first).cast_mut()),
            base: AtomicPtr::new(first.base()),
            len: AtomicUsize::new(first.reserved()),
            all: Mutex::new(vec![first]),
        }
    }

    /// As [`Mapping::ptr`] of the current one.
    #[inline]
    pub fn ptr(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len as u64)?;
        let is_inside = end <= self.len.load(Ordering::Acquire) as u64;
        is_inside.then(|| self.base.load(Ordering::Relaxed).wrapping_add(offset as usize))
    }

    #[inline]
    pub fn current(&self) -> &Mapping {
        // SAFETY: points to a box in `all`, which keeps all of them as long as `self`.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Keeps others from making longer ones.
    pub fn lock(&self) -> Growing<'_> {
        Growing { of: self, all: self.all.lock() }
    }

    /// The current mapping, which reaches `end`: if it does not, one that `make` returns replaces it.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn reach(&self, end: u64, make: impl FnOnce() -> Result<Mapping>) -> Result<&Mapping> {
        if end > self.current().reserved() as u64 {
            self.lock().reach(end, make)?;
        }
        Ok(self.current())
    }
}

impl Growing<'_> {
    /// As [`GrowingMapping::reach`].
    pub fn reach(&mut self, end: u64, make: impl FnOnce() -> Result<Mapping>) -> Result<()> {
        if self.all.last().is_none_or(|current| end > current.reserved() as u64) {
            let map = Box::new(make()?);
            self.of.current.store(core::ptr::from_ref(&*map).cast_mut(), Ordering::Release);
            self.of.base.store(map.base(), Ordering::Relaxed);
            self.of.len.store(map.reserved(), Ordering::Release);
            self.all.push(map);
        }
        Ok(())
    }
}
