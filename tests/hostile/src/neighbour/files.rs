//! Files as any user can make, read and name them; nothing here waits.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// A path as a C string.
pub fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// The name of a file's journal: the hash of its identity (docs/format.md), which every user can query.
pub fn journal_of(path: &Path) -> Option<String> {
    identity(path).map(|identity| format!("{:032x}.journal", xxh3_128(&identity)))
}

/// The file's identity, 96 bytes.
pub fn identity(path: &Path) -> Option<[u8; 96]> {
    let name = c(path);
    let mut bytes = [0; 96];
    // SAFETY: all structures are of the right size, alive, and filled by the calls before they are read.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        let mut stat: libc::statx = std::mem::zeroed();
        if libc::statfs(name.as_ptr(), &mut system) < 0
            || libc::statx(libc::AT_FDCWD, name.as_ptr(), libc::AT_SYMLINK_NOFOLLOW, libc::STATX_BTIME, &mut stat) < 0
        {
            return None;
        }
        let id: [u8; 8] = std::mem::transmute(system.f_fsid);
        bytes[..8].copy_from_slice(&id);
        if stat.stx_mask & libc::STATX_BTIME != 0 {
            bytes[8..16].copy_from_slice(&stat.stx_btime.tv_sec.to_le_bytes());
            bytes[16..20].copy_from_slice(&stat.stx_btime.tv_nsec.to_le_bytes());
        }
        #[repr(C)]
        struct Handle {
            length: u32,
            kind: i32,
            bytes: [u8; 128],
        }
        let mut handle = Handle { length: 128, kind: 0, bytes: [0; 128] };
        let mut mount = 0;
        let to = (&raw mut handle).cast::<libc::c_void>();
        if libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, name.as_ptr(), to, &mut mount, 0) < 0 {
            return None;
        }
        let length = (handle.length as usize).min(64);
        bytes[20..24].copy_from_slice(&handle.kind.to_le_bytes());
        bytes[24..28].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[32..32 + length].copy_from_slice(&handle.bytes[..length]);
    }
    Some(bytes)
}

/// Never waits: neither for the reader of a FIFO nor for its own lease.
pub fn write_file(path: &Path, bytes: &[u8]) {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    if let Ok(mut file) = File::options().write(true).create(true).truncate(true).custom_flags(flags).open(path) {
        let _ = file.write_all(bytes);
    }
}

/// All bytes of a file, without waiting.
pub fn read_file(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    if let Ok(mut file) = File::options().read(true).custom_flags(flags).open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    bytes
}

/// Whether it is a regular file that can be copied quickly.
pub fn is_small(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|stat| stat.is_file() && stat.blocks() < 16 << 10 && stat.len() < 64 << 20)
}

/// What is in a folder.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).take(300).collect()
}
