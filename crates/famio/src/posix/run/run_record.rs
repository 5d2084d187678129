//! What the processes of one `famio run` have done, in shared memory: which globs selected a file, which other files
//! were synced, which programs started without the library. The last process, or the one that was `famio run`, reads
//! it at its end.
//!
//! The memory is a file in a folder that `famio run` has made for this user alone. A process maps it at its start and
//! keeps no descriptor of it. Nothing here allocates or waits: it is called from signal handlers and in `vfork`
//! children.

use crate::posix::call::look::{stat_at, stat_of};
use crate::posix::runtime::state::pid;
use crate::posix::selection::environment;
use crate::posix::selection::globs::MOST_TOLD_APART;
use crate::posix::selection::path_text::PathText;
use crate::posix::{fail, raw};
use crate::sys::events;
use crate::sys::events::Events;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::fd::RawFd;

/// The environment variable with the path of the file.
pub const VARIABLE: &str = "FAMIO_RUN";

const MAGIC: u64 = u64::from_le_bytes(*b"FAMIRUN2");
/// Longest path that is recorded.
const PATH: usize = 208;
const WORDS: usize = MOST_TOLD_APART / 64;
/// Size of the largest file that is mapped.
const LARGEST: i64 = 1 << 20;

/// The process that `famio run` became has ended.
pub(in crate::posix) const TOP_ENDED: u32 = 1;
/// A part of the run cannot be seen: a process of another user or under another root, or a nested `famio run`.
pub(in crate::posix) const UNSEEN: u32 = 2;
/// A selected file was synced.
pub(in crate::posix) const PROTECTED: u32 = 4;
/// There were more processes than slots.
pub(in crate::posix) const CROWDED: u32 = 8;
/// There were more files than slots.
pub(in crate::posix) const MORE_SYNCED: u32 = 16;
pub(in crate::posix) const MORE_SELECTED: u32 = 32;
pub(in crate::posix) const MORE_LOST: u32 = 64;
/// Reports that were printed already.
pub(in crate::posix) const PRINTED_GLOBS: u32 = 128;
pub(in crate::posix) const PRINTED_SYNCED: u32 = 256;
pub(in crate::posix) const PRINTED_LOST: u32 = 512;
pub(in crate::posix) const PRINTED_DETAILS: u32 = 1024;

/// An option in the header: at the end, print what was selected, and by which settings.
const VERBOSE: u64 = 1;

/// The beginning of the file. Text follows: a line for each glob, as the user wrote it, a zero, and lines about
/// settings.
#[repr(C)]
pub(in crate::posix) struct Record {
    magic: u64,
    /// The process that was `famio run`.
    pub top: u64,
    /// Hash of the globs in the environment; a process with other globs does not count.
    globs: u64,
    options: u64,
    pub state: AtomicU32,
    /// Where a process has last warned that the settings weaken durability: 0, or a hash of what its stderr is.
    pub warned_on: AtomicU32,
    /// Globs that selected a file that was opened for writing.
    pub written: [AtomicU64; WORDS],
    /// Globs that selected a file that was opened at all.
    pub opened: [AtomicU64; WORDS],
    /// Processes that run.
    live: [AtomicU32; 64],
    /// Files that were synced and are not atomic.
    pub synced: [Slot; 64],
    /// Files that were selected, if details are wanted.
    pub selected: [Slot; 64],
    /// Programs that started without the library.
    pub lost: [Slot; 16],
    /// Event counts of its processes.
    events: Events,
}

const FREE: u32 = 0;
const BEING_WRITTEN: u32 = 1;
const WRITTEN: u32 = 2;

/// A file or a program.
#[repr(C)]
pub(in crate::posix) struct Slot {
    state: AtomicU32,
    length: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    /// For a selected file: the glob, and whether the file was opened for writing. For a program: why it has no
    /// library.
    pub detail: AtomicU32,
    pub is_written: AtomicU32,
    path: [AtomicU8; PATH],
}

impl Slot {
    /// Its path, if it has one; stored in `room`.
    pub fn path<'a>(&self, room: &'a mut [u8; PATH]) -> Option<&'a [u8]> {
        if self.state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        let length = (self.length.load(Ordering::Relaxed) as usize).min(PATH);
        room.iter_mut().zip(&self.path).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        Some(&room[..length])
    }

    pub fn is(&self, device: u64, inode: u64) -> bool {
        self.state.load(Ordering::Acquire) == WRITTEN
            && self.device.load(Ordering::Relaxed) == device
            && self.inode.load(Ordering::Relaxed) == inode
    }

    fn fill(&self, device: u64, inode: u64, path: &[u8]) {
        // The end of a path says more than its beginning.
        let path = &path[path.len().saturating_sub(PATH)..];
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.path.iter().zip(path).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        self.length.store(path.len() as u32, Ordering::Relaxed);
        self.state.store(WRITTEN, Ordering::Release);
    }
}

/// Room for a path of a slot.
pub(in crate::posix) const fn room() -> [u8; PATH] {
    [0; PATH]
}

/// A record to which this process has joined.
pub(in crate::posix) struct OwnerSession {
    pub record: &'static Record,
    /// The text after the record.
    text: &'static [u8],
    path: CString,
    device: u64,
    inode: u64,
}

static JOINED: AtomicPtr<OwnerSession> = AtomicPtr::new(ptr::null_mut());
/// Standard error when the process started: device and inode.
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The record, where `famio run` has made one.
#[inline]
pub(in crate::posix) fn joined() -> Option<&'static OwnerSession> {
    // SAFETY: null, or put there by `join`, which never frees it.
    unsafe { JOINED.load(Ordering::Acquire).as_ref() }
}

/// Whether there is one.
pub fn is_joined() -> bool {
    joined().is_some()
}

/// The initial content of the file: the process will be `top`, with these globs in its environment. `labels`: each
/// glob as the user wrote it. `details`: lines to print at the end, if wanted.
pub fn new_file(top: u32, globs: &[u8], labels: &[String], details: Option<&str>) -> Vec<u8> {
    let options = if details.is_some() { VERBOSE } else { 0 };
    let header = [MAGIC, u64::from(top), hash(globs), options];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.resize(size_of::<Record>(), 0);
    for label in labels {
        bytes.extend(label.bytes().map(|byte| if byte == 0 || byte == b'\n' { b'?' } else { byte }));
        bytes.push(b'\n');
    }
    bytes.push(0);
    bytes.extend(details.unwrap_or_default().bytes());
    bytes
}

pub(in crate::posix) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// At the start: joins the record that the environment names.
pub(in crate::posix) fn join() {
    let Some(path) = environment::variable(VARIABLE).filter(|path| path.first() == Some(&b'/')) else { return };
    let Ok(path) = CString::new(path) else { return };
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path is a C string; the descriptor is ours, and is closed here; a new mapping.
    unsafe {
        let fd = raw!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if fd < 0 {
            return;
        }
        let (mut address, mut length, mut of) = (0, 0, (0, 0));
        if let Ok(stat) = stat_of(fd as RawFd)
            && stat.st_mode & libc::S_IFMT == libc::S_IFREG
            // It belongs to this user, and no other user can write or cut it: a bad word in it is then this user's
            // own doing.
            && stat.st_uid == raw!(SYS_geteuid) as u32
            && stat.st_mode & 0o077 == 0
            && stat.st_nlink == 1
            && (size_of::<Record>() as i64..=LARGEST).contains(&stat.st_size)
        {
            length = stat.st_size as usize;
            of = (stat.st_dev, stat.st_ino);
            address = raw!(SYS_mmap, 0, length, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
        }
        raw!(SYS_close, fd);
        if address <= 0 {
            return;
        }
        let record: &'static Record = &*ptr::with_exposed_provenance(address as usize);
        if record.magic != MAGIC {
            raw!(SYS_munmap, address, length);
            return;
        }
        if record.globs != hash(environment::variable("FAMIO_ATOMIC").unwrap_or_default()) {
            // Its globs are not those of the report.
            record.state.fetch_or(UNSEEN, Ordering::Relaxed);
            raw!(SYS_munmap, address, length);
            return;
        }
        events::share(&record.events);
        let behind = ptr::with_exposed_provenance::<u8>(address as usize + size_of::<Record>());
        let text = core::slice::from_raw_parts(behind, length - size_of::<Record>());
        let joined = OwnerSession { record, text, path, device: of.0, inode: of.1 };
        JOINED.store(Box::into_raw(Box::new(joined)), Ordering::Release);
    }
    if let Ok(stat) = stat_of(libc::STDERR_FILENO) {
        STDERR[0].store(stat.st_dev, Ordering::Relaxed);
        STDERR[1].store(stat.st_ino, Ordering::Relaxed);
    }
    enter();
}

/// Whether this process has told of a SYNC that protected something.
pub(in crate::posix) static HAS_PROTECTED: AtomicBool = AtomicBool::new(false);

/// Whether descriptor 2 may get messages: a program that closed it may have a file of its own there.
pub(in crate::posix) fn may_say() -> bool {
    let Ok(stat) = stat_of(libc::STDERR_FILENO) else { return false };
    let is_first =
        || STDERR[0].load(Ordering::Relaxed) == stat.st_dev && STDERR[1].load(Ordering::Relaxed) == stat.st_ino;
    // SAFETY: no memory is passed.
    let appends = || unsafe { raw!(SYS_fcntl, libc::STDERR_FILENO, libc::F_GETFL) } as i32 & libc::O_APPEND != 0;
    matches!(stat.st_mode & libc::S_IFMT, libc::S_IFCHR | libc::S_IFIFO) || is_first() || appends()
}

/// Lists this process as running: at its start, and in a child after `fork`.
pub(in crate::posix) fn enter() {
    HAS_PROTECTED.store(false, Ordering::Relaxed);
    let Some(joined) = joined() else { return };
    let me = pid();
    let live = &joined.record.live;
    let put =
        |slot: &AtomicU32, before| slot.compare_exchange(before, me, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    let is_there = live.iter().any(|slot| slot.load(Ordering::Relaxed) == me)
        || live.iter().any(|slot| slot.load(Ordering::Relaxed) == 0 && put(slot, 0))
        || live.iter().any(|slot| {
            let other = slot.load(Ordering::Relaxed);
            !is_alive(other) && put(slot, other)
        });
    if !is_there {
        joined.record.state.fetch_or(CROWDED, Ordering::Relaxed);
    }
}

fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 sends nothing.
    pid != 0 && unsafe { raw!(SYS_kill, pid, 0) } != fail(libc::ESRCH)
}

impl OwnerSession {
    /// Unlists this process: it ends, or continues as a program that cannot take part.
    pub fn leave(&self) {
        let me = pid();
        for slot in &self.record.live {
            let _ = slot.compare_exchange(me, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether another process of the run exists, as far as can be told. A child counts even before it has listed
    /// itself.
    pub fn others_run(&self) -> bool {
        let me = pid();
        // The first process removes itself from the list a moment after it has said that it ends.
        let top_ends = self.record.state.load(Ordering::Acquire) & TOP_ENDED != 0;
        let has_said = |pid: u32| top_ends && u64::from(pid) == self.record.top;
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: with null nothing is written; nothing is reaped.
        let has_child =
            unsafe { raw!(SYS_waitid, libc::P_ALL, 0, ptr::null_mut::<u8>(), flags, 0) } != fail(libc::ECHILD);
        has_child
            || self.record.state.load(Ordering::Relaxed) & CROWDED != 0
            || self
                .record
                .live
                .iter()
                .map(|slot| slot.load(Ordering::Relaxed))
                .any(|pid| pid != me && !has_said(pid) && is_alive(pid))
    }

    /// Whether this is the process that was `famio run`.
    pub fn is_top(&self) -> bool {
        self.record.top == u64::from(pid())
    }

    /// The text of a glob as the user wrote it.
    pub fn label(&self, glob: usize) -> &'static [u8] {
        let labels = self.text.split(|&byte| byte == 0).next().unwrap_or_default();
        labels.split(|&byte| byte == b'\n').nth(glob).filter(|label| !label.is_empty()).unwrap_or(b"a glob")
    }

    /// The lines about settings, if details are to be said at the end.
    pub fn details(&self) -> Option<&'static [u8]> {
        (self.record.options & VERBOSE != 0).then(|| self.text.splitn(2, |&byte| byte == 0).nth(1).unwrap_or_default())
    }

    /// Whether a process that starts with this variable, and with this process's rights and root, can take part.
    pub fn is_reached_by(&self, variable: Option<&[u8]>) -> bool {
        // SAFETY: no memory is passed.
        let uid = unsafe { raw!(SYS_geteuid) } as u32;
        variable == Some(self.path.to_bytes()) && self.is_at_its_path().is_some_and(|owner| owner == uid)
    }

    /// The file's owner, if the path still leads to the file.
    fn is_at_its_path(&self) -> Option<u32> {
        // SAFETY: the path is a C string.
        let stat = unsafe { stat_at(libc::AT_FDCWD, self.path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) }.ok()?;
        (stat.st_dev == self.device && stat.st_ino == self.inode).then_some(stat.st_uid)
    }

    /// No process will need it any more: removes the file and its folder.
    pub fn remove(&self) {
        let path = self.path.to_bytes();
        let mut folder = PathText::new();
        if self.is_at_its_path().is_none()
            || !folder.push(&path[..crate::name_prefilter::name_start(path).saturating_sub(1)])
        {
            return;
        }
        // SAFETY: both are C strings.
        unsafe {
            raw!(SYS_unlinkat, libc::AT_FDCWD, self.path.as_ptr(), 0);
            raw!(SYS_unlinkat, libc::AT_FDCWD, folder.c_str(), libc::AT_REMOVEDIR);
        }
    }
}

impl Record {
    /// Puts a file into one of the tables, or finds it there. Returns its slot.
    pub fn put<'a>(&self, table: &'a [Slot], of: (u64, u64), path: &[u8], more: u32) -> Option<&'a Slot> {
        if let Some(slot) = table.iter().find(|slot| slot.is(of.0, of.1)) {
            return Some(slot);
        }
        for slot in table {
            let take =
                || slot.state.compare_exchange(FREE, BEING_WRITTEN, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if slot.state.load(Ordering::Relaxed) == FREE && take() {
                slot.fill(of.0, of.1, path);
                return Some(slot);
            }
        }
        self.state.fetch_or(more, Ordering::Relaxed);
        None
    }

    /// Whether each of the first `globs` globs has selected a file that was written, and such a file was synced.
    pub fn is_all_well(&self, globs: usize) -> bool {
        self.state.load(Ordering::Relaxed) & PROTECTED != 0 && has_all(&self.written, globs)
    }
}

pub(in crate::posix) fn has_all(words: &[AtomicU64; WORDS], globs: usize) -> bool {
    let globs = globs.min(MOST_TOLD_APART);
    words.iter().enumerate().all(|(index, word)| {
        let wanted = match globs.saturating_sub(index * 64) {
            0 => 0,
            some if some >= 64 => u64::MAX,
            some => (1 << some) - 1,
        };
        word.load(Ordering::Relaxed) & wanted == wanted
    })
}

/// The event counts of a run, for outside readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// The process that was `famio run`.
    pub top: u32,
    /// Files that were demoted.
    pub demotions: u64,
    /// Opens that failed because file and journal contradict each other.
    pub conflicts: u64,
}

/// Reads the counts from the bytes of a record. `None`: not a record of this version.
pub fn run_counts(record: &[u8]) -> Option<RunCounts> {
    let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let at = offset_of!(Record, events);
    let demotions = word(at + offset_of!(Events, demotions))?;
    let conflicts = word(at + offset_of!(Events, conflicts))?;
    let top = word(offset_of!(Record, top))? as u32;
    (word(0)? == MAGIC).then_some(RunCounts { top, demotions, conflicts })
}

/// Bytes of a record that [`run_counts`] reads.
pub const RUN_RECORD: usize = size_of::<Record>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_a_whole_record_of_this_version() {
        let mut record = new_file(7, b"", &[], None);
        assert_eq!(run_counts(&record), Some(RunCounts { top: 7, ..RunCounts::default() }));
        assert_eq!(run_counts(&record[..100]), None);
        record[0] ^= 1;
        assert_eq!(run_counts(&record), None);
    }

    #[test]
    fn all_globs_are_some() {
        let words = [const { AtomicU64::new(0) }; WORDS];
        assert!(has_all(&words, 0) && !has_all(&words, 1));
        words[0].store(u64::MAX, Ordering::Relaxed);
        assert!(has_all(&words, 64) && !has_all(&words, 65));
        words[1].store(1, Ordering::Relaxed);
        assert!(has_all(&words, 65) && !has_all(&words, 1000));
    }
}
