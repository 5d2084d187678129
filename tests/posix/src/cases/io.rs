//! Reading and writing, descriptors, locks.

use super::case::Case;
use super::script::Script;
use libc::{O_CREAT, O_RDONLY, O_RDWR};

pub const CASES: &[Case] = &[
    Case { name: "io/empty", run: empty, differs: &[] },
    Case { name: "io/bad-memory", run: bad_memory, differs: &[] },
    Case { name: "io/vectors", run: vectors, differs: &[] },
    Case { name: "io/duplicates", run: duplicates, differs: &[] },
    Case { name: "io/duplicates-errors", run: duplicates_errors, differs: &[] },
    Case { name: "io/shared-by-fork", run: shared_by_fork, differs: &[] },
    Case { name: "io/locks", run: locks, differs: &[] },
    Case { name: "io/locks-of-descriptions", run: locks_of_descriptions, differs: &[] },
    Case { name: "io/holes-of-a-parent", run: holes_of_a_parent, differs: &[] },
    Case { name: "io/a-child-cuts", run: a_child_cuts, differs: &[] },
    Case { name: "io/flock", run: flock, differs: &[] },
    Case { name: "io/copies", run: copies, differs: &[] },
    Case { name: "io/copies-errors", run: copies_errors, differs: &[] },
    Case { name: "io/ioctl", run: ioctl, differs: &[] },
    Case { name: "io/sync-errors", run: sync_errors, differs: &[] },
];

fn empty(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.read(fd, 4);
    s.write(fd, "");
    s.pwrite(fd, "", 100);
    s.fstat(fd);
    s.pwrite(fd, "", -1);
    s.write(fd, "text");
    s.read(fd, 0);
    s.pread(fd, 0, 0);
    s.pread(fd, 4, 4);
    s.pread(fd, 100, 2);
    s.close(fd);
}

fn bad_memory(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    let bad = 8 as *mut libc::c_void;
    // SAFETY: an unmapped address gives an error.
    unsafe {
        s.gave("read", libc::pread(fd, bad, 4, 0) as i64);
        s.gave("read beyond the end", libc::pread(fd, bad, 4, 10) as i64);
        s.gave("write", libc::pwrite(fd, bad, 4, 0) as i64);
        s.gave("write of nothing", libc::pwrite(fd, bad, 0, 0) as i64);
        s.gave("too many bytes", libc::write(fd, bad, usize::MAX) as i64);
        s.gave("fstat", libc::fstat(fd, bad.cast()));
        s.gave("open", libc::open(bad.cast(), O_RDWR));
        s.gave("rename", libc::rename(c"atomic-a".as_ptr(), bad.cast()));
    }
    s.pread(fd, 10, 0);
    s.close(fd);
}

fn vectors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    let mut parts = [*b"abc", *b"def", *b"ghi"];
    let vector: Vec<libc::iovec> =
        parts.iter_mut().map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: 3 }).collect();
    let many = vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 1025];
    // SAFETY: the buffers are as long as said.
    unsafe {
        s.gave("writev", libc::writev(fd, vector.as_ptr(), 3) as i64);
        s.gave("pwritev", libc::pwritev(fd, vector.as_ptr(), 2, 5) as i64);
        s.gave("pwritev2, append", libc::pwritev2(fd, vector.as_ptr(), 1, 0, libc::RWF_APPEND) as i64);
        s.gave("pwritev2, at the position", libc::pwritev2(fd, vector.as_ptr(), 1, -1, libc::RWF_DSYNC) as i64);
        s.gave("pwritev2, unknown", libc::pwritev2(fd, vector.as_ptr(), 1, 0, 1 << 20) as i64);
        let far = libc::pwritev2(fd, vector.as_ptr(), 1, i64::MAX, 1 << 20);
        s.gave("pwritev2, unknown and too far", far as i64);
        s.gave("none", libc::writev(fd, vector.as_ptr(), 0) as i64);
        s.gave("less than none", libc::writev(fd, vector.as_ptr(), -1) as i64);
        s.gave("too many", libc::writev(fd, many.as_ptr(), 1025) as i64);
        s.gave("as many as may be", libc::writev(fd, many.as_ptr(), 1024) as i64);
        s.gave("at a bad place", libc::pwritev(fd, vector.as_ptr(), 1, -5) as i64);
        s.gave("preadv", libc::preadv(fd, vector.as_ptr(), 3, 7) as i64);
        s.gave("readv at the end", libc::readv(fd, vector.as_ptr(), 3) as i64);
    }
    s.line("came", String::from_utf8_lossy(&parts.concat()));
    s.pread(fd, 40, 0);
    s.close(fd);
}

fn duplicates(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    // SAFETY: no memory is passed.
    unsafe {
        let copy = libc::dup(fd);
        s.fd("dup", copy);
        s.seek(copy, 3, libc::SEEK_SET);
        s.read(fd, 2);
        s.gave("F_SETFL on one", libc::fcntl(fd, libc::F_SETFL, libc::O_APPEND));
        s.gave("F_GETFL of the other", libc::fcntl(copy, libc::F_GETFL));
        s.write(copy, "!");
        let third = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100);
        s.line("at least", third >= 100);
        s.gave("F_GETFD", libc::fcntl(third, libc::F_GETFD));
        s.line("dup2", libc::dup2(third, copy) == copy);
        s.line("dup2 onto itself", libc::dup2(copy, copy) == copy);
        s.seek(copy, 0, libc::SEEK_CUR);
        s.line("dup3", libc::dup3(fd, third, libc::O_CLOEXEC) == third);
        s.close(fd);
        s.write(third, "?");
        s.close(third);
        s.pread(copy, 30, 0);
        s.close(copy);
    }
    s.holds("atomic-a");
}

fn duplicates_errors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    // SAFETY: no memory is passed.
    unsafe {
        s.gave("dup", libc::dup(9999));
        s.gave("dup2", libc::dup2(9999, fd));
        s.gave("dup2 far", libc::dup2(fd, 1 << 30));
        s.gave("dup2 negative", libc::dup2(fd, -1));
        s.gave("dup3 onto itself", libc::dup3(fd, fd, 0));
        s.gave("dup3, a flag", libc::dup3(fd, 77, 1 << 25));
        s.gave("F_DUPFD negative", libc::fcntl(fd, libc::F_DUPFD, -1));
        s.gave("F_DUPFD far", libc::fcntl(fd, libc::F_DUPFD, 1 << 30));
        s.gave("no such command", libc::fcntl(fd, 9999, 0));
        s.gave("F_GETFL", libc::fcntl(9999, libc::F_GETFL));
    }
    s.write(fd, "still there");
    s.pread(fd, 20, 0);
    s.close(fd);
}

fn shared_by_fork(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "parent");
    s.child("a child writes and seeks", || {
        let mut child = Script::default();
        child.write(fd, " child");
        child.seek(fd, 3, libc::SEEK_SET);
        child.read(fd, 3);
        i32::from(!child.text().contains("\"ent\""))
    });
    s.seek(fd, 0, libc::SEEK_CUR);
    s.write(fd, "+");
    s.child("a child cuts and closes", || {
        let mut child = Script::default();
        // SAFETY: no memory is passed.
        let cut = unsafe { libc::ftruncate(fd, 9) };
        child.close(fd);
        child.write(fd, "x");
        i32::from(cut != 0 || !child.text().contains("EBADF"))
    });
    s.fstat(fd);
    s.child("a child opens it anew", || {
        let mut child = Script::default();
        let own = child.open("atomic-a", O_RDWR);
        child.pwrite(own, "CHILD", 4);
        child.pread(fd, 20, 0);
        i32::from(!child.text().contains("pareCHILD"))
    });
    s.pread(fd, 30, 0);
    s.close(fd);
    s.holds("atomic-a");
}

/// Looking for holes must not move a position that a child shares.
fn holes_of_a_parent(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    s.child("a child punches and zeroes", || {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: no memory is passed.
        i32::from(unsafe { libc::fallocate(fd, mode, 2, 3) } != 0)
    });
    s.seek(fd, 0, libc::SEEK_CUR);
    // SAFETY: no memory is passed.
    let done = unsafe { libc::fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 7, 8000) };
    s.gave("fallocate", done);
    s.seek(fd, 0, libc::SEEK_CUR);
    s.pread(fd, 20, 0);
    s.close(fd);
}

/// A child that has used one of its parent's descriptors, which reads, also has the other one.
fn a_child_cuts(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    let read = s.open("atomic-a", O_RDONLY);
    s.child("a child looks, reads and cuts", || {
        let mut child = Script::default();
        child.stat("atomic-a");
        child.read(read, 4);
        child.named("truncate", &["atomic-a"], |n| {
            // SAFETY: the name ends with a zero.
            unsafe { libc::truncate(n[0], 6) }
        });
        child.fstat(read);
        i32::from(child.text().contains("EBUSY") || !child.text().contains(", 10\n") || !child.text().contains(", 6\n"))
    });
    s.fstat(fd);
    s.pread(fd, 20, 0);
    s.close(fd);
    s.close(read);
}

fn lock(command: i32, fd: i32, kind: i32, start: i64, len: i64) -> (i32, libc::flock) {
    // SAFETY: zeros are a valid lock; it is alive.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, start, len);
        (libc::fcntl(fd, command, &mut lock), lock)
    }
}

fn locks(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    let (done, _) = lock(libc::F_SETLK, fd, libc::F_WRLCK, 2, 3);
    s.gave("F_WRLCK", done);
    let parent = std::process::id() as i32;
    s.child("a child sees it", || {
        let (_, seen) = lock(libc::F_GETLK, fd, libc::F_WRLCK, 0, 0);
        let same = (seen.l_type, seen.l_start, seen.l_len, seen.l_pid) == (libc::F_WRLCK as i16, 2, 3, parent);
        let refused = lock(libc::F_SETLK, fd, libc::F_RDLCK, 4, 1).0 == -1;
        let beside = lock(libc::F_SETLK, fd, libc::F_WRLCK, 5, 1).0 == 0;
        i32::from(!(same && refused && beside))
    });
    let (done, _) = lock(libc::F_SETLK, fd, 9, 0, 0);
    s.gave("no such kind", done);
    let (done, _) = lock(libc::F_SETLK, fd, libc::F_WRLCK, -1, 0);
    s.gave("a bad start", done);
    let read = s.open("atomic-a", O_RDONLY);
    let (done, _) = lock(libc::F_SETLK, read, libc::F_WRLCK, 8, 1);
    s.gave("to write, by one that reads", done);
    s.close(read);
    s.child("the close of any drops it", || i32::from(lock(libc::F_SETLK, fd, libc::F_WRLCK, 2, 3).0 != 0));
    // SAFETY: no memory is passed.
    unsafe {
        s.seek(fd, 4, libc::SEEK_SET);
        s.gave("lockf", libc::lockf(fd, libc::F_TLOCK, 2));
    }
    s.child("lockf from the position on", || {
        let (_, seen) = lock(libc::F_GETLK, fd, libc::F_WRLCK, 0, 0);
        i32::from((seen.l_start, seen.l_len) != (4, 2))
    });
    s.close(fd);
}

fn locks_of_descriptions(s: &mut Script) {
    let (a, b) = (s.open("atomic-a", O_RDWR | O_CREAT), s.open("atomic-a", O_RDWR));
    s.write(a, "0123456789");
    let (done, _) = lock(libc::F_OFD_SETLK, a, libc::F_WRLCK, 0, 4);
    s.gave("the first", done);
    let (done, _) = lock(libc::F_OFD_SETLK, b, libc::F_WRLCK, 3, 4);
    s.gave("the second", done);
    let (done, _) = lock(libc::F_OFD_SETLK, b, libc::F_WRLCK, 4, 4);
    s.gave("the second, beside", done);
    // SAFETY: no memory is passed.
    let copy = unsafe { libc::dup(a) };
    s.close(a);
    let (done, _) = lock(libc::F_OFD_SETLK, b, libc::F_WRLCK, 0, 1);
    s.gave("its copy keeps it", done);
    s.close(copy);
    let (done, _) = lock(libc::F_OFD_SETLK, b, libc::F_WRLCK, 0, 1);
    s.gave("nobody keeps it", done);
    s.close(b);
}

fn flock(s: &mut Script) {
    let (a, b) = (s.open("atomic-a", O_RDWR | O_CREAT), s.open("atomic-a", O_RDWR));
    s.write(a, "text");
    // SAFETY: no memory is passed.
    unsafe {
        s.gave("exclusive", libc::flock(a, libc::LOCK_EX));
        s.gave("by another", libc::flock(b, libc::LOCK_SH | libc::LOCK_NB));
        s.gave("shared", libc::flock(a, libc::LOCK_SH));
        s.gave("by another", libc::flock(b, libc::LOCK_SH | libc::LOCK_NB));
        s.gave("no such", libc::flock(a, 77));
        s.gave("given up", libc::flock(a, libc::LOCK_UN));
        s.gave("by another", libc::flock(b, libc::LOCK_EX | libc::LOCK_NB));
        s.close(b);
        s.gave("after its close", libc::flock(a, libc::LOCK_EX | libc::LOCK_NB));
    }
    s.close(a);
}

fn copies(s: &mut Script) {
    let (a, b) = (s.open("atomic-a", O_RDWR | O_CREAT), s.open("atomic-b", O_RDWR | O_CREAT));
    let plain = s.open("other", O_RDWR | O_CREAT);
    s.write(a, "0123456789");
    s.write(plain, "plain text");
    let mut at = 2;
    // SAFETY: the offsets are alive.
    unsafe {
        let null = std::ptr::null_mut();
        s.gave("copy_file_range", libc::copy_file_range(a, &mut at, b, null, 5, 0) as i64);
        s.gave("to the end", libc::copy_file_range(a, &mut at, b, null, 100, 0) as i64);
        s.gave("at the end", libc::copy_file_range(a, &mut at, b, null, 100, 0) as i64);
        s.gave("to a plain file", libc::copy_file_range(a, &mut 0, plain, null, 4, 0) as i64);
        s.gave("from a plain file", libc::copy_file_range(plain, &mut 0, b, null, 5, 0) as i64);
        let mut at = 1;
        s.gave("sendfile", libc::sendfile(b, a, &mut at, 3) as i64);
        s.line("offset", at);
    }
    s.seek(a, 0, libc::SEEK_CUR);
    s.seek(b, 0, libc::SEEK_CUR);
    for fd in [a, b, plain] {
        s.pread(fd, 60, 0);
        s.close(fd);
    }
}

fn copies_errors(s: &mut Script) {
    let a = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(a, "0123456789");
    let (read, folder) = (s.open("atomic-a", O_RDONLY), s.open(".", O_RDONLY));
    let append = s.open("atomic-a", O_RDWR | libc::O_APPEND);
    // SAFETY: the offsets are alive.
    unsafe {
        let copy = |from: i32, from_at: i64, to: i32, to_at: i64, len: usize, flags: u32| {
            libc::copy_file_range(from, &mut { from_at }, to, &mut { to_at }, len, flags) as i64
        };
        s.gave("overlapping", copy(a, 0, a, 2, 4, 0));
        s.gave("beside", copy(a, 0, a, 4, 4, 0));
        s.gave("into one that reads", copy(a, 0, read, 20, 4, 0));
        s.gave("into one that appends", copy(a, 0, append, 20, 4, 0));
        s.gave("into a folder", copy(a, 0, folder, 20, 4, 0));
        s.gave("a flag", copy(a, 0, a, 20, 4, 1));
        s.gave("from before", copy(a, -1, a, 20, 4, 0));
        s.gave("too far", copy(a, 0, a, i64::MAX, 4, 0));
        s.gave("from before, and too far", copy(a, -4096, a, i64::MAX, 4, 0));
        s.gave("from before, to before", copy(a, -4096, a, -4096, 4, 0));
        s.gave("too far, of nothing", copy(a, 10, a, i64::MAX, 4, 0));
        s.gave("sendfile into one that reads", libc::sendfile(read, a, &mut 0, 4) as i64);
        s.gave("sendfile into one that appends", libc::sendfile(append, a, &mut 0, 4) as i64);
        s.gave("sendfile from before", libc::sendfile(a, read, &mut -1, 4) as i64);
    }
    s.pread(a, 30, 0);
    for fd in [a, read, folder, append] {
        s.close(fd);
    }
}

fn ioctl(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    s.seek(fd, 3, libc::SEEK_SET);
    let mut left = 0;
    // SAFETY: the number is alive.
    unsafe {
        s.gave("FIONREAD", libc::ioctl(fd, libc::FIONREAD, &mut left));
        s.line("left", left);
        s.gave("a terminal's", libc::ioctl(fd, libc::TIOCGWINSZ, [0u16; 4].as_mut_ptr()));
        s.gave("isatty", libc::isatty(fd).wrapping_sub(1));
    }
    s.close(fd);
}

fn sync_errors(s: &mut Script) {
    let (fd, read) = (s.open("atomic-a", O_RDWR | O_CREAT), s.open("atomic-a", O_RDONLY));
    s.write(fd, "text");
    // SAFETY: no memory is passed.
    unsafe {
        for (name, fd) in [("one", fd), ("one that reads", read), ("none", 9999)] {
            s.gave(&format!("fsync of {name}"), libc::fsync(fd));
            s.gave(&format!("fdatasync of {name}"), libc::fdatasync(fd));
            s.gave(&format!("sync_file_range of {name}"), libc::sync_file_range(fd, 0, 0, 7));
        }
        s.gave("sync_file_range, a flag", libc::sync_file_range(fd, 0, 0, 64));
        s.gave("sync_file_range, a bad place", libc::sync_file_range(fd, -1, 0, 7));
        s.gave("syncfs", libc::syncfs(fd));
    }
    s.close(fd);
    s.close(read);
}
