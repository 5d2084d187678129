//! Changes the size of an attached file: part of the epoch, without a system call.

use super::Session;
use super::write::SIZE_MAX;
use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::descriptors::by_kernel::may_have_size;
use crate::file::engine::context::Context;
use crate::index::Calls;
use core::sync::atomic::Ordering;

/// Every supported file system has files of this size.
const SIZE_EVERYWHERE: u64 = 1 << 40;

impl Session {
    /// Sets the logical size. Growing shows zeros. `EFBIG`: beyond the largest file. Refused if the session has ended.
    pub fn set_size(&self, fds: &Descriptors, size: u64) -> Answer<()> {
        self.change_size(fds, |_| size)
    }

    /// As [`set_size`](Self::set_size), unless the file is longer already.
    pub fn grow(&self, fds: &Descriptors, size: u64) -> Answer<()> {
        self.change_size(fds, |old| old.max(size))
    }

    fn change_size(&self, fds: &Descriptors, to: impl FnOnce(u64) -> u64) -> Answer<()> {
        let cx = self.context(fds);
        let shared = cx.shared();
        let _closed = self.close_gate(fds)?;
        self.check_change(cx)?;
        let old = shared.size();
        let size = to(old);
        if size > SIZE_MAX {
            return Err(Error::new(libc::EFBIG).into());
        }
        let call = if self.keeps && size != old { Some(Calls::begin(&self.arena)?) } else { None };
        call.iter().for_each(|call| call.sets_size(size));
        let changed = if size == old { Ok(()) } else { self.change_from(cx, old, size) };
        drop(call);
        if size <= old && changed.is_ok() {
            self.home.forget_preallocated();
        }
        // Last: zeros may take their time, and later changes of the inode count as an outsider's.
        self.touch(cx);
        changed
    }

    /// Checks that the file may get this size, before anything is changed: it gets it only at a checkpoint. `EFBIG`:
    /// its file system has no such files.
    pub(in crate::file) fn room_for_size(&self, cx: Context<'_>, old: u64, size: u64) -> Result<()> {
        if size > old.max(SIZE_EVERYWHERE) && !cx.fds.with(true, |fd| Ok(may_have_size(fd, size)))? {
            return Err(Error::new(libc::EFBIG));
        }
        self.engine.room_for_size(cx)
    }

    /// With the gate closed.
    fn change_from(&self, cx: Context<'_>, old: u64, size: u64) -> Answer<()> {
        let shared = cx.shared();
        self.room_for_size(cx, old, size)?;
        shared.make_dirty();
        if self.saves_images() {
            self.save_images_of_size(cx, size)?;
        }
        self.resize(cx, old, size).map_err(Refusal::from)
    }

    /// Changes the size from `old` to `size`; before-images are saved. With the gate closed.
    fn resize(&self, cx: Context<'_>, old: u64, size: u64) -> Result<()> {
        if size > old {
            self.zero_gap(cx, old, size)?;
        }
        self.resize_zeroed(cx, old, size)
    }

    /// As [`resize`](Self::resize), after the gap was zeroed.
    pub(in crate::file) fn resize_zeroed(&self, cx: Context<'_>, old: u64, size: u64) -> Result<()> {
        let shared = cx.shared();
        if size < old {
            shared.cuts.fetch_add(1, Ordering::AcqRel);
            self.engine.cut(cx, size)?;
        }
        shared.epoch_low.fetch_min(size, Ordering::Release);
        shared.lowest_since_acquired.fetch_min(size, Ordering::Release);
        shared.size.store(size, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::file::{Access, AtomicFile, UserBuf};
    use crate::journal::testing::{kernels_calls, kernels_memory};
    use crate::pmem::{Domain, Medium, TestHooks};
    use crate::settings::PolicyChoice;
    use core::sync::atomic::AtomicU64;
    use std::os::fd::{AsFd, AsRawFd};

    /// When the last fence ended. Each takes a while.
    static FENCED: AtomicU64 = AtomicU64::new(0);

    struct Slow;

    // SAFETY: as the kernel's.
    unsafe impl Medium for Slow {
        kernels_memory!();
        kernels_calls!(pwritev fsync fdatasync ftruncate);
        fn fence(&self) {
            std::thread::sleep(std::time::Duration::from_millis(30));
            let now = crate::sys::coarse_now();
            FENCED.store(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, Ordering::Release);
        }
    }

    #[test]
    fn a_change_of_size_that_takes_long_is_not_somebody_elses() {
        let path = format!("/dev/shm/famio-slow-{}", std::process::id());
        std::fs::write(&path, [b'-'; 6000]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let name = std::ffi::CString::new(path.clone()).unwrap();
        let (medium, domain, policy) = (Some(&Slow as &dyn Medium), Some(Domain::Emulated), Some(PolicyChoice::Undo));
        TestHooks { medium, domain, policy, still: true, ..TestHooks::default() }.enter();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &Settings::default()).unwrap();
        // SAFETY: the test's memory.
        unsafe { atomic.write(5000, &[UserBuf::of(&mut [1; 100])]) }.unwrap();
        atomic.set_size(4000).unwrap();
        let before = FENCED.load(Ordering::Acquire);
        atomic.set_size(6500).unwrap();
        let fenced = FENCED.load(Ordering::Acquire);
        let touched = atomic.with_session(|session| session.arena.shared().touched.load(Ordering::Acquire)).unwrap();
        atomic.remove_descriptor(file.as_raw_fd()).unwrap();
        TestHooks::default().enter();
        std::fs::remove_file(&path).unwrap();
        assert!(before < fenced && fenced <= touched, "{before} {fenced} {touched}");
    }
}
