//! Rights that are missing when a file is written or closed: because of its mode, its user, its root, a limit, or an
//! inode flag.

use super::case::Case;
use super::script::Script;
use libc::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY};
use std::ffi::CString;
use std::io::Write;

pub const CASES: &[Case] = &[
    Case { name: "changing-rights/made-read-only", run: made_read_only, differs: &[] },
    Case { name: "changing-rights/read-only-later", run: read_only_later, differs: &[] },
    Case { name: "changing-rights/user-before-the-first-write", run: user_before_the_first_write, differs: &[] },
    Case { name: "changing-rights/user-after-the-first-write", run: user_after_the_first_write, differs: &[] },
    Case { name: "changing-rights/user-for-a-while", run: user_for_a_while, differs: &[] },
    Case { name: "changing-rights/folder", run: folder, differs: &[] },
    Case { name: "changing-rights/root-before-the-first-write", run: root_before_the_first_write, differs: &[] },
    Case { name: "changing-rights/root-after-the-first-write", run: root_after_the_first_write, differs: &[] },
    Case { name: "changing-rights/limit", run: limit, differs: &[] },
    Case { name: "changing-rights/immutable", run: immutable, differs: &[] },
    Case { name: "changing-rights/append-only", run: append_only, differs: &[] },
    Case { name: "changing-rights/direct", run: direct, differs: &[] },
];

const NOBODY: u32 = 65534;

fn become_user(s: &mut Script, id: u32) {
    // SAFETY: no memory is passed.
    unsafe {
        s.gave("setgroups", libc::setgroups(0, std::ptr::null()));
        s.gave("setgid", libc::setgid(id));
        s.gave("setuid", libc::setuid(id));
    }
}

fn mode(s: &mut Script, name: &str, mode: u32) {
    s.named(&format!("chmod({name}, {mode:o})"), &[name], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::chmod(n[0], mode) }
    });
}

fn own(s: &mut Script, name: &str, id: u32) {
    s.named(&format!("chown({name}, {id})"), &[name], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::chown(n[0], id, id) }
    });
}

fn sync(s: &mut Script, fd: i32) {
    // SAFETY: no memory is passed.
    let done = unsafe { libc::fsync(fd) };
    s.gave("fsync", done);
}

/// Runs in a child, whose lines count.
fn told(s: &mut Script, what: &str, body: impl FnOnce(&mut Script)) {
    s.child(what, || {
        let mut child = Script::default();
        body(&mut child);
        let mut out = std::io::stdout();
        let _ = out.write_all(child.text().as_bytes()).and_then(|()| out.flush());
        0
    });
}

/// Writes, SYNCs, cuts and reads.
fn use_it(s: &mut Script, fd: i32) {
    s.write(fd, &"first ".repeat(2000));
    sync(s, fd);
    s.pwrite(fd, "second", 5000);
    s.pread(fd, 12, 4994);
    // SAFETY: no memory is passed.
    let cut = unsafe { libc::ftruncate(fd, 7000) };
    s.gave("ftruncate", cut);
    s.fstat(fd);
    sync(s, fd);
    s.pwrite(fd, "third", 30_000);
    s.fstat(fd);
}

fn made_read_only(s: &mut Script) {
    mode(s, ".", 0o777);
    for bits in [0o444, 0o400, 0o555, 0o000] {
        let name = format!("atomic-{bits:o}");
        told(s, &name, |child| {
            become_user(child, NOBODY);
            let fd = child.openat(libc::AT_FDCWD, &name, O_RDWR | O_CREAT | O_EXCL, bits);
            use_it(child, fd);
            child.close(fd);
            child.stat(&name);
            child.open(&name, O_RDWR);
            child.holds(&name);
            mode(child, &name, 0o644);
            let fd = child.open(&name, O_WRONLY);
            child.pwrite(fd, "again", 10);
            mode(child, &name, 0o444);
            child.close(fd);
            child.stat(&name);
        });
        s.holds(&name);
        s.stat(&name);
    }
}

fn read_only_later(s: &mut Script) {
    mode(s, ".", 0o777);
    told(s, "fchmod between write and close", |child| {
        become_user(child, NOBODY);
        for bits in [0o444, 0o000] {
            let fd = child.openat(libc::AT_FDCWD, "atomic-a", O_RDWR | O_CREAT, 0o644);
            child.write(fd, "some text");
            // SAFETY: no memory is passed.
            unsafe {
                let done = libc::fchmod(fd, bits);
                child.gave("fchmod", done);
            }
            child.write(fd, " more");
            sync(child, fd);
            child.write(fd, " and more");
            child.close(fd);
            child.stat("atomic-a");
            child.holds("atomic-a");
            mode(child, "atomic-a", 0o644);
        }
    });
    s.holds("atomic-a");
}

fn user_before_the_first_write(s: &mut Script) {
    s.make("atomic-a", "");
    let tries = [
        ("root's", 0o755, 0, 0o644),
        ("its own", 0o755, NOBODY, 0o644),
        ("in an open folder", 0o777, 0, 0o644),
        ("root's alone", 0o777, 0, 0o600),
    ];
    for (what, folder, owner, bits) in tries {
        mode(s, ".", folder);
        own(s, "atomic-a", owner);
        mode(s, "atomic-a", bits);
        told(s, &format!("opened as root; the file is {what}"), |child| {
            let (fd, other) = (child.open("atomic-a", O_RDWR), child.open("atomic-a", O_RDONLY));
            become_user(child, NOBODY);
            child.seek(fd, 0, libc::SEEK_END);
            use_it(child, fd);
            child.pread(other, 12, 4994);
            child.close(fd);
            child.close(other);
        });
        s.holds("atomic-a");
        s.stat("atomic-a");
    }
}

fn user_after_the_first_write(s: &mut Script) {
    for (what, folder, owner) in [("root's", 0o755, 0), ("its own", 0o755, NOBODY), ("open", 0o777, 0)] {
        let name = format!("atomic-{folder:o}-{owner}");
        s.make(&name, "");
        mode(s, ".", folder);
        own(s, &name, owner);
        told(s, &format!("written as root; the file is {what}"), |child| {
            let fd = child.open(&name, O_RDWR);
            child.write(fd, "root's ");
            become_user(child, NOBODY);
            use_it(child, fd);
            child.close(fd);
        });
        // Root removes what its own child could not.
        s.holds(&name);
        let fd = s.open(&name, O_RDWR);
        s.pwrite(fd, "ROOT", 0);
        s.close(fd);
        s.stat(&name);
    }
}

fn user_for_a_while(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    for id in [NOBODY, 0, NOBODY, 0] {
        // SAFETY: no memory is passed.
        unsafe {
            let done = libc::seteuid(id);
            s.gave("seteuid", done);
        }
        s.write(fd, &"text ".repeat(1000));
        sync(s, fd);
        s.pread(fd, 10, 0);
    }
    s.close(fd);
    s.holds("atomic-a");
}

fn folder(s: &mut Script) {
    mode(s, ".", 0o755);
    s.make("atomic-a", "there before");
    mode(s, "atomic-a", 0o666);
    told(s, "another user", |child| {
        become_user(child, NOBODY);
        let fd = child.open("atomic-a", O_RDWR);
        use_it(child, fd);
        child.close(fd);
        let fd = child.open("atomic-a", O_RDWR | libc::O_APPEND);
        child.write(fd, "appended");
        child.close(fd);
        child.holds("atomic-a");
    });
    s.stat("atomic-a");
    s.holds("atomic-a");
}

fn change_root(s: &mut Script) {
    s.named("chroot", &["jail"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::chroot(n[0]) }
    });
}

fn jail(s: &mut Script) {
    s.named("mkdir", &["jail"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::mkdir(n[0], 0o755) }
    });
}

fn root_before_the_first_write(s: &mut Script) {
    jail(s);
    s.make("atomic-a", "there before");
    told(s, "in a root of its own", |child| {
        let (fd, other) = (child.open("atomic-a", O_RDWR), child.open("atomic-a", O_RDONLY));
        change_root(child);
        child.pread(other, 20, 0);
        use_it(child, fd);
        child.pread(other, 12, 4994);
        child.close(fd);
        child.close(other);
        let made = child.open("/atomic-made", O_RDWR | O_CREAT);
        use_it(child, made);
        child.close(made);
    });
    s.holds("atomic-a");
    s.holds("jail/atomic-made");
}

fn root_after_the_first_write(s: &mut Script) {
    jail(s);
    s.make("atomic-a", "there before");
    told(s, "in a root of its own", |child| {
        let fd = child.open("atomic-a", O_RDWR);
        child.pwrite(fd, "before", 0);
        change_root(child);
        use_it(child, fd);
        child.close(fd);
    });
    s.holds("atomic-a");
    let fd = s.open("atomic-a", O_RDWR);
    s.pwrite(fd, "later", 0);
    s.close(fd);
}

fn limit(s: &mut Script) {
    for most in [1000u64, 70_000, 3 << 20] {
        told(s, &format!("{most} bytes"), |child| {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the structure is alive.
            let done = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
            child.gave("setrlimit", done);
            let name = format!("atomic-{most}");
            let fd = child.open(&name, O_RDWR | O_CREAT);
            // Each block several times: with a journal longer than the file.
            for _ in 0..3 {
                for at in (0..most).step_by(50_000) {
                    child.pwrite(fd, &"x".repeat(50_000.min((most - at) as usize)), at as i64);
                }
                sync(child, fd);
            }
            // SAFETY: no memory is passed.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
            child.pwrite(fd, "across", most as i64 - 3);
            child.pwrite(fd, "beyond", most as i64);
            child.fstat(fd);
            child.close(fd);
        });
    }
    told(s, "set after the first write", |child| {
        let fd = child.open("atomic-later", O_RDWR | O_CREAT);
        child.write(fd, "first");
        let limit = libc::rlimit { rlim_cur: 100_000, rlim_max: 100_000 };
        // SAFETY: the structure is alive.
        let done = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        child.gave("setrlimit", done);
        for _ in 0..3 {
            child.pwrite(fd, &"y".repeat(60_000), 0);
            sync(child, fd);
        }
        child.fstat(fd);
        child.close(fd);
    });
}

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`.
const GET_FLAGS: u64 = 0x8008_6601;
const SET_FLAGS: u64 = 0x4008_6602;

fn flag(s: &mut Script, name: &str, flag: u32, on: bool) {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the name ends with a zero, the number is alive. A descriptor that the library does not know, as
    // `chattr` uses.
    let done = unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), O_RDONLY) as i32;
        let mut flags = 0u32;
        libc::ioctl(fd, GET_FLAGS, &mut flags);
        let flags = if on { flags | flag } else { flags & !flag };
        let done = libc::ioctl(fd, SET_FLAGS, &flags);
        libc::close(fd);
        done
    };
    s.gave("SETFLAGS", done);
}

fn flagged(s: &mut Script, bit: u32) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "some text");
    sync(s, fd);
    s.write(fd, " and more");
    flag(s, "atomic-a", bit, true);
    s.pread(fd, 30, 0);
    s.close(fd);
    s.holds("atomic-a");
    s.open("atomic-a", O_RDWR);
    s.stat("atomic-a");
    flag(s, "atomic-a", bit, false);
    s.holds("atomic-a");
    let fd = s.open("atomic-a", O_RDWR);
    s.pwrite(fd, "SOME", 0);
    flag(s, "atomic-a", bit, true);
    let append = s.open("atomic-a", O_WRONLY | libc::O_APPEND);
    s.write(append, " at the end");
    sync(s, append);
    s.close(append);
    flag(s, "atomic-a", bit, false);
    s.close(fd);
    s.holds("atomic-a");
}

fn immutable(s: &mut Script) {
    flagged(s, 0x10);
}

fn append_only(s: &mut Script) {
    flagged(s, 0x20);
}

fn direct(s: &mut Script) {
    #[repr(C, align(4096))]
    struct Aligned([u8; 16384]);
    let mut memory = Box::new(Aligned([b'd'; 16384]));
    let start = memory.0.as_mut_ptr();
    let fd = s.open("atomic-a", O_RDWR | O_CREAT | libc::O_DIRECT);
    let plain = s.open("atomic-a", O_RDWR);
    for (skip, len, at) in [
        (0, 8192, 0),
        (0, 100, 0),
        (0, 4096, 100),
        (1, 4096, 0),
        (512, 512, 512),
        (0, 512, 8192),
        (0, 700, 0),
        (4, 512, 0),
    ] {
        // SAFETY: all in the buffer.
        unsafe {
            let done = libc::pwrite(fd, start.add(skip).cast(), len, at);
            s.gave(&format!("pwrite({skip}, {len}, {at})"), done as i64);
            let done = libc::pread(fd, start.add(skip).cast(), len, at);
            s.gave(&format!("pread({skip}, {len}, {at})"), done as i64);
        }
    }
    s.pread(fd, 100, 1 << 20);
    s.write(plain, "by another, not direct");
    // SAFETY: all in the buffer.
    unsafe {
        let two = [
            libc::iovec { iov_base: start.cast(), iov_len: 512 },
            libc::iovec { iov_base: start.add(1000).cast(), iov_len: 24 },
        ];
        s.gave("pwritev", libc::pwritev(fd, two.as_ptr(), 2, 0) as i64);
        s.gave("preadv", libc::preadv(fd, two.as_ptr(), 2, 0) as i64);
        s.gave("F_SETFL", libc::fcntl(fd, libc::F_SETFL, 0));
        s.gave("pwrite", libc::pwrite(fd, start.cast(), 100, 100) as i64);
        s.gave("F_SETFL", libc::fcntl(plain, libc::F_SETFL, libc::O_DIRECT));
        s.gave("pwrite", libc::pwrite(plain, start.cast(), 100, 100) as i64);
    }
    s.fstat(fd);
    s.close(fd);
    s.close(plain);
}
