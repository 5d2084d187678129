//! Modes and owners, and their effect on open files.

use super::case::Case;
use super::script::Script;
use libc::{O_CREAT, O_RDONLY, O_RDWR, O_WRONLY};

pub const CASES: &[Case] = &[
    Case { name: "rights/chmod", run: chmod, differs: &[] },
    Case { name: "rights/chown", run: chown, differs: &[] },
    Case { name: "rights/open-stays-open", run: open_stays_open, differs: &[] },
    Case { name: "rights/others", run: others, differs: &[] },
    Case { name: "rights/access", run: access, differs: &[] },
    Case { name: "rights/bits-go", run: bits_go, differs: &[] },
];

/// Becomes another user, for the rest of a child.
fn as_nobody() {
    // SAFETY: no memory is passed.
    unsafe {
        libc::setgroups(0, std::ptr::null());
        libc::setresgid(65534, 65534, 65534);
        libc::setresuid(65534, 65534, 65534);
    }
}

fn mode(s: &mut Script, name: &str, mode: u32) {
    s.named(&format!("chmod({name}, {mode:o})"), &[name], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::chmod(n[0], mode) }
    });
}

fn chmod(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    for bits in [0o600, 0o000, 0o777, 0o4711, 0o2755, 0o1644] {
        mode(s, "atomic-a", bits);
        s.fstat(fd);
    }
    // SAFETY: no memory is passed.
    let done = unsafe { libc::fchmod(fd, 0o640) };
    s.gave("fchmod", done);
    s.write(fd, " more");
    s.fstat(fd);
    s.close(fd);
    s.stat("atomic-a");
    mode(s, "atomic-none", 0o600);
}

fn chown(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    // SAFETY: no memory is passed.
    let done = unsafe { libc::fchown(fd, 65534, 65534) };
    s.gave("fchown", done);
    s.fstat(fd);
    s.write(fd, " more");
    s.close(fd);
    s.stat("atomic-a");
    s.holds("atomic-a");
}

fn open_stays_open(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    mode(s, "atomic-a", 0);
    s.write(fd, "though nobody may");
    // SAFETY: no memory is passed.
    let synced = unsafe { libc::fsync(fd) };
    s.gave("fsync", synced);
    s.pread(fd, 30, 0);
    s.close(fd);
    mode(s, "atomic-a", 0o644);
    s.holds("atomic-a");
}

fn others(s: &mut Script) {
    mode(s, ".", 0o777);
    for (name, bits) in [("atomic-none", 0o000), ("atomic-read", 0o444), ("atomic-write", 0o222), ("atomic-all", 0o666)]
    {
        s.make(name, "text");
        mode(s, name, bits);
    }
    let mut tries = vec![];
    for name in ["atomic-none", "atomic-read", "atomic-all"] {
        tries.extend([O_RDONLY, O_WRONLY, O_RDWR].map(|flags| (name, flags)));
    }
    for (name, flags) in tries.into_iter().chain([("atomic-write", O_RDONLY), ("atomic-write", O_RDWR)]) {
        s.child(&format!("another user opens {name} with {flags}"), || {
            as_nobody();
            let mut child = Script::default();
            let fd = child.open(name, flags);
            if fd >= 0 && flags != O_RDONLY {
                child.write(fd, "T");
                child.close(fd);
            }
            i32::from(fd < 0) + 2 * i32::from(child.text().contains("EACCES"))
        });
    }
    s.child("write-only", || {
        as_nobody();
        let mut child = Script::default();
        let fd = child.open("atomic-write", O_WRONLY);
        let done = child.pwrite(fd, "by another", 2);
        child.close(fd);
        i32::from(fd < 0) + 2 * i32::from(done != 10)
    });
    s.holds("atomic-write");
    s.child("write-only, its owner", || {
        as_nobody();
        let mut child = Script::default();
        let made = child.openat(libc::AT_FDCWD, "atomic-own", O_WRONLY | O_CREAT, 0o200);
        child.write(made, "first");
        child.close(made);
        let fd = child.openat(libc::AT_FDCWD, "atomic-own", O_WRONLY | O_CREAT | libc::O_APPEND, 0o200);
        let done = child.write(fd, " and second");
        child.close(fd);
        let cut = child.open("atomic-own", O_WRONLY | libc::O_TRUNC);
        let last = child.write(cut, "third");
        child.close(cut);
        i32::from(child.open("atomic-own", O_RDONLY) >= 0) + 2 * i32::from((done, last) != (11, 5))
    });
    s.holds("atomic-own");
    s.stat("atomic-own");
    s.holds("atomic-all");
}

fn access(s: &mut Script) {
    s.make("atomic-a", "text");
    mode(s, "atomic-a", 0o640);
    for wanted in [libc::F_OK, libc::R_OK, libc::W_OK, libc::X_OK, 8] {
        s.named(&format!("access({wanted})"), &["atomic-a"], |n| {
            // SAFETY: the name ends with a zero.
            unsafe { libc::access(n[0], wanted) }
        });
    }
    s.named("access, no file", &["atomic-none"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::access(n[0], libc::F_OK) }
    });
}

/// A write by another user clears the set-user-id bit.
fn bits_go(s: &mut Script) {
    mode(s, ".", 0o777);
    s.make("atomic-a", "text");
    mode(s, "atomic-a", 0o6777);
    s.child("another user writes", || {
        as_nobody();
        let mut child = Script::default();
        let fd = child.open("atomic-a", O_RDWR);
        let done = child.write(fd, "T");
        child.close(fd);
        i32::from(done != 1)
    });
    s.stat("atomic-a");
}
