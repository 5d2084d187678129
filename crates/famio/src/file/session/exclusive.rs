//! Exclusive mode for a thread that writes alone for long without a SYNC.

use super::Session;
use crate::file::Descriptors;
use crate::index::images;
use crate::thread;
use core::sync::atomic::Ordering;

/// One write in this many asks, and of those of at least `LARGE` bytes more, since they gain more by a call.
const WRITES: u64 = 256;
const LARGE_WRITES: u64 = 16;
const LARGE: usize = 32 << 10;

/// Whether a write of so many bytes asks; `turn` counts writes.
#[inline]
pub(super) fn is_time_to_ask(turn: u64, bytes: usize) -> bool {
    turn.is_multiple_of(if bytes < LARGE { WRITES } else { LARGE_WRITES })
}

impl Session {
    /// Grants this thread exclusive mode if it alone has written since the last call. Before it enters the gate.
    #[cold]
    pub(super) fn ask_for_exclusive_mode(&self, fds: &Descriptors) {
        let shared = self.arena.shared();
        // Not while other processes read along, nor with before-images, which whoever is inside with others saves.
        let may = || {
            self.may_be_exclusive.load(Ordering::Relaxed)
                && !self.imaging.membership.is_read_along()
                && shared.images.load(Ordering::Relaxed) == images::NONE
        };
        // A signal handler would wait for the thread that it has interrupted.
        if thread::current().locks_held.get() > 0 || !may() || !shared.gate.is_to_be_granted(self.me, &shared.entered) {
            return;
        }
        let Ok(_closed) = self.close_gate(fds) else { return };
        if may() && self.check(self.context(fds)).is_ok() {
            shared.gate.grant(self.me, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::file::{Access, AtomicFile, UserBuf};
    use crate::index::calls::exclusive::prepare_process;
    use crate::pmem::TestHooks;
    use std::os::fd::AsFd;

    /// A journal in place, and one of records.
    #[test]
    fn a_thread_that_writes_alone_gets_it_without_a_sync() {
        if !prepare_process() {
            return; // not on this processor, or in this sandbox
        }
        for folder in ["/dev/shm", "."] {
            let path = format!("{folder}/famio-exclusive-{}", std::process::id());
            std::fs::write(&path, vec![1; 1 << 20]).unwrap();
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            let name = std::ffi::CString::new(path.clone()).unwrap();
            TestHooks { still: true, ..TestHooks::default() }.enter();
            let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
            let write = |count: u64| {
                for i in 0..count {
                    // SAFETY: the test's memory.
                    unsafe { atomic.write(i % 7 * 4096, &[UserBuf::of(&mut [i as u8; 100])]) }.unwrap();
                }
            };
            let is_mine =
                || atomic.with_session(|session| session.arena.shared().gate.is_exclusively_of(session.me)).unwrap();
            let in_another = |work: &(dyn Fn() + Sync)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());
            // SAFETY: as above. So many bytes get a session.
            unsafe { atomic.write(0, &[UserBuf::of(&mut vec![2; 1 << 20])]) }.unwrap();
            for _ in 0..2 {
                in_another(&|| write(1));
                assert!(!is_mine(), "{folder}");
                // Pauses, the rest of the window in which two wrote, and one in which this thread did.
                write(5 * WRITES);
                assert!(is_mine(), "{folder}");
            }
            // Not while another thread is inside.
            in_another(&|| write(1));
            let gate = |work: &dyn Fn(&crate::index::Shared, u32)| {
                atomic.with_session(|session| work(session.arena.shared(), session.me)).unwrap();
            };
            gate(&|shared, me| shared.gate.pretend(me, &shared.entered));
            write(5 * WRITES);
            assert!(!is_mine(), "{folder}");
            gate(&|shared, me| shared.gate.remove_dead(me, &shared.entered));
            write(2 * WRITES);
            assert!(is_mine(), "{folder}");
            // As long as others take turns with it, nobody has it for long.
            for _ in 0..20 {
                write(WRITES / 4);
                in_another(&|| write(WRITES / 4));
            }
            assert!(!is_mine(), "{folder}");
            atomic.remove_descriptor(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
            TestHooks::default().enter();
            std::fs::remove_file(&path).unwrap();
        }
    }
}
