//! The message of this thread's last call that failed.

use super::texts;
use super::texts::MAX_TEXT_LEN;
use crate::posix::{Ret, fail};
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Has no destructor, so that it can be used in the last exit handler, too. The message itself is in the thread's
/// texts.
struct Last {
    errno: Cell<i32>,
    len: Cell<u16>,
    /// There is a message that no failed call has been matched with yet.
    fresh: Cell<bool>,
}

thread_local! {
    static LAST: Last = const { Last { errno: Cell::new(0), len: Cell::new(0), fresh: Cell::new(false) } };
}

/// The program asks for messages. Programs that do not ask pay nothing.
static WANTED: AtomicBool = AtomicBool::new(false);

/// From now on, keeps messages for the program.
pub(in crate::posix) fn keep_messages() {
    WANTED.store(true, Ordering::Relaxed);
}

/// Keeps a message, if that is wanted. Whether it was kept, so that it need not be printed.
pub(in crate::posix) fn keep(text: &str) -> bool {
    if !WANTED.load(Ordering::Relaxed) {
        return false;
    }
    // Without memory for the message, the caller has only the errno.
    if let Some(texts) = texts::texts() {
        let mut len = text.len().min(MAX_TEXT_LEN);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        texts.last.iter().zip(&text.as_bytes()[..len]).for_each(|(to, &byte)| to.set(byte));
        LAST.with(|last| {
            last.len.set(len as u16);
            last.fresh.set(true);
        });
    }
    true
}

/// A call has failed. If it left no message, the previous one is dropped.
#[cold]
pub(in crate::posix) fn failed(errno: i32) {
    LAST.with(|last| {
        last.errno.set(errno);
        if !last.fresh.replace(false) {
            last.len.set(0);
        }
    });
}

/// Its errno and its message, which may be empty.
pub fn last() -> (i32, String) {
    LAST.with(|last| {
        let kept = texts::current().map_or(&[][..], |texts| &texts.last[..usize::from(last.len.get())]);
        let text: Vec<u8> = kept.iter().map(Cell::get).collect();
        (last.errno.get(), String::from_utf8_lossy(&text).into_owned())
    })
}

/// Writes the message to a buffer of `len` bytes, cut to fit and terminated. Without a message: libc's words for the
/// errno. Returns the errno, or 0 if no call has failed.
///
/// # Safety
/// `to` is valid for writing `len` bytes.
pub unsafe fn write(to: *mut c_char, len: usize) -> i32 {
    let (errno, text) = last();
    let text = if text.is_empty() { words(errno) } else { text };
    if len > 0 {
        let mut n = text.len().min(len - 1);
        while !text.is_char_boundary(n) {
            n -= 1;
        }
        // SAFETY: the caller's promise; the text has at least `n` bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), n);
            *to.add(n) = 0;
        }
    }
    errno
}

/// libc's words for an errno.
pub(in crate::posix) fn words(errno: i32) -> String {
    if errno == 0 {
        return "no error".into();
    }
    let mut text = [0u8; 128];
    // SAFETY: the buffer is as long as stated; libc ends what it writes there.
    let done = unsafe { libc::strerror_r(errno, text.as_mut_ptr().cast(), text.len()) };
    match CStr::from_bytes_until_nul(&text) {
        Ok(words) if done == 0 => words.to_string_lossy().into_owned(),
        _ => format!("error {errno}"),
    }
}

/// Runs a call, and keeps its error message for this thread.
#[inline]
pub(in crate::posix) fn caught(call: impl FnOnce() -> Ret) -> Ret {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        crate::sys::notice("a defect in the library was caught; the call fails with EIO; please report it");
        fail(libc::EIO)
    });
    if (-4095..0).contains(&result) {
        failed(-result as i32);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_stays_until_the_next_error_and_no_longer() {
        keep_messages();
        let said = |len: usize| {
            let mut text = vec![1u8; len];
            // SAFETY: the buffer has that length.
            let errno = unsafe { write(text.as_mut_ptr().cast(), len) };
            (
                errno,
                CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default(),
            )
        };
        assert_eq!(said(100), (0, "no error".into()));
        assert!(keep("/a/é: no"));
        failed(libc::EIO);
        assert_eq!(said(100), (libc::EIO, "/a/é: no".into()));
        assert_eq!(said(5), (libc::EIO, "/a/".into()));
        assert_eq!(said(1), (libc::EIO, String::new()));
        failed(libc::ENOENT);
        assert_eq!(said(100), (libc::ENOENT, "No such file or directory".into()));
    }
}
