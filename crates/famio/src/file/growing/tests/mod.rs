use crate::error::Result;
use crate::file::atomic::{ATTACHED, AtomicFile, GROWING, PLAIN};
use crate::file::{Access, UserBuf};
use crate::journal::testing::{KERNEL, kernels_calls, kernels_memory};
use crate::journal::{GrowingMark, Marked, mark};
use crate::pmem::Medium;
use crate::recovery::{Options, Outcome, Report, Silent, Use, recover_path};
use crate::settings::{OnClose, OnKill, Settings};
use core::sync::atomic::{AtomicU32, Ordering};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod disk;
mod full;
mod overwrites;
mod space;

/// A file of a test, open as an atomic one.
struct Grown {
    path: PathBuf,
    file: File,
    atomic: Arc<AtomicFile>,
}

impl Grown {
    fn new(name: &str) -> Self {
        Self::with(name, b"", &Settings::default())
    }

    fn with(name: &str, content: &[u8], settings: &Settings) -> Self {
        Self::at(Path::new("/dev/shm"), name, content, settings)
    }

    fn at(folder: &Path, name: &str, content: &[u8], settings: &Settings) -> Self {
        let path = folder.join(format!("famio-growing-{name}-{}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self::open(path, settings)
    }

    fn open(path: PathBuf, settings: &Settings) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, settings).unwrap();
        Self { path, file, atomic }
    }

    /// Makes the next change look later than the time up to which changes are this process's.
    fn end_time_of_changes(&self) {
        let mut growing = self.atomic.growing.state.lock();
        let state = growing.as_mut().unwrap();
        let mark = GrowingMark { until: state.mark.until - 10, ..state.mark.clone() };
        state.store_mark(self.file.as_fd(), mark).unwrap();
    }

    /// From now on, each change of a committed byte takes a journal.
    fn take_no_overwrites(&self) {
        if let Some(state) = self.atomic.growing.state.lock().as_mut() {
            state.room = 0;
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        // SAFETY: the test's memory.
        assert_eq!(unsafe { self.atomic.write(at, &[UserBuf::of(&mut bytes)]) }.unwrap(), bytes.len());
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.atomic.size() as usize + 10];
        // SAFETY: as above.
        let read = unsafe { self.atomic.read(0, &[UserBuf::of(&mut bytes)]) }.unwrap();
        bytes[..read].to_vec()
    }

    fn state(&self) -> u8 {
        self.atomic.state.load(Ordering::Acquire)
    }

    /// As after a kill: the lease is gone, and nothing was ended.
    fn leave(self) -> PathBuf {
        self.atomic.state.store(crate::file::atomic::DISOWNED, Ordering::SeqCst);
        crate::file::lease::give_up(self.file.as_fd());
        let (device, inode) = self.atomic.key();
        crate::file::registry::files().remove(&(device, inode));
        self.path
    }

    fn close(&self) {
        self.atomic.remove_descriptor(self.file.as_raw_fd()).unwrap();
    }
}

fn is_marked(path: &PathBuf) -> bool {
    mark::get_any(File::open(path).unwrap().as_fd()).unwrap().is_some()
}

/// The reports of `famio recover` with its defaults.
fn recover(path: &Path) -> Vec<Report> {
    recover_path(path, &Settings::default(), &Options::default(), &Silent).unwrap()
}

#[test]
fn a_new_file_grows_without_a_journal_and_ends_without_a_trace() {
    let grown = Grown::new("new");
    grown.write(0, b"abc");
    assert_eq!((grown.state(), grown.read()), (GROWING, b"abc".to_vec()));
    assert!(matches!(mark::get_any(grown.file.as_fd()).unwrap(), Some(Marked::Growing(mark)) if mark.new == 0));
    grown.atomic.sync().unwrap();
    assert!(matches!(mark::get_any(grown.file.as_fd()).unwrap(), Some(Marked::Growing(mark)) if mark.new == 3));
    grown.write(3, b"def");
    grown.close();
    assert_eq!((grown.state(), std::fs::read(&grown.path).unwrap()), (PLAIN, b"abcdef".to_vec()));
    assert!(!is_marked(&grown.path));
    std::fs::remove_file(&grown.path).unwrap();
}

/// If the file system keeps the order of what it makes durable.
#[test]
fn a_commit_takes_no_hash_where_the_order_is_kept() {
    for is_synced in [true, false] {
        let grown = Grown::at(&std::env::temp_dir(), "order", b"found", &Settings::default());
        grown.write(5, b"abc");
        if grown.state() != GROWING {
            return; // the temporary files are on another kind of file system
        }
        grown.atomic.growing.state.lock().as_mut().unwrap().keeps_order = true;
        if is_synced {
            grown.atomic.sync().unwrap();
            let mark = mark::get_any(grown.file.as_fd()).unwrap();
            assert!(
                matches!(mark, Some(Marked::Growing(ref mark)) if (mark.base, mark.new, mark.is_found) == (8, 8, false)),
                "{mark:?}"
            );
        }
        grown.close();
        assert_eq!((std::fs::read(&grown.path).unwrap(), is_marked(&grown.path)), (b"foundabc".to_vec(), false));
        std::fs::remove_file(&grown.path).unwrap();
    }
}

#[test]
fn a_kill_leaves_what_was_committed() {
    for (synced, more, expected) in
        [(&b""[..], &b"abc"[..], &b""[..]), (b"abc", b"defgh", b"abc"), (b"abc", b"", b"abc")]
    {
        let grown = Grown::new("kill");
        if !synced.is_empty() {
            grown.write(0, synced);
            grown.atomic.sync().unwrap();
        }
        if !more.is_empty() {
            grown.write(synced.len() as u64, more);
        }
        assert_eq!(grown.state(), GROWING);
        let path = grown.leave();
        let report = recover(&path);
        assert!(matches!(report[0].outcome, Outcome::Recovered | Outcome::Clean), "{report:?}");
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        assert!(!is_marked(&path));
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_next_open_recovers_it() {
    let grown = Grown::new("reopen");
    grown.write(0, b"abc");
    grown.atomic.sync().unwrap();
    grown.write(3, b"def");
    let grown = Grown::open(grown.leave(), &Settings::default());
    assert_eq!((grown.read(), is_marked(&grown.path)), (b"abc".to_vec(), false));
    grown.write(3, b"ghi");
    grown.close();
    assert_eq!(std::fs::read(&grown.path).unwrap(), b"abcghi");
    std::fs::remove_file(&grown.path).unwrap();
}

/// Bytes below the committed size are not changed in the kernel's file alone.
#[test]
fn a_change_below_what_is_committed_begins_a_session_with_the_open_epoch() {
    for length in [100usize, 3 << 20] {
        let grown = Grown::with("below", b"0123456789", &Settings::default());
        let tail: Vec<u8> = (0..length).map(|i| (i * 7 % 251) as u8).collect();
        grown.write(10, &tail);
        assert_eq!(grown.state(), GROWING);
        grown.take_no_overwrites();
        grown.write(2, b"xy");
        assert_eq!(grown.state(), ATTACHED);
        let expected = [&b"01xy456789"[..], &tail].concat();
        assert!(grown.read() == expected);
        // The session manages the kernel's file and its mark.
        assert!(matches!(mark::get_any(grown.file.as_fd()).unwrap(), Some(Marked::Journal(_))));
        grown.close();
        assert!(std::fs::read(&grown.path).unwrap() == expected);
        std::fs::remove_file(&grown.path).unwrap();
    }
}

#[test]
fn what_is_not_committed_may_be_changed_and_cut() {
    let grown = Grown::with("cut", b"0123456789", &Settings::default());
    grown.write(10, b"abcdef");
    grown.write(11, b"xx");
    grown.atomic.set_size(14).unwrap();
    grown.write(20, b"y");
    assert_eq!((grown.state(), grown.read()), (GROWING, b"0123456789axxd\0\0\0\0\0\0y".to_vec()));
    grown.atomic.set_size(5).unwrap(); // below the committed size: in a session
    assert_eq!((grown.state(), grown.read()), (ATTACHED, b"01234".to_vec()));
    grown.close();
    assert_eq!(std::fs::read(&grown.path).unwrap(), b"01234");
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn an_existing_file_that_is_overwritten_does_not_grow() {
    let grown = Grown::with("overwritten", b"0123456789", &Settings::default());
    grown.write(5, b"56789abc");
    assert_eq!(grown.state(), ATTACHED);
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
    let keeps = Settings { on_kill: OnKill::Keep, ..Settings::default() };
    let kept = Grown::with("kept", b"", &keeps);
    kept.write(0, b"abc");
    assert_eq!(kept.state(), ATTACHED);
    kept.close();
    std::fs::remove_file(&kept.path).unwrap();
}

/// By an open of another description: the lease thread answers.
#[test]
fn who_opens_it_waits_until_it_has_a_session() {
    let grown = Grown::with("opened", b"0123", &Settings::default());
    grown.write(4, b"abc");
    assert_eq!(grown.state(), GROWING);
    let other = File::open(&grown.path).unwrap();
    assert_eq!(grown.state(), ATTACHED);
    assert_eq!(grown.read(), b"0123abc".to_vec());
    grown.close();
    assert_eq!(other.metadata().unwrap().len(), 7);
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn what_somebody_else_wrote_after_the_kill_is_a_conflict() {
    let grown = Grown::new("outsider");
    grown.write(0, b"abc");
    grown.atomic.sync().unwrap();
    grown.end_time_of_changes();
    let path = grown.leave();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"mine").unwrap();
    let recover = |on_conflict| {
        let options = Options { on_conflict, ..Options::default() };
        recover_path(&path, &Settings::default(), &options, &Silent).unwrap().remove(0).outcome
    };
    assert!(matches!(recover(Use::Refuse), Outcome::Conflict(text) if text.contains("another program changed")));
    assert_eq!(std::fs::read(&path).unwrap(), b"abcmine");
    assert!(matches!(recover(Use::File), Outcome::Discarded));
    assert_eq!((std::fs::read(&path).unwrap(), is_marked(&path)), (b"abcmine".to_vec(), false));
    std::fs::remove_file(&path).unwrap();
}

/// It was once taken for a change by another process.
#[test]
fn a_modification_time_in_the_future_is_no_conflict() {
    let grown = Grown::new("tomorrow");
    grown.write(0, b"abc");
    grown.atomic.sync().unwrap();
    grown.write(3, b"open");
    let tomorrow = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
    grown.file.set_modified(tomorrow).unwrap(); // and is killed before the library notices
    let path = grown.leave();
    let report = recover(&path);
    assert!(matches!(report[0].outcome, Outcome::Recovered), "{report:?}");
    assert_eq!((std::fs::read(&path).unwrap(), is_marked(&path)), (b"abc".to_vec(), false));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_copy_with_the_mark_is_refused() {
    let grown = Grown::new("copied");
    grown.write(0, b"abc");
    let mut bytes = [0u8; 100];
    let length = rustix::fs::fgetxattr(&grown.file, mark::NAME, &mut bytes).unwrap();
    let copy = Grown::new("copy").path;
    rustix::fs::fsetxattr(File::open(&copy).unwrap(), mark::NAME, &bytes[..length], rustix::fs::XattrFlags::CREATE)
        .unwrap();
    let report = recover(&copy);
    assert!(
        matches!(&report[0].outcome, Outcome::Conflict(text) if text.contains("mark of another file")),
        "{report:?}"
    );
    grown.close();
    [grown.path, copy].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn a_file_that_is_synced_often_gets_a_session() {
    let grown = Grown::new("often");
    for i in 0..200u64 {
        grown.write(i, b"x");
        grown.atomic.sync().unwrap();
    }
    assert_eq!((grown.state(), grown.read().len()), (ATTACHED, 200));
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
}

/// Threads that read while the open epoch moves into a session never see it gone.
#[test]
fn readers_see_the_open_epoch_while_it_moves() {
    for round in 0..50 {
        let grown = Grown::with("moves", b"0123456789", &Settings::default());
        grown.write(10, &[b'a'; 5000]);
        let done = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let read = grown.read();
                    assert_eq!(read.len(), 5010, "round {round}");
                    assert!(read[10..].iter().all(|&byte| byte == b'a'));
                }
            });
            grown.write(3, b"x");
            done.store(true, Ordering::Release);
        });
        grown.close();
        std::fs::remove_file(&grown.path).unwrap();
    }
}

fn leaves() -> Settings {
    Settings { on_close: OnClose::Leave, ..Settings::default() }
}

#[test]
fn a_new_file_that_is_left_at_its_close_is_the_kernels() {
    let grown = Grown::with("left", b"", &leaves());
    grown.write(0, b"abcdef");
    grown.write(2, b"XY");
    grown.atomic.set_size(5).unwrap();
    assert_eq!((grown.state(), grown.read(), is_marked_by(&grown)), (GROWING, b"abXYe".to_vec(), false));
    grown.close();
    assert_eq!((grown.state(), std::fs::read(&grown.path).unwrap()), (PLAIN, b"abXYe".to_vec()));
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn what_is_left_at_its_close_is_atomic_from_its_first_sync_on() {
    let grown = Grown::with("left-synced", b"", &leaves());
    grown.write(0, b"abc");
    assert!(!is_marked_by(&grown));
    grown.atomic.sync().unwrap();
    assert!(is_marked_by(&grown));
    grown.write(3, b"def");
    let path = grown.leave();
    let report = recover(&path);
    assert!(matches!(report[0].outcome, Outcome::Recovered), "{report:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"abc");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_new_file_that_is_left_and_never_synced_has_after_a_kill_what_was_written() {
    let grown = Grown::with("left-killed", b"", &leaves());
    grown.write(0, b"abc");
    let path = grown.leave();
    let grown = Grown::open(path, &leaves());
    assert_eq!(grown.read(), b"abc");
    grown.write(1, b"B"); // it is not new any more
    assert!(is_marked_by(&grown));
    grown.close();
    assert_eq!(std::fs::read(&grown.path).unwrap(), b"aBc");
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn a_map_of_a_new_file_that_is_left_takes_what_was_written_for_committed() {
    let grown = Grown::with("left-mapped", b"", &leaves());
    grown.write(0, b"abc");
    grown.atomic.grow_no_more().unwrap();
    assert_eq!((grown.state(), grown.read(), is_marked_by(&grown)), (PLAIN, b"abc".to_vec(), false));
    grown.write(0, b"X");
    assert_eq!(grown.state(), ATTACHED);
    grown.close();
    assert_eq!(std::fs::read(&grown.path).unwrap(), b"Xbc");
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn a_file_that_was_there_is_committed_at_its_close_all_the_same() {
    let grown = Grown::with("left-found", b"abc", &leaves());
    grown.write(3, b"def");
    assert_eq!((grown.state(), is_marked_by(&grown)), (GROWING, true));
    grown.close();
    assert!(!is_marked(&grown.path));
    std::fs::remove_file(&grown.path).unwrap();
}

fn is_marked_by(grown: &Grown) -> bool {
    mark::get_any(grown.file.as_fd()).unwrap().is_some()
}

#[test]
fn holes_of_an_open_epoch_stay_holes_on_their_way_into_a_session() {
    let grown = Grown::new("holes");
    grown.atomic.set_size(1 << 36).unwrap();
    grown.write(1 << 35, b"abc");
    assert_eq!(grown.state(), GROWING);
    grown.atomic.grow_no_more().unwrap();
    assert_eq!((grown.state(), grown.atomic.size()), (ATTACHED, 1 << 36));
    let mut bytes = [0; 5];
    // SAFETY: the test's memory.
    let read = unsafe { grown.atomic.read((1 << 35) - 1, &[UserBuf::of(&mut bytes)]) }.unwrap();
    assert_eq!((read, &bytes), (5, b"\0abc\0"));
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
}

/// A rename or a link is a SYNC, and a kill in the middle of the first one loses nothing.
#[test]
fn a_change_of_names_flushes_what_is_left_at_its_close() {
    static FLUSHES: AtomicU32 = AtomicU32::new(0);
    struct Counted;
    // SAFETY: as the kernel's.
    unsafe impl Medium for Counted {
        kernels_memory!();
        kernels_calls!(fence pwritev fdatasync ftruncate);
        fn fsync(&self, fd: BorrowedFd<'_>) -> Result<()> {
            FLUSHES.fetch_add(1, Ordering::Relaxed);
            KERNEL.fsync(fd)
        }
    }
    let grown = Grown::with("left-renamed", b"", &leaves());
    grown.write(0, b"abc");
    grown.atomic.growing.state.lock().as_mut().unwrap().medium = &Counted;
    grown.atomic.checkpoint().unwrap();
    assert_eq!((FLUSHES.load(Ordering::Relaxed), grown.state(), is_marked_by(&grown)), (1, PLAIN, false));
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
}

/// It was marked as an empty one, and recovery cut it.
#[test]
fn a_kill_within_the_first_sync_of_a_file_that_is_left_leaves_what_was_written() {
    let grown = Grown::with("left-first", b"", &leaves());
    grown.write(0, b"abc");
    let file = grown.file.try_clone().unwrap();
    let marked = grown.atomic.growing.state.lock().as_mut().unwrap().mark_if_new(file.as_fd(), 3);
    assert!(marked.unwrap() && is_marked_by(&grown));
    let path = grown.leave();
    let report = recover(&path);
    assert!(matches!(report[0].outcome, Outcome::Clean), "{report:?}");
    assert_eq!((std::fs::read(&path).unwrap(), is_marked(&path)), (b"abc".to_vec(), false));
    std::fs::remove_file(&path).unwrap();
}

/// The mark said that changes would be this process's only up to a time that had passed: after a kill, what was put back
/// was taken for another program's.
#[test]
fn what_is_put_back_is_this_processes_own_change() {
    let grown = Grown::new("again");
    grown.write(0, b"abc");
    grown.end_time_of_changes();
    let mut growing = grown.atomic.growing.state.lock();
    growing.as_mut().unwrap().mark_again(grown.file.as_fd()).unwrap();
    drop(growing);
    KERNEL.ftruncate(grown.file.as_fd(), 0).unwrap();
    KERNEL.pwritev(grown.file.as_fd(), &[b"abc"], 0).unwrap();
    let path = grown.leave();
    let report = recover(&path);
    assert!(matches!(report[0].outcome, Outcome::Recovered), "{report:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    std::fs::remove_file(&path).unwrap();
}

/// Reads went on with what the kernel's file had, and with what had been rolled back.
#[test]
fn what_another_process_has_taken_meanwhile_is_not_read() {
    let grown = Grown::with("taken-read", b"0123456789", &Settings::default());
    grown.write(2, b"xy");
    assert_eq!((grown.state(), grown.read()), (GROWING, b"01xy456789".to_vec()));
    crate::file::lease::give_up(grown.file.as_fd());
    mark::remove(grown.file.as_fd()).unwrap();
    assert_eq!(grown.atomic.grow_no_more().unwrap_err().errno(), libc::EIO); // by the thread that watches the lease
    let mut bytes = [0; 10];
    // SAFETY: the test's memory.
    let error = unsafe { grown.atomic.read(0, &[UserBuf::of(&mut bytes)]) }.unwrap_err();
    assert!(error.errno() == libc::EIO && error.to_string().contains("open it again"), "{error}");
    assert!(grown.atomic.remove_descriptor(grown.file.as_raw_fd()).is_err());
    assert_eq!((grown.state(), std::fs::read(&grown.path).unwrap()), (PLAIN, b"0123456789".to_vec()));
    std::fs::remove_file(&grown.path).unwrap();
}

/// The second page is not there: it was `ENOSPC`.
#[test]
fn an_append_as_a_whole_tells_why_it_was_refused() {
    let grown = Grown::new("whole");
    grown.write(0, b"abc");
    let pages = mapped(2);
    // SAFETY: the second page of the test's own map goes.
    unsafe { rustix::mm::munmap(pages.wrapping_add(4096).cast(), 4096).unwrap() };
    let error = grown.atomic.append_growing(None, &[UserBuf { base: pages, len: 8192 }]).unwrap().unwrap_err();
    assert_eq!((error.errno(), grown.read()), (libc::EFAULT, b"abc".to_vec()));
    // SAFETY: the rest of that map.
    unsafe { rustix::mm::munmap(pages.cast(), 4096).unwrap() };
    grown.close();
    std::fs::remove_file(&grown.path).unwrap();
}

fn mapped(pages: usize) -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a new map.
    let map = unsafe {
        mmap_anonymous(core::ptr::null_mut(), pages * 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    map.unwrap().cast()
}

/// As for a process that was stopped for longer than the kernel keeps its lease.
#[test]
fn what_another_process_has_taken_meanwhile_is_not_touched_at_the_close() {
    let grown = Grown::new("taken");
    grown.write(0, b"abc");
    crate::file::lease::give_up(grown.file.as_fd());
    mark::remove(grown.file.as_fd()).unwrap();
    std::fs::write(&grown.path, b"theirs").unwrap();
    let error = grown.atomic.remove_descriptor(grown.file.as_raw_fd()).unwrap_err();
    assert!(error.errno() == libc::EIO && error.to_string().contains("stopped for so long"), "{error}");
    assert_eq!((std::fs::read(&grown.path).unwrap(), is_marked(&grown.path)), (b"theirs".to_vec(), false));
    std::fs::remove_file(&grown.path).unwrap();
}

#[test]
fn who_opens_a_file_whose_mark_was_removed_does_not_wait_for_its_lease() {
    let grown = Grown::new("unmarked");
    grown.write(0, b"abc");
    mark::remove(grown.file.as_fd()).unwrap();
    drop(File::open(&grown.path).unwrap());
    let mut bytes = *b"def";
    // SAFETY: the test's memory.
    let error = unsafe { grown.atomic.write(3, &[UserBuf::of(&mut bytes)]) }.unwrap_err();
    assert_eq!(error.errno(), libc::EIO);
    drop(OpenOptions::new().write(true).open(&grown.path).unwrap());
    assert!(grown.atomic.remove_descriptor(grown.file.as_raw_fd()).is_err());
    std::fs::remove_file(&grown.path).unwrap();
}
