//! The functions of `include/famio.h` and `include/famio_vnvml.h`: they convert the results of the library from the
//! convention of system calls to that of C.
//!
//! They go through a table: in a program under `famio run`, the interposer's, which has the files.
#![allow(clippy::missing_safety_doc, reason = "the headers and the man pages say what each takes")]

mod copies;
mod files;
mod maps;
mod others;
mod transactions;
mod vnvml;

use core::cell::Cell;
use famio::posix::Ret;
use famio::posix::nv::{Table, table_to_use};

/// Own memory: a program's allocator may be anything, and may be in the middle of anything.
#[global_allocator]
static HEAP: famio::heap::Heap = famio::heap::Heap::new();

thread_local! {
    /// Whether an error was printed because no table can be used.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

#[inline]
fn errno() -> *mut i32 {
    // SAFETY: libc's accessor has no conditions.
    unsafe { libc::__errno_location() }
}

/// Calls through the table. Returns -1 and sets errno for an error; otherwise leaves errno unchanged.
#[inline]
fn call(by: impl FnOnce(&Table) -> Ret) -> Ret {
    // SAFETY: the thread's errno lives as long as the thread.
    let before = unsafe { *errno() };
    let (result, after) = match table_to_use() {
        Ok(table) => match by(table) {
            error @ -4095..0 => (-1, -error as i32),
            done => (done, before),
        },
        Err(error) => (-1, refused(&error)),
    };
    // SAFETY: as above.
    unsafe { *errno() = after };
    result
}

#[cold]
fn refused(error: &famio::Error) -> i32 {
    if !REFUSED.replace(true) {
        famio::sys::notice(&error.to_string());
    }
    error.errno()
}
