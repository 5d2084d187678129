//! Kyoto Cabinet: a hash file and a tree file, the first 64 MiB mapped. Its hard transactions keep a log of their own.

use super::opened::{See, Store};
use crate::bench::loaded::{self, functions};
use libloading::os::unix::Library;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

const NAME: &str = "libkyotocabinet.so.16";
const WRITER: u32 = 1 << 1;
const CREATE: u32 = 1 << 2;

type Handle = *mut c_void;

functions! {
    new = b"kcdbnew\0": fn() -> Handle;
    delete = b"kcdbdel\0": fn(Handle);
    open = b"kcdbopen\0": fn(Handle, *const c_char, u32) -> i32;
    close = b"kcdbclose\0": fn(Handle) -> i32;
    message = b"kcdbemsg\0": fn(Handle) -> *const c_char;
    set = b"kcdbset\0": fn(Handle, *const c_char, usize, *const c_char, usize) -> i32;
    get = b"kcdbgetbuf\0": fn(Handle, *const c_char, usize, *mut c_char, usize) -> i32;
    begin = b"kcdbbegintran\0": fn(Handle, i32) -> i32;
    end = b"kcdbendtran\0": fn(Handle, i32) -> i32;
    sync = b"kcdbsync\0": fn(Handle, i32, *const c_void, *mut c_void) -> i32;
    cursor = b"kcdbcursor\0": fn(Handle) -> Handle;
    cursor_delete = b"kccurdel\0": fn(Handle);
    cursor_first = b"kccurjump\0": fn(Handle) -> i32;
    cursor_at = b"kccurjumpkey\0": fn(Handle, *const c_char, usize) -> i32;
    cursor_get = b"kccurget\0": fn(Handle, *mut usize, *mut *const c_char, *mut usize, i32) -> *mut c_char;
    free = b"kcfree\0": fn(*mut c_void);
}

/// What makes a change durable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// Nothing, until the store is closed.
    Never,
    /// A transaction with the store's own log, and syncs of log and file.
    Hard,
    /// `synchronize`: the store syncs its file, and leaves to others that this is whole.
    Synchronize,
}

pub fn commit(hard: bool) -> Commit {
    if hard { Commit::Hard } else { Commit::Synchronize }
}

fn load() -> Result<Library, String> {
    // SAFETY: its initialisation has no preconditions.
    unsafe { loaded::open(NAME, "libkyotocabinet16v5 (Kyoto Cabinet)") }
}

pub fn version() -> Result<String, String> {
    let library = load()?;
    // SAFETY: `KCVERSION` is a pointer to a C string, in kclangc.h.
    let version = unsafe {
        let symbol = library.get::<*const *const c_char>(b"KCVERSION\0").map_err(|error| error.to_string())?;
        CStr::from_ptr(**symbol).to_string_lossy().into_owned()
    };
    Ok(format!("Kyoto Cabinet {version}"))
}

/// An open file of it.
pub struct Kyoto {
    functions: Functions,
    handle: Handle,
    commit: Commit,
    _library: Library,
}

/// A value is no longer than this.
const MAX_VALUE_LEN: usize = 1 << 20;

impl Kyoto {
    /// The kind of the file follows from its suffix.
    pub fn open(path: &Path, commit: Commit) -> Result<Box<dyn Store>, String> {
        let library = load()?;
        // SAFETY: as in kclangc.h of version 1.2.
        let functions = unsafe { Functions::find(&library) }.map_err(|error| error.to_string())?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: no preconditions.
        let handle = unsafe { (functions.new)() };
        let store = Self { functions, handle, commit, _library: library };
        // SAFETY: a new handle, and a C string.
        let opened = unsafe { (store.functions.open)(handle, name.as_ptr(), WRITER | CREATE) };
        store.check(opened)?;
        Ok(Box::new(store))
    }

    fn check(&self, done: i32) -> Result<(), String> {
        if done != 0 {
            return Ok(());
        }
        // SAFETY: a handle; the message is a C string, copied at once.
        let message = unsafe { CStr::from_ptr((self.functions.message)(self.handle)) };
        Err(format!("Kyoto Cabinet: {}", message.to_string_lossy()))
    }

    /// Moves on a cursor from where `place` has put it, until `see` has had enough.
    fn walk(&self, place: impl FnOnce(Handle) -> i32, see: See<'_, bool>) -> Result<(), String> {
        // SAFETY: an open handle; the cursor is deleted below.
        let cursor = unsafe { (self.functions.cursor)(self.handle) };
        let mut result = Ok(true);
        if place(cursor) != 0 {
            while result == Ok(true) {
                let (mut key_size, mut value, mut value_size) = (0, null(), 0);
                // SAFETY: a cursor of an open handle; key and value lie in one piece of memory, which is freed below.
                let key = unsafe { (self.functions.cursor_get)(cursor, &mut key_size, &mut value, &mut value_size, 1) };
                if key.is_null() {
                    break;
                }
                // SAFETY: the call says that they are this long.
                unsafe {
                    let bytes = |at: *const c_char, size| std::slice::from_raw_parts(at.cast::<u8>(), size);
                    result = see(bytes(key, key_size), bytes(value, value_size));
                    (self.functions.free)(key.cast());
                }
            }
        }
        // SAFETY: not used any more.
        unsafe { (self.functions.cursor_delete)(cursor) };
        result.map(|_| ())
    }
}

impl Store for Kyoto {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, String> {
        value.resize(MAX_VALUE_LEN, 0);
        // SAFETY: an open handle; both buffers are that long.
        let size = unsafe {
            let (key, size) = (key.as_ptr().cast(), key.len());
            (self.functions.get)(self.handle, key, size, value.as_mut_ptr().cast(), value.len())
        };
        value.truncate(size.max(0) as usize);
        Ok(size >= 0)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let (handle, functions) = (self.handle, &self.functions);
        if self.commit == Commit::Hard {
            // SAFETY: an open handle.
            self.check(unsafe { (functions.begin)(handle, 1) })?;
        }
        // SAFETY: an open handle; both buffers are that long.
        let set = unsafe {
            let (value, length) = (value.as_ptr().cast(), value.len());
            (functions.set)(handle, key.as_ptr().cast(), key.len(), value, length)
        };
        self.check(set)?;
        match self.commit {
            Commit::Never => Ok(()),
            // SAFETY: an open handle, with a transaction.
            Commit::Hard => self.check(unsafe { (functions.end)(handle, 1) }),
            // SAFETY: an open handle; there is nothing to call in between.
            Commit::Synchronize => self.check(unsafe { (functions.sync)(handle, 1, null(), null_mut()) }),
        }
    }

    fn scan(&mut self, key: &[u8], most: u64) -> Result<u64, String> {
        let mut seen = 0;
        // SAFETY: a cursor, and a buffer that is that long.
        let place = |cursor| unsafe { (self.functions.cursor_at)(cursor, key.as_ptr().cast(), key.len()) };
        self.walk(place, &mut |_, _| {
            seen += 1;
            Ok(seen < most)
        })?;
        Ok(seen)
    }

    fn each(&mut self, see: See<'_, ()>) -> Result<(), String> {
        // SAFETY: a cursor.
        let place = |cursor| unsafe { (self.functions.cursor_first)(cursor) };
        self.walk(place, &mut |key, value| see(key, value).map(|()| true))
    }
}

impl Drop for Kyoto {
    fn drop(&mut self) {
        // SAFETY: the handle is not used any more. One that was never opened only gives an error.
        unsafe {
            (self.functions.close)(self.handle);
            (self.functions.delete)(self.handle);
        }
    }
}
