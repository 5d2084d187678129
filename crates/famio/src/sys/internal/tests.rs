use super::*;
use rustix::fs::{MemfdFlags, memfd_create};
use std::os::fd::{FromRawFd, IntoRawFd};

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
    // SAFETY: the number is one of the library's, which has to cope with that.
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
