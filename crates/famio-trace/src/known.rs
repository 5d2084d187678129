//! Finds the record of a file: by path in the shared table, and by device and inode in a cache of this process.
//!
//! The key is the path, because a program that creates and deletes its journal a thousand times creates a thousand
//! inodes.

use crate::layout::{PATHS, RECORDS, Record, SLOTS, Shared};
use crate::stat::{self, Path, Regular};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const PLACES: usize = 1024;
/// The lower part of an entry: a record's number, or a value for "none".
const NUMBER: u64 = 0xffff;

/// `upper 48 bits: device and inode, mixed; lower 16: a record's number, or NUMBER`. One word, so that threads and
/// signal handlers see a consistent entry.
static CACHE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Never zero, which marks a free entry.
fn key(file: &Regular) -> u64 {
    let mixed = (file.inode ^ file.device.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1 << 63
}

fn place(key: u64) -> &'static AtomicU64 {
    &CACHE[(key >> 20) as usize % PLACES]
}

/// Whether files with this path are counted at all.
fn counts(path: &[u8]) -> bool {
    let below = |folder: &[u8]| path.starts_with(folder);
    path.starts_with(b"/")
        && !below(b"/proc/")
        && !below(b"/sys/")
        && (!below(b"/dev/") || below(b"/dev/shm/"))
        && !path.contains(&b'\n')
}

/// The file was opened, or got a name: the cache may have an entry of another file with its inode.
pub fn at_open(shared: &'static Shared, fd: i32, file: &Regular) -> Option<&'static Record> {
    if !file.is_named {
        return None;
    }
    let path = Path::of(fd)?;
    let number = if counts(path.bytes()) { find(shared, path.bytes(), true) } else { None };
    remember(file, number);
    number.and_then(|number| shared.records.get(number))
}

/// The inode has another path now.
pub fn renamed(shared: &'static Shared, file: &Regular, path: &[u8]) -> Option<&'static Record> {
    let number = if counts(path) { find(shared, path, true) } else { None };
    remember(file, number);
    number.and_then(|number| shared.records.get(number))
}

/// The record of a file that was opened for writing, by any descriptor. `writes`: the call shows that the descriptor
/// is writable, wherever it came from.
pub fn by_descriptor(shared: &'static Shared, fd: i32, file: &Regular, writes: bool) -> Option<&'static Record> {
    if let Some(number) = cached(file)
        && (number < RECORDS || !writes)
    {
        return shared.records.get(number);
    }
    if !file.is_named {
        return None;
    }
    let path = Path::of(fd)?;
    let number = if counts(path.bytes()) { find(shared, path.bytes(), writes) } else { None };
    // A file that was not written yet: reads do not search again until it is opened here.
    if number.is_some() || !writes {
        remember(file, number);
    }
    number.and_then(|number| shared.records.get(number))
}

/// The number of the file's record, if it has one.
pub fn by_path(shared: &Shared, file: &Regular, path: impl FnOnce() -> Option<Path>) -> Option<usize> {
    match cached(file) {
        Some(number) if number < RECORDS => Some(number),
        _ => find(shared, path()?.bytes(), false),
    }
}

/// The record with this path.
pub fn named(shared: &'static Shared, path: &[u8]) -> Option<&'static Record> {
    shared.records.get(find(shared, path, false)?)
}

/// The inode may belong to another file from now on.
pub fn forget(file: &Regular) {
    let key = key(file);
    let entry = place(key).load(Ordering::Relaxed);
    if entry & !NUMBER == key & !NUMBER {
        place(key).store(0, Ordering::Relaxed);
    }
}

fn cached(file: &Regular) -> Option<usize> {
    let key = key(file);
    let entry = place(key).load(Ordering::Relaxed);
    (entry & !NUMBER == key & !NUMBER).then_some((entry & NUMBER) as usize)
}

fn remember(file: &Regular, number: Option<usize>) {
    let key = key(file);
    let number = number.map_or(NUMBER, |number| number as u64);
    place(key).store(key & !NUMBER | number, Ordering::Relaxed);
}

/// The number of the record with this path; with `make`, a new one if there is none.
fn find(shared: &Shared, path: &[u8], make: bool) -> Option<usize> {
    if path.is_empty() {
        return None;
    }
    // FNV-1a: short, and good enough for paths.
    let hash = path
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut ours = None;
    for step in 0..SLOTS {
        let slot = &shared.slots[(hash as usize).wrapping_add(step) % SLOTS];
        let mut number = slot.load(Ordering::Acquire);
        if number == 0 {
            if !make {
                return None;
            }
            let new = match ours {
                Some(new) => new,
                None => {
                    let Some(new) = make_record(shared, path) else {
                        shared.left_out.fetch_add(1, Ordering::Relaxed);
                        return None;
                    };
                    ours = Some(new);
                    new
                }
            };
            match slot.compare_exchange(0, new as u32 + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(new),
                // Another process was faster, perhaps with the same path.
                Err(other) => number = other,
            }
        }
        let number = number as usize - 1;
        let record = shared.records.get(number)?;
        if is_at(shared, record, path) {
            // A record that was made in vain has no path, and so counts as no file.
            if let Some(new) = ours {
                shared.records[new].path_length.store(0, Ordering::Release);
            }
            return Some(number);
        }
    }
    None
}

fn is_at(shared: &Shared, record: &Record, path: &[u8]) -> bool {
    let equal = |(at, &byte): (&AtomicU8, &u8)| at.load(Ordering::Relaxed) == byte;
    shared.path(record).is_some_and(|found| found.len() == path.len() && found.iter().zip(path).all(equal))
}

/// Makes a record with this path, which no other thread or process knows yet.
fn make_record(shared: &Shared, path: &[u8]) -> Option<usize> {
    let full = |used: u32| used as usize >= RECORDS;
    if full(shared.used.load(Ordering::Relaxed)) {
        return None;
    }
    let at = shared.paths_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        let end = (used as usize).checked_add(path.len())?;
        (end <= PATHS).then_some(end as u32)
    });
    let at = at.ok()?;
    let number =
        shared.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| (!full(used)).then_some(used + 1));
    let number = number.ok()? as usize;
    let record = &shared.records[number];
    record.path_at.store(at, Ordering::Relaxed);
    for (to, &byte) in shared.paths[at as usize..].iter().zip(path) {
        to.store(byte, Ordering::Relaxed);
    }
    record.path_length.store(path.len() as u32, Ordering::Release);
    Some(number)
}

/// Whether a descriptor is writable.
pub fn writable(fd: i32) -> bool {
    let flags = stat::flags(fd);
    flags >= 0 && flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}
