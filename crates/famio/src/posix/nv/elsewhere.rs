//! Which copy of this library has the process's files: the interposer's if there is one, otherwise this one.

use super::{Table, VERSION, calls, transactions, vnvml};
use crate::error::{Error, Result};
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// This copy's table.
pub static TABLE: Table = Table {
    version: VERSION,
    start: calls::start,
    open: calls::open,
    close: calls::close,
    read: calls::read,
    write: calls::write,
    pread: calls::pread,
    pwrite: calls::pwrite,
    readv: calls::readv,
    writev: calls::writev,
    preadv: calls::preadv,
    pwritev: calls::pwritev,
    lseek: calls::lseek,
    fsync: calls::fsync,
    fdatasync: calls::fdatasync,
    ftruncate: calls::ftruncate,
    fstat: calls::fstat,
    mmap: calls::mmap,
    munmap: calls::munmap,
    msync: calls::msync,
    mremap: calls::mremap,
    memmove: calls::memmove,
    memset: calls::memset,
    strcpy: calls::strcpy,
    advise: calls::advise,
    recover: calls::recover,
    counters: calls::counters,
    message: calls::message,
    tx_begin: transactions::begin,
    tx_time_limit: transactions::set_time_limit,
    tx_pwrite: transactions::write,
    tx_pread: transactions::read,
    tx_memcpy: transactions::copy,
    tx_ftruncate: transactions::set_size,
    tx_commit: transactions::commit,
    tx_abort: transactions::abort,
    rollback: transactions::rollback,
    tx_join: transactions::join,
    vnvml_init: vnvml::init,
    vnvml_release: vnvml::release,
    vnvml_allocate: vnvml::allocate,
    vnvml_free: vnvml::free,
    vnvml_trim: vnvml::trim,
    vnvml_begin: vnvml::begin,
    vnvml_write: vnvml::write,
    vnvml_commit: vnvml::commit,
    vnvml_abort: vnvml::abort,
};

/// The function that the interposer exports: it takes no arguments and returns its table.
const EXPORTED: &CStr = c"famio_nv_table";

fn exported() -> Option<&'static Table> {
    // SAFETY: looks a name up in what is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, EXPORTED.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: that name is ours, and that is its type in every version.
    let table = unsafe { core::mem::transmute::<*mut core::ffi::c_void, extern "C" fn() -> *const Table>(found) }();
    // SAFETY: a static of a library that is never unloaded. In every version it begins with the version number.
    unsafe { table.as_ref() }
}

/// Whether the interposer has the process's files, and this copy is not the interposer's.
pub(crate) fn is_elsewhere() -> bool {
    exported().is_some_and(|table| !ptr::eq(table, &TABLE))
}

static USED: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// The table that calls are to use in this process.
///
/// # Errors
/// `ENOSYS`: the interposer is of another version.
#[inline]
pub fn table_to_use() -> Result<&'static Table> {
    // SAFETY: one of the two below.
    match unsafe { USED.load(Ordering::Acquire).as_ref() } {
        Some(table) => Ok(table),
        None => choose(),
    }
}

#[cold]
fn choose() -> Result<&'static Table> {
    let table = match exported() {
        Some(other) if other.version != VERSION => {
            let what =
                "libfamio and the library of `famio run` are of different versions: install both from one source";
            return Err(Error::with(libc::ENOSYS, what));
        }
        Some(other) => other,
        None => &TABLE,
    };
    USED.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
    Ok(table)
}
