//! Errors of the safe API that need a failure: a disk that does not flush any more, a file that an outsider cuts,
//! maps without memory, a forked child, a process that keeps the file, the interposer.

mod common;

use common::Scratch;
use famio::pmem::record::{Call, Recorder};
use famio::pmem::{Domain, stand_in};
use famio::{AtomicFile, Durability, JournalChoice, Settings};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;

fn path(folder: &Scratch) -> PathBuf {
    folder.path().join("file")
}

/// A file of four pages that begins with `first`, durable.
fn begin(path: &Path) -> AtomicFile {
    begin_with(path, Settings::default())
}

fn begin_with(path: &Path, settings: Settings) -> AtomicFile {
    let file = AtomicFile::options().create(true).settings(settings).open(path).unwrap();
    file.set_len(4 * PAGE as u64).unwrap();
    file.write_at(b"first", 0).unwrap();
    file.sync().unwrap();
    file
}

/// The errno of an error whose message names the file.
fn named<T>(path: &Path, result: famio::Result<T>) -> i32 {
    let Err(error) = result else { panic!("it works") };
    assert!(error.to_string().contains(path.to_str().unwrap()), "it names no file: {error}");
    error.errno()
}

fn errno<T>(result: famio::Result<T>) -> i32 {
    result.err().expect("an error").errno()
}

/// A SYNC whose flush fails: afterwards nothing is written any more, reads work, and the file is intact when it is
/// opened again.
#[test]
fn a_flush_that_fails() {
    for by_region in [false, true] {
        let folder = Scratch::on_tmpfs(&format!("failing-flush-{by_region}"));
        let path = path(&folder);
        // For files on a disk.
        let recorder = Recorder::new(Domain::PageCache);
        stand_in(Some(recorder));
        let settings = Settings { durability: Durability::Power, ..Settings::default() };
        let test_hooks =
            famio::pmem::TestHooks { domain: Some(Domain::PageCache), ..famio::pmem::TestHooks::current() };
        test_hooks.enter();
        let file = AtomicFile::options().create(true).settings(settings.clone()).open(&path).unwrap();
        file.set_len(4 * PAGE as u64).unwrap();
        file.write_at(b"first", 0).unwrap();
        file.sync().unwrap();
        let region = file.map(..).unwrap();
        file.write_at(b"other", 0).unwrap();
        region.write(PAGE, b"x").unwrap();
        recorder.fail(Call::Fdatasync, 1, libc::EIO);
        let synced = if by_region { region.sync() } else { file.sync() };
        assert_eq!(named(&path, synced), libc::EIO);
        for result in
            [file.sync(), region.sync(), file.write_at(b"more", 0), file.append(b"more").map(drop), file.set_len(5)]
        {
            assert_eq!(named(&path, result), libc::EIO);
        }
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"other");
        if by_region {
            drop(file);
            assert_eq!(named(&path, region.unmap()), libc::EIO);
        } else {
            drop(region);
            assert_eq!(named(&path, file.close()), libc::EIO);
        }
        // The commit that failed may have reached the journal.
        let again = AtomicFile::options().settings(settings).open(&path).unwrap();
        let mut byte = [0];
        again.read_exact_at(&mut bytes, 0).unwrap();
        again.read_exact_at(&mut byte, PAGE as u64).unwrap();
        assert!((&bytes, byte) == (b"first", [0]) || (&bytes, byte) == (b"other", *b"x"), "{bytes:?} {byte:?}");
        again.close().unwrap();
        famio::pmem::TestHooks::default().enter();
    }
}

#[test]
fn a_rollback_after_a_flush_that_failed() {
    let folder = Scratch::on_tmpfs("failing-rollback");
    let recorder = Recorder::new(Domain::PageCache);
    stand_in(Some(recorder));
    famio::pmem::TestHooks { domain: Some(Domain::PageCache), ..famio::pmem::TestHooks::current() }.enter();
    let settings = Settings { durability: Durability::Power, ..Settings::default() };
    let file = AtomicFile::options().create(true).settings(settings).open(path(&folder)).unwrap();
    file.set_len(4 * PAGE as u64).unwrap();
    file.sync().unwrap();
    file.write_at(b"other", 0).unwrap();
    recorder.fail(Call::Fdatasync, 1, libc::EIO);
    assert_eq!(named(&path(&folder), file.sync()), libc::EIO);
    assert_eq!(named(&path(&folder), file.rollback()), libc::EIO);
    assert_eq!(named(&path(&folder), file.close()), libc::EIO);
}

/// An outsider cuts the file: reading the missing bytes is an error, not a signal.
#[test]
fn a_file_that_is_cut_by_somebody_else() {
    let folder = Scratch::on_tmpfs("failing-cut");
    let path = path(&folder);
    let file = begin(&path);
    File::options().write(true).open(&path).unwrap().set_len(PAGE as u64).unwrap();
    let mut bytes = [0; 10];
    assert_eq!(errno(file.read_at(&mut bytes, 3 * PAGE as u64)), libc::EIO);
    assert_eq!(errno(file.read_exact_at(&mut bytes, 3 * PAGE as u64)), libc::EIO);
    drop(file);
}

/// The program closes descriptors that it did not open, among them that of a map's memory. Writes reach it by the
/// library's own map; but what makes the file longer could not be shown in the program's, so nothing is accepted any
/// more, and the file goes back to its last SYNC.
#[test]
fn a_map_that_can_not_follow_the_file() {
    const FIVE: u64 = 5 * PAGE as u64;
    let folder = Scratch::on_tmpfs("failing-follow");
    let path = path(&folder);
    let file = begin(&path);
    file.set_len(FIVE).unwrap();
    file.sync().unwrap();
    let region = file.map(..).unwrap();
    region.write(PAGE, b"x").unwrap();
    let null = File::open("/dev/null").unwrap();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap().path();
        // Other tests have maps, too; this one's has five pages.
        let is_ours = fs::read_link(&entry).is_ok_and(|to| to.to_string_lossy().ends_with(".shadow"))
            && fs::metadata(&entry).is_ok_and(|stat| stat.len() == FIVE);
        if is_ours {
            let number = entry.file_name().unwrap().to_str().unwrap().parse::<i32>().unwrap();
            use std::os::fd::AsRawFd;
            // SAFETY: numbers. As a program that closes unknown descriptors.
            unsafe { libc::dup2(null.as_raw_fd(), number) };
        }
    }
    file.write_at(b"other", 0).unwrap();
    let error = file.append(b"other").unwrap_err();
    assert_eq!(error.errno(), libc::EIO);
    assert!(error.to_string().contains("could not be shown in its maps"), "{error}");
    assert_eq!(named(&path, file.write_at(b"more", 0)), libc::EIO);
    assert_eq!(named(&path, file.sync()), libc::EIO);
    drop(region);
    assert_eq!(named(&path, file.close()), libc::EIO);
    let again = AtomicFile::open(&path).unwrap();
    let mut bytes = [0; 5];
    again.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"first");
    again.close().unwrap();
}

/// Runs `child` in a forked child; it must neither return false nor unwind.
fn forked(child: impl FnOnce() -> bool) {
    // SAFETY: the child makes only calls that this library permits in a child, and exits.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
            libc::_exit(i32::from(!well));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        assert_eq!(status, 0, "the child");
    }
}

/// A child cannot use what its parent has open; and a file that its parent has mapped cannot be handed over if there
/// is no memory for both.
#[test]
fn a_child_of_a_fork() {
    famio::pmem::TestHooks { own_shadow: true, ..famio::pmem::TestHooks::default() }.enter();
    let folder = Scratch::on_tmpfs("failing-fork");
    let path = path(&folder);
    let file = begin(&path);
    let region = file.map(..).unwrap();
    forked(|| {
        let mut bytes = [0; 5];
        let all = [
            file.read_at(&mut bytes, 0).map(drop),
            file.read_exact_at(&mut bytes, 0),
            file.write_at(b"x", 0),
            file.append(b"x").map(drop),
            file.set_len(0),
            file.sync(),
            file.map(..).map(drop),
            file.map_read(..).map(drop),
            region.read(0, &mut bytes),
            region.sync(),
        ];
        let all = all.map(|result| result.err().map(|error| error.errno()));
        println!("{all:?}");
        all == [Some(libc::EBUSY); 10]
    });
    forked(|| {
        // Any process may read it; only the owner may write or empty it.
        let own = AtomicFile::open(&path).unwrap();
        let truncated = AtomicFile::options().truncate(true).open(&path).map(drop);
        let all = [own.write_at(b"x", 0), own.set_len(0), own.map(..).map(drop), truncated];
        all.into_iter().all(|result| named(&path, result) == libc::EBUSY)
    });
    drop(region);
    file.close().unwrap();
}

/// The list of files is locked until a last close has finished: a child that was forked meanwhile went on with its
/// parent's journal, and kept its locks.
#[test]
fn a_child_of_a_fork_beside_a_close() {
    let folder = Scratch::on_tmpfs("failing-fork-close");
    let path = path(&folder);
    let file = begin(&path);
    let (other, third) = (folder.path().join("other"), folder.path().join("third"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let file = AtomicFile::options().create(true).open(&other).unwrap();
                file.write_at(b"x", 0).unwrap();
                file.close().unwrap();
            }
        });
        let children = std::panic::catch_unwind(|| {
            for _ in 0..150 {
                forked(|| {
                    let refused = file.write_at(b"x", 0).is_err_and(|error| error.errno() == libc::EBUSY);
                    // What it opens belongs to it, and not to its own child.
                    let own = AtomicFile::options().create(true).open(&third).unwrap();
                    own.write_at(b"y", 0).unwrap();
                    forked(|| {
                        let mut byte = [0];
                        own.read_at(&mut byte, 0).is_err()
                            && AtomicFile::open(&third).unwrap().read_at(&mut byte, 0).unwrap() == 1
                            && byte == *b"y"
                    });
                    own.close().unwrap();
                    refused
                });
            }
        });
        done.store(true, Ordering::Relaxed);
        children.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    file.close().unwrap();
}

/// Settings that would weaken what a SYNC survives without saying so, and a file system without guarantees: an error
/// at the first write.
#[test]
fn what_can_not_be_had_is_said_at_the_first_write() {
    let (disk, memory) = (Scratch::on_disk("failing-settings"), Scratch::on_tmpfs("failing-settings"));
    let emulated = Settings { emulated: true, ..Settings::default() };
    let pool = Settings { pool: Some(memory.path().to_path_buf()), ..Settings::default() };
    for settings in [emulated, pool] {
        let file = AtomicFile::options().create(true).settings(settings).open(path(&disk)).unwrap();
        for result in
            [file.write_at(b"x", 0), file.append(b"x").map(drop), file.set_len(5), file.map(0..4096).map(drop)]
        {
            assert_eq!(named(&path(&disk), result), libc::EINVAL);
        }
        file.close().unwrap();
    }
    let comm = Path::new("/proc/self/comm");
    let file = AtomicFile::open(comm).unwrap();
    assert_eq!(named(comm, file.write_at(b"x", 0)), libc::EOPNOTSUPP);
    file.close().unwrap();
}

#[test]
fn beyond_what_a_file_may_have() {
    let folder = Scratch::on_tmpfs("failing-large");
    let path = path(&folder);
    let file = begin(&path);
    assert_eq!(errno(file.write_at(b"x", i64::MAX as u64 - 1)), libc::EFBIG);
    assert_eq!(errno(file.set_len(i64::MAX as u64)), libc::EFBIG);
    file.set_len(1 << 48).unwrap();
    assert_eq!(errno(file.append(b"x")), libc::EFBIG);
    assert_eq!(named(&path, file.map(..)), libc::ENOMEM);
    file.set_len(5).unwrap();
    file.close().unwrap();
}

/// The memory of a map is gone: for the processor, the same as if none is left.
#[test]
fn a_map_without_memory() {
    const SIX: u64 = 6 * PAGE as u64;
    let folder = Scratch::on_tmpfs("failing-memory");
    let path = path(&folder);
    let file = begin(&path);
    file.set_len(SIX).unwrap();
    let region = file.map(..).unwrap();
    region.write(0, b"x").unwrap();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap().path();
        let is_ours = fs::read_link(&entry).is_ok_and(|to| to.to_string_lossy().ends_with(".shadow"))
            && fs::metadata(&entry).is_ok_and(|stat| stat.len() == SIX);
        if is_ours {
            File::options().write(true).open(&entry).unwrap().set_len(0).unwrap();
        }
    }
    assert_eq!(named(&path, region.write(PAGE, b"x")), libc::ENOMEM);
    // SAFETY: within the map, from a slice.
    let copied = unsafe { famio::region::copy(region.as_ptr().add(PAGE), b"x".as_ptr(), 1) };
    assert_eq!(errno(copied), libc::ENOMEM);
    assert_eq!(named(&path, region.read(PAGE, &mut [0; 8])), libc::EIO);
}

/// No space because of a quota, simulated by a filter for this thread's calls of `fallocate`.
#[test]
fn a_quota() {
    let folder = Scratch::on_disk("failing-quota");
    let path = path(&folder);
    let over = || {
        // The kernel handles the space of a growing file.
        let file = begin_with(&path, Settings { journal: JournalChoice::Always, ..Settings::default() });
        let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut filter = [
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_fallocate as u32),
            op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EDQUOT as u32),
            op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: a program with its length, which the kernel copies; it applies only to this thread.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program), 0);
        }
        let much = vec![7; 8 << 20];
        // Space reserved before may be used up first.
        let failed =
            (0..64u64).find_map(|round| file.write_at(&much, (4 * PAGE + (round as usize * much.len())) as u64).err());
        assert_eq!(named(&path, Err::<(), _>(failed.unwrap())), libc::EDQUOT);
        file.sync().unwrap();
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"first");
    };
    std::thread::scope(|scope| scope.spawn(over).join().unwrap());
}

/// An unreadable journal: the message names it and its file.
#[test]
fn a_journal_that_can_not_be_used() {
    let folder = Scratch::on_disk("failing-journal");
    let path = path(&folder);
    // SAFETY: the child writes to its own file, and ends as by a kill.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let file = begin(&path);
            let _ = file.write_at(b"other", 0);
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
        assert_eq!(libc::waitpid(pid, core::ptr::null_mut(), 0), pid);
    }
    for entry in fs::read_dir(folder.path().join(".famio")).unwrap() {
        File::options().write(true).open(entry.unwrap().path()).unwrap().set_len(0).unwrap();
    }
    let error = AtomicFile::open(&path).unwrap_err();
    assert_eq!(error.errno(), libc::EIO);
    let said = error.to_string();
    assert!(said.contains(path.to_str().unwrap()) && said.contains(".journal"), "{said}");
}

/// Another user's file, opened by a thread that runs as another user.
#[test]
fn a_file_of_another_user() {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: it takes root to become another user");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let folder = Scratch::on_tmpfs("failing-user");
    let path = path(&folder);
    fs::write(&path, b"bytes").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let as_another = || {
        // SAFETY: numbers. The system call itself affects only this thread.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) }, 0);
        assert_eq!(named(&path, AtomicFile::open(&path)), libc::EACCES);
    };
    std::thread::scope(|scope| scope.spawn(as_another).join().unwrap());
}

const INTERPOSED: &str = "FAMIO_TEST_INTERPOSED";

/// Run by the test below, in a new process.
#[test]
fn opens_under_the_interposer() {
    let Some(path) = std::env::var_os(INTERPOSED).map(PathBuf::from) else { return };
    assert_eq!(named(&path, AtomicFile::options().create(true).open(&path)), libc::EBUSY);
}

/// If `famio run`'s own library has the files, this copy must not open them.
#[test]
fn the_interposer_has_the_files() {
    let folder = Scratch::on_disk("failing-interposed");
    let (source, library) = (folder.path().join("other.c"), folder.path().join("other.so"));
    fs::write(&source, "static const long table[64];\nconst void *famio_nv_table(void) { return table; }\n").unwrap();
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap().success());
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "opens_under_the_interposer"]).env("LD_PRELOAD", &library).env(INTERPOSED, path(&folder));
    let output = test.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!path(&folder).exists());
}
