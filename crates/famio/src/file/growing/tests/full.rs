//! A growing file that has to get a session while nothing can be written: its disk is full.

use super::Grown;
use super::disk::Disk;
use crate::error::Result;
use crate::file::UserBuf;
use crate::file::atomic::GROWING;
use crate::pmem::TestHooks;
use std::os::fd::AsRawFd;

/// A file of 5000 committed bytes on such a disk.
fn on_disk(name: &str) -> (Grown, &'static Disk) {
    let disk: &'static Disk = Box::leak(Box::default());
    let grown = Grown::new(name);
    grown.write(0, &[b'a'; 5000]);
    grown.atomic.sync().unwrap();
    assert_eq!(grown.state(), GROWING);
    grown.take_no_overwrites();
    grown.atomic.growing.state.lock().as_mut().unwrap().medium = disk;
    TestHooks { medium: Some(disk), ..TestHooks::default() }.enter(); // for the session
    (grown, disk)
}

fn errno<T>(result: Result<T>) -> i32 {
    result.map(drop).expect_err("an error").errno()
}

impl Grown {
    /// Overwrites a committed byte, for which the file needs a session.
    fn overwrite(&self) -> Result<usize> {
        // SAFETY: the test's memory.
        unsafe { self.atomic.write(7, &[UserBuf::of(&mut [b'c'])]) }
    }
}

/// A hole was put back as zeros, for which there was no room; then it was lost, and SYNCs committed nothing.
#[test]
fn a_hole_at_its_end_stays() {
    let (grown, disk) = on_disk("full-hole");
    grown.atomic.set_size(200_000).unwrap();
    disk.fail(libc::ENOSPC);
    assert_eq!(errno(grown.overwrite()), libc::ENOSPC);
    assert_eq!((grown.state(), grown.atomic.size()), (GROWING, 200_000));
    grown.atomic.sync().unwrap();
    disk.fail(0);
    assert_eq!(grown.overwrite().unwrap(), 1);
    let bytes = grown.read();
    assert!(bytes.len() == 200_000 && bytes[..9] == *b"aaaaaaaca" && bytes[5000..].iter().all(|&byte| byte == 0));
    grown.close();
    TestHooks::default().enter();
    std::fs::remove_file(&grown.path).unwrap();
}

/// The next SYNC returned without an error.
#[test]
fn what_cannot_be_put_back_is_lost_with_an_error() {
    let (grown, disk) = on_disk("full-lost");
    grown.write(5000, &[b'b'; 3000]);
    disk.fail(libc::ENOSPC);
    assert_eq!(errno(grown.overwrite()), libc::EIO);
    assert_eq!(errno(grown.atomic.sync()), libc::EIO);
    disk.fail(0);
    assert_eq!(errno(grown.atomic.sync()), libc::EIO);
    assert_eq!(errno(grown.overwrite()), libc::EIO);
    assert!(grown.read() == [b'a'; 5000]);
    assert_eq!(errno(grown.atomic.remove_descriptor(grown.file.as_raw_fd())), libc::EIO);
    TestHooks::default().enter();
    let again = Grown::open(grown.path.clone(), &crate::Settings::default());
    assert!(again.read() == [b'a'; 5000]);
    again.write(5000, b"d");
    again.close();
    std::fs::remove_file(&again.path).unwrap();
}
