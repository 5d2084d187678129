//! POSIX asynchronous I/O (`aio_read` and the like). The threads of libc would read and write past the library, so
//! the calling thread carries out a request on an atomic file at once, and stores the outcome where libc's
//! `aio_error`, `aio_return`, `aio_suspend` and `aio_cancel` look for it. To them, the request was just quick.

use super::io::pread;
use super::io::pwrite;
use super::sync::fdatasync;
use super::sync::fsync;
use crate::posix::Ret;
use crate::posix::call::user;
use crate::posix::descriptors::control::is_live;
use core::ffi::c_void;
use core::mem::offset_of;
use std::os::fd::RawFd;

/// glibc's `struct aiocb` and `struct aiocb64`, which are the same where pointers have 64 bits. `aio_error` and
/// `aio_return` return the inner fields.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    fd: RawFd,
    opcode: i32,
    priority: i32,
    buf: *mut u8,
    count: usize,
    event: Event,
    next: *mut c_void,
    absolute_priority: i32,
    policy: i32,
    error: i32,
    result: isize,
    offset: i64,
}

const _: () = assert!(offset_of!(Control, event) == offset_of!(libc::aiocb, aio_sigevent));
const _: () = assert!(offset_of!(Control, offset) == offset_of!(libc::aiocb, aio_offset));

/// A `struct sigevent`: whom to notify, and how.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    value: usize,
    signal: i32,
    notify: i32,
    rest: [u64; 6],
}

const _: () = assert!(size_of::<Event>() == size_of::<libc::sigevent>());

impl Event {
    /// Whether a notification is asked for.
    pub fn is_wanted(&self) -> bool {
        self.notify != libc::SIGEV_NONE
    }
}

/// What a request is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// `aio_read`.
    Read,
    /// `aio_write`.
    Write,
    /// `aio_fsync` with `O_DSYNC`.
    DataSync,
    /// `aio_fsync` with `O_SYNC`.
    Sync,
    /// What the control block says, as `lio_listio` has it.
    Listed,
}

/// The largest `aio_reqprio` (`AIO_PRIO_DELTA_MAX`).
const LOWEST_PRIORITY: i32 = 20;

/// The outcome of a request.
pub enum Done {
    /// Carried out. The control block has the request's own error, and `failed` says whether there is one.
    Finished {
        /// The notification to send.
        event: Event,
        /// `aio_return` gives -1.
        failed: bool,
    },
    /// Not accepted: a negated errno.
    Refused(Ret),
}

/// Carries out a request on an atomic file. `None`: the request is not on an atomic file; libc carries it out.
///
/// # Safety
/// As the library function: bad memory is left to it.
pub unsafe fn aio(block: *mut c_void, request: Request) -> Option<Done> {
    let block = block.cast::<Control>();
    // SAFETY: any bytes are a number.
    if !is_live(unsafe { user::get(block.cast::<RawFd>()) }.ok()?) {
        return None;
    }
    // SAFETY: any bytes are numbers and addresses.
    let control = unsafe { user::get(block) }.ok()?;
    let request = match request {
        Request::Listed => match control.opcode & 127 {
            libc::LIO_READ => Some(Request::Read),
            libc::LIO_WRITE => Some(Request::Write),
            libc::LIO_NOP => return None,
            // glibc's own, as its `aio_fsync` makes them.
            3 => Some(Request::DataSync),
            4 => Some(Request::Sync),
            _ => None,
        },
        given => Some(given),
    };
    let is_sync = matches!(request, Some(Request::Sync | Request::DataSync));
    let accepted = is_sync || (0..=LOWEST_PRIORITY).contains(&control.priority);
    let Control { fd, buf, count, offset, .. } = control;
    // SAFETY: the caller's promise; bad memory gives `EFAULT`.
    let result = unsafe {
        match request {
            _ if !accepted => -libc::EINVAL as Ret,
            Some(Request::Read) => pread(fd, buf, count, offset),
            Some(Request::Write) => pwrite(fd, buf, count, offset),
            Some(Request::DataSync) => fdatasync(fd),
            Some(Request::Sync) => fsync(fd),
            Some(Request::Listed) | None => -libc::EINVAL as Ret,
        }
    };
    let (value, error) = if result < 0 { (-1, -result as i32) } else { (result, 0) };
    // The error last: once a thread sees it, it may read the result.
    let field = |at: usize| block.cast::<u8>().wrapping_add(at);
    let _ = user::put(field(offset_of!(Control, result)).cast(), &value);
    let _ = user::put(field(offset_of!(Control, error)).cast(), &error);
    Some(if accepted { Done::Finished { event: control.event, failed: error != 0 } } else { Done::Refused(result) })
}
