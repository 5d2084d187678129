//! The mapping cache (HotStorage 2017, section 4): a map that is given up is kept with its page tables, and the next that
//! wants a map of the same file gets it. One for the process; a forked child begins with an empty one.
//!
//! A map is kept only while that can't be wrong. Who wants one has the file open: device, number, time of birth and size are
//! asked of *that* descriptor each time, and a file that is held by a map keeps its number. The kernel itself keeps the
//! bytes right, also after a truncation. What keeping would cost is another matter: a deleted file's memory, a file system
//! that can't be unmounted. So every file is watched (`watch`), and its map goes when its last name does, when its owner or
//! mode changes, or when memory runs short.
// Cycle: mapped, mod, watch: a kept map is watched for changes of its file, which take it out of the cache

mod key;
pub(crate) mod mapped;
mod pressure;
mod table;
mod watch;

pub(crate) use key::{Asked, Key, ask, may_keep};
pub(crate) use watch::Watched;

use self::mapped::Map;
use super::ahead::crew;
use crate::thread::Mutex;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::sync::Arc;
use table::Table;

/// Bytes of maps that are kept by default: address space and page tables (1/512 of it). The memory is the files' own.
pub const LIMIT: u64 = 2 << 30;

static LIMIT_NOW: AtomicU64 = AtomicU64::new(LIMIT);

struct Cache {
    process: u32,
    table: Mutex<Table<Map>>,
    /// The process has a limit on the number of its maps (`vm.max_map_count`): not more than a quarter of it is kept.
    maps_max: usize,
}

/// This process's. A child replaces it, and what its parent kept.
static CACHE: AtomicPtr<Cache> = AtomicPtr::new(null_mut());

fn cache() -> &'static Cache {
    let me = crew::process();
    loop {
        let found = CACHE.load(Acquire);
        // SAFETY: null, or leaked below and never freed.
        let old = unsafe { found.as_ref() };
        if let Some(cache) = old
            && cache.process == me
        {
            return cache;
        }
        let maps_max = pressure::number_in(c"/proc/sys/vm/max_map_count").unwrap_or(65_530) as usize / 4;
        let new = Box::into_raw(Box::new(Cache { process: me, table: Mutex::new(Table::new()), maps_max }));
        if CACHE.compare_exchange(found, new, AcqRel, Relaxed).is_err() {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(new) });
            continue;
        }
        // What the parent kept at the fork is mapped here too, unless a thread of its was changing it just then.
        if let Some(mut table) = old.and_then(|old| old.table.try_lock()) {
            drop(table.take_if(|_, _| true));
        }
    }
}

/// Takes the map that is kept of the file and of this kind. `asked` is of a descriptor that the caller has open.
pub(crate) fn take(asked: &Asked) -> Option<Map> {
    if LIMIT_NOW.load(Relaxed) == 0 {
        return None;
    }
    let map = cache().table.lock().take(&asked.key)?;
    if !asked.linked {
        return None; // its last name went just now
    }
    map.ahead().resume();
    Some(map)
}

/// Whether a map of so many bytes would be kept, for now.
pub(crate) fn would_keep(bytes: u64) -> bool {
    bytes <= LIMIT_NOW.load(Relaxed)
}

/// Keeps a map that nobody uses any more, or takes it down.
pub(crate) fn keep(key: Key, map: Map) {
    let limit = LIMIT_NOW.load(Relaxed);
    let bytes = map.len() as u64;
    if bytes > limit || !map.watched.as_ref().is_some_and(Watched::is_sound) {
        return;
    }
    map.ahead().halt();
    let cache = cache();
    let mut table = cache.table.lock();
    // Asked again under the lock, which who takes a file's maps away takes after he has said so.
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

/// Drops what is kept of a file: it was deleted, replaced or cut, or its map must not hold it.
pub fn forget(device: u64, inode: u64) {
    drop_like(|key, _| (key.device, key.inode) == (device, inode));
}

/// Drops all that is kept.
pub fn clear() {
    drop_like(|_, _| true);
}

/// How many bytes of maps may be kept: 0 for none, `u64::MAX` without a limit. [`LIMIT`] until this is called.
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

/// Bytes of maps that are kept.
pub fn bytes() -> u64 {
    cache().table.lock().bytes()
}

/// Drops what is kept, if there is a cache. From the thread that watches, too.
fn drop_like(like: impl FnMut(&Key, &Map) -> bool) {
    let gone = cache().table.lock().take_if(like);
    drop(gone); // with the lock free: it takes a while
}

/// Takes maps down in the background, or here where there is none.
fn take_down(maps: Vec<Map>) {
    if !maps.is_empty() {
        // Whoever drops it last: the background, or this thread, if the background does not take it.
        let work = Arc::new(Gone(Mutex::new(maps)));
        crew::ask(crew::Asked { work, range: 0..1, serial: 0 }, 1);
    }
}

struct Gone(Mutex<Vec<Map>>);

impl crew::Work for Gone {
    fn work(&self, _: Range<usize>, _: u32) {
        let maps = core::mem::take(&mut *self.0.lock());
        drop(maps);
    }
}
