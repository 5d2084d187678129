//! Pieces waiting to be copied.

use crate::file::engine::context::Piece;
use crate::index::BLOCK;
use core::mem::MaybeUninit;

/// Pieces that are copied at once.
pub(super) const PIECES: usize = 64;

/// Up to [`PIECES`] pieces, in order.
///
/// Invariant: the first `count` are initialized. Zeroing all would be a hundredth of a small transaction.
pub(super) struct Pieces {
    all: [MaybeUninit<Piece>; PIECES],
    count: usize,
}

impl Pieces {
    pub fn new() -> Self {
        Self { all: [const { MaybeUninit::uninit() }; PIECES], count: 0 }
    }

    /// Whether all end within a file of that size.
    pub fn is_within(&self, size: u64) -> bool {
        self.all().iter().all(|piece| piece.block * BLOCK as u64 + piece.end as u64 <= size)
    }

    #[inline]
    pub fn all(&self) -> &[Piece] {
        // SAFETY: see the invariant.
        unsafe { core::slice::from_raw_parts(self.all.as_ptr().cast(), self.count) }
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds the pieces of a range, one per block. `make_room`: called when there is no room for the next; it clears.
    #[inline]
    pub fn add<E>(
        &mut self,
        offset: u64,
        bytes: &[u8],
        mut make_room: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let end = BLOCK.min(start + bytes.len() - done);
            if self.count == PIECES {
                make_room(self)?;
            }
            self.all[self.count].write(Piece { block, start, end, from: bytes[done..].as_ptr() });
            self.count += 1;
            done += end - start;
        }
        Ok(())
    }

    /// Moves those for which `goes` is true to `other`, which is empty; both keep their order.
    pub fn split(&mut self, other: &mut Self, mut goes: impl FnMut(&Piece) -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            // SAFETY: see the invariant.
            let piece = unsafe { self.all[at].assume_init() };
            if goes(&piece) {
                other.all[other.count].write(piece);
                other.count += 1;
            } else {
                self.all[kept].write(piece);
                kept += 1;
            }
        }
        self.count = kept;
    }
}
