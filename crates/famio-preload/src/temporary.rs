//! Functions that open a file by libc's or the kernel's own means.

use crate::next::Next;
use crate::outcome::{finish, set_errno};
use core::ffi::{c_char, c_void};
use famio::posix;

/// After libc's function has opened `fd`: `template` is now the file's name.
unsafe fn adopted(fd: i32, template: *const c_char) -> i32 {
    if fd < 0 {
        return fd;
    }
    // SAFETY: libc has just written the name.
    finish(|| unsafe { posix::adopt(fd, template) }) as i32
}

macro_rules! through {
    ($name:ident, $symbol:literal, ($($argument:ident: $type:ty),*)) => {
        /// As libc's function of that name.
        ///
        /// # Safety
        /// As libc's.
        pub unsafe fn $name(template: *mut c_char $(, $argument: $type)*) -> i32 {
            static NEXT: Next = Next::new($symbol);
            // SAFETY: the type is that function's; the arguments are the caller's promise.
            unsafe {
                match NEXT.get::<unsafe extern "C" fn(*mut c_char $(, $type)*) -> i32>() {
                    Some(next) => adopted(next(template $(, $argument)*), template),
                    None => {
                        set_errno(-(libc::ENOSYS as isize));
                        -1
                    }
                }
            }
        }
    };
}

through!(mkstemp, c"mkstemp", ());
through!(mkostemp, c"mkostemp", (flags: i32));
through!(mkstemps, c"mkstemps", (suffix: i32));
through!(mkostemps, c"mkostemps", (suffix: i32, flags: i32));

/// `open_by_handle_at`.
///
/// # Safety
/// As the system call.
pub unsafe fn open_by_handle_at(mount: i32, handle: *mut c_void, flags: i32) -> i32 {
    // SAFETY: the caller's promise.
    let fd = finish(|| unsafe {
        famio::sys::syscall(libc::SYS_open_by_handle_at, [mount as usize, handle as usize, flags as usize, 0, 0, 0])
    }) as i32;
    // SAFETY: no path is given.
    unsafe { adopted(fd, core::ptr::null()) }
}

/// `pidfd_getfd`: another process's descriptor.
///
/// # Safety
/// As the system call.
pub unsafe fn pidfd_getfd(pidfd: i32, target: i32, flags: u32) -> i32 {
    // SAFETY: no memory is passed.
    let fd = finish(|| unsafe {
        famio::sys::syscall(libc::SYS_pidfd_getfd, [pidfd as usize, target as usize, flags as usize, 0, 0, 0])
    }) as i32;
    // SAFETY: no path is given.
    unsafe { adopted(fd, core::ptr::null()) }
}
