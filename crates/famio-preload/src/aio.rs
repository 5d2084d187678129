//! POSIX aio: requests on atomic files are carried out at once, others go to libc. libc sends the notifications.

use crate::next::Next;
use crate::outcome::set_errno;
use core::ffi::{c_int, c_void};
use core::ptr;
use famio::posix::{self, Done, Event, Request, table};

type OneRequest = unsafe extern "C" fn(*mut c_void) -> c_int;
type Listio = unsafe extern "C" fn(c_int, *const *mut c_void, c_int, *const c_void) -> c_int;

fn failed(errno: i32) -> c_int {
    set_errno(-(errno as isize));
    -1
}

fn listio() -> Option<Listio> {
    static NEXT: Next = Next::new(c"lio_listio");
    // SAFETY: the type is that function's.
    unsafe { NEXT.get::<Listio>() }
}

/// Sends the signal, or starts the thread, that `event` asks for: libc does that when a list of requests ends, and an
/// empty list ends at once. The event is copied.
fn tell(event: &Event) {
    let nothing = ptr::null_mut();
    if event.is_wanted()
        && let Some(listio) = listio()
    {
        // SAFETY: a list of one null pointer, and an event that lives.
        unsafe { listio(libc::LIO_NOWAIT, &raw const nothing, 1, ptr::from_ref(event).cast()) };
    }
}

/// # Safety
/// As libc's.
unsafe fn one(block: *mut c_void, request: Request, next: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { posix::aio(block, request) } {
        None => next(),
        Some(Done::Refused(error)) => failed(-error as i32),
        Some(Done::Finished { event, .. }) => {
            tell(&event);
            0
        }
    }
}

macro_rules! transfer {
    ($name:ident, $symbol:literal, $request:expr) => {
        /// # Safety
        /// As libc's.
        pub unsafe fn $name(block: *mut c_void) -> c_int {
            static NEXT: Next = Next::new($symbol);
            // SAFETY: the caller's promise; the type is that function's.
            unsafe {
                one(block, $request, || {
                    NEXT.get::<OneRequest>().map_or_else(|| failed(libc::ENOSYS), |next| next(block))
                })
            }
        }
    };
}

transfer!(aio_read, c"aio_read", Request::Read);
transfer!(aio_write, c"aio_write", Request::Write);

/// # Safety
/// As libc's.
pub unsafe fn aio_fsync(op: c_int, block: *mut c_void) -> c_int {
    static NEXT: Next = Next::new(c"aio_fsync");
    // SAFETY: the caller's promise; the type is that function's.
    let next = || unsafe {
        let next = NEXT.get::<unsafe extern "C" fn(c_int, *mut c_void) -> c_int>();
        next.map_or_else(|| failed(libc::ENOSYS), |next| next(op, block))
    };
    let request = match op {
        libc::O_SYNC => Request::Sync,
        libc::O_DSYNC => Request::DataSync,
        _ => return next(),
    };
    // SAFETY: the caller's promise.
    unsafe { one(block, request, next) }
}

/// # Safety
/// As libc's.
pub unsafe fn lio_listio(mode: c_int, blocks: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int {
    let Some(next) = listio() else { return failed(libc::ENOSYS) };
    let known = mode == libc::LIO_WAIT || mode == libc::LIO_NOWAIT;
    if !table::any() || !known || count <= 0 || blocks.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { next(mode, blocks, count, event) };
    }
    // SAFETY: the caller's promise: `count` pointers.
    let mut rest = unsafe { core::slice::from_raw_parts(blocks, count as usize) }.to_vec();
    let (mut refused, mut wrong) = (None, false);
    for block in rest.iter_mut().filter(|block| !block.is_null()) {
        // SAFETY: the caller's promise.
        match unsafe { posix::aio(*block, Request::Listed) } {
            None => continue,
            Some(Done::Refused(error)) => refused = Some(-error as i32),
            Some(Done::Finished { event, failed }) => {
                wrong |= failed;
                tell(&event);
            }
        }
        *block = ptr::null_mut();
    }
    // libc waits for the other requests, and notifies at the end of all; it skips null entries.
    // SAFETY: the list is ours; libc copies from it and from the event what it needs later.
    let result = unsafe { next(mode, rest.as_ptr(), count, event) };
    match refused {
        _ if result != 0 => result,
        _ if mode == libc::LIO_WAIT && (wrong || refused.is_some()) => failed(libc::EIO),
        Some(errno) => failed(errno),
        None => 0,
    }
}
