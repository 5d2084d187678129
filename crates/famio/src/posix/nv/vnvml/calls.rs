//! The calls of `include/famio_vnvml.h`.
#![allow(clippy::missing_safety_doc, reason = "famio_vnvml.h and nv_init(3) say what each takes")]

use super::region::{Kind, Region};
use super::state;
use super::transaction::Work;
use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::journal::pools::pool::Pool;
use crate::map::guard;
use crate::posix::Ret;
use crate::posix::call::user;
use crate::posix::descriptors::attach::warn_if_weakened;
use crate::posix::life::process;
use crate::posix::nv::calls::to_ret;
use crate::posix::runtime::message::caught;
use crate::posix::selection::config::absolute;
use core::cell::Cell;
use core::ffi::c_char;
use core::sync::atomic::Ordering;
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// `NV_PRIVATE` and `NV_SHARED`.
const PRIVATE: i32 = 1;
const SHARED: i32 = 2;

/// The number of this thread's open transaction, or of one that has ended; 0: it had none. The end of the thread
/// aborts it.
struct OfThread(Cell<usize>);

impl Drop for OfThread {
    fn drop(&mut self) {
        let work = match state::lists() {
            Ok(mut lists) => lists.end_transaction(self.0.get()),
            Err(_) => return,
        };
        drop(work);
    }
}

thread_local! {
    static OPEN: OfThread = const { OfThread(Cell::new(0)) };
}

fn of_thread() -> usize {
    OPEN.try_with(|open| open.0.get()).unwrap_or(0)
}

/// # Errors
/// `EPERM`: it is another thread's. `EINVAL`: it has ended, or never existed.
fn check_thread(id: usize, lists: &state::List) -> Result<()> {
    if id == of_thread() || !lists.is_open(id) {
        return Ok(()); // that it has ended is found where it is used
    }
    Err(Error::with(libc::EPERM, "the transaction belongs to the thread that began it"))
}

/// A path of the program's.
///
/// # Errors
/// `EFAULT`: a bad address. `ENAMETOOLONG`.
///
/// # Safety
/// It is not changed meanwhile.
unsafe fn path_at(path: *const c_char) -> Result<CString> {
    guard::install()?;
    // SAFETY: the caller's promise.
    let read = unsafe { user::path(path) };
    read.map(CStr::to_owned).map_err(|error| match error.errno() {
        libc::EFAULT => Error::with(libc::EFAULT, "the path lies at a bad address"),
        _ => error,
    })
}

pub(in crate::posix::nv) unsafe extern "C" fn init(pool: *const c_char) -> Ret {
    let init = || {
        if pool.is_null() {
            return state::begin(None);
        }
        // SAFETY: the caller's promise.
        let path = unsafe { path_at(pool) }?;
        if path.is_empty() {
            return Err(Error::with(libc::ENOENT, "the path of the pool is empty"));
        }
        let path = absolute(path.to_bytes());
        Pool::at(&path, None)?;
        state::begin(Some(path))
    };
    caught(|| to_ret(init(), |()| 0))
}

pub(in crate::posix::nv) unsafe extern "C" fn release() -> Ret {
    let release = || {
        let regions = state::lists()?.end()?;
        regions.into_iter().map(close).fold(Ok(()), Result::and)
    };
    caught(|| to_ret(release(), |()| 0))
}

fn close(region: Arc<Region>) -> Result<()> {
    let file = region.file().clone();
    // Nobody else has it: it is in no list, and was not in use.
    Arc::into_inner(region).map_or(Ok(()), Region::close).map_err(|e| file.named(e))
}

pub(in crate::posix::nv) unsafe extern "C" fn allocate(path: *const c_char, size: usize, kind: i32) -> Ret {
    let allocate = || {
        let kind = match kind {
            PRIVATE => Kind::Private,
            SHARED => Kind::Shared,
            _ => return Err(Error::with(libc::EINVAL, "a region is NV_PRIVATE or NV_SHARED")),
        };
        // SAFETY: the caller's promise.
        let path = unsafe { path_at(path) }?;
        let pool = state::lists()?.pool.clone();
        let Some(config) = process::config() else {
            return Err(Error::with(libc::ESHUTDOWN, "the process is ending: no more regions are made"));
        };
        warn_if_weakened(config);
        let mut settings = config.settings_of(&path).into_owned();
        settings.require = true; // nothing of a region is to be left to the kernel
        settings.pool = pool.or(settings.pool);
        let named = |e: Error| match e.detail() {
            Some(said) if said.starts_with(&*path.to_string_lossy()) => e,
            _ => e.context(path.to_string_lossy()),
        };
        let region = Region::new(&path, size, kind, &settings).map_err(named)?;
        Ok(state::lists()?.add(region))
    };
    caught(|| to_ret(allocate(), |address| address as Ret))
}

pub(in crate::posix::nv) unsafe extern "C" fn free(start: usize) -> Ret {
    let free = || {
        let region = state::lists()?.take_region(start)?;
        close(region)
    };
    caught(|| to_ret(free(), |()| 0))
}

pub(in crate::posix::nv) unsafe extern "C" fn trim(start: usize) -> Ret {
    let trim = || {
        let region = state::lists()?.use_alone(start)?;
        let trimmed = region.trim();
        region.users.store(0, Ordering::Release);
        trimmed
    };
    caught(|| to_ret(trim(), |bytes| bytes as Ret))
}

pub(in crate::posix::nv) unsafe extern "C" fn begin() -> Ret {
    let begin = || {
        let mut lists = state::lists()?;
        if lists.is_open(of_thread()) {
            let what = "this thread has an open transaction, and transactions do not nest";
            return Err(Error::with(libc::EALREADY, what));
        }
        let id = lists.add_transaction();
        OPEN.try_with(|open| open.0.set(id)).map_err(|_| Error::with(libc::ESHUTDOWN, "the thread is ending"))?;
        Ok(id)
    };
    caught(|| to_ret(begin(), |id| id as Ret))
}

pub(in crate::posix::nv) unsafe extern "C" fn write(id: usize, at: usize, from: *const u8, len: usize) -> Ret {
    let write = || {
        if len > isize::MAX as usize {
            return Err(Error::with(libc::ERANGE, "no region has so many bytes"));
        }
        let mut lists = state::lists()?;
        check_thread(id, &lists)?;
        let mut work = lists.use_transaction(id)?;
        let touched = lists.find(at, len).and_then(|region| {
            state::check_not_alone(&region)?;
            work.touch(&region).map(|()| region)
        });
        drop(lists); // memory of the program is not touched under a lock
        // SAFETY: the caller's promise; bad memory is an error. The bytes are in the region, which stays until the end
        // of the transaction.
        let written = touched.and_then(|region| unsafe {
            let from = UserBuf { base: from.cast_mut(), len };
            work.write(&region, at, from)
        });
        state::lists()?.put_back(id, work);
        written
    };
    caught(|| to_ret(write(), |()| 0))
}

fn end(id: usize, by: impl FnOnce(Box<Work>) -> Result<()>) -> Ret {
    let end = || {
        let mut lists = state::lists()?;
        check_thread(id, &lists)?;
        let work = lists.end_transaction(id)?;
        drop(lists);
        by(work)
    };
    caught(|| to_ret(end(), |()| 0))
}

pub(in crate::posix::nv) unsafe extern "C" fn commit(id: usize) -> Ret {
    end(id, |work| work.commit())
}

pub(in crate::posix::nv) unsafe extern "C" fn abort(id: usize) -> Ret {
    end(id, |work| {
        drop(work);
        Ok(())
    })
}
