use super::*;
use rustix::fs::{MemfdFlags, memfd_create};
use std::cell::RefCell;
use std::os::fd::{FromRawFd, IntoRawFd};

type Meanwhile = Box<dyn FnMut(RawFd)>;

thread_local! {
    /// Runs on this thread while a descriptor passes through the number.
    static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
}

pub(super) fn just_opened(low: RawFd) {
    MEANWHILE.with_borrow_mut(|meanwhile| meanwhile.iter_mut().for_each(|run| run(low)));
}

fn file(bytes: &[u8]) -> OwnedFd {
    let file = memfd_create("famio-test", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, bytes, 0).unwrap();
    file
}

fn first(fd: impl AsFd) -> rustix::io::Result<u8> {
    let mut byte = [0];
    rustix::io::pread(fd, &mut byte, 0).map(|_| byte[0])
}

/// As a program does by an inlined system call.
fn put_over(number: RawFd, other: &OwnedFd) {
    // SAFETY: one of the library's numbers, which it must be able to handle.
    let mut target = core::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::dup2(other, &mut target).unwrap();
}

fn close(number: RawFd) {
    // SAFETY: as above.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

#[test]
fn it_lies_high_is_shared_and_goes_with_the_last_owner() {
    let file = file(b"a");
    let one = InternalFd::duplicate(file.as_fd()).unwrap();
    let number = one.as_raw_fd();
    let two = InternalFd::duplicate(one.as_fd()).unwrap();
    assert!(number > 100 && two.as_raw_fd() == number && is_internal(number) && !is_internal(file.as_raw_fd()));
    drop(one);
    assert_eq!(first(&two), Ok(b'a'));
    drop(two);
    assert!(!is_internal(number));
}

/// It once got a number above: the first write of a session waited 10 to 20 ms for the kernel's table of descriptors
/// to grow.
#[test]
fn it_lies_below_the_top_beside_descriptors_that_are_not_in_the_table() {
    let file = file(b"a");
    let beside: Vec<OwnedFd> = (0..3).map(|_| numbers::high_duplicate(file.as_fd()).unwrap()).collect();
    let fd = InternalFd::duplicate(file.as_fd()).unwrap();
    assert!(fd.as_raw_fd() < numbers::TOP && beside.iter().all(|fd| fd.as_raw_fd() < numbers::TOP));
}

#[test]
fn nothing_is_done_through_a_number_that_is_the_programs() {
    let (file, other) = (file(b"a"), file(b"b"));
    let fd = InternalFd::duplicate(file.as_fd()).unwrap();
    let number = fd.as_raw_fd();
    put_over(number, &other);
    assert!(first(&fd).is_err() && fd.get().is_err() && !is_internal(number));
    drop(fd);
    // Not closed with it: it is the program's.
    // SAFETY: open, by `put_over`.
    assert_eq!(first(unsafe { BorrowedFd::borrow_raw(number) }), Ok(b'b'));
    close(number);
}

#[test]
fn it_moves_away_and_a_user_is_waited_for() {
    let file = file(b"a");
    let fd = InternalFd::duplicate(file.as_fd()).unwrap();
    let number = fd.as_raw_fd();
    let using = fd.get().unwrap();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| move_away(number).unwrap().unwrap());
        while fd.as_raw_fd() == number {
            std::thread::yield_now();
        }
        assert!(!mover.is_finished());
        assert_eq!(first(&using), Ok(b'a'));
        drop(using);
        let new = mover.join().unwrap();
        assert!(new != number && is_internal(new) && !is_internal(number) && fd.as_raw_fd() == new);
    });
    close(number);
    assert_eq!(first(&fd), Ok(b'a'));
}

#[test]
fn one_with_a_name_is_opened_anew_and_no_other_file() {
    let path = format!("/dev/shm/famio-internal-{}", std::process::id());
    std::fs::write(&path, b"a").unwrap();
    let fd = open(rustix::fs::CWD, &*path, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
    fd.set_name(&*path, false).unwrap();
    close(fd.as_raw_fd());
    assert_eq!(first(&fd), Ok(b'a'));
    close(fd.as_raw_fd());
    std::fs::rename(&path, format!("{path}-old")).unwrap();
    std::fs::write(&path, b"b").unwrap();
    assert!(first(&fd).is_err());
    std::fs::remove_file(&path).unwrap();
    std::fs::rename(format!("{path}-old"), &path).unwrap();
    assert_eq!(first(&fd), Ok(b'a'));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn another_file_takes_its_place_for_all_owners() {
    let fd = InternalFd::duplicate(file(b"a").as_fd()).unwrap();
    let again = InternalFd::duplicate(fd.as_fd()).unwrap();
    let low = file(b"b").into_raw_fd();
    // SAFETY: opened above.
    fd.replace(unsafe { BorrowedFd::borrow_raw(low) }).unwrap();
    close(low);
    assert_eq!((first(&fd), first(&again)), (Ok(b'b'), Ok(b'b')));
}

/// Opens by `open`, while the program puts another file over the number it passes through, unseen: at the `when`th
/// moment.
fn opened_beside(when: u32, open: impl Fn() -> rustix::io::Result<InternalFd>) -> (InternalFd, RawFd) {
    let (other, mut moment, taken) = (file(b"b"), 0, std::rc::Rc::new(Cell::new(-1)));
    let tell = taken.clone();
    let meanwhile = move |low| {
        moment += 1;
        if moment == when {
            put_over(low, &other);
            tell.set(low);
        }
    };
    MEANWHILE.set(Some(Box::new(meanwhile)));
    let opened = open();
    MEANWHILE.set(None);
    (opened.unwrap(), taken.get())
}

/// The program's file is not taken for the library's, and its descriptor is not closed.
fn stays_the_programs(open: impl Fn() -> rustix::io::Result<InternalFd>, expected: u8) {
    // The third moment: the high number, which the library has from then on.
    for when in 1..=3 {
        let (opened, taken) = opened_beside(when, &open);
        assert_eq!(first(&opened), Ok(expected), "moment {when}");
        assert!(opened.as_raw_fd() != taken && !is_internal(taken));
        // SAFETY: open, by `put_over`.
        assert_eq!(first(unsafe { BorrowedFd::borrow_raw(taken) }), Ok(b'b'), "moment {when}");
        close(taken);
    }
}

#[test]
fn what_the_program_puts_in_the_way_of_an_open_stays_its_own() {
    use rustix::fs::{CWD, Mode, OFlags};
    let path = format!("/dev/shm/famio-passing-{}", std::process::id());
    std::fs::write(&path, b"a").unwrap();
    stays_the_programs(|| open(CWD, &*path, OFlags::RDWR, Mode::empty()), b'a');
    let known = file(b"c");
    stays_the_programs(|| open_again(known.as_fd(), OFlags::RDWR), b'c');
    let made = || {
        let made = memfd_create("famio-made", MemfdFlags::CLOEXEC)?;
        rustix::io::pwrite(&made, b"m", 0).map(|_| made)
    };
    stays_the_programs(|| make("/memfd:famio-made", made), b'm');
    std::fs::remove_file(path).unwrap();
}

/// It was once opened again, and written to, because its number had been confirmed just before.
#[test]
fn what_the_program_puts_where_one_was_confirmed_is_not_opened_anew() {
    let (known, other) = (file(b"a"), file(b"b"));
    let access = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let way = opening::Again { of: other.as_fd(), access, known: identity(known.as_fd()).unwrap() };
    assert_eq!(by(&way).unwrap_err().errno(), libc::EBADF);
    let internal = InternalFd::duplicate(known.as_fd()).unwrap();
    assert_eq!(first(internal.open_again(access).unwrap()), Ok(b'a'));
}

#[test]
fn a_file_that_is_made_while_the_program_interferes_is_made_once() {
    use rustix::fs::{CWD, Mode, OFlags};
    let path = format!("/dev/shm/famio-made-{}", std::process::id());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    for when in 1..=3 {
        let (made, taken) = opened_beside(when, || open(CWD, &*path, flags, Mode::RUSR | Mode::WUSR));
        assert_eq!(made.identity(), crate::sys::identity(std::fs::File::open(&path).unwrap().as_fd()).unwrap());
        assert_eq!(open(CWD, &*path, flags, Mode::RUSR).unwrap_err(), rustix::io::Errno::EXIST);
        close(taken);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn an_open_and_a_replacement_exclude_each_other() {
    let state = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        let passing = Passing::begin();
        let replacing = scope.spawn(|| {
            let replacing = Replacing::begin();
            state.store(1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(10));
            state.store(2, Ordering::SeqCst);
            drop(replacing);
        });
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert_eq!(state.load(Ordering::SeqCst), 0);
        drop(passing);
        while state.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let began = std::time::Instant::now();
        drop(Passing::begin());
        // Or it gave up waiting.
        assert!(state.load(Ordering::SeqCst) == 2 || began.elapsed().as_millis() >= 50);
        replacing.join().unwrap();
    });
}

/// Rule 19: a handler that interrupted an open of ours goes on.
#[test]
fn a_thread_does_not_wait_for_itself() {
    let _passing = Passing::begin();
    assert!(Replacing::begin().is_none() && !is_internal_to_close(3));
}
