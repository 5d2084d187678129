//! Collapses the log of a journal in memory into huge pages. Where writers were faster than the
//! [background](super::zone), they took a few blocks at a time, and the rest of that huge page has small pages, too.

use super::log::Log;
use super::segment::Geometry;
use super::zone::ready;
use crate::index::Arena;
use crate::map::huge::{self, HUGE};
use core::sync::atomic::Ordering;

impl Log {
    /// The huge pages that have memory everywhere, from the journal's beginning on. 0: the kernel makes none for it.
    pub fn huge_pages(&self, arena: &Arena) -> u64 {
        let prepared = ready(arena.shared().ready.load(Ordering::Acquire)) as u32;
        let Some(last) = prepared.checked_sub(1) else { return 0 };
        if !self.is_in_memory() || self.zone.lacks_huge.load(Ordering::Relaxed) {
            return 0;
        }
        let (segment, i) = Geometry::place(last);
        Geometry::of(segment).block(i + 1) / HUGE as u64
    }

    /// Collapses one of the [huge pages](Self::huge_pages), unless the journal is or was cut meanwhile. False: the
    /// kernel could not. Called by the background.
    pub fn gather(&self, arena: &Arena, page: u64) -> bool {
        if self.zone.is_busy.swap(true, Ordering::SeqCst) {
            return true;
        }
        let done = page >= self.huge_pages(arena) || huge::gather(self.base().wrapping_add(page as usize * HUGE), HUGE);
        self.zone.is_busy.store(false, Ordering::Release);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::JournalId;
    use crate::journal::inplace::Key;
    use crate::journal::inplace::mapped::Mapped;
    use crate::journal::testing::KERNEL;
    use crate::pmem::{Domain, test_file};
    use crate::sys::InternalFd;
    use std::os::fd::AsFd;

    #[test]
    fn what_writers_took_a_few_at_a_time_keeps_its_bytes_in_huge_pages() {
        let file = |size| InternalFd::adopt(test_file("/dev/shm", size).into()).unwrap();
        let arena = Arena::create(file(0), std::path::Path::new("/nonexistent")).unwrap();
        let (journal, key) = (file(0), Key::of(JournalId([7; 16])));
        let log = Log::create(Mapped::create(journal.as_fd(), Domain::Process, &KERNEL, key, 64u64 << 20).unwrap());
        assert_eq!(log.huge_pages(&arena), 0);
        let entries: Vec<u32> = (0..3000).map(|_| log.take(&arena).unwrap()).collect();
        // SAFETY: log blocks with memory, which only this thread uses.
        let block = |entry: u32| unsafe { core::slice::from_raw_parts_mut(log.block(entry), 4096) };
        entries.iter().for_each(|&entry| block(entry).fill(entry as u8));
        let pages = log.huge_pages(&arena);
        assert!(pages >= 4, "{pages}");
        // The kernel may have none left: then the bytes stay where they are.
        let _ = (0..pages).map(|page| log.gather(&arena, page)).collect::<Vec<_>>();
        assert!(entries.iter().all(|&entry| block(entry).iter().all(|&byte| byte == entry as u8)));
        // While the journal is cut, a page beyond its end would get memory; and afterwards.
        assert!(log.gather(&arena, pages));
        log.zone.is_busy.store(true, Ordering::SeqCst);
        assert!(log.gather(&arena, 0));
        assert!(log.zone.is_busy.load(Ordering::SeqCst));
    }
}
