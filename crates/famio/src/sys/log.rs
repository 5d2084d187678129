//! The library's messages: which are written, and where. By default all but `Info` go to stderr. Nothing here
//! allocates, since a message may come from a signal handler.
//!
//! A log file is opened again for each message, so that it can be rotated and no descriptor has to be kept. A message
//! that cannot be written to its target goes to stderr: none is lost.

use super::clock::coarse_now;
use super::file_size::file_size_limit;
use super::internal;
use super::standard_error::stderr_line;
use crate::error::{Error, Result};
use crate::kernel::{check, syscall};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use rustix::fs::{CWD, Mode, OFlags};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd};

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// For settings only: no messages, except that durability is weakened.
    Off = 0,
    /// A call failed that would have succeeded on a plain file, or data may be lost.
    Error = 1,
    /// A file is not protected as requested.
    Warning = 2,
    /// Something was done as it should be, for example a recovery.
    Info = 3,
}

/// Where messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The program's standard error.
    Stderr,
    /// A file, appended to; made with mode 600.
    File(CString),
    /// The datagram socket of syslog.
    Syslog,
    /// The socket of journald, in its own format.
    Journald,
}

const SYSLOG: &CStr = c"/dev/log";
const JOURNALD: &CStr = c"/run/systemd/journal/socket";

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warning as u8);
/// Null: stderr. Else a target that is never freed.
static TARGET: AtomicPtr<Target> = AtomicPtr::new(core::ptr::null_mut());

/// The longest message in bytes; the rest is cut.
const LINE: usize = 2048;

impl Level {
    /// The level with this name.
    pub fn of(word: &str) -> Option<Self> {
        let levels = [("off", Self::Off), ("error", Self::Error), ("warning", Self::Warning), ("info", Self::Info)];
        levels.into_iter().find(|(known, _)| *known == word).map(|(_, level)| level)
    }
}

impl Target {
    /// `stderr`, `syslog`, `journald`, or an absolute path.
    ///
    /// # Errors
    /// `EINVAL`: none of these.
    pub fn of(text: &[u8]) -> Result<Self> {
        match text {
            b"stderr" => Ok(Self::Stderr),
            b"syslog" => Ok(Self::Syslog),
            b"journald" => Ok(Self::Journald),
            [b'/', ..] => CString::new(text).map(Self::File).map_err(|_| Error::new(libc::EINVAL)),
            _ => Err(Error::new(libc::EINVAL)),
        }
    }
}

/// Sets the level and the target.
pub(crate) fn choose(level: Level, target: Target) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    // Never freed: another thread may be using the old one. A process chooses once or twice.
    TARGET.store(Box::into_raw(Box::new(target)), Ordering::Release);
}

/// Writes a message of one line, in up to six pieces.
pub(crate) fn say(level: Level, parts: &[&[u8]]) {
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        send(level, parts);
    }
}

/// Writes a message that durability is weakened: to stderr, whatever the settings are, and to the target.
pub(crate) fn say_always(parts: &[&[u8]]) {
    stderr_line(parts);
    if is_elsewhere() && LEVEL.load(Ordering::Relaxed) >= Level::Warning as u8 {
        let _ = try_send(Level::Warning, parts);
    }
}

/// Whether messages go to another target than stderr.
pub(crate) fn is_elsewhere() -> bool {
    !matches!(target(), None | Some(Target::Stderr))
}

fn target() -> Option<&'static Target> {
    // SAFETY: null, or put there by `choose`, which never frees it.
    unsafe { TARGET.load(Ordering::Acquire).as_ref() }
}

fn send(level: Level, parts: &[&[u8]]) {
    if try_send(level, parts).is_err() {
        stderr_line(parts);
    }
}

/// On an error the message has to go to stderr.
fn try_send(level: Level, parts: &[&[u8]]) -> Result<()> {
    let Some(target) = target() else { return Err(Error::new(libc::ENOENT)) };
    // A handler may have interrupted the code that finds a number for a descriptor.
    if crate::thread::current().locks_held.get() > 0 {
        return Err(Error::new(libc::EDEADLK));
    }
    let severity = match level {
        Level::Off | Level::Error => 3,
        Level::Warning => 4,
        Level::Info => 6,
    };
    let mut line = Line::new();
    match target {
        Target::Stderr => Err(Error::new(libc::ENOENT)),
        Target::File(path) => {
            line.time();
            line.add(b" famio[").number(pid()).add(b"]: ");
            line.add([&b"error: "[..], b"", b"info: "][(severity as usize - 3).min(2)]).all(parts).end();
            append(path, line.bytes())
        }
        Target::Syslog => {
            const USER: u64 = 1 << 3;
            line.add(b"<").number(USER | severity).add(b">famio[").number(pid()).add(b"]: ").all(parts);
            datagram(SYSLOG, line.bytes())
        }
        Target::Journald => {
            line.add(b"PRIORITY=").number(severity).add(b"\nSYSLOG_IDENTIFIER=famio\nSYSLOG_PID=").number(pid());
            line.add(b"\nMESSAGE=").all(parts).end();
            datagram(JOURNALD, line.bytes())
        }
    }
}

fn pid() -> u64 {
    rustix::process::getpid().as_raw_nonzero().get() as u64
}

fn append(path: &CStr, line: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = internal::open(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    // Completely or not at all: a write beyond the limit on file sizes would raise a signal.
    if file_size_limit() != i64::MAX as u64 {
        let end = rustix::fs::fstat(&file)?.st_size as u64;
        if end.saturating_add(line.len() as u64) > file_size_limit() {
            return Err(Error::new(libc::EFBIG));
        }
    }
    file.run(|file| Ok(rustix::io::write(file, line).map(drop)?))
}

fn datagram(path: &CStr, message: &[u8]) -> Result<()> {
    let socket = internal::make("socket:", || {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed; the descriptor is new.
        let made = unsafe { syscall(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) };
        if made < 0 {
            return Err(rustix::io::Errno::from_raw_os_error(-made as i32));
        }
        // SAFETY: as above.
        Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(made as i32) })
    })?;
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.to_bytes();
    address.sun_path.iter_mut().zip(bytes).for_each(|(to, &byte)| *to = byte as libc::c_char);
    let length = core::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    socket.run(|socket| {
        let fd = socket.as_fd().as_raw_fd() as usize;
        let (at, to) = (message.as_ptr() as usize, core::ptr::from_ref(&address) as usize);
        let args = [fd, at, message.len(), libc::MSG_NOSIGNAL as usize, to, length];
        // SAFETY: message and address are alive during the call, which reads them.
        check(unsafe { syscall(libc::SYS_sendto, args) }).map(drop)
    })
}

/// A line that is built without the heap. What does not fit is cut.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    fn new() -> Self {
        Self { bytes: [0; LINE], length: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn add(&mut self, text: &[u8]) -> &mut Self {
        let room = LINE - 1 - self.length; // one byte for the end
        let text = &text[..text.len().min(room)];
        self.bytes[self.length..][..text.len()].copy_from_slice(text);
        self.length += text.len();
        self
    }

    /// Adds the pieces of a message. Characters of file names that would make fields, lines or commands are replaced.
    fn all(&mut self, parts: &[&[u8]]) -> &mut Self {
        let from = self.length;
        for part in parts {
            self.add(part);
        }
        for byte in &mut self.bytes[from..self.length] {
            if *byte < b' ' || *byte == 0x7f {
                *byte = b'?';
            }
        }
        self
    }

    fn end(&mut self) {
        self.bytes[self.length] = b'\n';
        self.length += 1;
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.padded(number, 1)
    }

    fn padded(&mut self, number: u64, digits: usize) -> &mut Self {
        if number >= 10 || digits > 1 {
            self.padded(number / 10, digits.saturating_sub(1));
        }
        self.add(&[b'0' + (number % 10) as u8])
    }

    /// Adds the time of day in UTC, in ISO 8601.
    fn time(&mut self) {
        let now = coarse_now();
        let (days, second) = (now.tv_sec.div_euclid(86_400), now.tv_sec.rem_euclid(86_400) as u64);
        let (year, month, day) = date(days);
        self.padded(year, 4).add(b"-").padded(month, 2).add(b"-").padded(day, 2);
        self.add(b"T").padded(second / 3600, 2).add(b":").padded(second / 60 % 60, 2).add(b":").padded(second % 60, 2);
        self.add(b".").padded(now.tv_nsec as u64 / 1_000_000, 3).add(b"Z");
    }
}

/// Year, month and day of a day since 1970 (Hinnant's `civil_from_days`).
fn date(days: i64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    ((year + era * 400 + i64::from(month <= 2)) as u64, month as u64, day as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_781), (2026, 11, 24));
    }

    #[test]
    fn words_are_levels_and_targets() {
        assert_eq!(Level::of("info"), Some(Level::Info));
        assert_eq!(Level::of("loud"), None);
        assert_eq!(Target::of(b"/a").unwrap(), Target::File(c"/a".into()));
        assert!(Target::of(b"a").is_err() && Target::of(b"/a\0b").is_err());
        assert!(Level::Error < Level::Info);
    }

    #[test]
    fn names_are_no_fields_and_long_ones_are_cut() {
        let mut line = Line::new();
        line.add(b"MESSAGE=").all(&[b"/a\nPRIORITY=0", b": \x1b[2J"]).end();
        assert_eq!(line.bytes(), b"MESSAGE=/a?PRIORITY=0: ?[2J\n");
        let mut line = Line::new();
        line.all(&[&[b'x'; 3000]]).end();
        assert_eq!((line.bytes().len(), line.bytes()[LINE - 1]), (LINE, b'\n'));
    }

    #[test]
    fn a_file_is_appended_to_and_a_link_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("famio-log-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let name = |name: &str| CString::new(folder.join(name).into_os_string().into_encoded_bytes()).unwrap();
        append(&name("log"), b"one\n").unwrap();
        append(&name("log"), b"two\n").unwrap();
        assert_eq!(std::fs::read(folder.join("log")).unwrap(), b"one\ntwo\n");
        std::os::unix::fs::symlink("log", folder.join("link")).unwrap();
        assert!(append(&name("link"), b"three\n").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
