//! The identity of a mapped file, as exactly as the kernel can tell it.

use crate::sys::FileSystem;
use rustix::fs::{AtFlags, FileType, StatxAttributes, StatxFlags};
use std::os::fd::BorrowedFd;

/// A file and the kind of its map. A kept map holds its file, so that no other file gets its inode number; the time
/// of birth is for file systems that reuse numbers (tmpfs with `inode32`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub device: u64,
    pub inode: u64,
    /// Seconds and nanoseconds; zero if the file system has none.
    pub born: (i64, u32),
    /// The file's size: a map covers all of it.
    pub size: u64,
    pub writable: bool,
}

/// What one query says about a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub key: Key,
    /// It has a name.
    pub linked: bool,
    pub regular: bool,
    /// Its pages are the medium itself, so a fault maps only its page.
    pub dax: bool,
    /// It has no holes.
    pub full: bool,
}

/// Queries an open file. Works with `O_PATH`, too.
pub(crate) fn ask(fd: BorrowedFd<'_>, writable: bool) -> rustix::io::Result<Asked> {
    let want = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::NLINK | StatxFlags::BLOCKS;
    let want = want | StatxFlags::BTIME;
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, want)?;
    let born = if stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
        (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
    } else {
        (0, 0)
    };
    Ok(Asked {
        key: Key {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            born,
            size: stat.stx_size,
            writable,
        },
        linked: stat.stx_nlink != 0,
        regular: FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile,
        full: stat.stx_blocks.saturating_mul(512) >= stat.stx_size,
        dax: stat.stx_attributes.contains(StatxAttributes::DAX),
    })
}

/// Whether a file's map can be kept on this file system. Not on overlayfs, where the first write makes a file another
/// one with the same number; nor on file systems whose numbers or caches are managed elsewhere.
pub(crate) fn may_keep(fd: BorrowedFd<'_>) -> bool {
    /// ext2/3/4, xfs, btrfs, f2fs, bcachefs, tmpfs.
    const LASTING: [u32; 6] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0xCA45_1A4E, 0x0102_1994];
    FileSystem::of(fd).is_ok_and(|found| LASTING.contains(&found.magic))
}
