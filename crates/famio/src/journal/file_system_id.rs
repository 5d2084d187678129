//! Identifies a file system, also after a reboot.

use crate::sys::{self, FileSystem, check, internal, syscall};
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// File systems whose `f_fsid` is the number of their device, which can be another one after a reboot.
const BY_DEVICE: [u32; 2] = [0x5846_5342, 0xF2F5_2010]; // XFS, F2FS

/// `FS_IOC_GETFSUUID` (Linux 6.9): a length, and up to 16 bytes.
const GET_UUID: usize = 0x8011_1500;
/// `XFS_IOC_FSGEOMETRY_V1`, for older kernels: 112 bytes, the UUID at 64.
const XFS_GEOMETRY: usize = 0x8070_5864;
const XFS_UUID: usize = 64;

/// `f_fsid` of the file's file system, of which that was `found`; if that is the number of its device, its UUID folded
/// to 64 bits, which stays.
pub(super) fn of(file: BorrowedFd<'_>, found: &FileSystem) -> u64 {
    let uuid = if BY_DEVICE.contains(&found.magic) { uuid(file).or_else(|| uuid_by_folder(file)) } else { None };
    uuid.unwrap_or(found.id)
}

fn uuid(file: BorrowedFd<'_>) -> Option<u64> {
    let (mut uuid, mut geometry) = ([0u8; 17], [0u8; 112]);
    // SAFETY: both are as long as the number of the request says.
    let ask = |request, to: *mut u8| unsafe {
        check(syscall(libc::SYS_ioctl, [file.as_raw_fd() as usize, request, to as usize, 0, 0, 0])).is_ok()
    };
    let found = match () {
        () if ask(GET_UUID, uuid.as_mut_ptr()) && uuid[0] == 16 => &uuid[1..],
        () if ask(XFS_GEOMETRY, geometry.as_mut_ptr()) => &geometry[XFS_UUID..XFS_UUID + 16],
        () => return None,
    };
    let half = |at| u64::from_le_bytes(core::array::from_fn(|byte| found[at + byte]));
    Some(half(0) ^ half(8))
}

/// An `O_PATH` descriptor answers no request. Its folder does, and opening that breaks no lease.
#[cold]
fn uuid_by_folder(file: BorrowedFd<'_>) -> Option<u64> {
    let path = sys::path_of(file).ok()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let device = |fd: BorrowedFd<'_>| sys::identity(fd).ok().map(|(device, _)| device);
    // Itself, if it is a folder. In another root, a path may lead elsewhere.
    [Some(&*path), path.parent()].into_iter().flatten().find_map(|folder| {
        let opened = internal::open(CWD, folder, flags, Mode::empty()).ok()?;
        if device(opened.as_fd()) == device(file) { uuid(opened.as_fd()) } else { None }
    })
}
