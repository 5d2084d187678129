//! Times: what changes them, and how they are set.

use super::case::{Case, Differs};
use super::script::Script;
use libc::{O_CREAT, O_RDWR, O_TRUNC};

pub const CASES: &[Case] = &[
    Case { name: "times/moved", run: moved, differs: &[] },
    Case {
        name: "times/moved-by-fsync",
        run: moved_by_fsync,
        differs: &[Differs {
            line: "  mtime, ctime moved",
            on: Some("no pool"),
            why: "of a file that only grows, the committed size is in an attribute: fsync moves the ctime",
        }],
    },
    Case { name: "times/set", run: set, differs: &[] },
    Case { name: "times/set-errors", run: set_errors, differs: &[] },
    Case { name: "times/by-other-names", run: by_other_names, differs: &[] },
];

fn step(s: &mut Script, what: &str, fd: i32, call: impl FnOnce(&mut Script)) {
    let before = Script::look(fd);
    s.later();
    call(s);
    s.line("after", what);
    s.moved(fd, &before);
}

fn moved_by_fsync(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    step(s, "fsync", fd, |s| {
        // SAFETY: no memory is passed.
        let done = unsafe { libc::fsync(fd) };
        s.gave("fsync", done);
    });
    s.close(fd);
}

fn moved(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    step(s, "write", fd, |s| {
        s.pwrite(fd, "x", 0);
    });
    step(s, "an empty write", fd, |s| {
        s.pwrite(fd, "", 0);
    });
    step(s, "read", fd, |s| s.pread(fd, 4, 0));
    // SAFETY: no memory is passed.
    let cut = |s: &mut Script, size: i64| s.gave("ftruncate", unsafe { libc::ftruncate(fd, size) });
    step(s, "a cut", fd, |s| {
        cut(s, 4);
    });
    step(s, "the same size", fd, |s| {
        cut(s, 4);
    });
    step(s, "growth", fd, |s| {
        cut(s, 9);
    });
    step(s, "fallocate", fd, |s| {
        // SAFETY: no memory is passed.
        let done = unsafe { libc::fallocate(fd, 0, 0, 100) };
        s.gave("fallocate", done);
    });
    step(s, "fchmod", fd, |s| {
        // SAFETY: no memory is passed.
        let done = unsafe { libc::fchmod(fd, 0o600) };
        s.gave("fchmod", done);
    });
    step(s, "link", fd, |s| {
        s.named("link", &["atomic-a", "atomic-b"], |n| {
            // SAFETY: names end with a zero.
            unsafe { libc::link(n[0], n[1]) }
        });
    });
    step(s, "rename", fd, |s| {
        s.named("rename", &["atomic-b", "atomic-c"], |n| {
            // SAFETY: names end with a zero.
            unsafe { libc::rename(n[0], n[1]) }
        });
    });
    step(s, "unlink", fd, |s| {
        s.named("unlink", &["atomic-c"], |n| {
            // SAFETY: the name ends with a zero.
            unsafe { libc::unlink(n[0]) }
        });
    });
    step(s, "an open that cuts", fd, |s| {
        let other = s.open("atomic-a", O_RDWR | O_TRUNC);
        s.close(other);
    });
    s.close(fd);
}

fn shown(s: &mut Script, fd: i32) {
    let stat = Script::look(fd);
    s.line(
        "  atime, mtime",
        format!("{}.{}, {}.{}", stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec),
    );
}

fn set(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    let time = |sec: i64, nsec: i64| libc::timespec { tv_sec: sec, tv_nsec: nsec };
    // SAFETY: the array is alive.
    let synced = unsafe { libc::fsync(fd) };
    s.gave("fsync", synced);
    let times = [time(1_000_000, 5), time(2_000_000_000, 7)];
    // SAFETY: the array is alive.
    let done = unsafe { libc::futimens(fd, times.as_ptr()) };
    s.gave("futimens", done);
    shown(s, fd);
    s.close(fd);
    let fd = s.open("atomic-a", O_RDWR);
    shown(s, fd);
    let times = [time(0, libc::UTIME_OMIT), time(1_500_000_000, 9)];
    s.named("utimensat", &["atomic-a"], |n| {
        // SAFETY: the array is alive, the name ends with a zero.
        unsafe { libc::utimensat(libc::AT_FDCWD, n[0], times.as_ptr(), 0) }
    });
    shown(s, fd);
    let before = Script::look(fd);
    s.later();
    s.pwrite(fd, "T", 0);
    s.moved(fd, &before);
    s.close(fd);
}

fn set_errors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    let times = [libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 }; 2];
    // SAFETY: the array is alive.
    let done = unsafe { libc::futimens(fd, times.as_ptr()) };
    s.gave("futimens, a bad time", done);
    s.named("utimensat, no file", &["atomic-none"], |n| {
        // SAFETY: null is now; the name ends with a zero.
        unsafe { libc::utimensat(libc::AT_FDCWD, n[0], std::ptr::null(), 0) }
    });
    // SAFETY: null is now.
    let done = unsafe { libc::futimens(fd, std::ptr::null()) };
    s.gave("futimens, now", done);
    s.close(fd);
}

fn by_other_names(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    s.named("link", &["atomic-a", "other"], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::link(n[0], n[1]) }
    });
    s.later();
    s.write(fd, " and more");
    let here = Script::look(fd);
    for name in ["atomic-a", "other", "./atomic-a"] {
        // SAFETY: filled in by the call.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        s.named(&format!("stat({name})"), &[name], |n| {
            // SAFETY: the name ends with a zero.
            unsafe { libc::stat(n[0], &mut stat) }
        });
        let same =
            (stat.st_size, stat.st_mtime, stat.st_mtime_nsec) == (here.st_size, here.st_mtime, here.st_mtime_nsec);
        s.line("  as by the descriptor", same);
    }
    s.close(fd);
}
