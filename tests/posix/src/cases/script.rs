//! The language of cases: system calls by libc, each of which adds a line with its result.

use std::ffi::{CStr, CString};
use std::fmt::Write;

/// The transcript of a case, which runs in its own folder.
#[derive(Default)]
pub struct Script {
    lines: String,
}

fn c(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Script {
    /// All lines.
    pub fn text(&self) -> &str {
        &self.lines
    }

    /// Adds a line.
    pub fn line(&mut self, what: &str, gave: impl std::fmt::Display) {
        let _ = writeln!(self.lines, "{what} = {gave}");
    }

    /// Adds the result of a call: a number, or the name of an error.
    pub fn gave(&mut self, what: &str, value: impl Into<i64>) -> i64 {
        let value = value.into();
        if value == -1 {
            // SAFETY: the name is a constant of libc's, or null.
            let name = unsafe {
                let name = strerrorname_np(errno());
                if name.is_null() { c"?" } else { CStr::from_ptr(name) }
            };
            self.line(what, name.to_string_lossy());
        } else {
            self.line(what, value);
        }
        value
    }

    /// As [`gave`](Self::gave), for a call that returns a descriptor, whose number does not count.
    pub fn fd(&mut self, what: &str, fd: i32) -> i32 {
        if fd >= 0 {
            self.line(what, "a descriptor");
        } else {
            self.gave(what, fd);
        }
        fd
    }

    /// Creates a file with these bytes, by a temporary descriptor.
    pub fn make(&mut self, name: &str, text: &str) {
        let fd = self.open(name, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC);
        self.write(fd, text);
        self.close(fd);
    }

    /// `open`, with the mode 0644.
    pub fn open(&mut self, name: &str, flags: i32) -> i32 {
        self.openat(libc::AT_FDCWD, name, flags, 0o644)
    }

    /// `openat`.
    pub fn openat(&mut self, folder: i32, name: &str, flags: i32, mode: u32) -> i32 {
        // SAFETY: the name ends with a zero.
        let fd = unsafe { libc::openat(folder, c(name).as_ptr(), flags, mode) };
        let at = if folder == libc::AT_FDCWD { "open" } else { "openat" };
        self.fd(&format!("{at}({}, {flags:#o}, {mode:#o})", shown(name)), fd)
    }

    /// `close`.
    pub fn close(&mut self, fd: i32) {
        // SAFETY: the case's own.
        let done = unsafe { libc::close(fd) };
        self.gave("close", done);
    }

    /// `write`.
    pub fn write(&mut self, fd: i32, text: &str) -> i64 {
        // SAFETY: the text is as long as said.
        let done = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
        self.gave(&format!("write({})", shown(text)), done as i64)
    }

    /// `pwrite`.
    pub fn pwrite(&mut self, fd: i32, text: &str, at: i64) -> i64 {
        // SAFETY: the text is as long as said.
        let done = unsafe { libc::pwrite(fd, text.as_ptr().cast(), text.len(), at) };
        self.gave(&format!("pwrite({}, {at})", shown(text)), done as i64)
    }

    /// `read`, with the bytes read.
    pub fn read(&mut self, fd: i32, len: usize) {
        let mut buffer = vec![b'?'; len];
        // SAFETY: the buffer is as long as said.
        let done = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), len) };
        self.gave(&format!("read({len})"), done as i64);
        self.came(&buffer, done);
    }

    /// `pread`, with the bytes read.
    pub fn pread(&mut self, fd: i32, len: usize, at: i64) {
        let mut buffer = vec![b'?'; len];
        // SAFETY: the buffer is as long as said.
        let done = unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), len, at) };
        self.gave(&format!("pread({len}, {at})"), done as i64);
        self.came(&buffer, done);
    }

    fn came(&mut self, buffer: &[u8], done: isize) {
        if done > 0 {
            let text = String::from_utf8_lossy(&buffer[..done as usize]).replace('\0', "0");
            self.line("  came", shown(&text));
        }
    }

    /// All bytes, by a temporary descriptor.
    pub fn holds(&mut self, name: &str) {
        let fd = self.open(name, libc::O_RDONLY);
        if fd >= 0 {
            self.pread(fd, 64, 0);
            self.close(fd);
        }
    }

    /// `lseek`.
    pub fn seek(&mut self, fd: i32, to: i64, whence: i32) {
        // SAFETY: no memory is passed.
        let done = unsafe { libc::lseek(fd, to, whence) };
        self.gave(&format!("lseek({to}, {whence})"), done);
    }

    /// `fstat`: type, mode, links, owner, size.
    pub fn fstat(&mut self, fd: i32) {
        let mut stat = Self::no_stat();
        // SAFETY: filled in by the call.
        let done = unsafe { libc::fstat(fd, &mut stat) };
        self.gave("fstat", done);
        self.fields(done, &stat);
    }

    /// `lstat`, in the same way.
    pub fn stat(&mut self, name: &str) {
        let mut stat = Self::no_stat();
        // SAFETY: filled in by the call; the name ends with a zero.
        let done = unsafe { libc::lstat(c(name).as_ptr(), &mut stat) };
        self.gave(&format!("lstat({})", shown(name)), done);
        self.fields(done, &stat);
    }

    /// `fstat` without a line.
    pub fn look(fd: i32) -> libc::stat {
        let mut stat = Self::no_stat();
        // SAFETY: filled in by the call.
        unsafe { libc::fstat(fd, &mut stat) };
        stat
    }

    fn no_stat() -> libc::stat {
        // SAFETY: zeros are a valid stat.
        unsafe { std::mem::zeroed() }
    }

    fn fields(&mut self, done: i32, stat: &libc::stat) {
        if done == 0 {
            let (mode, links, uid, size) = (stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_size);
            let size = if mode & libc::S_IFMT == libc::S_IFDIR { 0 } else { size };
            self.line("  mode, links, owner, size", format!("{mode:o}, {links}, {uid}, {size}"));
        }
    }

    /// Waits until the clock of file times has advanced.
    pub fn later(&mut self) {
        // SAFETY: zeros are a valid time; filled in by the calls.
        unsafe {
            let mut first: libc::timespec = std::mem::zeroed();
            let mut now = first;
            libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut first);
            for ticks in 0..3 {
                let _ = ticks;
                libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now);
                while (now.tv_sec, now.tv_nsec) == (first.tv_sec, first.tv_nsec) {
                    libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now);
                }
                first = now;
            }
        }
    }

    /// Whether the times of an open file have changed since `before`.
    pub fn moved(&mut self, fd: i32, before: &libc::stat) {
        let now = Self::look(fd);
        let mtime = (now.st_mtime, now.st_mtime_nsec) > (before.st_mtime, before.st_mtime_nsec);
        let ctime = (now.st_ctime, now.st_ctime_nsec) > (before.st_ctime, before.st_ctime_nsec);
        self.line("  mtime, ctime moved", format!("{mtime}, {ctime}"));
    }

    /// A call with names.
    pub fn named(&mut self, what: &str, names: &[&str], call: impl FnOnce(&[*const libc::c_char]) -> i32) -> i64 {
        let names: Vec<CString> = names.iter().map(|name| c(name)).collect();
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let done = call(&pointers);
        self.gave(what, done)
    }

    /// Runs in a child; adds its exit status, or the signal that ended it.
    pub fn child(&mut self, what: &str, body: impl FnOnce() -> i32) {
        // SAFETY: there is one thread; the child ends by `_exit`.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(body());
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            if libc::WIFSIGNALED(status) {
                self.line(what, format!("signal {}", libc::WTERMSIG(status)));
            } else {
                self.line(what, format!("exit {}", libc::WEXITSTATUS(status)));
            }
        }
    }
}

unsafe extern "C" {
    fn strerrorname_np(errno: i32) -> *const libc::c_char;
}

/// Shortened, for a line.
fn shown(text: &str) -> String {
    let text = text.replace('\n', "\\n");
    if text.len() > 70 { format!("{}… ({} bytes)", &text[..20], text.len()) } else { format!("{text:?}") }
}
