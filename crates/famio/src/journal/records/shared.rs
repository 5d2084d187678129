//! What the log shares with threads that prepare segments in the background: the journal's file and its header.

use super::geometry::{Geometry, Place};
use super::{PAGE, ZERO_PAGE};
use crate::error::{Error, Result};
use crate::journal::Header;
use crate::journal::pools::shares::Limit;
use crate::pmem::{Medium, TestHooks};
use crate::rule::{Rule, holds, in_order};
use crate::sys::InternalFd;
use crate::sys::internal::{InUse, TRIES};
use crate::thread::Mutex;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// More segments than a journal can have.
const SEGMENTS_MAX: usize = 1 << 16;

/// Pages of zeros in one write.
const ZEROS_AT_ONCE: usize = 48;

/// How much of a new journal is filled with zeros before it counts: a session of a moment needs no more.
const ZEROED_AT_FIRST: u64 = 32 << 10;

/// Keeps a journal's file open, and its header.
pub trait Keeper: Send + Sync {
    /// The journal's file.
    fn journal(&self) -> &InternalFd;
    /// The header as it was last stored.
    fn header(&self) -> Header;
    /// How often the header was stored.
    fn stores(&self) -> u64;
    /// Reads the header again, which another process may have changed, but does not any more.
    fn read_again(&self) -> Result<()>;
    /// Changes the header and stores it, durably, through `journal`: another descriptor of the same file.
    fn change(&self, journal: &dyn AsFd, change: &mut dyn FnMut(&mut Header)) -> Result<()>;
    /// Makes durable what was written to the journal. `file`: this commits, and without the mark of this file the
    /// journal would not count.
    fn flush(&self, file: Option<BorrowedFd<'_>>) -> Result<()>;
}

/// The journal's file.
pub(super) struct Shared {
    keeper: Arc<dyn Keeper>,
    pub medium: &'static dyn Medium,
    pub geometry: Geometry,
    /// The size to which the journal's file may grow.
    limit: Limit,
    /// The number of segments that are filled with zeros and counted in the header. Changed under `preparing`.
    prepared: AtomicUsize,
    /// The number of segments that have space on the disk for this process's log, if greater than `prepared`.
    booked: AtomicUsize,
    /// Held while space is booked, and while what failed gives space back: never what is booked.
    booking: Mutex<()>,
    /// Held while segments are made or given back; the log's appends do not wait for it.
    preparing: Mutex<()>,
    /// A flush of the journal failed: what a commit covers may be lost although its own flush reports success.
    failed: AtomicBool,
}

impl Shared {
    /// Begins a journal: its first segment, and the geometry in its header. Not durable. Returns also up to where the
    /// segment is filled with zeros; the rest has space on the disk, and reads as zeros.
    pub fn create(
        keeper: Arc<dyn Keeper>,
        geometry: Geometry,
        limit: Limit,
        medium: &'static dyn Medium,
    ) -> Result<(Shared, u64)> {
        geometry.check()?;
        let shared = Self::attach(keeper, geometry, limit, medium);
        let Some(place) = geometry.places().next() else { return Ok((shared, 0)) };
        shared.check_limits(place)?;
        let mut zeroed = 0;
        // By the descriptor that commits: nothing is flushed yet, so no other one can get an error in its place.
        shared.journal().run(|journal| {
            in_order(
                Rule::ZerosBeforeCount,
                || {
                    zeroed = begin_zeroed(journal, medium, place)?;
                    Ok(())
                },
                || shared.keeper.change(journal, &mut |header| geometry.put(1, &mut header.geometry)),
            )
        })?;
        shared.prepared.store(1, Ordering::Release);
        Ok((shared, zeroed))
    }

    /// The journal of a session that another process began.
    pub fn attach(keeper: Arc<dyn Keeper>, geometry: Geometry, limit: Limit, medium: &'static dyn Medium) -> Shared {
        limit.set_floor(geometry.end(2));
        Shared {
            keeper,
            medium,
            geometry,
            // The last used segment must stay while another one is begun.
            limit: limit.at_least(geometry.end(2)),
            prepared: AtomicUsize::new(0),
            booked: AtomicUsize::new(0),
            booking: Mutex::new(()),
            preparing: Mutex::new(()),
            failed: AtomicBool::new(false),
        }
    }

    /// See [`Keeper::flush`].
    pub fn flush(&self, file: Option<BorrowedFd<'_>>) -> Result<()> {
        self.keeper.flush(file)
    }

    /// How often the header was stored.
    pub fn stores(&self) -> u64 {
        self.keeper.stores()
    }

    /// Notes that other processes have made `count` segments, have stored the header for the `stores`th time, and have
    /// left space for `booked` segments: an open epoch may count on it. What was booked here may be gone, and the
    /// number of segments the same as before.
    pub fn prepared_by_others(&self, count: usize, booked: usize, stores: u64) -> Result<()> {
        if booked > SEGMENTS_MAX {
            return Err(Error::with(libc::EIO, "the shared index is damaged: the journal has not so many segments"));
        }
        self.booked.store(booked, Ordering::Release);
        if self.stores() != stores || TestHooks::current().reads_again {
            self.keeper.read_again()?;
        }
        self.prepared.store(count, Ordering::Release);
        self.tell_pool();
        Ok(())
    }

    /// Whether a segment is being prepared.
    pub fn is_preparing(&self) -> bool {
        self.preparing.try_lock().is_none()
    }

    /// The journal.
    pub fn journal(&self) -> &InternalFd {
        self.keeper.journal()
    }

    /// A separate open file description: the kernel reports a failed write-back once to each, and the description
    /// used for commits must see every failure. Without the right to open the journal again: the same description,
    /// and `false`.
    fn another(&self) -> Result<(InternalFd, bool)> {
        match self.journal().open_again(OFlags::RDWR) {
            Ok(fd) => Ok((fd, true)),
            Err(e) if e.errno() == libc::EBADF => Err(e),
            Err(_) => Ok((InternalFd::duplicate(self.journal().get()?.as_fd())?, false)),
        }
    }

    /// Does `work` with [`another`](Self::another); repeats it if the program has closed or replaced that descriptor
    /// meanwhile.
    fn on_another(&self, mut work: impl FnMut(&InUse<'_>, bool) -> Result<()>) -> Result<()> {
        let mut once = || self.another().and_then(|(fd, separate)| work(&fd.get()?, separate));
        for _ in 1..TRIES {
            match once() {
                Err(error) if error.errno() == libc::EBADF => {}
                result => return result,
            }
        }
        once()
    }

    /// Whether a flush failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The header now.
    pub fn header(&self) -> Header {
        self.keeper.header()
    }

    /// Changes the header, durably. After an error, either state may be on the medium.
    pub fn change_header(&self, change: &mut dyn FnMut(&mut Header)) -> Result<()> {
        let changed = self.on_another(|fd, _| self.keeper.change(fd, change));
        changed.inspect_err(|_| self.failed.store(true, Ordering::Release))
    }

    /// Moves the journal to another file, by what `change` does to its descriptor. No segment is made or given back
    /// meanwhile.
    pub fn move_by(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let _preparing = self.preparing.lock();
        self.booked.store(0, Ordering::Release);
        change()
    }

    /// The number of prepared segments.
    pub fn prepared(&self) -> usize {
        self.prepared.load(Ordering::Acquire)
    }

    /// Prepares segments until there are `count`. Not under the log's lock; one thread at a time.
    pub fn prepare(&self, count: usize) -> Result<()> {
        let _preparing = self.preparing.lock();
        while self.prepared() < count {
            let prepared = self.prepared();
            let Some(place) = self.geometry.places().nth(prepared) else { return Ok(()) };
            self.check_limits(place)?;
            let mut is_zeroed = true;
            let counted = self.count_up_to(prepared + 1, |fd| {
                let zeroed = zero(fd, self.medium, place.offset..place.end());
                let zeroed = zeroed.and_then(|()| self.medium.fdatasync(fd.as_fd()));
                is_zeroed = zeroed.is_ok();
                zeroed
            });
            if !is_zeroed {
                self.give_back(place);
            }
            counted?;
        }
        Ok(())
    }

    /// Makes segments by `make`, durably, and then counts them, up to `count`. Called with `preparing` held.
    fn count_up_to(&self, count: usize, mut make: impl FnMut(&InUse<'_>) -> Result<()>) -> Result<()> {
        let mut separate = false;
        let mut made = || {
            self.on_another(|fd, of_its_own| {
                separate = of_its_own;
                make(fd)
            })
        };
        let counted = || self.change_header(&mut |header| self.geometry.put(count, &mut header.geometry));
        if !holds(Rule::ZerosBeforeCount) {
            counted()?;
        }
        if let Err(error) = made() {
            self.failed.fetch_or(!separate, Ordering::AcqRel);
            return Err(error.context("the journal cannot grow"));
        }
        counted()?;
        self.prepared.store(count, Ordering::Release);
        Ok(())
    }

    /// Whether the journal may have this segment, too; in a pool with a size it has it then.
    fn check_limits(&self, place: Place) -> Result<()> {
        if place.end() > self.limit.bytes() {
            let what = format!("the journal has reached its limit of {} bytes", self.limit.bytes());
            return Err(Error::with(libc::ENOSPC, what));
        }
        if place.end() > crate::sys::file_size_limit() {
            let what = "the journal: the limit on file sizes (ulimit -f) leaves it no room";
            return Err(Error::with(libc::ENOSPC, what));
        }
        self.limit.grow(place.end())
    }

    /// The pool learns how much the journal really has.
    fn tell_pool(&self) {
        if self.limit.is_shared() {
            self.limit.set(self.geometry.end(self.booked()));
        }
    }

    /// The number of segments that have space on the disk.
    pub fn booked(&self) -> usize {
        self.booked.load(Ordering::Acquire).max(self.prepared())
    }

    /// Frees the space of a segment that could not be made, on a full disk, unless the log counts on that space. Best
    /// effort: the header does not count the segment. Called with `preparing` held, and no descriptor in use.
    fn give_back(&self, place: Place) {
        let _booking = self.booking.lock();
        if self.booked() == self.prepared() {
            let _ = self.journal().run(|journal| self.medium.ftruncate(journal.as_fd(), place.offset));
        }
        self.tell_pool();
    }

    /// Allocates disk space for the next segment. Nothing is written or flushed, so a writer does not wait for the
    /// disk unless that is full. Before its use, the segment is [counted](Self::count_booked).
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`: at the journal's limit, or the disk is full.
    pub fn book(&self) -> Result<()> {
        let have = self.booked();
        let Some(place) = self.geometry.places().nth(have) else { return Ok(()) };
        self.check_limits(place)?;
        match self.allocate(have, place) {
            Err(e) if [libc::EOPNOTSUPP, libc::ENOSYS].contains(&e.errno()) => self.prepare(have + 1),
            Err(_) => self.allocate_if_unprepared(have, place),
            done => done,
        }
    }

    /// Allocates the segment's space while no thread prepares segments; a thread that did has either finished this
    /// segment or freed its space.
    fn allocate_if_unprepared(&self, have: usize, place: Place) -> Result<()> {
        let _preparing = self.preparing.lock();
        if self.prepared() > have {
            return Ok(());
        }
        self.allocate(have, place).map_err(|e| {
            let give_back = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
            let _ = self.journal().run(|fd| Ok(rustix::fs::fallocate(fd.as_fd(), give_back, place.offset, place.len)?));
            self.tell_pool();
            e.context("the journal cannot grow")
        })
    }

    fn allocate(&self, have: usize, place: Place) -> Result<()> {
        let _booking = self.booking.lock();
        let keep = FallocateFlags::KEEP_SIZE;
        self.journal().run(|fd| Ok(rustix::fs::fallocate(fd.as_fd(), keep, place.offset, place.len)?))?;
        self.booked.store(have + 1, Ordering::Release);
        Ok(())
    }

    /// Prepares all segments that have space at once: first makes the file's length durable, then their count. They
    /// read as zeros without being written. Writing zeros pays only if commits are small, so that the disk's own
    /// journal is not written with each.
    pub fn count_booked(&self) -> Result<()> {
        let _preparing = self.preparing.lock();
        let (booked, prepared) = (self.booked(), self.prepared());
        if booked == prepared {
            return Ok(());
        }
        let end = self.geometry.end(booked);
        self.count_up_to(booked, |fd| {
            self.medium.ftruncate(fd.as_fd(), end)?;
            self.medium.fdatasync(fd.as_fd())
        })
    }

    /// Frees the space of all segments but the first `count`, which are not in use.
    pub fn shrink(&self, count: usize) -> Result<()> {
        let _preparing = self.preparing.lock();
        if count == self.prepared() && self.booked() > count {
            // The space lies beyond the file's end.
            self.booked.store(0, Ordering::Release);
            self.journal().run(|journal| self.medium.ftruncate(journal.as_fd(), self.geometry.end(count)))?;
            self.tell_pool();
            return Ok(());
        }
        self.booked.store(0, Ordering::Release);
        if count < self.prepared() {
            in_order(
                Rule::CountOfRecordsBeforeCut,
                || self.change_header(&mut |header| self.geometry.put(count, &mut header.geometry)),
                || self.journal().run(|journal| self.medium.ftruncate(journal.as_fd(), self.geometry.end(count))),
            )?;
            self.prepared.store(count, Ordering::Release);
        }
        self.tell_pool();
        Ok(())
    }

    /// Whether one more segment is within the limit.
    pub fn may_grow(&self, count: usize) -> bool {
        self.geometry.end(count + 1) <= self.limit.bytes()
    }
}

/// Gives a new journal's header and first segment their space, and fills the segment's beginning with zeros; where space
/// cannot be had without that, all of it. Returns where they end.
fn begin_zeroed(journal: impl AsFd, medium: &dyn Medium, place: Place) -> Result<u64> {
    let end = loop {
        match rustix::fs::fallocate(&journal, FallocateFlags::KEEP_SIZE, 0, place.end()) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => break place.end(),
            Err(e) => return Err(e.into()),
            Ok(()) => {
                medium.ftruncate(journal.as_fd(), place.end())?;
                break place.end().min(place.offset + ZEROED_AT_FIRST);
            }
        }
    };
    zero(journal, medium, place.offset..end)?;
    Ok(end)
}

/// Fills a range of the journal with zeros.
pub(super) fn zero(journal: impl AsFd, medium: &dyn Medium, range: Range<u64>) -> Result<()> {
    let bufs = [&ZERO_PAGE[..]; ZEROS_AT_ONCE];
    let mut at = range.start;
    while at < range.end {
        let pages = ((range.end - at) / PAGE as u64).min(ZEROS_AT_ONCE as u64);
        medium.pwritev(journal.as_fd(), &bufs[..pages as usize], at)?;
        at += pages * PAGE as u64;
    }
    Ok(())
}

/// A segment to be prepared, by any thread, while the log goes on.
pub struct Preparation {
    pub(super) shared: Arc<Shared>,
    pub(super) count: usize,
}

impl Preparation {
    /// Fills the segment with zeros and adds it to the journal. The log takes it over by itself.
    pub fn run(self) -> Result<()> {
        self.shared.prepare(self.count)
    }
}
