//! The program's record of its answers (`struct board` in host.h).

use std::path::Path;

/// Size of a board.
pub const BYTES: u64 = (ENTRIES + ENTRY * MAX) as u64;
const ENTRIES: usize = 216;
const ENTRY: usize = 80;
const MAX: usize = 1 << 15;
/// The number of files with atomic names; they come first.
pub const ATOMIC: i8 = 4;

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The step.
    pub step: u32,
    /// The call.
    pub what: String,
    /// Its result.
    pub result: i64,
    /// The errno, if the result is negative.
    pub error: i32,
    /// More about it: a checksum of what was read, or an argument.
    pub sum: u64,
    /// The file; -1: none in particular.
    pub file: i8,
    /// 1: a SYNC, if it succeeded; 2: it may have been one.
    pub kind: u8,
}

impl Entry {
    /// As text.
    pub fn answer(&self) -> String {
        if self.result < 0 { name_of_errno(self.error) } else { self.result.to_string() }
    }
}

/// The whole board.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// The step that was under way.
    pub begun: u32,
    /// Number of calls.
    pub ticks: u32,
    /// Notices cannot be seen.
    pub mute: bool,
    /// The program has done something that no library sees: only other files, signals and hangs count.
    pub strange: bool,
    /// Something was removed that cannot be created again: until an answer differs, other files count as well.
    pub out_of_reach: bool,
    /// The program is in another root.
    pub jail: bool,
    /// Errnos seen in signal handlers.
    pub handler: u64,
    /// Answers.
    pub entries: Vec<Entry>,
}

impl Board {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let entry = |at: usize| {
            let what = bytes[at + 26..at + ENTRY].split(|&byte| byte == 0).next().unwrap_or_default();
            Entry {
                step: word(at),
                error: word(at + 4) as i32,
                result: long(at + 8) as i64,
                sum: long(at + 16),
                kind: bytes[at + 24],
                file: bytes[at + 25] as i8,
                what: String::from_utf8_lossy(what).into_owned(),
            }
        };
        if (bytes.len() as u64) < BYTES {
            return Err(format!("{}: {} bytes", path.display(), bytes.len()));
        }
        let count = (word(12) as usize).min(MAX);
        let entries: Vec<Entry> = (0..count).map(|at| entry(ENTRIES + at * ENTRY)).collect();
        Ok(Self {
            begun: word(0),
            ticks: word(8),
            mute: word(20) != 0,
            strange: word(24) != 0,
            out_of_reach: is_out_of_reach(&entries),
            jail: word(28) != 0,
            handler: long(32),
            entries,
        })
    }
}

/// Whether the program has removed something that only another root or user, which it was or is by then, could create
/// again or remove.
fn is_out_of_reach(entries: &[Entry]) -> bool {
    let did = |what: &str| entries.iter().any(|entry| entry.what.starts_with(what) && entry.result == 0);
    did("rm -r") && ["chroot", "setresuid", "seteuid"].into_iter().any(did)
}

/// `EACCES` for 13.
pub fn name_of_errno(error: i32) -> String {
    const NAMES: [(i32, &str); 31] = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENODEV, "ENODEV"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENFILE, "ENFILE"),
        (libc::EMFILE, "EMFILE"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::EROFS, "EROFS"),
        (libc::EDEADLK, "EDEADLK"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ESTALE, "ESTALE"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ESRCH, "ESRCH"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENXIO, "ENXIO"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    ];
    NAMES
        .iter()
        .find(|(number, _)| *number == error)
        .map_or_else(|| format!("errno {error}"), |(_, name)| (*name).into())
}
