//! Whether a file system makes metadata changes durable in order, and with them the bytes that were written to the
//! disk before.
//!
//! Ext4 and xfs put all metadata changes into one journal, and each commit of it flushes the disk's cache. A written
//! block counts as written (`sync_file_range` waits for it) only when its extent and the file's size are in the
//! journal. So if a change made after that wait is there after a crash, the bytes and the size are there, too. This
//! does not hold on btrfs, which notes extents later, nor if the bytes are on another device than the journal.

use super::Detected;
use crate::sys::device::{OfDevice, sysfs_of};
use crate::sys::{check, syscall};
use rustix::fs::stat;
use std::os::fd::{AsRawFd, BorrowedFd};

/// For a file on a disk, through the page cache. False if unknown.
pub fn keeps_order(fd: BorrowedFd<'_>, detected: &Detected) -> bool {
    match detected.file_system {
        "xfs" => !is_on_realtime_device(fd),
        "ext2/3/4" => rustix::fs::fstat(fd).is_ok_and(|stat| ext4_has_journal(stat.st_dev)),
        _ => false,
    }
}

/// Ext4 may have no journal, or have it on another device.
fn ext4_has_journal(device: u64) -> bool {
    static KNOWN: OfDevice = OfDevice::new();
    KNOWN.get(device, || has_journal_inside(device))
}

/// Whether the kernel uses a journal inside the file system, which is its inode 8.
fn has_journal_inside(device: u64) -> bool {
    let Ok(path) = rustix::fs::readlink(sysfs_of(device), Vec::new()) else { return false };
    let Some(name) = path.to_str().ok().and_then(|path| path.rsplit('/').next()) else { return false };
    stat(format!("/proc/fs/jbd2/{name}-8")).is_ok()
}

/// Whether xfs keeps the file's bytes on a separate (realtime) device.
fn is_on_realtime_device(fd: BorrowedFd<'_>) -> bool {
    const FS_IOC_FSGETXATTR: usize = 0x801c_581f;
    const REALTIME: u32 = 1;
    let mut attributes = [0u32; 7]; // struct fsxattr: flags first
    let args = [fd.as_raw_fd() as usize, FS_IOC_FSGETXATTR, attributes.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel writes 28 bytes into an array of as many.
    let asked = check(unsafe { syscall(libc::SYS_ioctl, args) });
    asked.is_err() || attributes[0] & REALTIME != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_the_last_device_is_kept_for_that_one_alone() {
        let device = stat(env!("CARGO_MANIFEST_DIR")).unwrap().st_dev;
        let inside = has_journal_inside(device);
        assert_eq!(ext4_has_journal(device), inside);
        assert!(!ext4_has_journal(rustix::fs::makedev(0, 0)));
        assert_eq!((ext4_has_journal(device), ext4_has_journal(device)), (inside, inside));
    }
}
