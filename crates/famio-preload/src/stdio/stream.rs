//! A stream over a descriptor of an atomic file: libc's buffer, and the library's read, write, seek and close behind
//! it (`fopencookie`). For libc, such a stream has no descriptor; this module knows it.

use crate::outcome::finish;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use famio::posix;
use libc::FILE;
use std::os::fd::RawFd;

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
    fn fflush_unlocked(stream: *mut FILE) -> c_int;
}

/// The cookie of a stream is its descriptor's number, as in libc's own streams: the number may lead to another file
/// later.
fn number(cookie: *mut c_void) -> RawFd {
    cookie.addr() as RawFd
}

unsafe extern "C" fn read(cookie: *mut c_void, buf: *mut c_char, size: usize) -> isize {
    // SAFETY: libc's buffer, or the caller's.
    finish(|| unsafe { posix::read(number(cookie), buf.cast(), size) })
}

/// Writes everything, as libc's own streams do; less after an error.
unsafe extern "C" fn write(cookie: *mut c_void, buf: *const c_char, size: usize) -> isize {
    let mut done = 0;
    while done < size {
        // SAFETY: libc's buffer, or the caller's.
        let n = finish(|| unsafe { posix::write(number(cookie), buf.add(done).cast(), size - done) });
        if n <= 0 {
            break;
        }
        done += n as usize;
    }
    done as isize
}

unsafe extern "C" fn seek(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: libc's variable.
    let at = finish(|| unsafe { posix::lseek(number(cookie), *offset, whence) });
    if at < 0 {
        return -1;
    }
    // SAFETY: as above.
    unsafe { *offset = at as i64 };
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    finish(|| posix::close(number(cookie))) as c_int
}

/// An entry for a stream of this library, in a lock-free list that never shrinks.
struct Node {
    /// The stream's address; 0: free. [`TAKEN`]: a thread is filling it in.
    stream: AtomicUsize,
    fd: AtomicI32,
    /// The flags of its mode.
    mode: AtomicI32,
    next: *mut Node,
}

const TAKEN: usize = 1;

static FIRST: AtomicPtr<Node> = AtomicPtr::new(null_mut());

fn nodes() -> impl Iterator<Item = &'static Node> {
    let mut at = FIRST.load(Ordering::Acquire);
    core::iter::from_fn(move || {
        // SAFETY: nodes are never freed, and do not change their `next` once they are in the list.
        let node = unsafe { at.as_ref() }?;
        at = node.next;
        Some(node)
    })
}

fn node_of(stream: *mut FILE) -> Option<&'static Node> {
    nodes().find(|node| node.stream.load(Ordering::Acquire) == stream.addr())
}

fn remember(stream: *mut FILE, fd: RawFd, mode: super::Mode) {
    let take = |node: &&Node| node.stream.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let Some(node) = nodes().find(take) {
        node.fd.store(fd, Ordering::Relaxed);
        node.mode.store(mode.flags, Ordering::Relaxed);
        node.stream.store(stream.expose_provenance(), Ordering::Release);
        return;
    }
    let stream = AtomicUsize::new(stream.expose_provenance());
    let (fd, mode) = (AtomicI32::new(fd), AtomicI32::new(mode.flags));
    let node = Box::into_raw(Box::new(Node { stream, fd, mode, next: null_mut() }));
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        // SAFETY: no other thread has it yet.
        unsafe { (*node).next = first };
        match FIRST.compare_exchange(first, node, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

/// A stream over `fd`, which it owns from here on; null and errno if there is no memory.
pub fn over(fd: RawFd, mode: super::Mode) -> *mut FILE {
    let functions = Functions { read, write, seek, close };
    // SAFETY: the functions fit the cookie, and the mode is one of libc's.
    let stream =
        unsafe { fopencookie(core::ptr::without_provenance_mut(fd as usize), mode.plain().as_ptr(), functions) };
    if !stream.is_null() {
        remember(stream, fd, mode);
    }
    stream
}

/// The descriptor of a stream of this library.
pub fn descriptor(stream: *mut FILE) -> Option<RawFd> {
    node_of(stream).map(|node| node.fd.load(Ordering::Relaxed))
}

/// The mode with which a stream of this library was opened.
pub fn mode(stream: *mut FILE) -> Option<super::Mode> {
    node_of(stream).map(|node| super::Mode { flags: node.mode.load(Ordering::Relaxed), converts: false })
}

/// The stream is about to be closed; its address may be reused.
pub fn forget(stream: *mut FILE) {
    if let Some(node) = node_of(stream) {
        node.stream.store(0, Ordering::Release);
    }
}

/// Before the library ends and libc flushes the remaining data past it: flushes streams of this library. A stream that
/// a thread has locked is skipped: the thread may wait there forever.
pub fn flush_all() {
    for node in nodes() {
        let stream = core::ptr::with_exposed_provenance_mut::<FILE>(node.stream.load(Ordering::Acquire));
        if stream.addr() > TAKEN {
            // SAFETY: the stream is open: a thread that closes it removes it from the list first. A thread that
            // closes a stream at this moment, during exit, breaks the rules for programs.
            unsafe {
                if ftrylockfile(stream) == 0 {
                    fflush_unlocked(stream);
                    funlockfile(stream);
                }
            }
        }
    }
}
