//! Before-images of a session that several processes use: each change first saves the bytes that it replaces, with
//! its writer, so that the changes of one process can be rolled back alone ([`crate::index::Images`]).

mod covered;

use super::context::{Context, Part};
use super::session::Session;
use crate::error::{Error, Result};
use crate::index::{BLOCK, Door, IMAGE_MAX, Images, Position, Standing, Writer, add_range, also, images};
use crate::thread::Mutex;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use covered::Covered;
use std::sync::Arc;

/// Changes of other processes in an open epoch that their death would still roll back.
pub(super) type Others = Arc<Mutex<Ranges>>;
/// Changed ranges, each with its writer.
type Ranges = Vec<(Range<u64>, Writer)>;

/// A cut by more bytes than this does not save what it removes.
const CUT_MAX: u64 = 1 << 20;

/// What a session's owner knows about its images.
pub(super) struct Imaging {
    /// Says which member this process is.
    door: Arc<Door>,
    others: Others,
    /// Locked while an image is added, so that images are in the order in which changes read what they replace.
    known: Mutex<Known>,
    /// The writer, instead of this process, of the changes being made: those of an epoch that is taken up.
    in_place_of: Mutex<Option<Writer>>,
    /// There is no room for the next image, and some of the images are of other processes.
    is_full: AtomicBool,
}

/// What a process knows about the images of one epoch.
#[derive(Default)]
struct Known {
    /// The position of the next image, behind those that this process has seen.
    position: Position,
    /// The changes of other processes.
    others: Ranges,
    /// Its own.
    covered: Covered,
    /// This process's member number when the rest was recorded.
    me: u64,
}

impl Imaging {
    pub fn new(door: Arc<Door>, others: Others) -> Self {
        let (known, in_place_of) = (Mutex::default(), Mutex::new(None));
        Self { door, others, known, in_place_of, is_full: AtomicBool::new(false) }
    }

    /// This process is about to change `range`: earlier changes there, by any process, are not rolled back any more.
    /// Called before the change: if a writer dies between the two, its bytes stay, and this process's bytes are never
    /// taken for its.
    pub fn end_tenures(&self, range: &Range<u64>) {
        let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
        let others = self.others.lock();
        let written_over = others.iter().filter(|(there, _)| touches(there));
        written_over.for_each(|&(_, writer)| self.door.end_tenure_of(writer));
    }

    /// The one thread in the session makes changes on behalf of this writer; `None`: of this process again.
    pub fn set_writer(&self, writer: Option<Writer>) {
        *self.in_place_of.lock() = writer;
    }

    /// Whether the process in that slot is attached.
    pub fn is_there(&self, place: u32) -> bool {
        self.door.lives(place as usize)
    }

    /// Whether a new session, without images, has to begin before the next change.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Reads the images that others have added to the open `epoch` since this process last owned the session. Returns
    /// the changes of other processes that their death would still roll back.
    ///
    /// # Errors
    /// `EIO`: the images are damaged.
    pub fn see_others(&self, images: Images<'_>, epoch: u64) -> Result<Ranges> {
        let mut known = self.known.lock();
        let me = self.door.me().id;
        let Known { position, others, covered, me: known_as } = &mut *known;
        if position.epoch() != epoch || *known_as != me {
            (*position, *known_as) = (Position::default(), me);
            others.clear();
            covered.clear();
        }
        images.read_on(position, epoch, |range, writer| {
            if writer.id != me {
                covered.remove(&range);
                add_range(others, range, writer);
            }
        })?;
        let mut last: Option<(Writer, bool)> = None;
        others.retain(|&(_, writer)| match last {
            Some((same, is_over)) if same == writer => !is_over,
            _ => {
                let is_over = self.door.standing(writer) == Standing::Over;
                last = Some((writer, is_over));
                !is_over
            }
        });
        Ok(others.clone())
    }
}

impl Session {
    /// Whether a change has to save the bytes that it replaces.
    #[inline]
    pub(super) fn saves_images(&self) -> bool {
        matches!(self.arena.shared().images.load(Ordering::Relaxed), images::ALL | images::BEGUN)
    }

    /// Everything uncommitted is in the session.
    pub(super) fn has_taken_up(&self) {
        let (from, to) = (images::BEGUN, images::ALL);
        let _ = self.arena.shared().images.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Saves what a write of `len` bytes at `offset` replaces. Inside the gate; a write that makes the file longer
    /// holds its lock.
    ///
    /// # Errors
    /// `ESTALE`: a new session has to begin ([`Imaging::is_full`]). `ENOSPC`: no memory.
    #[cold]
    pub(super) fn save_images(&self, cx: Context<'_>, offset: u64, len: u64) -> Result<()> {
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
    pub(super) fn save_images_of_size(&self, cx: Context<'_>, size: u64) -> Result<()> {
        let old = cx.shared().size();
        self.saving(cx, &(size.min(old)..u64::MAX), |Known { position, covered, .. }, by| {
            covered.clear();
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
        save: impl FnOnce(&mut Known, (u64, Writer)) -> Result<()>,
    ) -> Result<()> {
        let shared = cx.shared();
        let imaging = &self.imaging;
        if shared.also.load(Ordering::Acquire) & also::OTHERS != 0 {
            imaging.end_tenures(range);
        }
        let mut known = imaging.known.lock();
        let writer = imaging.in_place_of.lock().unwrap_or_else(|| imaging.door.me());
        // A file without a name is lost with this process: no other process could tell the writers then.
        let saved = match save(&mut known, (shared.committed() + 1, writer)) {
            Ok(()) if cx.arena.has_spilled() => Err(Error::new(libc::EFBIG)),
            Ok(()) if writer.id != imaging.door.me().id => {
                add_range(&mut known.others, range.clone(), writer);
                Ok(())
            }
            saved => saved,
        };
        match saved {
            // All of the epoch is still where it is taken up from.
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
                // The whole open epoch belongs to this process's tenure: its changes need not be told apart.
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
                    // SAFETY: our room for so many bytes.
                    unsafe { self.engine.copy_block(cx, cell, Part { block, start, dst, len: n }) }?;
                }
                // SAFETY: as above.
                None => unsafe { cx.read_home(at, dst, n, self.engine.readable(cx)) }?,
            }
            done += n;
        }
        Ok(())
    }

    /// The epoch is committed, so its images are obsolete. With the gate closed. `alone`: a thread may get exclusive
    /// mode from now on.
    pub(super) fn end_images(&self, alone: bool) {
        let shared = self.arena.shared();
        self.imaging.is_full.store(false, Ordering::Relaxed);
        let next = if !alone && self.imaging.door.may_have_other_writers() { images::ALL } else { images::NONE };
        // Compared first: most epochs change nothing here, and other threads read the line.
        if next != shared.images.load(Ordering::Relaxed) {
            shared.images.store(next, Ordering::Release);
        }
    }
}
