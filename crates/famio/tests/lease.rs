//! The write lease: what an outsider sees who opens a file in the middle of an epoch, and which process may have the
//! lease.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch, in_place_settings, take_lease, takes_lease};
use crash::{Crashed, Expose, Lease, Size, Sync, write};
use famio::recovery::Use;
use famio::{JournalChoice, PolicyChoice, Settings};
use famio_test_support::random::Random;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn crash_child() {
    crash::child();
}

fn leased() -> impl Iterator<Item = Settings> {
    in_place_settings().into_iter().filter(takes_lease)
}

/// With a session from the first change on.
fn always() -> Settings {
    Settings { journal: JournalChoice::Always, ..Settings::default() }
}

/// The file as a program without Famio copies it.
fn copied(path: &Path) -> Vec<u8> {
    let copy = path.with_extension("copy");
    let done = Command::new("cp").arg(path).arg(&copy).status().unwrap();
    assert!(done.success());
    let bytes = fs::read(&copy).unwrap();
    fs::remove_file(&copy).unwrap();
    bytes
}

#[track_caller]
fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(found == expected, "{what}: {} bytes for {}, first at {differs:?}", found.len(), expected.len());
}

/// Small and large writes, over existing data and beyond it, and cuts; in the middle of each epoch, an outsider
/// copies the file.
#[test]
fn an_outsider_who_opens_reads_what_is_committed() {
    for settings in leased() {
        let dir = Scratch::on_tmpfs("an-outsider-who-opens");
        let path = dir.path().join("file");
        let mut random = Random::new(5);
        let mut model: Vec<u8> = (0..300_000u32).map(|i| (i % 249) as u8).collect();
        fs::write(&path, &model).unwrap();
        let opened = Opened::new(&path, &settings);
        opened.write(0, &model[..1]);
        opened.atomic().sync().unwrap();
        let mut alternate = 0;
        for round in 0..60 {
            take_lease(&opened);
            opened.write(0, &model[..1]);
            opened.atomic().sync().unwrap();
            alternate += u32::from(opened.atomic().policy() == Some(PolicyChoice::Alternate));
            // Several complete epochs, then one that stays open.
            for epoch in 0..3 {
                let committed = model.clone();
                for _ in 0..30 {
                    let len = [1, 30, 64, 700, 4096, 9000][random.below(6) as usize];
                    let at = random.below(model.len() as u64 + 100);
                    let data = vec![random.below(256) as u8; len];
                    opened.write(at, &data);
                    let end = at as usize + len;
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&data);
                }
                if random.below(4) == 0 {
                    let size = 200_000 + random.below(150_000);
                    opened.atomic().set_size(size).unwrap();
                    model.resize(size as usize, 0);
                }
                if epoch == 2 {
                    let what = format!("{settings:?}, round {round}");
                    assert_eq!(fs::metadata(&path).unwrap().dev(), fs::metadata(dir.path()).unwrap().dev());
                    let seen = if round % 8 == 0 { copied(&path) } else { fs::read(&path).unwrap() };
                    assert_same(&seen, &committed, &what);
                    assert!(!opened.atomic().has_lease());
                    assert_same(&opened.read(0, model.len() + 1), &model, &what);
                }
                if epoch == 1 && round % 3 == 0 {
                    // More reads than writes: without the lease, the open epoch would use undo.
                    (0..100).for_each(|_| drop(opened.read(0, 64)));
                }
                if epoch != 2 || random.below(2) == 0 {
                    opened.atomic().sync().unwrap();
                    assert_ne!(opened.atomic().policy(), Some(PolicyChoice::Undo), "{settings:?}");
                }
            }
            assert_same(&opened.read(0, model.len() + 1), &model, "afterwards");
            opened.atomic().sync().unwrap();
        }
        assert!(alternate > 50, "{settings:?}: {alternate}");
        drop(opened);
        assert_same(&fs::read(&path).unwrap(), &model, "closed");
    }
}

#[test]
fn several_open_it_at_once() {
    for settings in leased() {
        let dir = Scratch::on_tmpfs("several-open-it");
        let path = dir.path().join("file");
        let opened = Opened::new(&path, &settings);
        opened.write(0, &[1; 50_000]);
        for number in 2..30 {
            opened.atomic().sync().unwrap();
            take_lease(&opened);
            opened.write(0, &[number; 50_000]);
            opened.atomic().sync().unwrap();
            for at in (0..60_000).step_by(300) {
                opened.write(at, &[0; 150]);
            }
            let cats: Vec<_> =
                (0..3).map(|_| Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn().unwrap()).collect();
            for cat in cats {
                assert_same(
                    &cat.wait_with_output().unwrap().stdout,
                    &[number; 50_000],
                    &format!("{settings:?}, {number}"),
                );
            }
            opened.atomic().set_size(50_000).unwrap();
        }
    }
}

/// An account book: money only moves. A copy made in the middle of a transfer must not miss any.
#[test]
fn a_copy_adds_up() {
    const ACCOUNTS: u64 = 3000;
    let sum = |book: &[u8]| book.chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).sum::<i64>();
    for settings in leased() {
        let dir = Scratch::on_tmpfs("a-copy-adds-up");
        let path = dir.path().join("book");
        fs::write(&path, vec![0; ACCOUNTS as usize * 8]).unwrap();
        let opened = Opened::new(&path, &settings);
        let mut random = Random::new(9);
        opened.write(0, &[0; 8]);
        opened.atomic().sync().unwrap();
        for round in 0..40 {
            take_lease(&opened);
            opened.write(0, &opened.read(0, 8));
            opened.atomic().sync().unwrap();
            for transfer in 0..50 {
                let (from, to) = (random.below(ACCOUNTS) * 8, random.below(ACCOUNTS) * 8);
                let amount = random.below(1000) as i64;
                let add = |at: u64, amount: i64| {
                    let now = i64::from_le_bytes(opened.read(at, 8).try_into().unwrap());
                    opened.write(at, &(now + amount).to_le_bytes());
                };
                add(from, -amount);
                if transfer == 49 {
                    let book = if round % 10 == 0 { copied(&path) } else { fs::read(&path).unwrap() };
                    assert_eq!(book.len() as u64, ACCOUNTS * 8);
                    assert_eq!(sum(&book), 0, "{settings:?}, round {round}");
                }
                add(to, amount);
                opened.atomic().sync().unwrap();
            }
        }
    }
}

/// Each 64 bytes hold one number twice; in the middle of an epoch, a negative one. A concurrent reader must never see
/// that.
#[test]
fn nobody_sees_what_is_not_committed() {
    const GRANULES: u64 = 2000;
    for settings in leased().filter(|s| s.policy == PolicyChoice::Auto) {
        let dir = Scratch::on_tmpfs("nobody-sees");
        let path = dir.path().join("file");
        let granule = |number: i64| number.to_le_bytes().repeat(8);
        fs::write(&path, granule(1).repeat(GRANULES as usize)).unwrap();
        let opened = Opened::new(&path, &settings);
        opened.write(0, &granule(1));
        take_lease(&opened);
        opened.atomic().sync().unwrap();
        let mut random = Random::new(3);
        let done = std::sync::atomic::AtomicBool::new(false);
        let reads = [const { std::sync::atomic::AtomicU64::new(0) }; 2];
        let all_have_read = || reads.iter().all(|reads| reads.load(std::sync::atomic::Ordering::Relaxed) > 0);
        std::thread::scope(|scope| {
            let readers: Vec<_> = reads
                .iter()
                .map(|reads| {
                    let (path, settings, done) = (&path, &settings, &done);
                    scope.spawn(move || {
                        while !done.load(std::sync::atomic::Ordering::Relaxed) {
                            let seen = fs::read(path).unwrap();
                            assert_eq!(seen.len() as u64, GRANULES * 64);
                            for (at, number) in seen.chunks(8).enumerate() {
                                let number = i64::from_le_bytes(number.try_into().unwrap());
                                assert!(number > 0, "{settings:?}: {number} at {}", at * 8);
                            }
                            reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            std::thread::sleep(std::time::Duration::from_millis(5));
                        }
                    })
                })
                .collect();
            // However late they begin; but not forever, if they fail.
            let goes_on = |number: i64| number < 4000 || !all_have_read() && !readers.iter().any(|r| r.is_finished());
            for number in (2..).take_while(|&number| goes_on(number)) {
                let places: Vec<u64> = (0..5).map(|_| random.below(GRANULES) * 64).collect();
                places.iter().for_each(|&at| opened.write(at, &granule(-number)));
                places.iter().for_each(|&at| opened.write(at, &granule(number)));
                opened.atomic().sync().unwrap();
                opened.atomic().ask_for_lease();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(all_have_read());
    }
}

/// Killed after the file was exposed, with more written since: the last SYNC must be there.
#[test]
fn killed_after_it_was_exposed() {
    for (number, settings) in leased().enumerate() {
        for policy_before in [true, false] {
            let mut steps = vec![write(0, 9000, 1), write(12_000, 100, 2), Lease, Sync];
            steps.extend([write(50, 300, 3), write(20_000, 3000, 4), write(4096, 64, 5), Sync]);
            steps.extend([write(40, 8000, 7), write(20_990, 2000, 8), write(12_000, 10, 9), Expose]);
            if policy_before {
                steps.extend([write(100, 200, 10), write(5000, 90, 11), Size(22_000)]);
            }
            let crashed = Crashed::new(Scratch::on_tmpfs(&format!("killed-exposed-{number}")), &settings, &steps);
            crashed.recover(Use::Refuse);
            crashed.assert_recovered();
        }
    }
}

const WRITER: &str = "FAMIO_LEASE_WRITER";

/// The writer of the test below: epochs of one number each, each reported when it is durable.
#[test]
fn writer_child() {
    let Ok(path) = std::env::var(WRITER) else { return };
    let settings = Settings { emulated: path.ends_with("emulated"), ..always() };
    let opened = Opened::new(Path::new(&path), &settings);
    for number in 1..u64::MAX {
        // Half of the granules of each block, so that the homes of the others matter.
        for at in (0..BLOCKS * 4096).step_by(64).filter(|at| (at / 64 + number).is_multiple_of(2) || number == 1) {
            opened.write(at, &number.to_le_bytes().repeat(8));
        }
        opened.atomic().sync().unwrap();
        opened.atomic().ask_for_lease();
        writeln!(std::io::stderr(), "{number}").unwrap();
    }
}

const BLOCKS: u64 = 6;

/// Killed at any moment while an outsider opens the file repeatedly: the file must have a complete epoch, and no
/// acknowledged one may be lost.
#[test]
fn killed_while_it_is_exposed() {
    let expected =
        |number: u64, at: u64| if number < 2 || (at / 64 + number).is_multiple_of(2) { number } else { number - 1 };
    for round in 0..12 {
        let dir = Scratch::on_tmpfs(&format!("killed-while-{round}"));
        let path = dir.path().join(if round % 2 == 0 { "file" } else { "emulated" });
        fs::write(&path, vec![0; BLOCKS as usize * 4096]).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_child", "--nocapture"])
            .env(WRITER, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap()).filter_map(|line| line.parse::<u64>().ok());
        assert_eq!(lines.next(), Some(1));
        let last = std::thread::scope(|scope| {
            let reader = scope.spawn(|| lines.last().unwrap_or(1));
            for _ in 0..30 + round * 13 {
                drop(File::open(&path).unwrap());
            }
            child.kill().unwrap();
            child.wait().unwrap();
            reader.join().unwrap()
        });
        let settings = Settings { emulated: round % 2 == 1, ..always() };
        crash::recover(&path, &settings, Use::Refuse);
        let found = fs::read(&path).unwrap();
        assert_eq!(found.len() as u64, BLOCKS * 4096);
        let numbers: Vec<u64> = found.chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
        let whole = [last, last + 1]
            .iter()
            .any(|&number| numbers.iter().enumerate().all(|(i, &found)| found == expected(number, i as u64 * 8)));
        assert!(whole, "round {round}, {last} acknowledged: {:?}", &numbers[..16]);
    }
}

/// The lease thread handles files in the order in which they were opened: when the second has its lease, the first
/// has been tried.
fn is_refused(first: &Opened, dir: &Path) -> bool {
    let path = dir.join("second");
    let second = Opened::new(&path, &always());
    second.write(0, &[1]);
    first.atomic().ask_for_lease();
    take_lease(&second);
    !first.atomic().has_lease()
}

/// An outsider had the file open before this process, or opened it meanwhile: auto chooses undo or redo.
#[test]
fn without_the_lease_auto_is_never_alternate() {
    let dir = Scratch::on_tmpfs("without-the-lease");
    let path = dir.path().join("file");
    fs::write(&path, vec![0; 40_000]).unwrap();
    let outsider = File::open(&path).unwrap();
    let opened = Opened::new(&path, &always());
    opened.write(0, &[1; 100]);
    assert!(is_refused(&opened, dir.path()));
    for round in 0..300u32 {
        opened.write(u64::from(round) * 100, &[2; 100]);
        opened.atomic().sync().unwrap();
        assert_eq!(opened.atomic().policy(), Some(PolicyChoice::Redo));
    }
    drop(outsider);
    take_lease(&opened);
    opened.write(0, &[1; 100]);
    opened.atomic().sync().unwrap();
    assert_eq!(opened.atomic().policy(), Some(PolicyChoice::Alternate));
    let _outsider = File::open(&path).unwrap();
    for _ in 0..10 {
        opened.write(0, &[3; 100]);
        opened.atomic().sync().unwrap();
        assert_eq!(opened.atomic().policy(), Some(PolicyChoice::Redo));
    }
}

/// Automatically, at a SYNC; and again after it was broken.
#[test]
fn it_is_taken_at_a_sync() {
    let dir = Scratch::on_tmpfs("it-is-taken");
    let opened = Opened::new(&dir.path().join("file"), &always());
    for _ in 0..2 {
        while opened.atomic().policy() != Some(PolicyChoice::Alternate) {
            opened.write(0, &[1; 100]);
            opened.atomic().sync().unwrap();
        }
        drop(File::open(dir.path().join("file")).unwrap());
        assert!(!opened.atomic().has_lease());
    }
}

fn fcntl(file: &File, command: i32, argument: usize) -> i32 {
    // SAFETY: these commands take a number.
    unsafe { libc::fcntl(file.as_raw_fd(), command, argument) }
}

const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

#[test]
fn what_the_program_set_is_left_alone() {
    let with = |set: &dyn Fn(&File), check: &dyn Fn(&File)| {
        let dir = Scratch::on_tmpfs("what-the-program-set");
        let opened = Opened::new(&dir.path().join("file"), &always());
        opened.write(0, &[1; 100]);
        set(opened.file());
        assert!(is_refused(&opened, dir.path()));
        opened.write(0, &[1; 100]);
        opened.atomic().sync().unwrap();
        check(opened.file());
    };
    let set = |command, argument| move |file: &File| assert_eq!(fcntl(file, command, argument), 0);
    let shows = |command, value| move |file: &File| assert_eq!(fcntl(file, command, 0), value);
    with(&set(F_SETSIG, libc::SIGUSR1 as usize), &shows(F_GETSIG, libc::SIGUSR1));
    let me = std::process::id() as i32;
    with(&set(libc::F_SETOWN, me as usize), &shows(libc::F_GETOWN, me));
    with(&set(libc::F_SETLEASE, libc::F_WRLCK as usize), &shows(libc::F_GETLEASE, libc::F_WRLCK));
}

/// After it is given up, the description is as before; record locks stay throughout.
#[test]
fn nothing_is_left_on_the_description() {
    let dir = Scratch::on_tmpfs("nothing-is-left");
    let opened = Opened::new(&dir.path().join("file"), &always());
    opened.write(0, &[1; 100]);
    // SAFETY: all-zero bytes are a lock.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    assert_eq!(fcntl(opened.file(), libc::F_SETLK, &raw const lock as usize), 0);
    take_lease(&opened);
    assert_eq!(fcntl(opened.file(), libc::F_GETLEASE, 0), libc::F_WRLCK);
    opened.atomic().bar_lease().unwrap();
    for (command, value) in [(libc::F_GETLEASE, libc::F_UNLCK), (libc::F_GETOWN, 0), (F_GETSIG, 0)] {
        assert_eq!(fcntl(opened.file(), command, 0), value);
    }
    assert!(is_refused(&opened, dir.path()));
    let mine = famio_test_support::kernel_locks::of_inode(opened.file().metadata().unwrap().ino());
    assert!(mine.len() == 1 && mine[0].contains("POSIX"), "{mine:?}");
}

/// The descriptor that holds it is closed, while another one stays.
#[test]
fn its_descriptor_is_closed() {
    let dir = Scratch::on_tmpfs("its-descriptor");
    let path = dir.path().join("file");
    fs::write(&path, [0; 10_000]).unwrap();
    let opened = Opened::new(&path, &always());
    opened.write(0, &[1; 100]);
    let second = opened.file().try_clone().unwrap();
    opened.atomic().add_descriptor(second.as_raw_fd(), famio::file::Access::Write);
    take_lease(&opened);
    opened.write(0, &[1; 100]);
    opened.atomic().sync().unwrap();
    opened.write(0, &[2; 100]);
    opened.write(0, &[3; 100]);
    opened.atomic().remove_descriptor(opened.file().as_raw_fd()).unwrap();
    assert!(!opened.atomic().has_lease());
    assert_eq!(fs::read(&path).unwrap()[..100], [1; 100]);
    opened.atomic().add_descriptor(opened.file().as_raw_fd(), famio::file::Access::Write);
    opened.atomic().remove_descriptor(second.as_raw_fd()).unwrap();
    take_lease(&opened);
}

const HOST: &str = "FAMIO_LEASE_HOST";

/// A program with its own signal handling: none of its handlers runs, its signals are unchanged, `setuid` returns,
/// and in the end there is no lease thread.
#[test]
fn host_child() {
    static CAUGHT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    extern "C" fn caught(_: i32) {
        CAUGHT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let Ok(path) = std::env::var(HOST) else { return };
    // SAFETY: a handler that touches an atomic word.
    unsafe { libc::signal(libc::SIGIO, caught as *const () as usize) };
    let opened = Opened::new(Path::new(&path), &always());
    opened.write(0, &[1; 100]);
    for _ in 0..20 {
        take_lease(&opened);
        opened.write(0, &[1; 100]);
        opened.atomic().sync().unwrap();
        drop(File::open(&path).unwrap());
        // SAFETY: sets the current user.
        assert_eq!(unsafe { libc::setuid(libc::getuid()) }, 0);
    }
    drop(opened);
    let threads = || fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    while threads().any(|name| fs::read_to_string(name).is_ok_and(|name| name.trim() == "famio-lease")) {
        std::thread::yield_now();
    }
    assert_eq!(CAUGHT.load(std::sync::atomic::Ordering::Relaxed), 0);
    // SAFETY: only queries.
    unsafe { assert_eq!(libc::signal(libc::SIGIO, libc::SIG_DFL), caught as *const () as usize) };
}

#[test]
fn the_host_notices_nothing() {
    let dir = Scratch::on_tmpfs("the-host");
    let mut host = Command::new(std::env::current_exe().unwrap());
    host.args(["--exact", "host_child", "--nocapture"]).env(HOST, dir.path().join("file"));
    let done = host.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
