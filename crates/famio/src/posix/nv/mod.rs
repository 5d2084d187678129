//! The calls of `libfamio` (`crates/famio-capi`), as a table: a program that uses libfamio under `famio run` has two
//! copies of this library, and all calls must go to the copy that has the files, the interposer's.
//!
//! Each has the convention of a system call: `-4095..=-1` is a negated errno. They do not panic.

mod calls;
mod elsewhere;
mod handles;
mod recover;
mod transactions;
mod vnvml;

pub use crate::posix::life::by_program::claim_hooks;
pub use crate::posix::runtime::message::{last as last_message, write as write_message};
pub use crate::posix::runtime::texts::{SHOWN, Texts, texts};
pub(crate) use elsewhere::is_elsewhere;
pub use elsewhere::{TABLE, table_to_use};

use super::Ret;
use crate::file::UserBuf;
use core::ffi::{c_char, c_void};
use std::os::fd::RawFd;

/// Changes with every change of [`Table`].
pub const VERSION: u64 = 4;

/// The calls. `include/famio.h` documents them.
#[repr(C)]
#[allow(missing_docs, reason = "named as in C")]
#[rustfmt::skip]
pub struct Table {
    pub version: u64,
    /// Returns zero, or a negated errno if the library cannot start.
    pub start: unsafe extern "C" fn() -> Ret,
    pub open: unsafe extern "C" fn(RawFd, *const c_char, i32, u32) -> Ret,
    pub close: unsafe extern "C" fn(RawFd) -> Ret,
    pub read: unsafe extern "C" fn(RawFd, *mut u8, usize) -> Ret,
    pub write: unsafe extern "C" fn(RawFd, *const u8, usize) -> Ret,
    pub pread: unsafe extern "C" fn(RawFd, *mut u8, usize, i64) -> Ret,
    pub pwrite: unsafe extern "C" fn(RawFd, *const u8, usize, i64) -> Ret,
    pub readv: unsafe extern "C" fn(RawFd, *const UserBuf, i32) -> Ret,
    pub writev: unsafe extern "C" fn(RawFd, *const UserBuf, i32) -> Ret,
    pub preadv: unsafe extern "C" fn(RawFd, *const UserBuf, i32, i64) -> Ret,
    pub pwritev: unsafe extern "C" fn(RawFd, *const UserBuf, i32, i64) -> Ret,
    pub lseek: unsafe extern "C" fn(RawFd, i64, i32) -> Ret,
    pub fsync: unsafe extern "C" fn(RawFd) -> Ret,
    pub fdatasync: unsafe extern "C" fn(RawFd) -> Ret,
    pub ftruncate: unsafe extern "C" fn(RawFd, i64) -> Ret,
    pub fstat: unsafe extern "C" fn(RawFd, *mut libc::stat) -> Ret,
    pub mmap: unsafe extern "C" fn(usize, usize, i32, i32, RawFd, i64) -> Ret,
    pub munmap: unsafe extern "C" fn(usize, usize) -> Ret,
    pub msync: unsafe extern "C" fn(usize, usize, i32) -> Ret,
    pub mremap: unsafe extern "C" fn(usize, usize, usize, i32, usize) -> Ret,
    pub memmove: unsafe extern "C" fn(*mut u8, *const u8, usize) -> Ret,
    pub memset: unsafe extern "C" fn(*mut u8, i32, usize) -> Ret,
    pub strcpy: unsafe extern "C" fn(*mut u8, *const u8) -> Ret,
    pub advise: unsafe extern "C" fn(usize, usize, i32) -> Ret,
    pub recover: unsafe extern "C" fn(*const c_char, i32) -> Ret,
    pub counters: unsafe extern "C" fn(RawFd, *mut c_void, usize) -> Ret,
    pub message: unsafe extern "C" fn(*mut c_char, usize) -> Ret,
    /// Returns a handle, never 0.
    pub tx_begin: unsafe extern "C" fn(RawFd, i32) -> Ret,
    pub tx_time_limit: unsafe extern "C" fn(usize, u32) -> Ret,
    pub tx_pwrite: unsafe extern "C" fn(usize, RawFd, *const u8, usize, i64) -> Ret,
    pub tx_pread: unsafe extern "C" fn(usize, RawFd, *mut u8, usize, i64) -> Ret,
    pub tx_memcpy: unsafe extern "C" fn(usize, usize, *const u8, usize) -> Ret,
    pub tx_ftruncate: unsafe extern "C" fn(usize, RawFd, i64) -> Ret,
    pub tx_commit: unsafe extern "C" fn(usize) -> Ret,
    pub tx_abort: unsafe extern "C" fn(usize) -> Ret,
    pub rollback: unsafe extern "C" fn(RawFd) -> Ret,
    pub tx_join: unsafe extern "C" fn(usize, RawFd) -> Ret,
    pub vnvml_init: unsafe extern "C" fn(*const c_char) -> Ret,
    pub vnvml_release: unsafe extern "C" fn() -> Ret,
    /// Returns an address.
    pub vnvml_allocate: unsafe extern "C" fn(*const c_char, usize, i32) -> Ret,
    pub vnvml_free: unsafe extern "C" fn(usize) -> Ret,
    pub vnvml_trim: unsafe extern "C" fn(usize) -> Ret,
    /// Returns a handle, never 0.
    pub vnvml_begin: unsafe extern "C" fn() -> Ret,
    pub vnvml_write: unsafe extern "C" fn(usize, usize, *const u8, usize) -> Ret,
    pub vnvml_commit: unsafe extern "C" fn(usize) -> Ret,
    pub vnvml_abort: unsafe extern "C" fn(usize) -> Ret,
}
