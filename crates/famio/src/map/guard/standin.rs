//! Small areas of shared memory whose file another process can cut (`ftruncate`), so that any access is a SIGBUS. The
//! handler replaces the area by zeros, and the access continues: what is read there is untrusted input anyway.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// An area, in a list that only grows; nodes are reused.
struct Area {
    /// 0: free.
    start: AtomicUsize,
    len: AtomicUsize,
    next: AtomicPtr<Area>,
}

static AREAS: AtomicPtr<Area> = AtomicPtr::new(null_mut());

fn each() -> impl Iterator<Item = &'static Area> {
    // SAFETY: nodes are leaked.
    let node = |at: &AtomicPtr<Area>| unsafe { at.load(Acquire).as_ref() };
    core::iter::successors(node(&AREAS), move |area| node(&area.next))
}

/// From now on zeros replace this mapping (of whole pages) if its file is cut. Does nothing if it is known.
pub(crate) fn stand_in_for(start: usize, len: usize) {
    if each().any(|area| area.start.load(Acquire) == start) {
        return;
    }
    for area in each() {
        if area.start.compare_exchange(0, usize::MAX, AcqRel, Relaxed).is_ok() {
            area.len.store(len, Relaxed);
            area.start.store(start, Release);
            return;
        }
    }
    let new = Area { start: AtomicUsize::new(start), len: AtomicUsize::new(len), next: AtomicPtr::new(null_mut()) };
    let new = Box::leak(Box::new(new));
    let mut first = AREAS.load(Acquire);
    loop {
        new.next.store(first, Relaxed);
        match AREAS.compare_exchange(first, new, AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// To be called before the mapping goes.
pub(crate) fn end_stand_in(start: usize) {
    for area in each() {
        let _ = area.start.compare_exchange(start, 0, AcqRel, Relaxed);
    }
}

/// In the signal handler: replaces the area of `address`; false if there is none.
pub(super) fn stand_in(address: usize) -> bool {
    let is_in = |area: &&Area| {
        let start = area.start.load(Acquire);
        start != 0 && start != usize::MAX && address.wrapping_sub(start) < area.len.load(Relaxed)
    };
    let Some(area) = each().find(is_in) else { return false };
    let (start, len) = (area.start.load(Acquire), area.len.load(Relaxed));
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
    // SAFETY: our mapping, which consists of words that may have any value.
    crate::sys::check(unsafe { crate::sys::syscall(libc::SYS_mmap, [start, len, protection, flags, usize::MAX, 0]) })
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    /// A page of a file that is cut already.
    fn cut_page() -> usize {
        crate::map::guard::install().unwrap();
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping of a file of the test's; it stays.
        let at = unsafe { mmap(null_mut(), 4096, protection, flags, &file, 0) }.unwrap() as usize;
        stand_in_for(at, 4096);
        at
    }

    fn word_at(at: usize) -> u64 {
        // SAFETY: mapped to the end of the process.
        unsafe { &*(at as *const AtomicU64) }.load(SeqCst)
    }

    /// The process ended: the library's threads, and those of many others, are started with all signals blocked.
    #[test]
    fn zeros_stand_in_also_in_threads_whose_signals_were_blocked() {
        let (tell, hear) = std::sync::mpsc::channel();
        let (at, ours) = (cut_page(), tell.clone());
        assert!(crate::thread::start("famio-test", move || ours.send(word_at(at)).unwrap()));
        assert_eq!(hear.recv(), Ok(0));
        let at = cut_page();
        std::thread::spawn(move || {
            crate::sys::block_signals(crate::sys::ALL_BUT_LIBCS);
            let _call = crate::file::Call::begin();
            tell.send(word_at(at)).unwrap();
        });
        assert_eq!(hear.recv(), Ok(0));
    }

    #[test]
    fn zeros_stand_in_for_what_another_process_has_cut() {
        crate::map::guard::install().unwrap();
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file of the test's.
        let at = unsafe { mmap(null_mut(), 4096, protection, MapFlags::SHARED, &file, 0) }.unwrap();
        stand_in_for(at as usize, 4096);
        stand_in_for(at as usize, 4096);
        // SAFETY: mapped to the end of the test.
        let word = unsafe { &*at.cast::<AtomicU64>() };
        word.store(7, SeqCst);
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert_eq!(word.load(SeqCst), 0);
        word.store(8, SeqCst);
        assert_eq!(word.load(SeqCst), 8);
        end_stand_in(at as usize);
        assert!(!stand_in(at as usize));
        // SAFETY: no reference is used after this.
        unsafe { munmap(at, 4096) }.unwrap();
    }
}
