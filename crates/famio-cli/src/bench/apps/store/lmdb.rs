//! LMDB: a tree in a map, whose pages are copied when they are changed; a commit writes them and syncs the file.

use super::opened::{See, Store};
use crate::bench::loaded::{self, functions};
use libloading::os::unix::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

const NAME: &str = "liblmdb.so.0";
/// The path is a file's.
const NOSUBDIR: c_uint = 0x4000;
const NOSYNC: c_uint = 0x10000;
const READ_ONLY: c_uint = 0x20000;
const NOT_FOUND: c_int = -30798;
const FIRST: c_int = 0;
const NEXT: c_int = 8;
const FROM: c_int = 17;

type Handle = *mut c_void;

/// `MDB_val`.
#[repr(C)]
struct Bytes {
    size: usize,
    data: *const u8,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        Self { size: bytes.len(), data: bytes.as_ptr() }
    }

    const NONE: Self = Self { size: 0, data: null() };
}

functions! {
    version = b"mdb_version\0": fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;
    message = b"mdb_strerror\0": fn(c_int) -> *const c_char;
    create = b"mdb_env_create\0": fn(*mut Handle) -> c_int;
    set_size = b"mdb_env_set_mapsize\0": fn(Handle, usize) -> c_int;
    open = b"mdb_env_open\0": fn(Handle, *const c_char, c_uint, c_uint) -> c_int;
    sync = b"mdb_env_sync\0": fn(Handle, c_int) -> c_int;
    close = b"mdb_env_close\0": fn(Handle);
    begin = b"mdb_txn_begin\0": fn(Handle, Handle, c_uint, *mut Handle) -> c_int;
    commit = b"mdb_txn_commit\0": fn(Handle) -> c_int;
    abort = b"mdb_txn_abort\0": fn(Handle);
    table = b"mdb_dbi_open\0": fn(Handle, *const c_char, c_uint, *mut c_uint) -> c_int;
    get = b"mdb_get\0": fn(Handle, c_uint, *const Bytes, *mut Bytes) -> c_int;
    put = b"mdb_put\0": fn(Handle, c_uint, *const Bytes, *const Bytes, c_uint) -> c_int;
    cursor = b"mdb_cursor_open\0": fn(Handle, c_uint, *mut Handle) -> c_int;
    cursor_get = b"mdb_cursor_get\0": fn(Handle, *mut Bytes, *mut Bytes, c_int) -> c_int;
    cursor_close = b"mdb_cursor_close\0": fn(Handle);
}

fn load() -> Result<(Functions, Library), String> {
    // SAFETY: its initialisation has no preconditions.
    let library = unsafe { loaded::open(NAME, "liblmdb0 (LMDB)") }?;
    // SAFETY: as in lmdb.h of version 0.9.
    let functions = unsafe { Functions::find(&library) }.map_err(|error| error.to_string())?;
    Ok((functions, library))
}

pub fn version() -> Result<String, String> {
    let (functions, _library) = load()?;
    let mut parts = [0; 3];
    let [major, minor, patch] = &mut parts;
    // SAFETY: three numbers to write to.
    unsafe { (functions.version)(major, minor, patch) };
    Ok(format!("LMDB {}.{}.{}", parts[0], parts[1], parts[2]))
}

/// An open file of it.
pub struct Lmdb {
    functions: Functions,
    environment: Handle,
    table: c_uint,
    _library: Library,
}

impl Lmdb {
    /// The map is large enough for several times these bytes: a page is free again only when no reader needs it.
    pub fn open(path: &Path, bytes: u64, synced: bool) -> Result<Box<dyn Store>, String> {
        let (functions, library) = load()?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let mut store = Self { functions, environment: null_mut(), table: 0, _library: library };
        let flags = NOSUBDIR | if synced { 0 } else { NOSYNC };
        // SAFETY: a place for the new environment.
        let created = unsafe { (store.functions.create)(&mut store.environment) };
        store.check(created)?;
        let environment = store.environment;
        // SAFETY: a new environment, and a C string.
        unsafe {
            store.check((store.functions.set_size)(environment, 8 * bytes as usize + (256 << 20)))?;
            store.check((store.functions.open)(environment, name.as_ptr(), flags, 0o600))?;
        }
        let mut table = 0;
        store.transaction(0, |store, txn| {
            // SAFETY: an open transaction; the unnamed table is always there.
            store.check(unsafe { (store.functions.table)(txn, null(), 0, &mut table) })
        })?;
        store.table = table;
        Ok(Box::new(store))
    }

    fn check(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: a C string that lives for ever.
        let message = unsafe { CStr::from_ptr((self.functions.message)(status)) };
        Err(format!("LMDB: {}", message.to_string_lossy()))
    }

    /// Commits what `work` does in it.
    fn transaction<T>(
        &self,
        flags: c_uint,
        work: impl FnOnce(&Self, Handle) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut txn = null_mut();
        // SAFETY: an open environment; the transaction ends below, once.
        self.check(unsafe { (self.functions.begin)(self.environment, null_mut(), flags, &mut txn) })?;
        match work(self, txn) {
            Ok(done) => {
                // SAFETY: as above.
                self.check(unsafe { (self.functions.commit)(txn) })?;
                Ok(done)
            }
            Err(error) => {
                // SAFETY: as above.
                unsafe { (self.functions.abort)(txn) };
                Err(error)
            }
        }
    }

    /// Records from this key on, until `see` has had enough.
    fn walk(&self, from: Option<&[u8]>, see: See<'_, bool>) -> Result<(), String> {
        self.transaction(READ_ONLY, |store, txn| {
            let mut cursor = null_mut();
            // SAFETY: an open transaction; the cursor is closed below.
            store.check(unsafe { (store.functions.cursor)(txn, store.table, &mut cursor) })?;
            let (mut key, mut value) = (from.map_or(Bytes::NONE, Bytes::of), Bytes::NONE);
            let mut step = if from.is_some() { FROM } else { FIRST };
            let result = loop {
                // SAFETY: an open cursor.
                match unsafe { (store.functions.cursor_get)(cursor, &mut key, &mut value, step) } {
                    0 => {}
                    NOT_FOUND => break Ok(()),
                    status => break store.check(status),
                }
                step = NEXT;
                // SAFETY: both stay where they are until the transaction ends.
                match unsafe { see(bytes(&key), bytes(&value)) } {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            // SAFETY: not used any more.
            unsafe { (store.functions.cursor_close)(cursor) };
            result
        })
    }
}

/// # Safety
/// They are as LMDB gave them, in a transaction that is open.
unsafe fn bytes(of: &Bytes) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(of.data, of.size) }
}

impl Store for Lmdb {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, String> {
        self.transaction(READ_ONLY, |store, txn| {
            let mut found = Bytes::NONE;
            // SAFETY: an open transaction, and a key that lives as long as the call.
            match unsafe { (store.functions.get)(txn, store.table, &Bytes::of(key), &mut found) } {
                NOT_FOUND => return Ok(false),
                status => store.check(status)?,
            }
            value.clear();
            // SAFETY: the transaction is open.
            value.extend_from_slice(unsafe { bytes(&found) });
            Ok(true)
        })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.transaction(0, |store, txn| {
            // SAFETY: an open transaction; key and value live as long as the call, which copies them.
            store.check(unsafe { (store.functions.put)(txn, store.table, &Bytes::of(key), &Bytes::of(value), 0) })
        })
    }

    fn scan(&mut self, key: &[u8], most: u64) -> Result<u64, String> {
        let mut seen = 0;
        self.walk(Some(key), &mut |_, _| {
            seen += 1;
            Ok(seen < most)
        })?;
        Ok(seen)
    }

    fn each(&mut self, see: See<'_, ()>) -> Result<(), String> {
        self.walk(None, &mut |key, value| see(key, value).map(|()| true))
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        if self.environment.is_null() {
            return;
        }
        // SAFETY: made by `create`, and not used any more.
        unsafe {
            (self.functions.sync)(self.environment, 1);
            (self.functions.close)(self.environment);
        }
    }
}
