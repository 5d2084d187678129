//! SKELETON for parallel work: an AtomicFile that forwards everything to the kernel. Replaced before the first release.
use super::{Access, Position, UserBuf};
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::sys::{check, syscall};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One file of the process.
pub struct AtomicFile {
    key: (u64, u64),
    fds: Mutex<Vec<(RawFd, bool)>>,
    demoted: AtomicBool,
}

static FILES: Mutex<Vec<Arc<AtomicFile>>> = Mutex::new(Vec::new());

/// Closes every file clean.
pub fn close_all() {
    FILES.lock().unwrap().clear();
}
/// In a forked child.
pub fn disown_all() {}

#[allow(missing_docs)]
impl AtomicFile {
    pub fn open(fd: BorrowedFd<'_>, access: Access, _path: &CStr, _settings: &Settings) -> Result<Arc<AtomicFile>> {
        let stat = rustix::fs::fstat(fd)?;
        let key = (stat.st_dev, stat.st_ino);
        let mut files = FILES.lock().unwrap();
        let file = match files.iter().find(|f| f.key == key) {
            Some(f) => f.clone(),
            None => {
                let f = Arc::new(AtomicFile { key, fds: Mutex::new(Vec::new()), demoted: AtomicBool::new(false) });
                files.push(f.clone());
                f
            }
        };
        file.add_descriptor(fd.as_raw_fd(), access);
        Ok(file)
    }
    pub fn find(dev: u64, ino: u64) -> Option<Arc<AtomicFile>> {
        FILES.lock().unwrap().iter().find(|f| f.key == (dev, ino)).cloned()
    }
    pub fn add_descriptor(&self, fd: RawFd, access: Access) {
        self.fds.lock().unwrap().push((fd, access == Access::Write));
    }
    pub fn remove_descriptor(&self, fd: RawFd) -> Result<()> {
        let mut fds = self.fds.lock().unwrap();
        fds.retain(|&(f, _)| f != fd);
        if fds.is_empty() {
            FILES.lock().unwrap().retain(|f| f.key != self.key);
        }
        Ok(())
    }
    fn fd(&self, write: bool) -> Result<usize> {
        let fds = self.fds.lock().unwrap();
        fds.iter().find(|&&(_, w)| w || !write).map(|&(f, _)| f as usize).ok_or(Error::new(libc::EBADF))
    }
    /// # Safety
    /// as readv
    pub unsafe fn read(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        // SAFETY: the caller's promise.
        check(unsafe {
            syscall(libc::SYS_preadv, [self.fd(false)?, bufs.as_ptr() as usize, bufs.len(), offset as usize, 0, 0])
        })
    }
    /// # Safety
    /// as writev
    pub unsafe fn write(&self, at: Position, bufs: &[UserBuf]) -> Result<(u64, usize)> {
        let offset = match at {
            Position::At(offset) => offset,
            Position::End => self.size(),
        };
        // SAFETY: the caller's promise.
        let n = check(unsafe {
            syscall(libc::SYS_pwritev, [self.fd(true)?, bufs.as_ptr() as usize, bufs.len(), offset as usize, 0, 0])
        })?;
        Ok((offset, n))
    }
    pub fn size(&self) -> u64 {
        let fd = self.fd(false).unwrap();
        // SAFETY: the descriptor is open.
        rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd as RawFd) }).unwrap().st_size as u64
    }
    pub fn set_size(&self, size: u64) -> Result<()> {
        // SAFETY: the descriptor is open.
        Ok(rustix::fs::ftruncate(unsafe { BorrowedFd::borrow_raw(self.fd(true)? as RawFd) }, size)?)
    }
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the descriptor is open.
        Ok(rustix::fs::fdatasync(unsafe { BorrowedFd::borrow_raw(self.fd(true)? as RawFd) })?)
    }
    pub fn modified(&self) -> Option<libc::timespec> {
        None
    }
    pub fn demote(&self) -> Result<()> {
        self.demoted.store(true, Ordering::Release);
        Ok(())
    }
    pub fn is_demoted(&self) -> bool {
        self.demoted.load(Ordering::Acquire)
    }
}
