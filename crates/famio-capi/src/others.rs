//! Recovery, counters and messages.

use crate::{call, errno};
use core::ffi::{CStr, c_char, c_int, c_void};
use famio::posix::nv::{SHOWN, table_to_use, texts};
use libc::size_t;

/// The message if there is no memory for a thread's texts.
const NO_MEMORY: &CStr = c"no memory for the message";

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
    let Some(texts) = texts() else { return NO_MEMORY.as_ptr() };
    let words: *mut c_char = texts.words.get().cast();
    // SAFETY: this thread's buffer, as long as stated. errno is the caller's to keep.
    unsafe {
        let before = *errno();
        libc::strerror_r(error, words, SHOWN);
        *errno() = before;
    }
    words
}

/// The message of this thread's last call that failed, in memory of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nverrmsg() -> *const c_char {
    let Some(texts) = texts() else { return NO_MEMORY.as_ptr() };
    let text: *mut c_char = texts.message.get().cast();
    match table_to_use() {
        // SAFETY: this thread's buffer, as long as stated.
        Ok(table) => unsafe {
            (table.message)(text, SHOWN);
        },
        Err(error) => {
            let words = error.to_string();
            let n = words.len().min(SHOWN - 1);
            // SAFETY: as above; shorter than the buffer.
            unsafe {
                core::ptr::copy_nonoverlapping(words.as_ptr(), text.cast(), n);
                *text.add(n) = 0;
            }
        }
    }
    text
}
