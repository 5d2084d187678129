//! Names that are not there. SQLite looks for two of them in each transaction, and tmpfs keeps no record of absent
//! names: each look makes and frees a directory entry, 1.3 µs, and twice as much if two processes do so. A look at the
//! folder takes 0.55 µs.
//!
//! What the kernel has often said of a path is remembered with the folder's identity and time of change. As long as a
//! look at the folder shows the same, nothing was made in it, and the path leads to no other folder.

use crate::posix::call::user;
use crate::posix::{Ret, fail, raw};
use crate::sys::may_be_stamped_again;
use crate::thread::Mutex;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use libc::stat as Stat;

/// Paths that are remembered, and the bytes of one with its terminator.
const PATHS: usize = 4;
const LENGTH: usize = 256;
/// Of so many paths it is counted how often they were absent.
const COUNTED: usize = 16;
/// After so many looks a path is remembered; more, up to `MOST`, where folders have changed.
const FEWEST: u32 = 8;
const MOST: u32 = 200;
const TMPFS: u32 = 0x0102_1994;
/// Other flags may be errors.
const FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;

/// A path that was absent.
struct Absent {
    path: [u8; LENGTH],
    /// With its terminator; 0: none.
    length: usize,
    folder: Folder,
}

/// Device, inode and time of change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Folder(u64, u64, i64, i64);

/// How many paths are remembered.
static KNOWN: AtomicU32 = AtomicU32::new(0);
static PATHS_KNOWN: Mutex<[Absent; PATHS]> = Mutex::new([const { Absent::NONE }; PATHS]);
/// Hashes of paths (upper bits), and how often each was absent (lower 8 bits).
static COUNTS: [AtomicU64; COUNTED] = [const { AtomicU64::new(0) }; COUNTED];
/// Looks until a path is remembered.
static LOOKS: AtomicU32 = AtomicU32::new(FEWEST);

impl Absent {
    const NONE: Self = Self { path: [0; LENGTH], length: 0, folder: Folder(0, 0, 0, 0) };

    /// Remembers the path, if its folder is on tmpfs and has not just changed.
    fn new(path: &CStr) -> Option<Self> {
        let bytes = path.to_bytes_with_nul();
        let mut new = Self { length: bytes.len(), ..Self::NONE };
        new.path.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let name = bytes[new.name()..bytes.len() - 1].to_owned();
        if !path.to_bytes().starts_with(b"/") || [&b""[..], b".", b".."].contains(&&*name) {
            return None;
        }
        new.folder = new.look()?;
        // With the second look unchanged, a later change has another time.
        let is_recent = may_be_stamped_again(new.folder.2, new.folder.3 as u64);
        if is_recent || !new.is_on_tmpfs() || new.look() != Some(new.folder) {
            return None;
        }
        // After the look at the folder. A link that leads nowhere is there.
        let mut shown = MaybeUninit::<Stat>::uninit();
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: `shown` has room.
        let found = unsafe { raw!(SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), shown.as_mut_ptr(), flags) };
        (found == fail(libc::ENOENT)).then_some(new)
    }

    /// Where the name begins.
    fn name(&self) -> usize {
        self.path[..self.length].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)
    }

    /// Runs `call` with the path of the folder.
    fn with_folder<T>(&self, call: impl FnOnce(*const c_char) -> T) -> T {
        let mut folder = self.path;
        folder[self.name().max(1) - usize::from(self.name() > 1)] = 0;
        call(folder.as_ptr().cast())
    }

    /// The folder, as it is now.
    fn look(&self) -> Option<Folder> {
        let mut shown = MaybeUninit::<Stat>::uninit();
        // SAFETY: `shown` has room, and is filled in after success.
        self.with_folder(|folder| unsafe {
            let done = raw!(SYS_newfstatat, libc::AT_FDCWD, folder, shown.as_mut_ptr(), 0);
            (done == 0).then(|| shown.assume_init())
        })
        .map(|shown| Folder(shown.st_dev, shown.st_ino, shown.st_ctime, shown.st_ctime_nsec))
    }

    fn is_on_tmpfs(&self) -> bool {
        let mut statfs = [0u64; 16]; // of which the kernel fills in 15, the first with the kind
        // SAFETY: it has room.
        let done = self.with_folder(|folder| unsafe { raw!(SYS_statfs, folder, statfs.as_mut_ptr()) });
        done == 0 && statfs[0] as u32 == TMPFS
    }
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
    // SAFETY: it is used before this call returns.
    let path = unsafe { user::path(path) }.ok()?.to_bytes_with_nul();
    let mut known = PATHS_KNOWN.try_lock()?;
    let absent = known.iter_mut().find(|absent| absent.path[..absent.length] == *path)?;
    if absent.look() == Some(absent.folder) {
        return Some(fail(libc::ENOENT));
    }
    absent.length = 0;
    KNOWN.fetch_sub(1, Ordering::Relaxed);
    let looks = LOOKS.load(Ordering::Relaxed);
    LOOKS.store((looks * 2).min(MOST), Ordering::Relaxed);
    None
}

/// The process has changed its user or root: a path may not be looked for any more.
pub(in crate::posix) fn forget() {
    if let Some(mut known) = PATHS_KNOWN.try_lock() {
        known.iter_mut().for_each(|absent| absent.length = 0);
        KNOWN.store(0, Ordering::Relaxed);
    }
}

/// The kernel has just said that the path is absent.
///
/// # Safety
/// The kernel has read the path.
#[cold]
pub(in crate::posix) unsafe fn note(path: *const c_char) {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let bytes = path.to_bytes_with_nul();
    if bytes.len() > LENGTH || bytes[0] != b'/' {
        return;
    }
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let count = &COUNTS[(hash >> 56) as usize % COUNTED];
    let seen = count.load(Ordering::Relaxed);
    if seen & !0xff != hash & !0xff {
        return count.store(hash & !0xff | 1, Ordering::Relaxed);
    }
    if (seen & 0xff) < u64::from(LOOKS.load(Ordering::Relaxed)) {
        return count.store(seen + 1, Ordering::Relaxed);
    }
    count.store(0, Ordering::Relaxed);
    if !crate::map::guard::is_installed() || crate::posix::call::lock::not_reentered().is_err() {
        return;
    }
    let Some(new) = Absent::new(path) else { return };
    let Some(mut known) = PATHS_KNOWN.try_lock() else { return };
    let place = known.iter().position(|absent| absent.length == 0).unwrap_or((hash >> 48) as usize % PATHS);
    if core::mem::replace(&mut known[place], new).length == 0 {
        KNOWN.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio_test_support::place::{Place, memory};
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn c_path(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    /// A folder that has not changed for longer than its times can tell.
    fn folder() -> Place {
        let place = Place::new(memory(), "famio-test-absent").unwrap();
        let old = std::time::SystemTime::now();
        while std::fs::metadata(place.path()).unwrap().modified().unwrap().elapsed().unwrap().as_millis() < 50 {
            assert!(old.elapsed().unwrap().as_secs() < 60);
            std::thread::yield_now();
        }
        place
    }

    fn is_absent(absent: &Absent) -> bool {
        absent.look() == Some(absent.folder)
    }

    #[test]
    fn a_path_is_absent_until_something_is_made_in_its_folder() {
        let place = folder();
        let absent = Absent::new(&c_path(&place.path().join("db-journal"))).unwrap();
        assert!(is_absent(&absent));
        std::fs::write(place.path().join("db-journal"), "x").unwrap();
        assert!(!is_absent(&absent));
        std::fs::remove_file(place.path().join("db-journal")).unwrap();
        assert!(!is_absent(&absent), "it may have been there meanwhile");
    }

    #[test]
    fn a_path_that_leads_to_another_folder_is_looked_for_there() {
        let place = folder();
        let (old, new) = (place.path().join("old"), place.path().join("new"));
        for there in [&old, &new] {
            std::fs::create_dir(there).unwrap();
        }
        std::os::unix::fs::symlink(&old, place.path().join("link")).unwrap();
        let name = c_path(&place.path().join("link/db-wal"));
        let absent = loop {
            if let Some(absent) = Absent::new(&name) {
                break absent;
            }
        };
        assert!(is_absent(&absent));
        std::fs::remove_file(place.path().join("link")).unwrap();
        std::os::unix::fs::symlink(&new, place.path().join("link")).unwrap();
        assert!(!is_absent(&absent));
    }

    #[test]
    fn what_is_there_or_has_just_changed_is_not_remembered() {
        let place = folder();
        std::os::unix::fs::symlink("nowhere", place.path().join("link")).unwrap();
        for name in ["link", "new"] {
            assert!(Absent::new(&c_path(&place.path().join(name))).is_none(), "the folder has just changed");
        }
        let on_disk = Path::new("/nonexistent-of-famio");
        assert!(Absent::new(&c_path(on_disk)).is_none(), "not on tmpfs");
        assert!(Absent::new(c"name").is_none() && Absent::new(c"/dev/shm/.").is_none());
    }
}
