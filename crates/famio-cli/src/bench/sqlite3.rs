//! SQLite's library, loaded on demand, so that each call can be timed by itself, and the command runs without SQLite.

use super::loaded::{self, functions};
use libloading::os::unix::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Duration;

const NAME: &str = "libsqlite3.so.0";
const OK: c_int = 0;
const ROW: c_int = 100;
const DONE: c_int = 101;
const OPEN_READWRITE: c_int = 2;
const OPEN_CREATE: c_int = 4;

type Handle = *mut c_void;

functions! {
    version = b"sqlite3_libversion\0": fn() -> *const c_char;
    open = b"sqlite3_open_v2\0": fn(*const c_char, *mut Handle, c_int, *const c_char) -> c_int;
    close = b"sqlite3_close\0": fn(Handle) -> c_int;
    busy_timeout = b"sqlite3_busy_timeout\0": fn(Handle, c_int) -> c_int;
    message = b"sqlite3_errmsg\0": fn(Handle) -> *const c_char;
    errno = b"sqlite3_system_errno\0": fn(Handle) -> c_int;
    changes = b"sqlite3_changes\0": fn(Handle) -> c_int;
    prepare = b"sqlite3_prepare_v2\0": fn(Handle, *const c_char, c_int, *mut Handle, *mut *const c_char) -> c_int;
    bind_number = b"sqlite3_bind_int64\0": fn(Handle, c_int, i64) -> c_int;
    bind_blob = b"sqlite3_bind_blob\0": fn(Handle, c_int, *const c_void, c_int, *const c_void) -> c_int;
    bind_text = b"sqlite3_bind_text\0": fn(Handle, c_int, *const c_char, c_int, *const c_void) -> c_int;
    step = b"sqlite3_step\0": fn(Handle) -> c_int;
    reset = b"sqlite3_reset\0": fn(Handle) -> c_int;
    column_number = b"sqlite3_column_int64\0": fn(Handle, c_int) -> i64;
    column_blob = b"sqlite3_column_blob\0": fn(Handle, c_int) -> *const c_void;
    column_bytes = b"sqlite3_column_bytes\0": fn(Handle, c_int) -> c_int;
    finalize = b"sqlite3_finalize\0": fn(Handle) -> c_int;
}

/// The library.
pub struct Sqlite {
    functions: Functions,
    _library: Library,
}

impl Sqlite {
    pub fn load() -> Result<Self, String> {
        // SAFETY: SQLite's initialisation has no preconditions.
        let library = unsafe { loaded::open(NAME, "SQLite") }?;
        // SAFETY: the types are those of sqlite3.h, which never change.
        let functions = unsafe { Functions::find(&library) }.map_err(|error| error.to_string())?;
        Ok(Self { functions, _library: library })
    }

    /// `3.40.1`.
    pub fn version(&self) -> String {
        // SAFETY: a C string that lives as long as the library.
        unsafe { CStr::from_ptr((self.functions.version)()) }.to_string_lossy().into_owned()
    }

    /// Opens or creates a database. Waits at most `patience` for a lock of another process.
    pub fn open(&self, path: &Path, patience: Duration) -> Result<Connection<'_>, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let mut handle = null_mut();
        // SAFETY: a C string; the handle is closed by the connection, also after an error.
        let status = unsafe { (self.functions.open)(name.as_ptr(), &mut handle, OPEN_READWRITE | OPEN_CREATE, null()) };
        let connection = Connection { sqlite: self, handle };
        connection.check(status)?;
        // SAFETY: an open connection.
        connection.check(unsafe { (self.functions.busy_timeout)(handle, patience.as_millis() as c_int) })?;
        Ok(connection)
    }
}

/// An open database. It outlives its statements.
pub struct Connection<'a> {
    sqlite: &'a Sqlite,
    handle: Handle,
}

impl<'a> Connection<'a> {
    fn check(&self, status: c_int) -> Result<(), String> {
        if [OK, ROW, DONE].contains(&status) {
            return Ok(());
        }
        // SAFETY: open, or null, for which there is a message too; it is a C string, and copied before the next call.
        let (text, errno) = unsafe {
            let text = CStr::from_ptr((self.sqlite.functions.message)(self.handle));
            (text.to_string_lossy().into_owned(), (self.sqlite.functions.errno)(self.handle))
        };
        let system = if errno == 0 { String::new() } else { format!(": {}", std::io::Error::from_raw_os_error(errno)) };
        Err(format!("SQLite: {text} ({status}){system}"))
    }

    /// The number of rows changed by the last statement.
    pub fn changes(&self) -> u64 {
        // SAFETY: an open connection.
        (unsafe { (self.sqlite.functions.changes)(self.handle) }) as u64
    }

    pub fn prepare(&self, sql: &str) -> Result<Statement<'_, 'a>, String> {
        let text = CString::new(sql).map_err(|error| error.to_string())?;
        let mut statement = null_mut();
        // SAFETY: an open connection, a C string; what it ends at is not asked for.
        let status =
            unsafe { (self.sqlite.functions.prepare)(self.handle, text.as_ptr(), -1, &mut statement, null_mut()) };
        self.check(status)?;
        Ok(Statement { connection: self, statement })
    }

    /// Runs statements without results.
    pub fn run(&self, statements: &[&str]) -> Result<(), String> {
        statements.iter().try_for_each(|sql| self.prepare(sql)?.run(&[], |_| Ok(())).map(drop))
    }

    /// The first column of the first row, as text.
    pub fn text(&self, sql: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut statement = self.prepare(sql)?;
        statement.run(&[], |row| {
            text = String::from_utf8_lossy(row.blob(0)).into_owned();
            Ok(())
        })?;
        Ok(text)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // SAFETY: its statements are gone: they borrow it.
        unsafe { (self.sqlite.functions.close)(self.handle) };
    }
}

/// A value for a parameter of a statement.
pub enum Value<'a> {
    Number(i64),
    Blob(&'a [u8]),
    Text(&'a str),
}

/// A statement that can be run repeatedly.
pub struct Statement<'c, 'a> {
    connection: &'c Connection<'a>,
    statement: Handle,
}

impl Statement<'_, '_> {
    /// Runs it to its end, with `see` called for each row. Without a preceding `BEGIN`, that is a transaction.
    /// Returns the number of rows.
    pub fn run(
        &mut self,
        values: &[Value<'_>],
        mut see: impl FnMut(&Self) -> Result<(), String>,
    ) -> Result<u64, String> {
        let functions = &self.connection.sqlite.functions;
        for (value, at) in values.iter().zip(1..) {
            // SAFETY: a prepared statement; a blob or text lives until the reset below, after which it is not looked
            // at.
            let status = unsafe {
                match value {
                    Value::Number(number) => (functions.bind_number)(self.statement, at, *number),
                    Value::Blob(blob) => {
                        (functions.bind_blob)(self.statement, at, blob.as_ptr().cast(), blob.len() as c_int, null())
                    }
                    Value::Text(text) => {
                        (functions.bind_text)(self.statement, at, text.as_ptr().cast(), text.len() as c_int, null())
                    }
                }
            };
            self.connection.check(status)?;
        }
        let mut rows = 0;
        let result = loop {
            // SAFETY: a prepared statement.
            match unsafe { (functions.step)(self.statement) } {
                ROW => rows += 1,
                status => break self.connection.check(status),
            }
            if let Err(error) = see(self) {
                break Err(error);
            }
        };
        // SAFETY: a prepared statement. Returns the error of the step again.
        unsafe { (functions.reset)(self.statement) };
        result.map(|()| rows)
    }

    /// The number in a column.
    pub fn number(&self, column: c_int) -> i64 {
        // SAFETY: a prepared statement.
        unsafe { (self.connection.sqlite.functions.column_number)(self.statement, column) }
    }

    /// The bytes of a column.
    pub fn blob(&self, column: c_int) -> &[u8] {
        let functions = &self.connection.sqlite.functions;
        // SAFETY: a prepared statement; the bytes stay valid until the next step, which needs exclusive access to the
        // statement.
        unsafe {
            let at = (functions.column_blob)(self.statement, column);
            let length = (functions.column_bytes)(self.statement, column) as usize;
            if at.is_null() { &[] } else { std::slice::from_raw_parts(at.cast(), length) }
        }
    }
}

impl Drop for Statement<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: prepared, and not used again.
        unsafe { (self.connection.sqlite.functions.finalize)(self.statement) };
    }
}
