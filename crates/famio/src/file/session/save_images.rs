//! Saves before-images: the bytes that a change replaces.

use super::Session;
use crate::error::Result;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::engine::context::{Context, Part};
use crate::file::images::Known;
use crate::index::{BLOCK, IMAGE_MAX, Images, NotSaved, Position, Writer, add_range, follow_up, images};
use core::ops::Range;
use core::sync::atomic::Ordering;

/// A cut by more bytes than this does not save what it removes.
const CUT_MAX: u64 = 1 << 20;

impl Session {
    /// Whether a change has to save the bytes that it replaces.
    #[inline]
    pub(in crate::file) fn saves_images(&self) -> bool {
        matches!(self.arena.shared().images.load(Ordering::Relaxed), images::ALL | images::BEGUN)
    }

    /// Everything uncommitted is in the session.
    pub(in crate::file) fn has_taken_up(&self) {
        let (from, to) = (images::BEGUN, images::ALL);
        let _ = self.arena.shared().images.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Saves what a write of `len` bytes at `offset` replaces. Inside the gate; a write that makes the file longer
    /// holds its lock.
    ///
    /// # Errors
    /// Refused as if the session had ended: a new one has to begin ([`Imaging::is_full`]). `ENOSPC`: no memory.
    #[cold]
    pub(in crate::file) fn save_images(&self, cx: Context<'_>, offset: u64, len: u64) -> Answer<()> {
        let size = cx.shared().size();
        let range = offset..offset + len;
        self.saving(cx, &range, |Known { position, covered, .. }, by| {
            if range.end > size {
                Images::of(cx.arena).add_size(position, by, size)?;
            } else if covered.has(by, &range) {
                return Ok(());
            }
            self.save_bytes(cx, position, by, offset, len, size)?;
            covered.add(by, &range);
            Ok(())
        })
    }

    /// Saves what a change of the size to `size` removes. With the gate closed.
    ///
    /// # Errors
    /// As [`save_images`](Self::save_images).
    #[cold]
    pub(in crate::file) fn save_images_of_size(&self, cx: Context<'_>, size: u64) -> Answer<()> {
        let old = cx.shared().size();
        self.saving(cx, &(size.min(old)..u64::MAX), |Known { position, covered, .. }, by| {
            covered.clear();
            if size < old {
                if old - size > CUT_MAX {
                    return Err(NotSaved::TooMany);
                }
                self.save_bytes(cx, position, by, size, old - size, old)?;
            }
            Images::of(cx.arena).add_size(position, by, old)
        })
    }

    fn saving(
        &self,
        cx: Context<'_>,
        range: &Range<u64>,
        save: impl FnOnce(&mut Known, (u64, Writer)) -> core::result::Result<(), NotSaved>,
    ) -> Answer<()> {
        let shared = cx.shared();
        let imaging = &self.imaging;
        if shared.follow_up.load(Ordering::Acquire) & follow_up::OTHERS != 0 {
            imaging.end_tenures(range);
        }
        let mut known = imaging.known.lock();
        let writer = imaging.in_place_of.lock().unwrap_or_else(|| imaging.membership.me());
        // A file without a name is lost with this process: no other process could tell the writers then.
        let saved = match save(&mut known, (shared.committed() + 1, writer)) {
            Ok(()) if cx.arena.has_spilled() => Err(NotSaved::TooMany),
            Ok(()) if writer.id != imaging.membership.me().id => {
                add_range(&mut known.others, range.clone(), writer);
                Ok(())
            }
            saved => saved,
        };
        match saved {
            // All of the epoch is still where it is taken up from.
            Err(NotSaved::TooMany) if shared.images.load(Ordering::Acquire) == images::BEGUN => {
                shared.images.store(images::SOME, Ordering::Release);
                Ok(())
            }
            Err(NotSaved::TooMany) => {
                let all = Images::of(cx.arena).ranges(shared.committed() + 1)?;
                if all.iter().any(|(_, whose)| *whose != writer) && !self.of_group.load(Ordering::Relaxed) {
                    imaging.is_full.store(true, Ordering::Release);
                    return Err(Refusal::session_ended());
                }
                // The whole open epoch belongs to this process's tenure: its changes need not be told apart.
                shared.images.store(images::SOME, Ordering::Release);
                Ok(())
            }
            Err(NotSaved::Failed(e)) => Err(e.into()),
            Ok(()) => Ok(()),
        }
    }

    fn save_bytes(
        &self,
        cx: Context<'_>,
        position: &mut Position,
        by: (u64, Writer),
        offset: u64,
        len: u64,
        size: u64,
    ) -> core::result::Result<(), NotSaved> {
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let some = (len - done).min(IMAGE_MAX as u64);
            let have = some.min(size.saturating_sub(at)) as usize;
            let read = |to: *mut u8, have: usize| self.read_for_image(cx, at, to, have);
            Images::of(cx.arena).add_bytes(position, by, (at, some, have), read)?;
            done += some;
        }
        Ok(())
    }

    /// Reads `len` bytes at `offset` to our memory, block by block: under the block's lock, since this thread is
    /// inside the gate.
    fn read_for_image(&self, cx: Context<'_>, offset: u64, to: *mut u8, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let (n, dst) = ((BLOCK - start).min(len - done), to.wrapping_add(done));
            match cx.index().lookup(block) {
                Some(cell) => {
                    let _locked = cx.lock(cell)?;
                    // SAFETY: our room for this many bytes.
                    unsafe { self.engine.copy_block(cx, cell, Part { block, start, dst, len: n }) }?;
                }
                // SAFETY: as above.
                None => unsafe { cx.read_home(at, dst, n, self.engine.readable(cx)) }?,
            }
            done += n;
        }
        Ok(())
    }

    /// The epoch is committed, so its images are obsolete. No other thread is inside. `may_be_exclusive`: a thread may
    /// get exclusive mode from now on.
    pub(in crate::file) fn end_images(&self, may_be_exclusive: bool) {
        let shared = self.arena.shared();
        self.imaging.is_full.store(false, Ordering::Relaxed);
        let next = if !may_be_exclusive
            && !self.of_group.load(Ordering::Relaxed)
            && self.imaging.membership.may_have_other_writers()
        {
            images::ALL
        } else {
            images::NONE
        };
        // Compared first: most epochs change nothing here, and other threads read the line.
        if next != shared.images.load(Ordering::Relaxed) {
            shared.images.store(next, Ordering::Release);
        }
    }
}
