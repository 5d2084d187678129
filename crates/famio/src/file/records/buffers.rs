//! Buffers in the arena, of a block each, on a free list when not in use.

use crate::error::{Error, Result};
use crate::file::engine::context::Context;
use crate::index::BLOCK;
use core::sync::atomic::{AtomicU64, Ordering};

/// A buffer in the arena.
type Words = [AtomicU64; BLOCK / 8];

/// Buffers begin at multiples of this: a cell stores the offset divided by it.
pub(in crate::file) const UNIT: u64 = 64;

fn words(cx: Context<'_>, number: u32) -> Option<&Words> {
    cx.arena.at::<Words>(u64::from(number) * UNIT)
}

/// The address of buffer `number`.
pub(super) fn address(cx: Context<'_>, number: u32) -> Result<*mut u8> {
    let words =
        words(cx, number).ok_or_else(|| Error::with(libc::EIO, "the shared index is damaged: no such buffer"))?;
    Ok(words.as_ptr().cast_mut().cast())
}

/// Takes a buffer with arbitrary contents. `ENOSPC`: memory is short.
pub(super) fn take(cx: Context<'_>) -> Result<u32> {
    let shared = cx.shared();
    loop {
        // The lower half is the first free buffer, the upper one counts changes.
        let head = shared.buffers.load(Ordering::Acquire);
        let number = if head as u32 == 0 {
            let offset = cx.arena.allocate(BLOCK)?;
            u32::try_from(offset / UNIT).map_err(|_| Error::new(libc::ENOSPC))?
        } else {
            let next = words(cx, head as u32).ok_or(Error::new(libc::EIO))?[0].load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next as u32);
            if shared.buffers.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            head as u32
        };
        shared.used.fetch_add(1, Ordering::Relaxed);
        return Ok(number);
    }
}

/// Returns a buffer to the list. Only optimistic readers may still read it, and they will notice.
pub(super) fn give_back(cx: Context<'_>, number: u32) {
    let shared = cx.shared();
    let Some(words) = words(cx, number) else { return };
    shared.used.fetch_sub(1, Ordering::Relaxed);
    loop {
        let head = shared.buffers.load(Ordering::Acquire);
        words[0].store(u64::from(head as u32), Ordering::Relaxed);
        let new = (head >> 32).wrapping_add(1) << 32 | u64::from(number);
        if shared.buffers.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}
