//! The mapping cache (HotStorage 2017, section 4): a dropped map is kept with its page tables, and the next user of
//! the same file gets it. One per process; a forked child begins with an empty one.
//!
//! A caller that wants a map has the file open: device, inode, time of birth and size are queried by *that*
//! descriptor each time, and a file that a map holds keeps its inode number. The kernel keeps the bytes right, also
//! after a truncation. But a kept map holds a deleted file's memory, and a file system that is to be unmounted. So
//! every file is watched (`watch`), and its map is dropped when it loses its last name, when its owner or mode
//! changes, or when memory runs short.
// Cycle: mapped, mod, watch: a kept map is watched for changes of its file, which take it out of the cache

mod key;
pub(crate) mod mapped;
mod pressure;
mod table;
mod watch;

pub(crate) use key::{Asked, Key, ask, may_keep};
pub(crate) use watch::Watched;

use self::mapped::Map;
use super::ahead::workers;
use crate::thread::Mutex;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::sync::Arc;
use table::Table;

/// Bytes of maps that are kept by default: address space, and page tables of 1/512 of it. The memory belongs to the
/// files.
pub const LIMIT: u64 = 2 << 30;

static LIMIT_NOW: AtomicU64 = AtomicU64::new(LIMIT);

struct Cache {
    process: u32,
    table: Mutex<Table<Map>>,
    /// A quarter of the process's limit on maps (`vm.max_map_count`).
    maps_max: usize,
}

/// This process's. A child replaces it, and drops what its parent kept.
static CACHE: AtomicPtr<Cache> = AtomicPtr::new(null_mut());

fn cache() -> &'static Cache {
    let me = workers::process();
    loop {
        let found = CACHE.load(Acquire);
        // SAFETY: null, or leaked below and never freed.
        let old = unsafe { found.as_ref() };
        if let Some(cache) = old
            && cache.process == me
        {
            return cache;
        }
        let maps_max = crate::sys::memory::number_in("/proc/sys/vm/max_map_count").unwrap_or(65_530) as usize / 4;
        let new = Box::into_raw(Box::new(Cache { process: me, table: Mutex::new(Table::new()), maps_max }));
        if CACHE.compare_exchange(found, new, AcqRel, Relaxed).is_err() {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(new) });
            continue;
        }
        // The parent's kept maps are mapped here, too. They stay if a thread of the parent was changing the table
        // just then.
        if let Some(mut table) = old.and_then(|old| old.table.try_lock()) {
            drop(table.take_if(|_, _| true));
        }
    }
}

/// Takes the kept map of this kind for the file, if there is one. `asked`: of a descriptor that the caller has open.
pub(crate) fn take(asked: &Asked) -> Option<Map> {
    if LIMIT_NOW.load(Relaxed) == 0 {
        return None;
    }
    let map = cache().table.lock().take(&asked.key)?;
    if !asked.linked {
        return None; // it has just lost its last name
    }
    map.ahead().resume();
    Some(map)
}

/// Whether a map of `bytes` would be kept now.
pub(crate) fn would_keep(bytes: u64) -> bool {
    bytes <= LIMIT_NOW.load(Relaxed)
}

/// Keeps a map that is not used any more, or unmaps it.
pub(crate) fn keep(key: Key, map: Map) {
    let limit = LIMIT_NOW.load(Relaxed);
    let bytes = map.len() as u64;
    if bytes > limit || !map.watched.as_ref().is_some_and(Watched::is_sound) {
        return;
    }
    map.ahead().halt();
    let cache = cache();
    let mut table = cache.table.lock();
    // Asked again under the lock: a thread that drops a file's maps first records that, then takes the lock.
    if !map.watched.as_ref().is_some_and(Watched::is_sound) {
        drop(table);
        return;
    }
    let refused = table.add(key, map, bytes);
    let mut gone = Vec::new();
    while table.bytes() > limit || table.len() > cache.maps_max {
        gone.extend(table.take_oldest());
    }
    drop(table);
    drop(refused);
    take_down(gone);
}

/// Drops the kept maps of a file: it was deleted, replaced or cut, or must not be held by a map.
pub fn forget(device: u64, inode: u64) {
    drop_like(|key, _| (key.device, key.inode) == (device, inode));
}

/// Drops all kept maps.
pub fn clear() {
    drop_like(|_, _| true);
}

/// Whether the cache gives way when memory is short.
static HEEDS_SHORTAGE: AtomicBool = AtomicBool::new(true);

/// For tests, which would otherwise depend on what else the machine does: keeps maps also when memory is short.
#[doc(hidden)]
pub fn ignore_shortage() {
    HEEDS_SHORTAGE.store(false, Relaxed);
}

/// Memory is short.
fn clear_on_shortage() {
    if HEEDS_SHORTAGE.load(Relaxed) {
        clear();
    }
}

/// Sets how many bytes of maps may be kept: 0 for none, `u64::MAX` for no limit. The default is [`LIMIT`].
pub fn set_limit(bytes: u64) {
    LIMIT_NOW.store(bytes, Relaxed);
    let mut table = cache().table.lock();
    let mut gone = Vec::new();
    while table.bytes() > bytes {
        gone.extend(table.take_oldest());
    }
    drop(table);
    drop(gone);
}

/// Bytes of kept maps.
pub fn bytes() -> u64 {
    cache().table.lock().bytes()
}

/// Drops matching maps, if there is a cache. Also called by the watching thread.
fn drop_like(like: impl FnMut(&Key, &Map) -> bool) {
    if CACHE.load(Acquire).is_null() {
        return;
    }
    let gone = cache().table.lock().take_if(like);
    drop(gone); // after the lock: it takes a while
}

/// Unmaps maps in the background, or here if there is none.
fn take_down(maps: Vec<Map>) {
    if !maps.is_empty() {
        // The last reference unmaps: the background's, or this thread's if there is no background.
        let work = Arc::new(Gone(Mutex::new(maps)));
        workers::ask(workers::Asked { work, range: 0..1, serial: 0 }, 1);
    }
}

struct Gone(Mutex<Vec<Map>>);

impl workers::Work for Gone {
    fn work(&self, _: Range<usize>, _: u32) {
        let maps = core::mem::take(&mut *self.0.lock());
        drop(maps);
    }
}
