//! The identity and the kind of an open file, without asking for its times: on a kernel with fine-grained time stamps
//! (since 6.13) that would make the next write change the inode, which the next `fdatasync` may then have to write.

use crate::error::Result;
use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// The device and inode of an open file.
pub(crate) fn identity(fd: BorrowedFd<'_>) -> Result<(u64, u64)> {
    Ok(identity_and_size(fd)?.0)
}

/// As [`identity`], with the file's size.
pub(crate) fn identity_and_size(fd: BorrowedFd<'_>) -> Result<((u64, u64), u64)> {
    match rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::SIZE) {
        Ok(stat) => Ok(((rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino), stat.stx_size)),
        // For a sandbox that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let stat = rustix::fs::fstat(fd)?;
            Ok(((stat.st_dev, stat.st_ino), stat.st_size as u64))
        }
        Err(error) => Err(error.into()),
    }
}

/// As [`identity`], of what has this name, which is not opened. `how`: whether a link is followed.
pub(crate) fn identity_at(at: BorrowedFd<'_>, name: &CStr, how: AtFlags) -> rustix::io::Result<(u64, u64)> {
    match rustix::fs::statx(at, name, how, StatxFlags::INO) {
        Ok(stat) => Ok((rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)),
        // As in `identity`.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::statat(at, name, how).map(|stat| (stat.st_dev, stat.st_ino)),
        Err(error) => Err(error),
    }
}

/// What `look_at` found.
pub(crate) struct Looked {
    /// Device and inode.
    pub key: (u64, u64),
    pub mode: u32,
    pub size: u64,
    /// When it was made, in seconds and nanoseconds: zeros, where the file system keeps no such times. `None`: the
    /// kernel could not be asked.
    pub birth: Option<(i64, u32)>,
    /// It was made a moment ago and is empty, so it was made in this boot.
    pub is_new: bool,
    /// It has no name.
    pub is_deleted: bool,
    /// The time of its last change, in seconds and nanoseconds, if that was asked for.
    pub changed: Option<(i64, u64)>,
}

/// When the file was made, by an answer to `STATX_BTIME`; zeros, where the file system keeps no such times.
pub(crate) fn birth_of(stat: &Statx) -> (i64, u32) {
    let is_known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    if is_known { (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) } else { (0, 0) }
}

/// Looks at an open file. `times`: also asks when it was changed.
pub(crate) fn look_at(fd: BorrowedFd<'_>, times: bool) -> Result<Looked> {
    let mask = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::BTIME;
    let mask = mask | StatxFlags::NLINK | if times { StatxFlags::CTIME } else { StatxFlags::empty() };
    match rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask) {
        Ok(stat) => Ok(Looked {
            key: (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
            mode: stat.stx_mode.into(),
            size: stat.stx_size,
            birth: Some(birth_of(&stat)),
            is_new: stat.stx_size == 0
                && stat.stx_mask & StatxFlags::BTIME.bits() != 0
                && is_just_now(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec.into()),
            is_deleted: stat.stx_nlink == 0,
            changed: times.then_some((stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into())),
        }),
        Err(Errno::NOSYS | Errno::PERM) => {
            let stat = rustix::fs::fstat(fd)?;
            let (key, size) = ((stat.st_dev, stat.st_ino), stat.st_size as u64);
            let changed = times.then_some((stat.st_ctime, stat.st_ctime_nsec));
            let is_deleted = stat.st_nlink == 0;
            Ok(Looked { key, mode: stat.st_mode, size, birth: None, is_new: false, is_deleted, changed })
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a file's time was at most some ticks of the kernel's clock ago, and so in this boot. By the fine clock:
/// where file systems keep fine times (Linux 6.13), that of a new file may be after the coarse clock's.
fn is_just_now(seconds: i64, nanoseconds: i64) -> bool {
    const TICKS: i64 = 20_000_000;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let Some(since) = now.tv_sec.checked_sub(seconds).and_then(|since| since.checked_mul(1_000_000_000)) else {
        return false;
    };
    (0..=TICKS).contains(&(since + now.tv_nsec - nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_time_is_just_now_for_some_ticks() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let before = |nanoseconds: i64| {
            let at = now.tv_nsec - nanoseconds;
            is_just_now(now.tv_sec + at.div_euclid(1_000_000_000), at.rem_euclid(1_000_000_000))
        };
        assert!(before(0));
        assert!(!before(1_000_000_000) && !before(86_400_000_000_000));
        assert!(!before(-1_000_000_000), "in the future: the clock was set");
        assert!(!is_just_now(i64::MIN, 0) && !is_just_now(i64::MAX, 0) && !is_just_now(0, 0));
    }

    #[test]
    fn a_file_is_new_whose_time_is_after_the_coarse_clock() {
        let folder = std::env::temp_dir().join(format!("famio-new-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let mut new = 0;
        for number in 0..200 {
            let file = std::fs::File::create(folder.join(number.to_string())).unwrap();
            new += u32::from(look_at(file.as_fd(), false).unwrap().is_new);
            // A time that was asked for is fine when it changes next, and no file's is before it from then on.
            file.metadata().unwrap();
            file.set_len(1).unwrap();
        }
        assert!(new > 100, "{new} of 200, though each was made a moment ago");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn times_are_told_if_asked_for() {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let stat = file.metadata().unwrap();
        let changed = |times| look_at(file.as_fd(), times).unwrap().changed;
        assert_eq!((changed(false), changed(true)), (None, Some((stat.ctime(), stat.ctime_nsec() as u64))));
    }

    #[test]
    fn a_file_with_bytes_is_not_new() {
        let file = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let looked = look_at(file.as_fd(), false).unwrap();
        assert_eq!((looked.key, looked.size), identity_and_size(file.as_fd()).unwrap());
        rustix::io::write(&file, b"bytes").unwrap();
        let looked = look_at(file.as_fd(), false).unwrap();
        assert_eq!((looked.size, looked.is_new), (5, false));
    }
}
