//! Recalls of kept locks are answered by the process's next lock call, or by a thread that does nothing else: the
//! background may be busy with another file.

use super::AtomicFile;
use crate::sys::{Ended, Word, monotonic_now, process_id, wait_for_any};
use crate::thread::ForkMutex;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::{Arc, Weak};

/// The id of the process whose thread it is; 0: there is no thread. A forked child has none.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Changes when the thread is to look at the list of files again.
static EVENTS: AtomicU32 = AtomicU32::new(0);
/// The thread sleeps.
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// The files whose locks are kept, and their number.
static FILES: ForkMutex<Vec<Weak<AtomicFile>>> = ForkMutex::new(Vec::new());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Between two looks at what is kept.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The same in nanoseconds, a little less.
const LOOKED: u64 = 45_000_000;
/// If the kernel cannot wait for several words.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Whether the locks of any file are kept.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Whether there is a thread that answers. Starts it.
pub(super) fn is_answered() -> bool {
    let (me, seen) = (process_id(), PROCESS.load(Ordering::Acquire));
    if seen == me {
        return true;
    }
    if crate::pmem::TestHooks::current().still
        || !crate::thread::may_start()
        || PROCESS.compare_exchange(seen, me, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return false;
    }
    let started = crate::thread::start("famio-locks", answer);
    if !started {
        PROCESS.store(0, Ordering::Release);
    }
    started
}

/// The locks of `file` are kept from now on.
pub(super) fn add(file: &Arc<AtomicFile>) {
    let mut files = FILES.lock();
    files.push(Arc::downgrade(file));
    COUNT.store(files.len() as u32, Ordering::SeqCst);
    drop(files);
    EVENTS.fetch_add(1, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) {
        let _ = futex::wake(&EVENTS, futex::Flags::PRIVATE, 1);
    }
}

pub(super) fn remove(file: &AtomicFile) {
    let mut files = FILES.lock();
    files.retain(|known| !core::ptr::eq(known.as_ptr(), file));
    COUNT.store(files.len() as u32, Ordering::SeqCst);
}

fn all() -> Vec<Arc<AtomicFile>> {
    let mut files = FILES.lock();
    files.retain(|file| file.strong_count() > 0);
    COUNT.store(files.len() as u32, Ordering::SeqCst);
    files.iter().filter_map(Weak::upgrade).collect()
}

/// In a forked child.
pub(in crate::file) fn begin_child() {
    PROCESS.store(0, Ordering::Release);
    ASLEEP.store(false, Ordering::Relaxed);
    COUNT.store(0, Ordering::SeqCst);
    drop(FILES.begin_child());
}

/// Ends what is kept of one file, before a lock that is not counted.
pub fn keep_no_locks_of(key: (u64, u64)) {
    if let Some(file) = all().iter().find(|file| file.key() == key) {
        file.keep_no_locks();
    }
}

/// The thread.
fn answer() {
    let mut looked = monotonic_now();
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        let mut words = vec![Word::private(&EVENTS, seen)];
        let files = all();
        words.extend(files.iter().filter_map(|file| file.watch_recalls()));
        let is_timed = monotonic_now() - looked >= LOOKED;
        files.iter().for_each(|file| file.look_after_kept_locks(is_timed)); // after the words were read
        drop(files);
        if is_timed {
            looked = monotonic_now();
        }
        // An `add` after this sees that it sleeps, or has changed the word.
        ASLEEP.store(true, Ordering::SeqCst);
        let is_any = any();
        if !is_any {
            let _ = futex::wait(&EVENTS, futex::Flags::PRIVATE, seen, None);
        } else if matches!(wait_for_any(&words, Some(&LOOK)), Ended::Unknown) {
            let _ = rustix::thread::nanosleep(&POLL);
        }
        ASLEEP.store(false, Ordering::SeqCst);
        if !is_any {
            looked = monotonic_now();
        }
    }
}

impl AtomicFile {
    /// The word that changes when this file's locks are recalled.
    fn watch_recalls(&self) -> Option<Word> {
        let membership = &self.ownership.membership;
        membership.is_attached().then(|| membership.watch_recalls())
    }
}
