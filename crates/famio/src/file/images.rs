//! Before-images of a session that several processes use: each change first saves what it takes the place of, with its writer, so
//! that what one process wrote can be taken back alone ([`crate::index::Images`]).

use super::context::{Context, Part};
use super::session::Session;
use crate::error::{Error, Result};
use crate::index::{BLOCK, Door, IMAGE_MAX, Images, Position, Writer, also, images};
use crate::thread::Mutex;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// What other processes have changed in an open epoch, and may still take back by dying.
pub(super) type Others = Arc<Mutex<Vec<(Range<u64>, Writer)>>>;

/// A file that is cut by more than this does not have what goes saved.
const CUT_MAX: u64 = 1 << 20;

/// What a session's owner knows of its images.
pub(super) struct Imaging {
    /// Tells who this process is.
    door: Arc<Door>,
    others: Others,
    /// Where the next image goes. Locked while one is added, so that images are in the order in which changes read what they replace.
    position: Mutex<Position>,
    /// Not this process, but this one's changes are being made: of an epoch that is taken up.
    in_place_of: Mutex<Option<Writer>>,
    /// There is no room for the next image, and some of those that are there are of other processes.
    is_full: AtomicBool,
}

impl Imaging {
    pub fn new(door: Arc<Door>, others: Others) -> Self {
        let (position, in_place_of) = (Mutex::default(), Mutex::new(None));
        Self { door, others, position, in_place_of, is_full: AtomicBool::new(false) }
    }

    /// This process is about to change `range`: of whomever that was, it is not taken back any more. Before the change: whoever dies
    /// between the two has its bytes kept, and never those of this process taken for its own.
    pub fn end_tenures(&self, range: &Range<u64>) {
        let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
        let others = self.others.lock();
        let written_over = others.iter().filter(|(there, _)| touches(there));
        written_over.for_each(|&(_, writer)| self.door.end_tenure_of(writer));
    }

    /// Changes are made in the place of this writer, by the one thread that is in the session; `None`: of this process again.
    pub fn set_writer(&self, writer: Option<Writer>) {
        *self.in_place_of.lock() = writer;
    }

    /// Whether the process with that place is at the file's door.
    pub fn is_there(&self, place: u32) -> bool {
        self.door.lives(place as usize)
    }

    /// Whether the session has to be begun anew, without images, before more can be changed.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Another process may have added images since.
    pub fn look_anew(&self) {
        *self.position.lock() = Position::default();
    }
}

impl Session {
    /// Whether a change has to save what it takes the place of.
    #[inline]
    pub(super) fn saves_images(&self) -> bool {
        matches!(self.arena.shared().images.load(Ordering::Relaxed), images::ALL | images::BEGUN)
    }

    /// All that is not committed is in the session.
    pub(super) fn has_taken_up(&self) {
        let (from, to) = (images::BEGUN, images::ALL);
        let _ = self.arena.shared().images.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Saves what a write of `len` bytes at `offset` replaces. Inside the gate; who makes the file longer does so alone.
    ///
    /// # Errors
    /// `ESTALE`: the session has to be begun anew ([`Imaging::is_full`]). `ENOSPC`: no memory.
    #[cold]
    pub(super) fn save_images(&self, cx: Context<'_>, offset: u64, len: u64) -> Result<()> {
        let size = cx.shared().size();
        self.saving(cx, &(offset..offset + len), |position, by| {
            if offset + len > size {
                Images::of(cx.arena).add_size(position, by, size)?;
            }
            self.save_bytes(cx, position, by, offset, len, size)
        })
    }

    /// Saves what a change of the size to `size` takes away. With the gate closed.
    ///
    /// # Errors
    /// As [`save_images`](Self::save_images).
    #[cold]
    pub(super) fn save_images_of_size(&self, cx: Context<'_>, size: u64) -> Result<()> {
        let old = cx.shared().size();
        self.saving(cx, &(size.min(old)..u64::MAX), |position, by| {
            if size < old {
                if old - size > CUT_MAX {
                    return Err(Error::new(libc::EFBIG));
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
        save: impl FnOnce(&mut Position, (u64, Writer)) -> Result<()>,
    ) -> Result<()> {
        let shared = cx.shared();
        let imaging = &self.imaging;
        if shared.also.load(Ordering::Acquire) & also::OTHERS != 0 {
            imaging.end_tenures(range);
        }
        let mut position = imaging.position.lock();
        let writer = imaging.in_place_of.lock().unwrap_or_else(|| imaging.door.me());
        // What lies in a file without a name is lost with this process: no other could tell whose changes there are.
        let saved = match save(&mut position, (shared.committed() + 1, writer)) {
            Ok(()) if cx.arena.has_spilled() => Err(Error::new(libc::EFBIG)),
            saved => saved,
        };
        match saved {
            // All of it still is where it is taken up from.
            Err(e) if e.errno() == libc::EFBIG && shared.images.load(Ordering::Acquire) == images::BEGUN => {
                shared.images.store(images::SOME, Ordering::Release);
                Ok(())
            }
            Err(e) if e.errno() == libc::EFBIG => {
                let all = Images::of(cx.arena).ranges(shared.committed() + 1)?;
                if all.iter().any(|(_, whose)| *whose != writer) {
                    imaging.is_full.store(true, Ordering::Release);
                    return Err(Error::new(libc::ESTALE));
                }
                // All that is open is of this process's tenure: nobody needs to tell it from other changes.
                shared.images.store(images::SOME, Ordering::Release);
                Ok(())
            }
            saved => saved,
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
    ) -> Result<()> {
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

    /// Reads `len` bytes at `offset` to memory of ours, block by block: under the block's lock, since this thread is inside the gate.
    fn read_for_image(&self, cx: Context<'_>, offset: u64, to: *mut u8, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (block, start) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let (n, dst) = ((BLOCK - start).min(len - done), to.wrapping_add(done));
            match cx.index().lookup(block) {
                Some(cell) => {
                    let _locked = cx.lock(cell)?;
                    // SAFETY: room of ours for so many bytes.
                    unsafe { self.engine.copy_block(cx, cell, Part { block, start, dst, len: n }) }?;
                }
                // SAFETY: as above.
                None => unsafe { cx.read_home(at, dst, n, self.engine.readable(cx)) }?,
            }
            done += n;
        }
        Ok(())
    }

    /// The epoch is committed: its images mean nothing any more. With the gate closed.
    /// `alone`: a thread may have the file alone from now on.
    pub(super) fn end_images(&self, alone: bool) {
        let shared = self.arena.shared();
        self.imaging.is_full.store(false, Ordering::Relaxed);
        let next = if !alone && self.imaging.door.may_have_other_writers() { images::ALL } else { images::NONE };
        // Compared first: most epochs change nothing of it, and the line is one that other threads look at.
        if next != shared.images.load(Ordering::Relaxed) {
            shared.images.store(next, Ordering::Release);
        }
    }
}
