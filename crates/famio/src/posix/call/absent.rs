//! Names that are not there. SQLite looks for two of them in each transaction, and tmpfs keeps no record of absent
//! names: each look makes and frees a directory entry, 1.3 µs, and twice as much if two processes do so. A look at the
//! folder takes 0.55 µs.
//!
//! What the kernel has often said of a path is remembered with the folder's identity and time of change. As long as a
//! look at the folder shows the same, nothing was made in it, and the path leads to no other folder. The look asks for
//! `folder/.`, for which the process needs the same rights as for a name in the folder.

use crate::posix::call::user;
use crate::posix::{Ret, fail, raw};
use crate::sys::{InternalFd, may_be_stamped_again, shm};
use crate::thread::Mutex;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use libc::stat as Stat;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::AsRawFd;

/// Paths that are remembered, and the bytes of one with its terminator.
const PATHS: usize = 4;
const LENGTH: usize = 256;
/// Of so many paths it is counted how often they were absent.
const COUNTED: usize = 16;
/// After so many looks a path is remembered; more, up to `MOST`, where folders have changed.
const FEWEST: u32 = 8;
const MOST: u32 = 200;
/// The most absent paths that are not counted after a folder was found to be on another file system.
const IGNORED: u32 = 1 << 16;
/// Other flags may be errors.
const FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;

/// A copy of a path, with its terminator.
#[derive(Clone, Copy)]
struct Path {
    bytes: [u8; LENGTH],
    /// 0: none.
    length: usize,
}

/// A path that was absent.
#[derive(Clone, Copy)]
struct Absent {
    path: Path,
    folder: Folder,
}

/// Device, inode and time of change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Folder(u64, u64, i64, i64);

/// How many paths are remembered.
static KNOWN: AtomicU32 = AtomicU32::new(0);
static PATHS_KNOWN: Mutex<[Absent; PATHS]> = Mutex::new([Absent::NONE; PATHS]);
/// Hashes of paths (upper bits), and how often each was absent (lower 8 bits).
static COUNTS: [AtomicU64; COUNTED] = [const { AtomicU64::new(0) }; COUNTED];
/// Looks until a path is remembered.
static LOOKS: AtomicU32 = AtomicU32::new(FEWEST);
/// How many absent paths are not counted from now on, and how many after the next that is on another file system.
static TO_IGNORE: AtomicU32 = AtomicU32::new(0);
static NEXT_TO_IGNORE: AtomicU32 = AtomicU32::new(FEWEST);

/// Why a path is not remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The kernel remembers it.
    OtherFileSystem,
    /// It is there, or was a moment ago, or cannot be looked for.
    NotAbsent,
}

impl Path {
    const NONE: Self = Self { bytes: [0; LENGTH], length: 0 };

    /// Copies an absolute path that is short enough. The program may change it at any moment. The guard must be
    /// installed.
    fn of(path: *const c_char) -> Option<Self> {
        // SAFETY: only its length is used.
        let length = unsafe { user::path(path) }.ok()?.count_bytes();
        let mut copy = Self { length: length + 1, ..Self::NONE };
        let to = copy.bytes.get_mut(..length).filter(|_| length < LENGTH)?;
        // SAFETY: ours has room; theirs may be bad.
        unsafe { crate::file::copy_in(to.as_mut_ptr(), path.cast(), length) }.ok()?;
        (to.first() == Some(&b'/') && !to.contains(&0)).then_some(copy)
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Where the name begins.
    fn name_at(&self) -> usize {
        self.as_bytes().iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)
    }

    fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes[self.name_at()..]).unwrap_or_default()
    }

    fn open_folder(&self) -> Option<InternalFd> {
        let folder = [&self.bytes[..self.name_at()], b".\0"].concat();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        crate::sys::openat(CWD, CStr::from_bytes_with_nul(&folder).ok()?, flags, Mode::empty()).ok()
    }

    /// The folder, by `.` in it, as it is now.
    fn look(&self) -> Option<Folder> {
        let mut folder = self.bytes;
        let name = self.name_at();
        folder.get_mut(name..name + 2)?.copy_from_slice(b".\0");
        let mut shown = MaybeUninit::<Stat>::uninit();
        // SAFETY: `shown` has room, and is filled in after success.
        unsafe {
            let done = raw!(SYS_newfstatat, libc::AT_FDCWD, folder.as_ptr(), shown.as_mut_ptr(), 0);
            (done == 0).then(|| Folder::of(&shown.assume_init()))
        }
    }
}

impl Folder {
    fn of(shown: &Stat) -> Self {
        Self(shown.st_dev, shown.st_ino, shown.st_ctime, shown.st_ctime_nsec)
    }
}

impl Absent {
    const NONE: Self = Self { path: Path::NONE, folder: Folder(0, 0, 0, 0) };

    /// Remembers the path, if its folder is on tmpfs and has not just changed.
    fn new(path: Path) -> Result<Self, Why> {
        let name = path.name();
        if [&b""[..], b".", b".."].contains(&name.to_bytes()) {
            return Err(Why::NotAbsent);
        }
        let folder = path.look().ok_or(Why::NotAbsent)?;
        // A later change then has another time.
        if may_be_stamped_again(folder.2, folder.3 as u64) {
            return Err(Why::NotAbsent);
        }
        let opened = path.open_folder().ok_or(Why::NotAbsent)?;
        if !shm::is_in_memory(&opened) {
            return Err(Why::OtherFileSystem);
        }
        let is_absent = wait_for_changes(&opened).is_some() && is_absent(&opened, name, folder);
        if is_absent { Ok(Self { path, folder }) } else { Err(Why::NotAbsent) }
    }
}

/// Whether the folder is as it was shown, and has no such name.
fn is_absent(opened: &InternalFd, name: &CStr, folder: Folder) -> bool {
    let mut shown = MaybeUninit::<Stat>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW; // a link that leads nowhere is there
    let fd = opened.as_raw_fd();
    // SAFETY: `shown` has room, and is filled in after success.
    unsafe {
        let found = raw!(SYS_newfstatat, fd, name.as_ptr(), shown.as_mut_ptr(), flags);
        let looked = raw!(SYS_fstat, fd, shown.as_mut_ptr()) == 0;
        found == fail(libc::ENOENT) && looked && Folder::of(&shown.assume_init()) == folder
    }
}

/// Waits for a change of the folder that has set its time, but does not show yet: to list it takes the folder's lock.
fn wait_for_changes(folder: &InternalFd) -> Option<()> {
    let mut entries = [0u64; 64];
    // SAFETY: the kernel writes at most so many bytes.
    let listed = unsafe { raw!(SYS_getdents64, folder.as_raw_fd(), entries.as_mut_ptr(), size_of_val(&entries)) };
    (listed >= 0).then_some(())
}

/// Whether [`look`] may know a path.
#[inline(always)]
pub(in crate::posix) fn any() -> bool {
    KNOWN.load(Ordering::Relaxed) != 0
}

/// `ENOENT`, if the path is known to be absent; `None`: the kernel is to be asked.
#[cold]
pub(in crate::posix) fn look(path: *const c_char, flags: i32) -> Option<Ret> {
    if flags & !FLAGS != 0 || path.is_null() || !crate::map::guard::is_installed() {
        return None;
    }
    let path = Path::of(path)?;
    let is_it = |absent: &Absent| absent.path.as_bytes() == path.as_bytes();
    let absent = PATHS_KNOWN.try_lock()?.iter().find(|&absent| is_it(absent)).copied()?;
    if path.look() == Some(absent.folder) {
        return Some(fail(libc::ENOENT));
    }
    if let Some(forgotten) = PATHS_KNOWN.try_lock()?.iter_mut().find(|absent| is_it(absent)) {
        forgotten.path.length = 0;
        KNOWN.fetch_sub(1, Ordering::Relaxed);
    }
    let looks = LOOKS.load(Ordering::Relaxed);
    LOOKS.store((looks * 2).min(MOST), Ordering::Relaxed);
    None
}

/// The kernel has just said that the path is absent. `is_vfork_child`: a process that may not leave anything behind.
#[cold]
pub(in crate::posix) fn note(path: *const c_char, is_vfork_child: fn() -> bool) {
    let to_ignore = TO_IGNORE.load(Ordering::Relaxed);
    if to_ignore > 0 {
        return TO_IGNORE.store(to_ignore - 1, Ordering::Relaxed);
    }
    if path.is_null() || !crate::map::guard::is_installed() {
        return;
    }
    let Some(path) = Path::of(path) else { return };
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = path.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    let count = &COUNTS[(hash >> 56) as usize % COUNTED];
    let seen = count.load(Ordering::Relaxed);
    if seen & !0xff != hash & !0xff {
        return count.store(hash & !0xff | 1, Ordering::Relaxed);
    }
    if (seen & 0xff) < u64::from(LOOKS.load(Ordering::Relaxed)) {
        return count.store(seen + 1, Ordering::Relaxed);
    }
    count.store(0, Ordering::Relaxed);
    if is_vfork_child() || crate::posix::call::lock::not_reentered().is_err() {
        return;
    }
    let new = match Absent::new(path) {
        Ok(new) => new,
        Err(why) => return ignore_some(why),
    };
    NEXT_TO_IGNORE.store(FEWEST, Ordering::Relaxed);
    let Some(mut known) = PATHS_KNOWN.try_lock() else { return };
    let is_there = known.iter().any(|absent| absent.path.as_bytes() == path.as_bytes());
    let place = known.iter().position(|absent| absent.path.length == 0).unwrap_or((hash >> 48) as usize % PATHS);
    if !is_there && core::mem::replace(&mut known[place], new).path.length == 0 {
        KNOWN.fetch_add(1, Ordering::Relaxed);
    }
}

/// To look for a path in vain costs more than is ever gained, where nothing is.
fn ignore_some(why: Why) {
    if why == Why::OtherFileSystem {
        let ignored = NEXT_TO_IGNORE.load(Ordering::Relaxed);
        TO_IGNORE.store(ignored, Ordering::Relaxed);
        NEXT_TO_IGNORE.store((ignored * 4).min(IGNORED), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
