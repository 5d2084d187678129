//! The process's regions and open transactions.

use super::region::Region;
use super::transaction::Work;
use crate::error::{Error, Result};
use crate::posix::call::lock::not_reentered;
use crate::posix::life::{by_program, process};
use crate::posix::runtime::state::generation;
use crate::thread::{Guard, Mutex};
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::path::PathBuf;
use std::sync::Arc;

/// Addresses of freed regions that are remembered, to tell their use from that of other memory.
const FREED: usize = 64;

/// What one process has, from its first `nv_init` on.
struct Process {
    /// The fork generation: a child has its parent's memory, and must not take its parent's lock.
    generation: u32,
    list: Mutex<List>,
}

#[derive(Default)]
pub(super) struct List {
    /// Between `nv_init` and `nv_release`.
    is_on: bool,
    pub pool: Option<PathBuf>,
    regions: Vec<Arc<Region>>,
    /// Addresses of regions that were freed, the latest last.
    freed: Vec<Range<usize>>,
    open: Vec<Open>,
}

/// An open transaction. `None`: a call uses it.
struct Open {
    id: usize,
    work: Option<Box<Work>>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());
/// Numbers of transactions are never used twice, in children either.
static LAST: AtomicUsize = AtomicUsize::new(0);

fn current() -> Option<&'static Process> {
    // SAFETY: null, or leaked by `begin`.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

fn is_childs(process: &Process) -> bool {
    process::config(); // takes note of a fork
    process.generation == generation()
}

/// The lists of this process, locked.
///
/// # Errors
/// `ENOTCONN`: `nv_init` was not called. `ECHILD`: it was, by the parent of this process. `EDEADLK`: in a signal
/// handler that interrupted the library.
pub(super) fn lists() -> Result<Guard<'static, List>> {
    let off = || Error::with(libc::ENOTCONN, "call nv_init first");
    let process = current().ok_or_else(off)?;
    if !is_childs(process) {
        let what = "regions and transactions belong to the process that made them; a forked child calls nv_init, and makes its own";
        return Err(Error::with(libc::ECHILD, what));
    }
    not_reentered()?;
    let list = process.list.lock();
    if list.is_on { Ok(list) } else { Err(off()) }
}

/// `nv_init`.
///
/// # Errors
/// `EISCONN`: it was called already. Those of the library's start.
pub(super) fn begin(pool: Option<PathBuf>) -> Result<()> {
    by_program::start()?;
    not_reentered()?;
    let before = PROCESS.load(Ordering::Acquire);
    let process = match current().filter(|process| is_childs(process)) {
        Some(process) => process,
        None => {
            let made = Process { generation: generation(), list: Mutex::default() };
            let made = Box::leak(Box::new(made));
            // If another thread was first, its is used, and this one lost to no harm.
            match PROCESS.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                Err(_) => current().unwrap_or(made),
            }
        }
    };
    let mut list = process.list.lock();
    if list.is_on {
        return Err(Error::with(libc::EISCONN, "nv_init was called already"));
    }
    *list = List { is_on: true, pool, ..List::default() };
    Ok(())
}

impl List {
    /// `nv_release`: the regions, to be closed without the lock.
    ///
    /// # Errors
    /// `EBUSY`: a transaction is open, or a region is in use.
    pub fn end(&mut self) -> Result<Vec<Arc<Region>>> {
        if !self.open.is_empty() || self.regions.iter().any(|region| is_used(region)) {
            return Err(Error::with(libc::EBUSY, "a transaction is open: commit or abort it first"));
        }
        Ok(core::mem::take(self).regions)
    }

    /// Adds a region that was just made.
    pub fn add(&mut self, region: Region) -> usize {
        let range = region.range();
        self.freed.retain(|freed| freed.end <= range.start || range.end <= freed.start);
        self.regions.push(Arc::new(region));
        range.start
    }

    /// The region that has all of these bytes.
    ///
    /// # Errors
    /// `ERANGE`: none has. `ESTALE`: they were a freed region's. `EBUSY`: it is being trimmed.
    pub fn find(&self, at: usize, len: usize) -> Result<Arc<Region>> {
        let end = at.saturating_add(len);
        let Some(region) = self.regions.iter().find(|region| region.range().contains(&at)) else {
            return Err(match self.freed.iter().any(|freed| freed.start < end && at < freed.end) {
                true => freed_already(),
                false => Error::with(libc::ERANGE, "the address does not lie in a region"),
            });
        };
        if end > region.range().end {
            return Err(region.file().named(Error::with(libc::ERANGE, "the bytes go beyond the end of the region")));
        }
        Ok(region.clone())
    }

    /// The index of the region that begins there.
    fn place_of(&self, start: usize) -> Result<usize> {
        self.regions.iter().position(|region| region.range().start == start).ok_or_else(|| {
            match self.freed.iter().any(|freed| freed.start == start) {
                true => freed_already(),
                false => Error::with(libc::EINVAL, "no region begins at this address"),
            }
        })
    }

    /// The region that begins there, if no transaction uses it: for a trim, of which it counts as used.
    ///
    /// # Errors
    /// `EINVAL`: there is none. `ESTALE`: it was freed. `EBUSY`: an open transaction has written to it.
    pub fn use_alone(&self, start: usize) -> Result<Arc<Region>> {
        let region = &self.regions[self.place_of(start)?];
        if is_used(region) {
            return Err(in_use(region));
        }
        region.users.store(ALONE, Ordering::Relaxed);
        Ok(region.clone())
    }

    /// Takes the region that begins there out of the list.
    ///
    /// # Errors
    /// As [`use_alone`](Self::use_alone).
    pub fn take_region(&mut self, start: usize) -> Result<Arc<Region>> {
        let place = self.place_of(start)?;
        if is_used(&self.regions[place]) {
            return Err(in_use(&self.regions[place]));
        }
        let region = self.regions.remove(place);
        if self.freed.len() == FREED {
            self.freed.remove(0);
        }
        self.freed.push(region.range());
        Ok(region)
    }

    /// A new transaction's number.
    pub fn add_transaction(&mut self) -> usize {
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.push(Open { id, work: Some(Box::default()) });
        id
    }

    pub fn is_open(&self, id: usize) -> bool {
        self.open.iter().any(|open| open.id == id)
    }

    fn open(&mut self, id: usize) -> Result<&mut Open> {
        let ended = || Error::with(libc::EINVAL, "the transaction was committed or aborted already, or is invalid");
        self.open.iter_mut().find(|open| open.id == id).ok_or_else(ended)
    }

    /// The transaction, for one call.
    ///
    /// # Errors
    /// `EINVAL`: it has ended or never existed. `EBUSY`: a signal handler interrupted a call with it.
    pub fn use_transaction(&mut self, id: usize) -> Result<Box<Work>> {
        let busy = || Error::with(libc::EBUSY, "another call uses the transaction at this moment");
        self.open(id)?.work.take().ok_or_else(busy)
    }

    /// After a call.
    pub fn put_back(&mut self, id: usize, work: Box<Work>) {
        if let Ok(open) = self.open(id) {
            open.work = Some(work);
        }
    }

    /// Takes the transaction out: its number is invalid from now on.
    ///
    /// # Errors
    /// As [`use_transaction`](Self::use_transaction).
    pub fn end_transaction(&mut self, id: usize) -> Result<Box<Work>> {
        let work = self.use_transaction(id)?;
        self.open.retain(|open| open.id != id);
        Ok(work)
    }
}

/// The number of users of a region that is being trimmed.
pub(super) const ALONE: usize = usize::MAX / 2;

fn is_used(region: &Region) -> bool {
    region.users.load(Ordering::Acquire) != 0
}

/// Whether it is being trimmed.
pub(super) fn check_not_alone(region: &Region) -> Result<()> {
    if region.users.load(Ordering::Relaxed) >= ALONE {
        return Err(region.file().named(Error::with(libc::EBUSY, "another thread is trimming the region (nv_trim)")));
    }
    Ok(())
}

fn in_use(region: &Region) -> Error {
    region.file().named(Error::with(libc::EBUSY, "an open transaction has written to the region"))
}

fn freed_already() -> Error {
    Error::with(libc::ESTALE, "the region was freed")
}
