//! For `on-kill = keep`: the uncommitted changes of a killed owner are read from its arena, its journal and the file
//! before the file goes back to its last SYNC, and become a hand-over image for the next owner. So the file goes from
//! one complete state to the next by a SYNC, whatever happens meanwhile.

use crate::error::{Error, Result};
use crate::file::atomic::AtomicFile;
use crate::file::base::bits::{GRANULE, runs};
use crate::file::session::write::SIZE_MAX;
use crate::file::state::hand_over_image::{HandOverImage, MOST, What};
use crate::file::{Access, inplace, records};
use crate::index::{
    BLOCK, Calls, Cell, DeadArena, OwnerLock, PLACE, What as Call, Writer, WriterState, images, images_of_dead,
};
use crate::journal::header::Kind;
use crate::journal::inplace::{Image, Key};
use crate::journal::{Header, check_shared};
use crate::pmem::medium;
use crate::recovery;
use crate::settings::{OnKill, Settings};
use crate::sys::read_at;
use core::sync::atomic::Ordering;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The result.
pub(super) enum Leftover {
    /// There is nothing to keep.
    Nothing,
    /// Everything that complete calls have done since the last SYNC.
    Whole(Vec<What>),
    /// Something was to be kept, but a part is missing, for this reason.
    Lost(String),
}

impl AtomicFile {
    /// At an open: makes durable what a killed process left, so that it survives this process and the memory of the
    /// hand-over image. If that fails, the image stays.
    pub(super) fn commit_kept(&self) {
        if !self.ownership.membership.has_kept_epoch() {
            return;
        }
        self.ownership.has_kept.store(true, Ordering::Release);
        let mut own = None;
        if !self.fds.has_writable() {
            own = self.fds.with(false, recovery::writable).ok();
            own.iter().for_each(|own| self.fds.add(own.as_raw_fd(), Access::Write));
        }
        if self.fds.has_writable() && self.commit_all().is_ok() {
            let _changing = self.shadow.lock();
            self.release_owner_lock(&mut self.inner());
        }
        own.into_iter().for_each(|own| self.fds.leave(own));
    }

    /// Puts uncommitted changes of living processes in a killed owner's session into a hand-over image. This process
    /// has the owner lock. The killed owner's changes are left out, and so rolled back.
    pub(super) fn keep_of_living(&self, owner_lock: &OwnerLock, commits: u64) -> Result<()> {
        let is_gone = |writer| self.ownership.membership.writer_state(writer) == WriterState::Dead;
        let look = |fd: BorrowedFd<'_>| look_whose(fd, owner_lock, &self.settings, commits, &is_gone);
        match self.fds.with(false, look) {
            Ok(Some(epoch)) => self.ownership.send(&self.fds, &epoch, true),
            // An image that this session had taken up is contained in its before-images: nothing is left.
            Ok(None) => Ok(()),
            Err(e) if [libc::EFBIG, libc::EIO, libc::EACCES, libc::EPERM, libc::ELOOP].contains(&e.errno()) => {
                let path = self.path.to_string_lossy();
                crate::sys::notice(&format!(
                    "{path}: the writes of other processes since the last SYNC cannot be told from those of a killed process, and are rolled back with them ({e})"
                ));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Puts the uncommitted changes of a killed owner into a hand-over image if they are to be kept. Returns whether
    /// it did. Called by the owner.
    pub(super) fn keep_leftover(&self, owner_lock: &OwnerLock) -> Result<bool> {
        let membership = &self.ownership.membership;
        let found = self.fds.with(false, |fd| look(fd, owner_lock, &self.settings)).map_err(|e| {
            e.context("what a killed process had written since the last SYNC is to stay, and can't be read now")
        })?;
        let why = match found {
            Leftover::Nothing => return Ok(false),
            Leftover::Lost(why) => why,
            Leftover::Whole(_) if membership.has_lost_stores() => "it stored through a map of the file".into(),
            Leftover::Whole(changes) => {
                self.ownership.send(&self.fds, &HandOverImage::kept(changes), true)?;
                return Ok(true);
            }
        };
        if !membership.has_whole_epoch() {
            let path = self.path.to_string_lossy();
            crate::sys::notice(&format!(
                "{path}: on-kill=keep does not hold here: what the killed process wrote since the last SYNC is rolled back ({why})"
            ));
        }
        Ok(false)
    }
}

/// The changes in a killed owner's session, with their writers. `None`: the writers are unknown, or nothing is open.
/// `commits`: the epochs that its journal has committed.
fn look_whose(
    file: BorrowedFd<'_>,
    owner_lock: &OwnerLock,
    settings: &Settings,
    commits: u64,
    is_gone: &dyn Fn(Writer) -> bool,
) -> Result<Option<HandOverImage>> {
    let Some(memory) = owner_lock.open_arena()? else { return Ok(None) };
    check_shared(memory.as_fd(), file, None)?;
    let Some(arena) = DeadArena::open(memory)? else { return Ok(None) };
    let shared = arena.shared();
    let (committed, size) = (shared.committed(), shared.size());
    let is_whole = shared.images.load(Ordering::Relaxed) == images::ALL
        && shared.poisoned.load(Ordering::Relaxed) == 0
        && shared.moving.load(Ordering::Relaxed) == 0;
    // A process that was killed right after its commit has nothing open.
    let is_open = shared.dirty.load(Ordering::Relaxed) != 0 && shared.recorded.load(Ordering::Relaxed) == commits;
    if !is_whole || !is_open || committed == u64::MAX || size > SIZE_MAX {
        return Ok(None);
    }
    let Some((journal, length, header)) = recovery::left_journal(file, owner_lock, settings)? else { return Ok(None) };
    let homes = Homes::open(file, &arena, journal.as_fd(), length, &header)?;
    let images = images_of_dead(&arena, committed + 1)?;
    if images.iter().all(|image| is_gone(image.writer)) {
        return Ok(None);
    }
    // A change of the size that was under way has its image, though it may not have been made.
    let read = |offset: u64, to: &mut [u8]| {
        let len = size.saturating_sub(offset).min(BLOCK as u64) as usize;
        let block = homes.read(offset / BLOCK as u64, arena.cell(offset / BLOCK as u64)?.as_deref(), len)?;
        to[..len].copy_from_slice(&block);
        Ok(())
    };
    HandOverImage::by_images(&images, size, &read, is_gone).map(Some)
}

/// Opens a file that no process has open, as its next user would, and makes durable what a killed process left to
/// keep. Returns whether there was anything.
///
/// # Errors
/// Those of opening it, and of a SYNC.
pub(crate) fn commit_leftover(file: BorrowedFd<'_>, access: Access, path: &CStr, settings: &Settings) -> Result<bool> {
    let atomic = AtomicFile::open(file, access, path, settings)?;
    let attached = atomic.become_member(); // the journal may be gone: the killed process may have recovered the file
    atomic.commit_kept();
    let closed = attached.and(atomic.remove_descriptor(file.as_raw_fd()));
    match closed {
        Err(e) if atomic.ownership.has_kept.load(Ordering::Acquire) => {
            Err(e.context("what a killed process had written stays in memory until it can be made durable"))
        }
        closed => closed.map(|()| atomic.ownership.has_kept.load(Ordering::Acquire)),
    }
}

/// Reads what a killed owner has left, without changing anything.
pub(super) fn look(file: BorrowedFd<'_>, owner_lock: &OwnerLock, settings: &Settings) -> Result<Leftover> {
    let lost = |e: &Error| match settings.on_kill {
        OnKill::Keep => Leftover::Lost(e.to_string()),
        OnKill::Rollback => Leftover::Nothing, // its setting is unknown
    };
    let memory = match owner_lock.open_arena() {
        Ok(None) => return Ok(Leftover::Nothing), // it went with the machine
        Ok(Some(memory)) => memory,
        Err(e) if [libc::EACCES, libc::EPERM, libc::ELOOP].contains(&e.errno()) => return Ok(lost(&e)),
        Err(e) => return Err(e),
    };
    if let Err(e) = check_shared(memory.as_fd(), file, None) {
        return Ok(lost(&e));
    }
    let Some(arena) = DeadArena::open(memory)? else { return Ok(Leftover::Nothing) };
    let shared = arena.shared();
    if shared.keeps.load(Ordering::Relaxed) == 0 || shared.dirty.load(Ordering::Relaxed) == 0 {
        return Ok(Leftover::Nothing);
    }
    if shared.poisoned.load(Ordering::Relaxed) != 0 {
        return Ok(Leftover::Lost("an earlier write or SYNC of it had failed".into()));
    }
    if shared.moving.load(Ordering::Relaxed) != 0 {
        return Ok(Leftover::Lost(
            "it was killed while another program was let in to the file, or in the commit of a transaction".into(),
        ));
    }
    let Some((journal, length, header)) = recovery::left_journal(file, owner_lock, settings)? else {
        return Ok(Leftover::Nothing);
    };
    match read(file, &arena, journal.as_fd(), length, &header) {
        Ok(changes) => Ok(Leftover::Whole(changes)),
        Err(e) if [libc::EIO, libc::EFBIG].contains(&e.errno()) => Ok(Leftover::Lost(e.to_string())),
        Err(e) => Err(e),
    }
}

/// Everything that differs from the last commit, in order.
fn read(
    file: BorrowedFd<'_>,
    arena: &DeadArena,
    journal: BorrowedFd<'_>,
    length: u64,
    header: &Header,
) -> Result<Vec<What>> {
    let shared = arena.shared();
    let (size, committed) = (shared.size(), shared.committed());
    if size > SIZE_MAX || committed == u64::MAX {
        return Err(damaged());
    }
    let homes = Homes::open(file, arena, journal, length, header)?;
    let low = shared.epoch_low.load(Ordering::Relaxed).min(size);
    // As in a hand-over (`open_changes`): beyond the committed end only a cell shows that bytes were stored.
    let first = low.min(shared.committed_size.load(Ordering::Relaxed)) / BLOCK as u64;
    let beyond = first..shared.stale_end.load(Ordering::Relaxed).div_ceil(BLOCK as u64);
    let mut changes = Changes { all: vec![What::Size { low, size }], size, bytes: 0 };
    arena.each_cell(size.div_ceil(BLOCK as u64), |block, cell| {
        if beyond.contains(&block) || (0..2).any(|version| cell.version(version).epoch == committed + 1) {
            let offset = block * BLOCK as u64;
            changes.write(offset, homes.read(block, Some(cell), (size - offset).min(BLOCK as u64) as usize)?)?;
        }
        Ok(())
    })?;
    add_calls(arena, &mut changes)?;
    Ok(changes.all)
}

/// Adds complete calls that were not carried out yet, and calls under way, which are repeated from their beginning.
fn add_calls(arena: &DeadArena, changes: &mut Changes) -> Result<()> {
    let shared = arena.shared();
    for (what, place) in shared.deferred.all() {
        let mut data = vec![0; what.len];
        let at = (place * PLACE + what.shift + what.start) as u64;
        let at = shared.deferred_bytes.load(Ordering::Relaxed).checked_add(at);
        arena.read(at.ok_or_else(damaged)?, &mut data)?;
        changes.write(what.block.saturating_mul(BLOCK as u64).saturating_add(what.start as u64), data)?;
    }
    let mut table = [0; size_of::<Calls>()];
    arena.read(shared.in_flight.load(Ordering::Relaxed), &mut table)?;
    for call in Calls::read(&table) {
        match call {
            Call::Write { offset, len, bytes } => {
                let mut data = vec![0; len as usize];
                arena.read(bytes, &mut data)?;
                changes.write(offset, data)?;
            }
            Call::Size(size) => changes.set_size(size)?,
            Call::Zeros { offset, len } => {
                let len = len.min(changes.size.saturating_sub(offset)).min(MOST);
                changes.write(offset, vec![0; len as usize])?;
            }
        }
    }
    Ok(())
}

/// The changes collected so far.
struct Changes {
    all: Vec<What>,
    size: u64,
    bytes: u64,
}

impl Changes {
    fn write(&mut self, offset: u64, data: Vec<u8>) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= SIZE_MAX).ok_or_else(damaged)?;
        self.bytes += data.len() as u64;
        if self.bytes > MOST {
            let what = format!("more than {} MiB of it", MOST >> 20);
            return Err(Error::with(libc::EFBIG, what));
        }
        if !data.is_empty() {
            self.size = self.size.max(end);
            self.all.push(What::Bytes { offset, data });
        }
        Ok(())
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(damaged());
        }
        self.all.push(What::Size { low: size.min(self.size), size });
        self.size = size;
        Ok(())
    }
}

/// Where the bytes of a block lie.
struct Homes<'a> {
    file: BorrowedFd<'a>,
    arena: &'a DeadArena,
    journal: BorrowedFd<'a>,
    /// `None`: a journal of records or a tiered one; bytes that are not in the file lie in the arena, or in the tiered
    /// journal.
    log: Option<Image<'a>>,
}

impl<'a> Homes<'a> {
    fn open(
        file: BorrowedFd<'a>,
        arena: &'a DeadArena,
        journal: BorrowedFd<'a>,
        length: u64,
        header: &Header,
    ) -> Result<Self> {
        let log = match header.kind {
            Kind::Records | Kind::Tiered => None,
            Kind::InPlace => {
                let medium = medium(header.file_domain, false);
                let mut image = Image::open(journal, length, Key::of(header.journal_id), medium)?;
                image.find_segments()?;
                Some(image)
            }
        };
        Ok(Self { file, arena, journal, log })
    }

    /// The first `len` bytes of a block, as its process saw them last. `cell`: the block's, if it has one.
    fn read(&self, block: u64, cell: Option<&Cell>, len: usize) -> Result<Vec<u8>> {
        let shared = self.arena.shared();
        let (offset, committed) = (block * BLOCK as u64, shared.committed());
        let mut data = vec![0; BLOCK];
        let readable = shared.file_end.load(Ordering::Relaxed).saturating_sub(offset).min(len as u64) as usize;
        read_at(self.file, offset, &mut data[..readable])?;
        let Some(cell) = cell else {
            data.truncate(len);
            return Ok(data);
        };
        let mut take = |granules, from: &dyn Fn(usize, &mut [u8]) -> Result<()>| {
            runs(granules, |first, count| from(first, &mut data[first * GRANULE..(first + count) * GRANULE]))
        };
        match &self.log {
            Some(log) => {
                if let Some(state) = inplace::State::of(cell, committed) {
                    take(state.in_log(), &|granule, to| log.read_block(state.entry, granule, to))?;
                }
            }
            None => {
                let state = records::State::of(cell, committed);
                if let Some(number) = state.buffer {
                    let buffer = records::offset(number);
                    let read = |granule: usize, to: &mut [u8]| {
                        let offset = (granule * GRANULE) as u64;
                        match state.in_journal {
                            Some(at) if read_at(self.journal, at + offset, to)? == to.len() => Ok(()),
                            Some(_) => Err(damaged()),
                            None => self.arena.read(buffer + offset, to),
                        }
                    };
                    take(state.held, &read)?;
                }
            }
        }
        data.truncate(len);
        Ok(data)
    }
}

fn damaged() -> Error {
    Error::with(libc::EIO, "its memory is damaged")
}
