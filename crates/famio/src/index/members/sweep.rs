//! Removes what killed programs left in `/dev/shm` if their files were deleted before a recovery: no process would
//! ask for it again.
//!
//! An arena in use is locked by the processes that map it. What a control file names stays while the atomic file
//! could still be recovered, as far as the recorded paths tell. A path recorded under other mounts or another root
//! tells nothing here, so such memory stays.

use super::control::Control;
use super::membership::Membership;
use crate::beside::is_beside_name;
use crate::index::shared::{HINTS, MAGIC, Shared};
use crate::sys::{InternalFd, namespaces, open_again, shm};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Seconds. A younger arena that no process has mapped may be about to be mapped, and a younger hand-over image whose
/// control file was removed may be about to be moved.
const FRESH: i64 = 60;
/// Seconds. If the folder of the control file is not there, it may have another name, or be on a file system that is
/// not mounted now: what is younger may still be needed.
const MAY_RETURN: i64 = 7 * 24 * 3600;
/// The attribute that names the control file of shared memory. A kernel before 6.6 keeps no such attribute on tmpfs:
/// then the memory stays.
const SIGN: &CStr = c"user.famio.control";
const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Records in shared memory of the file of `membership` which control file names it.
pub(crate) fn sign(memory: BorrowedFd<'_>, membership: &Membership) {
    if let Some(control) = membership.control() {
        let text = format!("{} {}", namespaces::of_paths(), control.path());
        let _ = rustix::fs::fsetxattr(memory, SIGN, text.as_bytes(), XattrFlags::empty());
    }
}

/// How much a process looks at in its first attach, which waits for it: what stays for good, such as what other mount
/// namespaces left, would else cost every process ten system calls each.
const IN_PASSING: usize = 16;

/// Sweeps a part of the folder, once per process, at the first attach. Which part is left to chance, so that in the
/// course of some processes everything is swept.
pub(crate) fn sweep_once() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        sweep_some(IN_PASSING);
    }
}

/// Removes memory that no process needs any more. Best effort: another user's memory stays.
pub(crate) fn sweep() {
    sweep_some(usize::MAX);
}

/// As [`sweep`], of a [`part`] of the entries.
fn sweep_some(at_most: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = crate::sys::openat(CWD, shm::folder(), flags, Mode::empty()) else { return };
    let Ok(entries) = crate::sys::list(&folder) else { return };
    let ours = |entry: rustix::fs::DirEntry| kind_of(entry.file_name().to_str().ok()?).map(|kind| (kind, entry));
    let ours: Vec<_> = entries.flatten().filter_map(ours).collect();
    for (kind, entry) in part(&ours, at_most, || super::control::random().unwrap_or_default()) {
        let stale = match kind {
            Kind::Arena => is_stale_arena(&folder, entry.file_name()),
            Kind::Shared => is_stale_memory(&folder, entry.file_name()),
        };
        if stale {
            let _ = rustix::fs::unlinkat(&folder, entry.file_name(), AtFlags::empty());
        }
    }
}

/// At most so many of `all`, side by side (the first comes after the last); which is the first is left to `chance`.
fn part<T>(all: &[T], at_most: usize, chance: impl FnOnce() -> u64) -> impl Iterator<Item = &T> {
    let first = if all.len() > at_most { chance() as usize % all.len() } else { 0 };
    all.iter().cycle().skip(first).take(at_most.min(all.len()))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Arena,
    Shared,
}

/// Of a name that `Page::path` made.
fn kind_of(name: &str) -> Option<Kind> {
    let (stem, kind) = name.strip_prefix("famio-")?.split_once('.')?;
    let parts: Vec<_> = stem.split('-').collect();
    let is_number = |text: &&str| u64::from_str_radix(text, 16).is_ok();
    let is_ours = parts.len() == 4 && parts.iter().all(is_number) && parts[2..].iter().all(|part| part.len() == 16);
    match kind {
        "arena" if is_ours => Some(Kind::Arena),
        "epoch" | "shadow" if is_ours => Some(Kind::Shared),
        _ => None,
    }
}

/// Whether the control file that the memory names is gone, and the memory is not fresh. The last member removes the
/// control file after the memory that it names. But fresh memory may belong to members whose control file was just
/// removed (`rm -r .famio`), and which are about to move it.
fn is_stale_memory(folder: &InternalFd, name: &CStr) -> bool {
    let Ok(memory) = crate::sys::openat(folder, name, OFlags::RDONLY | FLAGS, Mode::empty()) else { return false };
    let mut text = vec![0u8; 2 * libc::PATH_MAX as usize]; // the caller's stack may be small
    let length = rustix::fs::fgetxattr(&memory, SIGN, &mut text).unwrap_or(0);
    let here = namespaces::of_paths() + " ";
    let Some(path) = text[..length].strip_prefix(here.as_bytes()) else { return false };
    let path = Path::new(OsStr::from_bytes(path));
    is_gone(path) && rustix::fs::fstat(&memory).is_ok_and(|stat| is_older(&stat, may_be_needed_for(path)))
}

fn is_older(memory: &Stat, seconds: i64) -> bool {
    crate::sys::coarse_now().tv_sec - memory.st_mtime > seconds
}

/// How many seconds memory may be needed whose control file is gone. If the pool is there, or the folder around
/// `.famio`, its files can only have been removed.
fn may_be_needed_for(control: &Path) -> i64 {
    let pool = control.parent();
    let is_beside = |pool: &&Path| pool.file_name().is_some_and(is_beside_name);
    match pool.filter(is_beside).map_or(pool, Path::parent) {
        Some(folder) if !is_gone(folder) => FRESH,
        _ => MAY_RETURN,
    }
}

fn is_gone(path: &Path) -> bool {
    matches!(rustix::fs::lstat(path), Err(Errno::NOENT | Errno::NOTDIR))
}

fn is_stale_arena(folder: &InternalFd, name: &CStr) -> bool {
    let Ok(arena) = crate::sys::openat(folder, name, OFlags::RDWR | FLAGS, Mode::empty()) else { return false };
    let Ok(stat) = rustix::fs::fstat(&arena) else { return false };
    // A process that has it mapped holds its lock. Our lock goes with this description.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || rustix::fs::flock(&arena, FlockOperation::NonBlockingLockExclusive).is_err()
    {
        return false;
    }
    match Hints::of(&arena) {
        Some(hints) => hints.are_of_a_forgotten(name, &stat),
        // No paths: its process died before it recorded them, or is about to.
        None => is_older(&stat, FRESH),
    }
}

/// The file of an arena, and where file and journal were.
struct Hints {
    inode: u64,
    file: PathBuf,
    journal: PathBuf,
    /// This process found it by the recorded paths, too.
    is_of_here: bool,
    /// It has what a killed process wrote and did not sync, which is to be kept (`on-kill = keep`).
    is_kept: bool,
}

impl Hints {
    fn of(arena: &InternalFd) -> Option<Self> {
        let mut page = vec![0u8; size_of::<Shared>()]; // the caller's stack may be small
        if !matches!(rustix::io::pread(arena, &mut page[..], 0), Ok(n) if n == page.len()) {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| page[at + i]));
        let mut paths = page[offset_of!(Shared, hints)..][..HINTS].split(|&byte| byte == 0);
        let mut path = || -> Option<PathBuf> {
            paths.next().filter(|path| path.first() == Some(&b'/')).map(|path| OsStr::from_bytes(path).into())
        };
        let (inode, file, journal) = (word(offset_of!(Shared, inode)), path()?, path()?);
        let is_of_here = paths.next() == Some(namespaces::of_paths().as_bytes());
        let half = |at: usize| u32::from_le_bytes(core::array::from_fn(|i| page[at + i]));
        let is_kept = half(offset_of!(Shared, keeps)) != 0 && half(offset_of!(Shared, dirty)) != 0;
        (word(offset_of!(Shared, magic)) == MAGIC).then_some(Self { inode, file, journal, is_of_here, is_kept })
    }

    /// Whether no control file names this arena, or its file is gone.
    fn are_of_a_forgotten(&self, arena: &CStr, memory: &Stat) -> bool {
        if !self.is_of_here {
            return false;
        }
        let control = self.journal.with_extension("control");
        match look_at(&control) {
            Err(Errno::NOENT | Errno::NOTDIR) => !self.is_kept || is_older(memory, may_be_needed_for(&control)),
            Err(_) => false,
            Ok(control) => {
                let named = Control::new(control).arena_path();
                let path = Path::new(shm::folder()).join(OsStr::from_bytes(arena.to_bytes()));
                named.is_none_or(|named| Path::new(&named) != path) || !self.may_be_recovered()
            }
        }
    }

    /// Whether the file is still there; or its journal is, and the file may be elsewhere.
    fn may_be_recovered(&self) -> bool {
        match rustix::fs::stat(&self.file) {
            Ok(stat) if stat.st_ino == self.inode => return true,
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(_) => return true,
        }
        if is_gone(&self.journal) {
            return false;
        }
        // If the journal is beside it, the file must be in that folder, too, perhaps under another name.
        match (self.file.parent(), self.journal.parent().and_then(Path::parent)) {
            (Some(folder), Some(beside)) if folder == beside => has_inode(folder, self.inode),
            _ => true,
        }
    }
}

/// Opens a regular file for reading. The arena's owner chose the path: it may lead to a device or a FIFO.
fn look_at(path: &Path) -> rustix::io::Result<InternalFd> {
    let looked = crate::sys::openat(CWD, path, OFlags::PATH | FLAGS, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&looked)?.st_mode);
    if kind != FileType::RegularFile || !crate::pmem::is_known(looked.as_fd()) {
        return Err(Errno::INVAL);
    }
    open_again(looked.as_fd(), OFlags::RDONLY | (FLAGS - OFlags::NOFOLLOW))
}

fn has_inode(folder: &Path, inode: u64) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = crate::sys::openat(CWD, folder, flags, Mode::empty()).and_then(crate::sys::list);
    entries.map_or(true, |mut entries| entries.any(|entry| entry.map_or(true, |entry| entry.ino() == inode)))
}

#[cfg(test)]
mod tests {
    use super::super::control::for_test;
    use super::*;
    use crate::index::ImageKind;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    fn c_name(path: &str) -> std::ffi::CString {
        std::ffi::CString::new(path.strip_prefix("/dev/shm/").unwrap()).unwrap()
    }

    #[test]
    fn a_part_has_its_size_and_every_entry_is_in_some() {
        let part = |all, at_most, chance| {
            let all = Vec::from_iter(0..all);
            let mut part: Vec<usize> = part(&all, at_most, || chance).copied().collect();
            part.sort_unstable();
            part
        };
        assert_eq!(part(40, 16, 0), Vec::from_iter(0..16));
        assert_eq!(part(40, 16, 30), Vec::from_iter((0..6).chain(30..40)));
        assert_eq!(part(40, 16, u64::MAX).len(), 16);
        assert_eq!([part(16, 16, 5).len(), part(3, 16, 5).len(), part(0, 16, 5).len()], [16, 3, 0]);
        assert_eq!(part(40, usize::MAX, 0).len(), 40);
        assert!((0..40).all(|at| (0..40).any(|chance| part(40, 16, chance).contains(&at))));
    }

    #[test]
    fn only_names_of_ours_are_looked_at() {
        let name = |end: &str| format!("famio-fe00-a1b2-0123456789abcdef-00000000000000ff.{end}");
        assert_eq!(
            ["arena", "epoch", "shadow", "control", "arena.x"].map(|end| kind_of(&name(end)).is_some()),
            [true, true, true, false, false]
        );
        assert_eq!(["famio-1-2.arena", "x", "famio-.arena"].map(kind_of), [None; 3]);
    }

    #[test]
    fn shared_memory_goes_once_its_control_file_is_gone() {
        let folder = crate::sys::openat(CWD, shm::folder(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let file = for_test();
        let membership = Membership::new();
        membership.attach(|| Ok(file.open()), || Ok(false)).unwrap();
        let number = membership.begin_epoch();
        let path = membership.epoch_path(number);
        let memory = std::fs::File::create_new(&path).unwrap();
        sign(memory.as_fd(), &membership);
        assert!(!is_stale_memory(&folder, &c_name(&path)));
        membership.set_epoch(number, ImageKind::default()); // a hand-over image: the last process stays
        assert!(!membership.leave());
        std::fs::remove_file(file.path()).unwrap();
        assert!(!is_stale_memory(&folder, &c_name(&path)), "it may have been removed just now");
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(FRESH as u64 + 2);
        memory.set_modified(old).unwrap();
        let mut path_of_control = [0; 1];
        let is_kept = rustix::fs::fgetxattr(&memory, SIGN, &mut path_of_control) != Err(Errno::OPNOTSUPP);
        assert_eq!(is_stale_memory(&folder, &c_name(&path)), is_kept);
        membership.forget_epoch();
        assert!(!Path::new(&path).exists());
    }

    /// It was taken for forgotten at once, and a program that had it as its memory was left without.
    #[test]
    fn shared_memory_stays_while_the_folder_of_its_control_file_may_have_another_name() {
        let folder = crate::sys::openat(CWD, shm::folder(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let name = format!("{}/famio-1-1-{:016x}-0000000000000001.shadow", shm::folder(), std::process::id());
        let scratch = crate::journal::testing::Scratch::new();
        let (before, after) = (scratch.path("before"), scratch.path("after"));
        std::fs::create_dir_all(before.join(".famio")).unwrap();
        let text = format!("{} {}", namespaces::of_paths(), before.join(".famio/x.control").display());
        let memory = || {
            let memory = std::fs::File::create(&name).unwrap();
            let is_kept = rustix::fs::fsetxattr(&memory, SIGN, text.as_bytes(), XattrFlags::empty()).is_ok();
            (memory, is_kept)
        };
        let (_, is_kept) = memory();
        // Where it is stale, another process of Famio may have removed it: made anew each time.
        let is_stale_after = |seconds: i64| {
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds as u64 + 2);
            memory().0.set_modified(old).unwrap();
            is_stale_memory(&folder, &c_name(&name)) || !Path::new(&name).exists()
        };
        std::fs::rename(&before, &after).unwrap();
        assert!(!is_stale_after(FRESH), "the folder may have another name");
        assert_eq!(is_stale_after(MAY_RETURN), is_kept);
        std::fs::rename(&after, &before).unwrap();
        assert_eq!(is_stale_after(FRESH), is_kept, "the folder is there without the control file");
        let _ = std::fs::remove_file(&name);
    }

    #[test]
    fn an_arena_in_use_stays_and_a_forgotten_one_goes() {
        let folder = crate::sys::openat(CWD, shm::folder(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let file = for_test();
        let owner_lock = crate::index::OwnerLock::take(std::sync::Arc::new(file.again()), true).unwrap();
        let arena = crate::index::Arena::create(owner_lock.make_arena().unwrap(), Path::new("/nonexistent")).unwrap();
        let path = owner_lock.control().arena_path().unwrap();
        let journal = file.path().with_extension("journal");
        let inode = std::fs::metadata(file.path()).unwrap().ino();
        arena.shared().set_hints(
            inode,
            file.path().as_os_str().as_bytes(),
            journal.as_os_str().as_bytes(),
            namespaces::of_paths().as_bytes(),
        );
        assert!(!is_stale_arena(&folder, &c_name(&path)), "it is mapped");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(arena);
        assert!(!is_stale_arena(&folder, &c_name(&path)), "its control file names it");
        owner_lock.control().set_arena(0);
        // A child that another test starts may hold its lock until it runs its program.
        let begun = std::time::Instant::now();
        while !is_stale_arena(&folder, &c_name(&path)) {
            assert!(begun.elapsed().as_secs() < 60, "it stays");
            rustix::thread::sched_yield();
        }
        std::fs::remove_file(&path).unwrap();
    }
}
