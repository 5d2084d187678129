//! Transactions of libpmemobj (PMDK), if it is installed: it is loaded, not linked.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LIBRARY: &CStr = c"libpmemobj.so.1";

/// `PMEMoid`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Oid {
    pool: u64,
    offset: u64,
}

type Create = unsafe extern "C" fn(*const c_char, *const c_char, usize, u32) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void);
type Root = unsafe extern "C" fn(*mut c_void, usize) -> Oid;
type Begin = unsafe extern "C" fn(*mut c_void, *mut c_void, ...) -> c_int;
type AddRange = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Commit = unsafe extern "C" fn();
type End = unsafe extern "C" fn() -> c_int;

/// A pool with one object.
pub struct Pool {
    pool: *mut c_void,
    object: *mut u8,
    close: Close,
    begin: Begin,
    add_range: AddRange,
    commit: Commit,
    end: End,
}

impl Pool {
    /// Creates a pool in a new file, with an object of `size` bytes. `None`: the library is not installed.
    pub fn make(path: &Path, size: usize) -> Result<Option<Self>, String> {
        // As for Famio's file and journal there: no system call per flush.
        // SAFETY: no other thread reads the environment now.
        unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") };
        // SAFETY: loads a system library, permanently.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Ok(None);
        }
        let find = |name: &CStr| {
            // SAFETY: a loaded library, and a name.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            if found.is_null() {
                Err(format!("{}: no {}", LIBRARY.to_string_lossy(), name.to_string_lossy()))
            } else {
                Ok(found)
            }
        };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: functions of that library, with these types since its version 1.
        unsafe {
            let create = core::mem::transmute::<*mut c_void, Create>(find(c"pmemobj_create")?);
            let close = core::mem::transmute::<*mut c_void, Close>(find(c"pmemobj_close")?);
            let root = core::mem::transmute::<*mut c_void, Root>(find(c"pmemobj_root")?);
            let begin = core::mem::transmute::<*mut c_void, Begin>(find(c"pmemobj_tx_begin")?);
            let add_range = core::mem::transmute::<*mut c_void, AddRange>(find(c"pmemobj_tx_add_range_direct")?);
            let commit = core::mem::transmute::<*mut c_void, Commit>(find(c"pmemobj_tx_commit")?);
            let end = core::mem::transmute::<*mut c_void, End>(find(c"pmemobj_tx_end")?);
            let pool = create(name.as_ptr(), c"famio".as_ptr(), 2 * size + (32 << 20), 0o600);
            if pool.is_null() {
                return Err(format!("{}: libpmemobj makes no pool there", path.display()));
            }
            let oid = root(pool, size);
            if oid.offset == 0 {
                close(pool);
                return Err(format!("{}: libpmemobj has no room there", path.display()));
            }
            let object = pool.cast::<u8>().add(oid.offset as usize);
            Ok(Some(Self { pool, object, close, begin, add_range, commit, end }))
        }
    }

    /// Changes these ranges of the object atomically.
    pub fn transaction(&mut self, places: impl Iterator<Item = usize>, from: &[u8]) {
        // SAFETY: ranges of the object; a transaction without jump buffer and parameters.
        unsafe {
            assert_eq!((self.begin)(self.pool, core::ptr::null_mut(), 0 as c_int), 0);
            for at in places {
                let to = self.object.add(at);
                assert_eq!((self.add_range)(to.cast(), from.len()), 0);
                to.copy_from_nonoverlapping(from.as_ptr(), from.len());
            }
            (self.commit)();
            assert_eq!((self.end)(), 0);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: open, and not used any more.
        unsafe { (self.close)(self.pool) };
    }
}
