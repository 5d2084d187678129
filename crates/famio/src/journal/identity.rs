//! The identity of a file: what stays the same through renames and reboots, and differs for every copy.

use super::bytes::{bytes_at, hex, put, u32_at, u64_at};
use super::file_system_id;
use crate::error::{Error, Result};
use crate::sys::internal::undisturbed::Answer;
use crate::sys::{FileSystem, Looked, birth_of, check, syscall, with_number};
use core::fmt;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

/// The longest file handle of a local file system (ext4, tmpfs: 8 or 12; btrfs: 20 to 40; XFS: 12 to 24).
pub const HANDLE_MAX: usize = 64;

/// `AT_HANDLE_FID`: a handle that identifies a file but may not open it (Linux 6.5). overlayfs offers only those.
const AT_HANDLE_FID: usize = 0x200;

// On the medium.
const FSID: usize = 0;
const BIRTH_SEC: usize = FSID + 8;
const BIRTH_NSEC: usize = BIRTH_SEC + 8;
const HANDLE_TYPE: usize = BIRTH_NSEC + 4;
const HANDLE_LEN: usize = HANDLE_TYPE + 4;
const RESERVED: usize = HANDLE_LEN + 4;
const HANDLE: usize = RESERVED + 4;

/// The identity of a file. Two are equal if all fields are: a file system without birth times has zeros there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    fsid: u64,
    birth: (i64, u32),
    handle_type: i32,
    handle_len: u32,
    /// Zero after `handle_len` bytes.
    handle: [u8; HANDLE_MAX],
}

/// The kernel's `struct file_handle`, with room.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    handle: [u8; HANDLE_MAX],
}

impl Identity {
    /// Its length on the medium.
    pub const LEN: usize = HANDLE + HANDLE_MAX;

    /// The identity of an open file; `O_PATH` is sufficient.
    pub fn of_fd(fd: BorrowedFd<'_>) -> Result<Identity> {
        static KNOWN: Answer<Identity> = Answer::new();
        KNOWN.of_file(fd, || {
            let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
            Self::with_birth(fd, &FileSystem::of(fd)?, birth_of(&stat))
        })
    }

    /// As [`of_fd`](Self::of_fd), of a file that was looked at, on a file system of which this was found: one system
    /// call on most.
    pub(crate) fn of_looked_at(fd: BorrowedFd<'_>, system: &FileSystem, looked: &Looked) -> Result<Identity> {
        looked.birth.map_or_else(|| Self::of_fd(fd), |birth| Self::with_birth(fd, system, birth))
    }

    fn with_birth(fd: BorrowedFd<'_>, system: &FileSystem, birth: (i64, u32)) -> Result<Identity> {
        let fsid = file_system_id::of(fd, system);
        let raw = file_handle(fd)?;
        let mut handle = [0; HANDLE_MAX];
        let length = raw.handle_bytes as usize;
        handle[..length].copy_from_slice(&raw.handle[..length]);
        Ok(Identity { fsid, birth, handle_type: raw.handle_type, handle_len: raw.handle_bytes, handle })
    }

    /// The identity of the file at a path.
    pub fn of_path(path: &Path) -> Result<Identity> {
        let fd = crate::sys::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| Error::from(e).context(path.display()))?;
        Self::of_fd(fd.as_fd()).map_err(|e| e.context(path.display()))
    }

    /// Whether the file has certainly been deleted, not moved: its handle leads nowhere, while the handle of
    /// `beside`, a file on the same file system, works. Only root can know.
    pub(crate) fn is_gone(&self, beside: BorrowedFd<'_>) -> bool {
        let Ok(other) = Self::of_fd(beside) else { return false };
        other.fsid == self.fsid
            && other.handle_type == self.handle_type
            && other.open(beside).is_ok()
            && self.open(beside).is_err_and(|e| e.errno() == libc::ESTALE)
    }

    /// Whether both files are on one file system, or on copies of it.
    pub(crate) fn is_on_one_file_system(&self, other: &Self) -> bool {
        self.fsid == other.fsid
    }

    /// The file's path now, if it has one: by its handle, on the file system of `beside`. Only root can know.
    pub(crate) fn path_of(&self, beside: BorrowedFd<'_>) -> Option<std::path::PathBuf> {
        if Self::of_fd(beside).ok()?.fsid != self.fsid {
            return None;
        }
        let file = self.open(beside).ok()?;
        let has_name = rustix::fs::fstat(&file).ok()?.st_nlink > 0;
        let is_it = || Self::of_fd(file.as_fd()).is_ok_and(|identity| identity == *self);
        if has_name && is_it() { crate::sys::path_of(file.as_fd()).ok() } else { None }
    }

    fn open(&self, beside: BorrowedFd<'_>) -> Result<OwnedFd> {
        let mut raw = RawHandle { handle_bytes: self.handle_len, handle_type: self.handle_type, handle: self.handle };
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        let to = (&raw mut raw) as usize;
        // SAFETY: the kernel reads a handle, whose length fits.
        let open = || unsafe {
            syscall(libc::SYS_open_by_handle_at, [beside.as_raw_fd() as usize, to, flags as usize, 0, 0, 0])
        };
        let fd = with_number(|| check(open()).map_err(|e| Errno::from_raw_os_error(e.errno())))?;
        // SAFETY: a new descriptor that no other code has.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// A 128-bit hash of the identity, used in the journal's name and in the mark.
    pub fn hash128(&self) -> u128 {
        xxh3_128(&self.encode())
    }

    /// How the names of Famio's files for this file begin, in any pool.
    pub(in crate::journal) fn stem(&self) -> String {
        hex(&self.hash128().to_be_bytes())
    }

    /// As it lies on the medium.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, FSID, &self.fsid.to_le_bytes());
        put(&mut out, BIRTH_SEC, &self.birth.0.to_le_bytes());
        put(&mut out, BIRTH_NSEC, &self.birth.1.to_le_bytes());
        put(&mut out, HANDLE_TYPE, &self.handle_type.to_le_bytes());
        put(&mut out, HANDLE_LEN, &self.handle_len.to_le_bytes());
        put(&mut out, HANDLE, &self.handle);
        out
    }

    /// From the medium.
    pub fn decode(from: &[u8; Self::LEN]) -> Result<Identity> {
        let identity = Identity {
            fsid: u64_at(from, FSID),
            birth: (u64_at(from, BIRTH_SEC) as i64, u32_at(from, BIRTH_NSEC)),
            handle_type: u32_at(from, HANDLE_TYPE) as i32,
            handle_len: u32_at(from, HANDLE_LEN),
            handle: bytes_at(from, HANDLE),
        };
        if identity.handle_len == 0 || identity.handle_len as usize > HANDLE_MAX {
            let text = format!("identity: a file handle of {} bytes, at most {HANDLE_MAX} known", identity.handle_len);
            return Err(Error::with(libc::EIO, text));
        }
        Ok(identity)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handle = hex(&self.handle[..(self.handle_len as usize).min(HANDLE_MAX)]);
        write!(
            f,
            "file system {:016x}, handle {}:{handle}, born {}.{:09}",
            self.fsid, self.handle_type, self.birth.0, self.birth.1
        )
    }
}

/// The file's handle: one that can open it, or else one that only identifies it.
fn file_handle(fd: BorrowedFd<'_>) -> Result<RawHandle> {
    match ask_handle(fd, 0) {
        Err(e) if e.errno() == libc::EOPNOTSUPP => ask_handle(fd, AT_HANDLE_FID).map_err(|second| {
            // Before Linux 6.5, the flag itself is rejected.
            let errno = if second.errno() == libc::EINVAL { libc::EOPNOTSUPP } else { second.errno() };
            Error::new(errno).context("the file system gives no file handle, so that a journal could not name the file")
        }),
        other => other,
    }
}

fn ask_handle(fd: BorrowedFd<'_>, flags: usize) -> Result<RawHandle> {
    let mut raw = RawHandle { handle_bytes: HANDLE_MAX as u32, handle_type: 0, handle: [0; HANDLE_MAX] };
    let mut mount = [0u64; 1];
    let args = [
        fd.as_raw_fd() as usize,
        c"".as_ptr() as usize,
        &raw mut raw as usize,
        mount.as_mut_ptr() as usize,
        libc::AT_EMPTY_PATH as usize | flags,
        0,
    ];
    // SAFETY: the kernel writes at most `handle_bytes` bytes of handle, and a mount id of 4 or 8 bytes.
    check(unsafe { syscall(libc::SYS_name_to_handle_at, args) })?;
    if raw.handle_bytes == 0 || raw.handle_bytes as usize > HANDLE_MAX {
        return Err(Error::with(libc::EOVERFLOW, format!("a file handle of {} bytes", raw.handle_bytes)));
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scratch;
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn the_layout_is_fixed() {
        assert_eq!(
            [FSID, BIRTH_SEC, BIRTH_NSEC, HANDLE_TYPE, HANDLE_LEN, RESERVED, HANDLE],
            [0, 8, 16, 20, 24, 28, 32]
        );
        assert_eq!(Identity::LEN, 96);
    }

    #[test]
    fn stays_through_rename_and_write_and_differs_for_a_copy() {
        let dir = Scratch::new();
        let (a, b) = (dir.path("a"), dir.path("b"));
        fs::write(&a, "1").unwrap();
        let was = Identity::of_path(&a).unwrap();
        fs::rename(&a, &b).unwrap();
        fs::write(&b, "something longer").unwrap();
        assert_eq!(Identity::of_path(&b).unwrap(), was);
        assert_eq!(Identity::of_fd(File::open(&b).unwrap().as_fd()).unwrap(), was);
        fs::copy(&b, &a).unwrap();
        assert_ne!(Identity::of_path(&a).unwrap(), was);
        assert_ne!(Identity::of_path(&a).unwrap().hash128(), was.hash128());
        // A new file with a reused inode number is a different file.
        fs::remove_file(&b).unwrap();
        fs::write(&b, "1").unwrap();
        assert_ne!(Identity::of_path(&b).unwrap(), was);
    }

    #[test]
    fn tmpfs_gives_one_too() {
        let path = format!("/dev/shm/famio-identity-{}", std::process::id());
        fs::write(&path, "").unwrap();
        let identity = Identity::of_path(Path::new(&path));
        fs::remove_file(&path).unwrap();
        identity.unwrap();
    }

    #[test]
    fn goes_to_the_medium_and_back() {
        let dir = Scratch::new();
        let identity = Identity::of_path(dir.root()).unwrap();
        let mut bytes = identity.encode();
        assert_eq!(Identity::decode(&bytes).unwrap(), identity);
        for bad in [0u32, 65, u32::MAX] {
            put(&mut bytes, HANDLE_LEN, &bad.to_le_bytes());
            assert!(Identity::decode(&bytes).unwrap_err().to_string().contains("handle"));
        }
    }
}
