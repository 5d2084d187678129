//! `syscall(2)` by number: file calls go to the functions that the hooks of their names use.

use super::{Ret, passing};
use crate::file::UserBuf;
use crate::posix::call::user;
use crate::posix::descriptors::table;
use crate::posix::life::exec::has_library;
use crate::posix::life::unpreloaded::{Program, note_program};
use crate::sys;
use core::ffi::{c_char, c_long};
use std::os::fd::RawFd;

/// The numbers that [`syscall`] handles; all others may go straight to the kernel.
pub const ROUTED: [bool; 512] = routed();

const fn routed() -> [bool; 512] {
    mark(mark(mark([false; 512], &OLD), &OTHERS), &BY_DESCRIPTOR)
}

const fn mark(mut table: [bool; 512], numbers: &[c_long]) -> [bool; 512] {
    let mut index = 0;
    while index < numbers.len() {
        table[numbers[index] as usize] = true;
        index += 1;
    }
    table
}

/// libc has no names for these on every architecture.
const SYS_RENAMEAT: c_long = if cfg!(target_arch = "x86_64") { 264 } else { 38 };
const SYS_FCHMODAT2: c_long = 452;

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD: [c_long; 15] = [
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_dup2,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_link,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_chmod,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_pipe,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: [c_long; 0] = [];

/// Calls by path or without a descriptor, and those that check their descriptors themselves.
const OTHERS: [c_long; 58] = [
    SYS_RENAMEAT,
    SYS_FCHMODAT2,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    libc::SYS_fchownat,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_chroot,
    libc::SYS_pipe2,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_io_uring_setup,
    libc::SYS_open_by_handle_at,
    libc::SYS_pidfd_getfd,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_truncate,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_sync,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_msync,
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_io_submit,
    libc::SYS_prlimit64,
    libc::SYS_setrlimit,
    libc::SYS_getrlimit,
    libc::SYS_exit_group,
    libc::SYS_execve,
    libc::SYS_execveat,
];

/// Calls by descriptor that do not check themselves whether the descriptor is internal.
const BY_DESCRIPTOR: [c_long; 22] = [
    libc::SYS_fchown,
    libc::SYS_fchmod,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_ioctl,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_fadvise64,
];

/// `syscall(2)`.
///
/// # Safety
/// As the system call.
pub unsafe fn syscall(number: c_long, a: [usize; 6]) -> Ret {
    let fd = a[0] as RawFd;
    if super::is_internal(fd) && BY_DESCRIPTOR.contains(&number) {
        return super::fail(libc::EBADF);
    }
    let path = a[0] as *const c_char;
    let path_at = a[1] as *const c_char;
    let bufs = a[1] as *const UserBuf;
    // SAFETY: the caller's promise, argument by argument.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match number {
            libc::SYS_open => return super::openat(libc::AT_FDCWD, path, a[1] as i32, a[2] as u32),
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                return super::openat(libc::AT_FDCWD, path, flags, a[1] as u32);
            }
            libc::SYS_stat => return super::fstatat(libc::AT_FDCWD, path, a[1] as *mut _, 0),
            libc::SYS_lstat => {
                return super::fstatat(libc::AT_FDCWD, path, a[1] as *mut _, libc::AT_SYMLINK_NOFOLLOW);
            }
            libc::SYS_dup2 => return super::dup2(fd, a[1] as RawFd),
            libc::SYS_rename => {
                return super::renameat2(libc::AT_FDCWD, path, libc::AT_FDCWD, a[1] as *const c_char, 0);
            }
            libc::SYS_unlink => return super::unlinkat(libc::AT_FDCWD, path, 0),
            libc::SYS_link => return super::linkat(libc::AT_FDCWD, path, libc::AT_FDCWD, a[1] as *const c_char, 0),
            libc::SYS_chown | libc::SYS_lchown => {
                let flags = if number == libc::SYS_lchown { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
                return then(number, a, |done| super::owner_was_set(libc::AT_FDCWD, path, flags, done));
            }
            libc::SYS_chmod => {
                return then(number, a, |done| super::mode_was_set(libc::AT_FDCWD, path, a[1] as u32, 0, done));
            }
            libc::SYS_utime | libc::SYS_utimes => {
                return then(number, a, |done| super::set_by_path(libc::AT_FDCWD, path, core::ptr::null(), 0, done));
            }
            libc::SYS_futimesat => {
                return then(number, a, |done| super::set_by_path(fd, path_at, core::ptr::null(), 0, done));
            }
            libc::SYS_pipe => return table::fresh_pair(sys::syscall(number, a), a[0] as *const _),
            _ => {}
        }
        match number {
            SYS_RENAMEAT => super::renameat2(fd, path_at, a[2] as RawFd, a[3] as *const c_char, 0),
            libc::SYS_renameat2 => super::renameat2(fd, path_at, a[2] as RawFd, a[3] as *const c_char, a[4] as u32),
            libc::SYS_unlinkat => super::unlinkat(fd, path_at, a[2] as i32),
            libc::SYS_linkat => super::linkat(fd, path_at, a[2] as RawFd, a[3] as *const c_char, a[4] as i32),
            libc::SYS_fchown => then(number, a, |done| super::owner_was_set(fd, core::ptr::null(), 0, done)),
            libc::SYS_fchownat => then(number, a, |done| super::owner_was_set(fd, path_at, a[4] as i32, done)),
            libc::SYS_fchmod => {
                then(number, a, |done| super::mode_was_set(fd, core::ptr::null(), a[1] as u32, 0, done))
            }
            libc::SYS_fchmodat => then(number, a, |done| super::mode_was_set(fd, path_at, a[2] as u32, 0, done)),
            SYS_FCHMODAT2 => then(number, a, |done| super::mode_was_set(fd, path_at, a[2] as u32, a[3] as i32, done)),
            // Without a path: of the descriptor.
            libc::SYS_utimensat if a[1] == 0 && super::is_internal(fd) => super::fail(libc::EBADF),
            libc::SYS_utimensat => {
                then(number, a, |done| super::set_by_path(fd, path_at, a[2] as *const _, a[3] as i32, done))
            }
            libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_setgroups => {
                // Of this thread alone, unlike libc's functions. The preparation is the same, since it is for what
                // this thread does next; the background keeps its rights.
                super::change_of_rights(None);
                then(number, a, |done| super::change_of_rights(Some(done)))
            }
            libc::SYS_chroot => {
                super::before_change_of_rights();
                sys::syscall(number, a)
            }
            libc::SYS_pipe2 => table::fresh_pair(sys::syscall(number, a), a[0] as *const _),
            libc::SYS_socketpair => table::fresh_pair(sys::syscall(number, a), a[3] as *const _),
            libc::SYS_socket => table::fresh(sys::syscall(number, a)),
            libc::SYS_sendmsg => {
                let message = a[1] as *const libc::msghdr;
                if table::any() && user::get(message).is_ok() {
                    passing::sends(message);
                }
                sys::syscall(number, a)
            }
            libc::SYS_sendmmsg => {
                let messages = a[1] as *const libc::mmsghdr;
                // The kernel sends no more at once.
                for message in (0..a[2].min(1024)).map(|index| messages.wrapping_add(index)) {
                    if !table::any() || user::get(message).is_err() {
                        break;
                    }
                    passing::sends(&raw const (*message).msg_hdr);
                }
                sys::syscall(number, a)
            }
            libc::SYS_recvmsg => {
                let done = sys::syscall(number, a);
                passing::received(a[1] as *const _, done);
                done
            }
            libc::SYS_recvmmsg => then(number, a, |done| passing::received_many(a[1] as *const _, done)),
            libc::SYS_openat => super::openat(fd, path_at, a[2] as i32, a[3] as u32),
            libc::SYS_openat2 => crate::posix::paths::openat2::openat2(fd, path_at, a[2] as *const [u64; 3], a[3]),
            libc::SYS_open_by_handle_at | libc::SYS_pidfd_getfd => match sys::syscall(number, a) {
                fd if fd >= 0 => super::adopt(fd as RawFd, core::ptr::null()),
                error => error,
            },
            libc::SYS_close => super::close(fd),
            libc::SYS_close_range => super::close_range(a[0] as u32, a[1] as u32, a[2] as u32),
            libc::SYS_read => super::read(fd, a[1] as *mut u8, a[2]),
            libc::SYS_write => super::write(fd, a[1] as *const u8, a[2]),
            libc::SYS_pread64 => super::pread(fd, a[1] as *mut u8, a[2], a[3] as i64),
            libc::SYS_pwrite64 => super::pwrite(fd, a[1] as *const u8, a[2], a[3] as i64),
            libc::SYS_readv => super::readv(fd, bufs, a[2]),
            libc::SYS_writev => super::writev(fd, bufs, a[2]),
            libc::SYS_preadv => super::preadv(fd, bufs, a[2], a[3] as i64),
            libc::SYS_pwritev => super::pwritev(fd, bufs, a[2], a[3] as i64),
            libc::SYS_preadv2 => super::preadv2(fd, bufs, a[2], a[3] as i64, a[5] as i32),
            libc::SYS_pwritev2 => super::pwritev2(fd, bufs, a[2], a[3] as i64, a[5] as i32),
            libc::SYS_lseek => super::lseek(fd, a[1] as i64, a[2] as i32),
            libc::SYS_ftruncate => super::ftruncate(fd, a[1] as i64),
            libc::SYS_truncate => super::truncate(path, a[1] as i64),
            libc::SYS_fallocate => super::fallocate(fd, a[1] as i32, a[2] as i64, a[3] as i64),
            libc::SYS_fstat => super::fstat(fd, a[1] as *mut _),
            libc::SYS_newfstatat => super::fstatat(fd, path_at, a[2] as *mut _, a[3] as i32),
            libc::SYS_statx => super::statx(fd, path_at, a[2] as i32, a[3] as u32, a[4] as *mut _),
            libc::SYS_dup => super::dup(fd),
            libc::SYS_dup3 => super::dup3(fd, a[1] as RawFd, a[2] as i32),
            libc::SYS_fcntl => super::fcntl(fd, a[1] as i32, a[2]),
            libc::SYS_ioctl => super::ioctl(fd, a[1] as u32, a[2]),
            libc::SYS_flock => super::flock(fd, a[1] as i32),
            libc::SYS_fsync => super::fsync(fd),
            libc::SYS_fdatasync => super::fdatasync(fd),
            libc::SYS_sync_file_range => super::sync_file_range(fd, a[1] as i64, a[2] as i64, a[3] as u32),
            libc::SYS_sync => super::sync(),
            libc::SYS_syncfs => super::syncfs(fd),
            libc::SYS_mmap => super::mmap(a[0], a[1], a[2] as i32, a[3] as i32, a[4] as RawFd, a[5] as i64),
            libc::SYS_munmap => super::munmap(a[0], a[1]),
            libc::SYS_mremap => super::mremap(a[0], a[1], a[2], a[3] as i32, a[4]),
            libc::SYS_mprotect => super::mprotect(a[0], a[1], a[2] as i32),
            libc::SYS_pkey_mprotect => super::pkey_mprotect(a[0], a[1], a[2] as i32, a[3] as i32),
            libc::SYS_msync => super::msync(a[0], a[1], a[2] as i32),
            libc::SYS_madvise => super::madvise(a[0], a[1], a[2] as i32),
            libc::SYS_process_madvise => {
                super::process_madvise(fd, a[1] as *const UserBuf, a[2], a[3] as i32, a[4] as u32)
            }
            libc::SYS_fadvise64 => super::fadvise(fd, a[1] as i64, a[2] as i64, a[3] as i32),
            libc::SYS_sendfile => super::sendfile(fd, a[1] as RawFd, a[2] as *mut i64, a[3]),
            libc::SYS_copy_file_range => {
                super::copy_file_range(fd, a[1] as *mut i64, a[2] as RawFd, a[3] as *mut i64, a[4], a[5] as u32)
            }
            libc::SYS_splice => super::splice(fd, a[1] as *mut i64, a[2] as RawFd, a[3] as *mut i64, a[4], a[5] as u32),
            libc::SYS_io_submit => super::io_submit(a[0], a[1] as isize, a[2] as *const _),
            libc::SYS_io_uring_setup => match super::io_uring() {
                0 => table::fresh(sys::syscall(number, a)),
                refused => refused,
            },
            libc::SYS_prlimit64 => super::prlimit(a[0] as i32, a[1] as u32, a[2] as *const _, a[3] as *mut _),
            libc::SYS_getrlimit => super::getrlimit(a[0] as u32, a[1] as *mut _),
            libc::SYS_setrlimit => super::setrlimit(a[0] as u32, a[1] as *const _),
            libc::SYS_exit_group => {
                crate::posix::life::process::end();
                let status = crate::posix::life::process::end_status(a[0] as i32);
                sys::syscall(number, [status as usize, 0, 0, 0, 0, 0])
            }
            libc::SYS_execve | libc::SYS_execveat => {
                let environment = if number == libc::SYS_execve { a[2] } else { a[3] };
                let environment = environment as *const *const c_char;
                let program = match number {
                    libc::SYS_execve => Program::At(libc::AT_FDCWD, a[0] as *const c_char),
                    _ => Program::At(a[0] as RawFd, a[1] as *const c_char),
                };
                note_program(program, environment, true);
                let managed = has_library(environment);
                let _passing = crate::posix::life::exec::before_exec(managed);
                sys::syscall(number, a)
            }
            _ => sys::syscall(number, a),
        }
    }
}

/// The kernel's call, and what the library does after it.
///
/// # Safety
/// As the system call.
unsafe fn then(number: c_long, a: [usize; 6], noted: impl FnOnce(i32)) -> Ret {
    // SAFETY: the caller's promise.
    let done = unsafe { sys::syscall(number, a) };
    noted(done as i32);
    done
}
