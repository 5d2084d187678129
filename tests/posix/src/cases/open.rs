//! `open` and its flags.

use super::case::{Case, Differs};
use super::script::Script;
use libc::{
    O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC, O_WRONLY,
};

pub const CASES: &[Case] = &[
    Case { name: "open/errors", run: errors, differs: &[] },
    Case { name: "open/exclusive", run: exclusive, differs: &[] },
    Case { name: "open/cut", run: cut, differs: &[] },
    Case { name: "open/cut-while-open", run: cut_while_open, differs: &[] },
    Case { name: "open/append", run: append, differs: &[] },
    Case { name: "open/access", run: access, differs: &[] },
    Case { name: "open/links", run: links, differs: &[] },
    Case { name: "open/folder", run: folder, differs: &[] },
    Case { name: "open/mode", run: mode, differs: &[] },
    Case { name: "open/path-only", run: path_only, differs: &[] },
    Case {
        name: "open/no-name",
        run: no_name,
        differs: &[Differs {
            line: "  came",
            on: None,
            why: "opened without a name it is the kernel's by that descriptor, also when it has got one",
        }],
    },
    Case { name: "open/lowest", run: lowest, differs: &[] },
    Case { name: "open/flags-shown", run: flags_shown, differs: &[] },
];

fn errors(s: &mut Script) {
    s.open("atomic-a", O_RDWR);
    s.open("", O_RDWR | O_CREAT);
    s.open("none/atomic-a", O_RDWR | O_CREAT);
    s.open(&format!("atomic-{}", "x".repeat(300)), O_RDWR | O_CREAT);
    s.open(&"atomic/".repeat(700), O_RDWR);
    s.make("atomic-a", "text");
    s.open("atomic-a/b", O_RDWR);
    s.open("atomic-a/", O_RDWR);
    s.open("atomic-new/", O_RDWR | O_CREAT);
    s.open("atomic-a", O_RDWR | O_DIRECTORY);
    s.open(".", O_RDWR);
    s.named("mkdir", &["atomic-folder"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::mkdir(n[0], 0o755) }
    });
    s.open("atomic-folder", O_RDWR);
    s.open("atomic-folder", O_RDWR | O_CREAT);
    let fd = s.open("atomic-folder", O_RDONLY);
    s.read(fd, 4);
    s.close(fd);
    s.openat(9999, "atomic-a", O_RDWR, 0);
    let file = s.open("atomic-a", O_RDONLY);
    s.openat(file, "atomic-a", O_RDWR, 0);
    s.close(file);
    s.holds("atomic-a");
}

fn exclusive(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT | O_EXCL);
    s.write(fd, "one");
    s.open("atomic-a", O_RDWR | O_CREAT | O_EXCL);
    s.close(fd);
    s.open("atomic-a", O_RDWR | O_CREAT | O_EXCL);
    s.open("atomic-a", O_RDWR | O_CREAT | O_EXCL | O_TRUNC);
    s.holds("atomic-a");
    symlink(s, "atomic-nowhere", "atomic-link");
    s.open("atomic-link", O_RDWR | O_CREAT | O_EXCL);
}

fn cut(s: &mut Script) {
    s.make("atomic-a", "long enough");
    let fd = s.open("atomic-a", O_RDWR | O_TRUNC);
    s.fstat(fd);
    s.write(fd, "abc");
    s.close(fd);
    s.holds("atomic-a");
    let fd = s.open("atomic-a", O_RDONLY | O_TRUNC);
    s.fstat(fd);
    s.write(fd, "x");
    s.close(fd);
    s.stat("atomic-a");
    s.make("atomic-a", "");
    s.open("atomic-a", O_WRONLY | O_TRUNC);
    s.stat("atomic-a");
}

fn cut_while_open(s: &mut Script) {
    s.make("atomic-a", "0123456789");
    let first = s.open("atomic-a", O_RDWR);
    s.read(first, 4);
    s.pwrite(first, "XY", 2);
    let second = s.open("atomic-a", O_WRONLY | O_TRUNC);
    s.read(first, 4);
    s.seek(first, 0, libc::SEEK_CUR);
    s.write(first, "later");
    s.pread(first, 20, 0);
    s.fstat(second);
    s.close(second);
    s.close(first);
    s.holds("atomic-a");
}

fn append(s: &mut Script) {
    s.make("atomic-a", "begin");
    let fd = s.open("atomic-a", O_RDWR | O_APPEND);
    s.seek(fd, 0, libc::SEEK_CUR);
    s.write(fd, " one");
    s.seek(fd, 0, libc::SEEK_CUR);
    s.seek(fd, 2, libc::SEEK_SET);
    s.write(fd, " two");
    s.seek(fd, 0, libc::SEEK_CUR);
    s.pwrite(fd, " three", 1);
    s.seek(fd, 0, libc::SEEK_CUR);
    let other = s.open("atomic-a", O_WRONLY);
    s.seek(other, 0, libc::SEEK_END);
    s.write(other, "!");
    s.write(fd, " four");
    // SAFETY: no memory is passed.
    let done = unsafe { libc::ftruncate(fd, 5) };
    s.gave("ftruncate(5)", done);
    s.write(fd, " anew");
    s.close(fd);
    s.close(other);
    s.holds("atomic-a");
}

fn access(s: &mut Script) {
    s.make("atomic-a", "text");
    let read = s.open("atomic-a", O_RDONLY);
    s.write(read, "x");
    s.pwrite(read, "x", 0);
    s.write(read, "");
    let write = s.open("atomic-a", O_WRONLY);
    s.read(write, 1);
    s.pread(write, 1, 0);
    s.read(write, 0);
    s.pwrite(write, "T", 0);
    s.read(read, 10);
    s.close(read);
    s.close(write);
    s.write(write, "x");
    s.read(read, 1);
    s.close(read);
    let neither = s.open("atomic-a", libc::O_ACCMODE);
    s.read(neither, 1);
    s.write(neither, "x");
    s.close(neither);
    s.holds("atomic-a");
}

fn symlink(s: &mut Script, to: &str, name: &str) {
    s.named("symlink", &[to, name], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::symlink(n[0], n[1]) }
    });
}

fn links(s: &mut Script) {
    s.make("atomic-a", "text");
    symlink(s, "atomic-a", "link");
    symlink(s, "link", "link-to-link");
    symlink(s, "circle", "circle");
    symlink(s, "atomic-made", "dangling");
    let fd = s.open("link-to-link", O_RDWR);
    s.write(fd, "TE");
    s.open("link", O_RDWR | O_NOFOLLOW);
    s.open("circle", O_RDWR);
    let made = s.open("dangling", O_RDWR | O_CREAT);
    s.write(made, "made");
    s.fstat(fd);
    s.stat("link");
    s.close(made);
    s.close(fd);
    s.holds("atomic-a");
    s.holds("atomic-made");
}

fn folder(s: &mut Script) {
    s.named("mkdir", &["folder"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::mkdir(n[0], 0o755) }
    });
    let folder = s.open("folder", O_RDONLY | O_DIRECTORY);
    let fd = s.openat(folder, "atomic-in", O_RDWR | O_CREAT, 0o600);
    s.write(fd, "in the folder");
    s.fstat(fd);
    s.named("mkdirat, renameat", &["folder/../folder"], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::rename(n[0], c"moved".as_ptr()) }
    });
    let again = s.openat(folder, "atomic-in", O_RDWR, 0);
    s.pwrite(again, "IN", 0);
    s.pread(fd, 20, 0);
    s.close(fd);
    s.close(again);
    s.close(folder);
    s.holds("moved/atomic-in");
}

fn mode(s: &mut Script) {
    // SAFETY: no memory is passed.
    let umask = unsafe { libc::umask(0o027) };
    for (name, mode) in [("atomic-a", 0o777), ("atomic-b", 0o600), ("atomic-c", 0o4755), ("atomic-d", 0o200)] {
        let fd = s.openat(libc::AT_FDCWD, name, O_RDWR | O_CREAT, mode);
        s.fstat(fd);
        s.write(fd, "x");
        s.close(fd);
        s.stat(name);
    }
    // SAFETY: no memory is passed.
    unsafe { libc::umask(umask) };
}

fn path_only(s: &mut Script) {
    s.make("atomic-a", "text");
    let path = s.open("atomic-a", O_PATH);
    s.read(path, 4);
    s.write(path, "x");
    s.fstat(path);
    // SAFETY: no memory is passed.
    let done = unsafe { libc::ftruncate(path, 0) };
    s.gave("ftruncate", done);
    let fd = s.open(&format!("/proc/self/fd/{path}"), O_RDWR);
    s.write(fd, "TEXT and more");
    s.fstat(path);
    s.close(fd);
    s.close(path);
    s.holds("atomic-a");
}

fn no_name(s: &mut Script) {
    let fd = s.openat(libc::AT_FDCWD, ".", O_TMPFILE | O_RDWR, 0o640);
    s.write(fd, "nameless");
    s.fstat(fd);
    let path = format!("/proc/self/fd/{fd}");
    s.named("linkat", &[&path, "atomic-named"], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::linkat(libc::AT_FDCWD, n[0], libc::AT_FDCWD, n[1], libc::AT_SYMLINK_FOLLOW) }
    });
    s.write(fd, " no more");
    s.fstat(fd);
    let other = s.open("atomic-named", O_RDWR);
    s.pwrite(other, "N", 0);
    s.pread(fd, 8, 0);
    s.close(other);
    s.close(fd);
    s.holds("atomic-named");
}

fn lowest(s: &mut Script) {
    let (a, b) = (s.open("atomic-a", O_RDWR | O_CREAT), s.open("atomic-b", O_RDWR | O_CREAT));
    s.write(a, "a");
    s.write(b, "b");
    s.line("one after the other", b == a + 1);
    s.close(a);
    let again = s.open("atomic-b", O_RDWR);
    s.line("the lowest", again == a);
    s.close(b);
    // SAFETY: no memory is passed.
    let copy = unsafe { libc::dup(again) };
    s.line("the lowest", copy == b);
    s.close(again);
    s.close(copy);
}

fn flags_shown(s: &mut Script) {
    for flags in [
        O_RDONLY,
        O_WRONLY,
        O_RDWR | O_APPEND,
        O_RDWR | libc::O_SYNC,
        O_RDWR | libc::O_DSYNC,
        O_RDWR | libc::O_NONBLOCK,
    ] {
        let fd = s.open("atomic-a", flags | O_CREAT);
        // SAFETY: no memory is passed.
        let (shown, cloexec) = unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)) };
        s.gave("F_GETFL", shown);
        s.gave("F_GETFD", cloexec);
        // SAFETY: no memory is passed.
        let set = unsafe { libc::fcntl(fd, libc::F_SETFL, O_APPEND | libc::O_NONBLOCK | libc::O_SYNC) };
        s.gave("F_SETFL", set);
        // SAFETY: no memory is passed.
        let shown = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        s.gave("F_GETFL", shown);
        s.close(fd);
    }
}
