//! Finds the shared file, and libc's functions.

use crate::layout::{Count, MAGIC, Record, Shared};
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use famio::sys::syscall as raw;

/// The variable with the path of the shared file.
const VARIABLE: &[u8] = b"FAMIO_TRACE=";

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
/// 0: not looked for yet; 1: being looked for, or absent; 2: mapped.
static STATE: AtomicU8 = AtomicU8::new(0);

/// The shared file; `None` in a program that is not traced.
#[inline]
pub fn shared() -> Option<&'static Shared> {
    if STATE.load(Ordering::Acquire) == 0 {
        attach();
    }
    // SAFETY: null, or a mapping of the right size that is never unmapped.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// For the wrappers.
#[unsafe(no_mangle)]
extern "C" fn famio_trace_on() -> bool {
    shared().is_some()
}

#[cold]
fn attach() {
    if STATE.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    let Some(path) = variable() else { return };
    let size = size_of::<Shared>();
    // SAFETY: a path in the environment; then a new mapping of an open file, whose size is checked, so that no access
    // to it faults.
    unsafe {
        let fd = raw(
            libc::SYS_openat,
            [libc::AT_FDCWD as usize, path as usize, (libc::O_RDWR | libc::O_CLOEXEC) as usize, 0, 0, 0],
        );
        if fd < 0 {
            return;
        }
        let big_enough = crate::stat::of(fd as i32).is_some_and(|found| found.size >= size as u64);
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let map = if big_enough {
            raw(libc::SYS_mmap, [0, size, protection, libc::MAP_SHARED as usize, fd as usize, 0])
        } else {
            -1
        };
        raw(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
        if (-4095..0).contains(&map) {
            return;
        }
        let shared = map as *mut Shared;
        if (*shared).magic.load(Ordering::Acquire) != MAGIC {
            raw(libc::SYS_munmap, [map as usize, size, 0, 0, 0, 0]);
            return;
        }
        (*shared).programs.fetch_add(1, Ordering::Relaxed);
        SHARED.store(shared, Ordering::Release);
        STATE.store(2, Ordering::Release);
    }
}

fn variable() -> Option<*const c_char> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: libc's environment block: a null-terminated array of C strings. It is read once, at the start, before the
    // program can change it.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if CStr::from_ptr(*entry).to_bytes().starts_with(VARIABLE) {
                return Some((*entry).add(VARIABLE.len()));
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Adds to a file's counter.
#[inline]
pub fn add(record: &Record, what: Count, amount: u64) {
    record.count(what).fetch_add(amount, Ordering::Relaxed);
}

/// For the wrappers: the function of the next library. Leaves errno unchanged.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn famio_trace_next(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise; the thread's errno lives as long as the thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let found = libc::dlsym(libc::RTLD_NEXT, name);
        *errno = before;
        found
    }
}

/// For the wrappers: called if no library has the function.
#[unsafe(no_mangle)]
extern "C" fn famio_trace_missing() -> libc::c_long {
    // SAFETY: the thread's errno lives as long as the thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
