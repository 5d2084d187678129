//! Counts calls after they have returned, by kind.

use crate::layout::{Count, Record, Shared};
use crate::look::Look;
use crate::start::{add, shared};
use crate::stat::{self, Path};
use crate::*;
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;

/// Counts a call that has returned `result`, as libc gives it.
///
/// # Safety
/// The arguments' targets are as the call requires: it has just succeeded with them, or they are not used.
pub unsafe fn after(kind: u32, a: &[isize; 6], result: isize, look: &Look) {
    let Some(shared) = shared() else { return };
    let fd = |at: usize| a[at] as i32;
    let path = |at: usize| a[at] as *const c_char;
    // A call with an int result leaves the upper half of the register undefined.
    let done = result as i32 == 0;
    match kind {
        OPENS => {
            opened(shared, result as i32);
        }
        STREAMS if result != 0 => {
            // SAFETY: libc has just made the stream, and read the mode.
            let (fd, mode) = unsafe { (libc::fileno(result as *mut _), CStr::from_ptr(path(1))) };
            stream(shared, fd, mode.to_bytes());
        }
        READS => read(shared, fd(0), result),
        WRITES => wrote(shared, fd(0), look, None, result),
        // The result is an int.
        PRINTS => wrote(shared, fd(0), look, None, result as i32 as isize),
        WRITES_AT => wrote(shared, fd(0), look, Some(a[3] as i64), result),
        WRITES_V2 => {
            wrote(shared, fd(0), look, Some(a[3] as i64).filter(|&at| at >= 0), result);
            if result >= 0 && a[4] as i32 & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0 {
                count(shared, fd(0), Count::Syncs, 1);
            }
        }
        SENDS => {
            wrote(shared, fd(0), look, None, result);
            read(shared, fd(1), result);
        }
        COPIES => {
            // SAFETY: null, or the offset that the kernel has just updated.
            let end = unsafe { (a[3] as *const i64).as_ref() };
            wrote(shared, fd(2), look, end.map(|end| *end - result as i64), result);
            read(shared, fd(0), result);
        }
        SYNCS if done => count(shared, fd(0), Count::Syncs, 1),
        SYNCS_MAP if done => synced_map(shared, a[0] as usize),
        MAPS if !(-4095..0).contains(&result) => mapped(shared, a),
        CUTS if done => cut(shared, fd(0), look, a[1]),
        CUTS_PATH if done => {
            if let Some(file) = Path::named(libc::AT_FDCWD, path(0))
                && let Some(record) = known::named(shared, file.bytes())
            {
                add(record, Count::Cuts, 1);
            }
        }
        LOCKS_FCNTL if done => {
            let takes = [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW].contains(&fd(1));
            // SAFETY: the kernel has just read the lock from there.
            if takes && i32::from(unsafe { (*(a[2] as *const libc::flock)).l_type }) != libc::F_UNLCK {
                count(shared, fd(0), Count::Locks, 1);
            }
        }
        LOCKS_FLOCK if done && fd(1) & libc::LOCK_UN == 0 => count(shared, fd(0), Count::Locks, 1),
        LOCKS_LOCKF if done && [libc::F_LOCK, libc::F_TLOCK].contains(&fd(1)) => {
            count(shared, fd(0), Count::Locks, 1);
        }
        REMOVES | REMOVES_AT if done => removed(shared, look),
        RENAMES if done => renamed(shared, look, libc::AT_FDCWD, path(1)),
        RENAMES_AT if done => renamed(shared, look, fd(2), path(3)),
        // SAFETY: libc has just taken the control blocks, and keeps them until they are done.
        AIO_READS | AIO_WRITES | AIO_SYNCS | AIO_LISTS if done => unsafe { queued(shared, kind, a, look) },
        _ => {}
    }
}

fn opened(shared: &'static Shared, fd: i32) -> Option<&'static Record> {
    if fd < 0 {
        return None;
    }
    let file = stat::of(fd)?;
    if !known::writable(fd) {
        // The inode may have belonged to another file.
        known::forget(&file);
        return None;
    }
    let record = known::at_open(shared, fd, &file)?;
    add(record, Count::Opens, 1);
    if stat::flags(fd) & libc::O_DSYNC != 0 {
        add(record, Count::SyncOpens, 1);
    }
    Some(record)
}

fn stream(shared: &'static Shared, fd: i32, mode: &[u8]) {
    // `fdopen` of a file that is counted already counts as another open; it cannot be told from `fopen`.
    if let Some(record) = opened(shared, fd) {
        add(record, Count::Streams, 1);
        add(record, Count::Updates, mode.contains(&b'+').into());
    }
}

/// Counts for a file that has a record, or that this descriptor can write.
fn count(shared: &'static Shared, fd: i32, what: Count, amount: u64) {
    let Some(file) = stat::of(fd) else { return };
    if let Some(record) = known::by_descriptor(shared, fd, &file, known::writable(fd)) {
        add(record, what, amount);
    }
}

fn read(shared: &'static Shared, fd: i32, bytes: isize) {
    if bytes <= 0 {
        return;
    }
    let Some(file) = stat::of(fd) else { return };
    if let Some(record) = known::by_descriptor(shared, fd, &file, false) {
        add(record, Count::Reads, 1);
        add(record, Count::ReadBytes, bytes as u64);
    }
}

fn wrote(shared: &'static Shared, fd: i32, look: &Look, at: Option<i64>, bytes: isize) {
    if bytes <= 0 {
        return;
    }
    let Some(file) = look.file() else { return };
    let Some(record) = known::by_descriptor(shared, fd, &file, true) else { return };
    add(record, Count::Writes, 1);
    add(record, Count::WrittenBytes, bytes as u64);
    let at = match at {
        Some(at) => at as u64,
        None => stat::position(fd).saturating_sub(bytes as u64),
    };
    if at < file.size && stat::flags(fd) & libc::O_APPEND == 0 {
        add(record, Count::Overwrites, 1);
    }
    if record.count(Count::SyncOpens).load(Ordering::Relaxed) > 0 && stat::flags(fd) & libc::O_DSYNC != 0 {
        add(record, Count::Syncs, 1);
    }
}

fn cut(shared: &'static Shared, fd: i32, look: &Look, size: isize) {
    if let Some(file) = look.file()
        && (size as u64) < file.size
        && let Some(record) = known::by_descriptor(shared, fd, &file, true)
    {
        add(record, Count::Cuts, 1);
    }
}

fn mapped(shared: &'static Shared, a: &[isize; 6]) {
    let [_, length, protection, flags, fd, _] = *a;
    let shares = [libc::MAP_SHARED, libc::MAP_SHARED_VALIDATE].contains(&(flags as i32 & libc::MAP_TYPE));
    if !shares || protection as i32 & libc::PROT_WRITE == 0 || flags as i32 & libc::MAP_ANONYMOUS != 0 {
        return;
    }
    count(shared, fd as i32, Count::Maps, 1);
    count(shared, fd as i32, Count::MappedBytes, length as u64);
}

/// Counts a sync of the file mapped at an address. Maps are not tracked: the kernel is asked.
fn synced_map(shared: &'static Shared, address: usize) {
    if let Some(path) = crate::maps::file_at(address)
        && let Some(record) = known::named(shared, path.bytes())
    {
        add(record, Count::Syncs, 1);
    }
}

fn removed(shared: &'static Shared, look: &Look) {
    if let Some(record) = look.record(shared) {
        add(record, Count::Removed, 1);
    }
    if let Some(file) = look.file() {
        known::forget(&file);
    }
}

/// A file that the program wrote has another name; or it was replaced by another file.
fn renamed(shared: &'static Shared, look: &Look, folder: i32, name: *const c_char) {
    let (Some(file), Some(path)) = (look.file(), Path::named(folder, name)) else { return };
    let new = match look.record(shared) {
        Some(old) => {
            add(old, Count::Renamed, 1);
            known::renamed(shared, &file, path.bytes())
        }
        None => known::named(shared, path.bytes()),
    };
    if let Some(record) = new {
        add(record, Count::Replaced, 1);
    }
}

/// POSIX aio: counted when queued.
///
/// # Safety
/// The arguments are those of a call that libc has just accepted.
unsafe fn queued(shared: &'static Shared, kind: u32, a: &[isize; 6], look: &Look) {
    // SAFETY: the caller's promise.
    unsafe {
        match kind {
            AIO_READS => {
                let block = &*(a[0] as *const libc::aiocb);
                read(shared, block.aio_fildes, block.aio_nbytes as isize);
            }
            AIO_WRITES => {
                let block = &*(a[0] as *const libc::aiocb);
                wrote(shared, block.aio_fildes, look, Some(block.aio_offset), block.aio_nbytes as isize);
            }
            AIO_SYNCS => count(shared, (*(a[1] as *const libc::aiocb)).aio_fildes, Count::Syncs, 1),
            _ => {
                let blocks = a[1] as *const *const libc::aiocb;
                for index in 0..usize::try_from(a[2] as i32).unwrap_or(0) {
                    let Some(block) = (*blocks.add(index)).as_ref() else { continue };
                    let (fd, bytes) = (block.aio_fildes, block.aio_nbytes as isize);
                    match block.aio_lio_opcode {
                        libc::LIO_READ => read(shared, fd, bytes),
                        libc::LIO_WRITE => wrote(shared, fd, &Look::of(fd), Some(block.aio_offset), bytes),
                        _ => {}
                    }
                }
            }
        }
    }
}
