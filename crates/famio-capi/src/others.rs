//! Recovery, numbers and words.

use crate::{call, errno};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use famio::posix::nv::table_to_use;
use libc::size_t;

/// Bytes of a message, with its end.
const MESSAGE: usize = 1024;

thread_local! {
    static WORDS: UnsafeCell<[c_char; MESSAGE]> = const { UnsafeCell::new([0; MESSAGE]) };
    static TEXT: UnsafeCell<[c_char; MESSAGE]> = const { UnsafeCell::new([0; MESSAGE]) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrecover(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.recover)(path, flags) }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvcounters(fd: c_int, shown: *mut c_void, len: size_t) -> c_int {
    // SAFETY: the caller's promise.
    call(|nv| unsafe { (nv.counters)(fd, shown, len) }) as c_int
}

/// libc's words for an errno, in memory of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvstrerror(error: c_int) -> *const c_char {
    WORDS.with(|words| {
        let words = words.get();
        // SAFETY: this thread's buffer, as long as is said. errno is the caller's to keep.
        unsafe {
            let before = *errno();
            libc::strerror_r(error, words.cast(), MESSAGE);
            *errno() = before;
        }
        words.cast()
    })
}

/// What the last call of this thread that failed has to say, in memory of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nverrmsg() -> *const c_char {
    TEXT.with(|text| {
        let text: *mut c_char = text.get().cast();
        match table_to_use() {
            // SAFETY: this thread's buffer, as long as is said.
            Ok(table) => unsafe {
                (table.message)(text, MESSAGE);
            },
            Err(error) => {
                let words = error.to_string();
                let n = words.len().min(MESSAGE - 1);
                // SAFETY: as above; shorter than the buffer.
                unsafe {
                    core::ptr::copy_nonoverlapping(words.as_ptr(), text.cast(), n);
                    *text.add(n) = 0;
                }
            }
        }
        text.cast_const()
    })
}
