//! Names: `rename`, `link`, `unlink`.

use super::case::Case;
use super::script::Script;
use libc::{AT_FDCWD, O_CREAT, O_RDONLY, O_RDWR};

pub const CASES: &[Case] = &[
    Case { name: "names/rename", run: rename, differs: &[] },
    Case { name: "names/rename-over", run: rename_over, differs: &[] },
    Case { name: "names/rename-over-open", run: rename_over_open, differs: &[] },
    Case { name: "names/rename-errors", run: rename_errors, differs: &[] },
    Case { name: "names/rename-to-plain", run: rename_to_plain, differs: &[] },
    Case { name: "names/rename-same-inode", run: rename_same_inode, differs: &[] },
    Case { name: "names/exchange", run: exchange, differs: &[] },
    Case { name: "names/no-replace", run: no_replace, differs: &[] },
    Case { name: "names/unlink", run: unlink, differs: &[] },
    Case { name: "names/unlink-first", run: unlink_first, differs: &[] },
    Case { name: "names/unlink-and-make", run: unlink_and_make, differs: &[] },
    Case { name: "names/unlink-errors", run: unlink_errors, differs: &[] },
    Case { name: "names/link", run: link, differs: &[] },
    Case { name: "names/link-errors", run: link_errors, differs: &[] },
    Case { name: "names/link-and-unlink", run: link_and_unlink, differs: &[] },
    Case { name: "names/safe-save", run: safe_save, differs: &[] },
];

fn to(s: &mut Script, from: &str, name: &str) -> i64 {
    s.named(&format!("rename({from}, {name})"), &[from, name], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::rename(n[0], n[1]) }
    })
}

fn renameat2(s: &mut Script, from: &str, name: &str, flags: u32) -> i64 {
    s.named(&format!("renameat2({from}, {name}, {flags})"), &[from, name], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::renameat2(AT_FDCWD, n[0], AT_FDCWD, n[1], flags) }
    })
}

fn gone(s: &mut Script, name: &str) -> i64 {
    s.named(&format!("unlink({name})"), &[name], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::unlink(n[0]) }
    })
}

fn linked(s: &mut Script, from: &str, name: &str) -> i64 {
    s.named(&format!("link({from}, {name})"), &[from, name], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::link(n[0], n[1]) }
    })
}

fn rename(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "before");
    to(s, "atomic-a", "atomic-b");
    s.stat("atomic-a");
    s.stat("atomic-b");
    s.write(fd, " after");
    s.fstat(fd);
    to(s, "atomic-b", "atomic-c");
    s.open("atomic-b", O_RDWR);
    let other = s.open("atomic-c", O_RDWR);
    s.pwrite(other, "B", 0);
    s.pread(fd, 30, 0);
    s.close(fd);
    to(s, "atomic-c", "atomic-a");
    s.close(other);
    s.holds("atomic-a");
}

fn rename_over(s: &mut Script) {
    s.make("atomic-a", "old");
    s.make("atomic-b", "new");
    to(s, "atomic-b", "atomic-a");
    s.stat("atomic-b");
    s.holds("atomic-a");
    s.make("other", "plain");
    to(s, "other", "atomic-a");
    s.holds("atomic-a");
    let fd = s.open("atomic-a", O_RDWR);
    s.write(fd, "PLA");
    s.close(fd);
    s.holds("atomic-a");
}

fn rename_over_open(s: &mut Script) {
    let (a, b) = (s.open("atomic-a", O_RDWR | O_CREAT), s.open("atomic-b", O_RDWR | O_CREAT));
    s.write(a, "first");
    s.write(b, "second");
    to(s, "atomic-b", "atomic-a");
    s.fstat(a);
    s.fstat(b);
    s.write(a, " goes on");
    s.write(b, " goes on");
    s.pread(a, 30, 0);
    s.pread(b, 30, 0);
    s.holds("atomic-a");
    s.close(a);
    s.close(b);
    s.holds("atomic-a");
}

fn rename_errors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    to(s, "atomic-none", "atomic-b");
    to(s, "atomic-a", "none/atomic-b");
    to(s, "atomic-a", "");
    to(s, "", "atomic-b");
    s.named("mkdir", &["folder"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::mkdir(n[0], 0o755) }
    });
    to(s, "atomic-a", "folder");
    to(s, "folder", "atomic-a");
    to(s, "atomic-a", "atomic-a/b");
    to(s, "atomic-a/", "atomic-b");
    to(s, "folder", "folder/in-itself");
    renameat2(s, "atomic-a", "atomic-b", 1 << 20);
    to(s, "atomic-a", "atomic-a");
    s.write(fd, " more");
    s.close(fd);
    s.holds("atomic-a");
}

fn rename_to_plain(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    to(s, "atomic-a", "other");
    s.write(fd, " more");
    s.fstat(fd);
    let again = s.open("other", O_RDWR);
    s.pread(again, 30, 0);
    s.pwrite(again, "T", 0);
    s.pread(fd, 30, 0);
    s.close(again);
    s.close(fd);
    s.holds("other");
}

fn rename_same_inode(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    linked(s, "atomic-a", "atomic-b");
    to(s, "atomic-a", "atomic-b");
    s.fstat(fd);
    s.stat("atomic-a");
    s.write(fd, " more");
    s.close(fd);
    s.holds("atomic-a");
    s.holds("atomic-b");
}

fn exchange(s: &mut Script) {
    let (a, b) = (s.open("atomic-a", O_RDWR | O_CREAT), s.open("atomic-b", O_RDWR | O_CREAT));
    s.write(a, "a");
    s.write(b, "b");
    renameat2(s, "atomic-a", "atomic-b", libc::RENAME_EXCHANGE);
    s.write(a, "-was a");
    s.write(b, "-was b");
    s.holds("atomic-a");
    s.holds("atomic-b");
    s.close(a);
    s.make("other", "plain");
    renameat2(s, "atomic-a", "other", libc::RENAME_EXCHANGE);
    s.write(b, "!");
    s.close(b);
    for name in ["atomic-a", "atomic-b", "other"] {
        s.holds(name);
    }
    renameat2(s, "atomic-a", "none", libc::RENAME_EXCHANGE);
}

fn no_replace(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    s.make("atomic-b", "there");
    renameat2(s, "atomic-a", "atomic-b", libc::RENAME_NOREPLACE);
    renameat2(s, "atomic-a", "atomic-c", libc::RENAME_NOREPLACE);
    renameat2(s, "atomic-c", "atomic-b", libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE);
    s.write(fd, " more");
    s.close(fd);
    s.holds("atomic-b");
    s.holds("atomic-c");
}

fn unlink(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    gone(s, "atomic-a");
    s.fstat(fd);
    s.stat("atomic-a");
    s.write(fd, " goes on");
    s.pread(fd, 30, 0);
    // SAFETY: no memory is passed.
    let (cut, synced) = unsafe { (libc::ftruncate(fd, 4), libc::fsync(fd)) };
    s.gave("ftruncate", cut);
    s.gave("fsync", synced);
    s.fstat(fd);
    s.close(fd);
    s.open("atomic-a", O_RDONLY);
}

fn unlink_first(s: &mut Script) {
    s.make("atomic-a", "text");
    let fd = s.open("atomic-a", O_RDWR);
    gone(s, "atomic-a");
    s.read(fd, 10);
    s.write(fd, " goes on");
    s.fstat(fd);
    s.pread(fd, 30, 0);
    s.close(fd);
}

fn unlink_and_make(s: &mut Script) {
    let old = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(old, "old");
    gone(s, "atomic-a");
    let new = s.open("atomic-a", O_RDWR | O_CREAT | libc::O_EXCL);
    s.write(new, "new one");
    s.write(old, " one");
    s.fstat(old);
    s.fstat(new);
    s.pread(old, 30, 0);
    s.pread(new, 30, 0);
    s.close(old);
    s.close(new);
    s.holds("atomic-a");
}

fn unlink_errors(s: &mut Script) {
    gone(s, "atomic-none");
    gone(s, "");
    gone(s, ".");
    s.make("atomic-a", "text");
    gone(s, "atomic-a/");
    gone(s, "atomic-a/b");
    s.named("rmdir", &["atomic-a"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::rmdir(n[0]) }
    });
    s.named("unlinkat, removing a folder", &["atomic-a"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::unlinkat(AT_FDCWD, n[0], libc::AT_REMOVEDIR) }
    });
    s.named("unlinkat, a flag", &["atomic-a"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::unlinkat(AT_FDCWD, n[0], 1 << 20) }
    });
    s.named("remove", &["atomic-a"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::remove(n[0]) }
    });
    s.stat("atomic-a");
}

fn link(s: &mut Script) {
    let a = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(a, "text");
    linked(s, "atomic-a", "atomic-b");
    linked(s, "atomic-a", "other");
    s.fstat(a);
    let (b, other) = (s.open("atomic-b", O_RDWR), s.open("other", O_RDWR));
    s.pwrite(b, "T", 0);
    s.pwrite(other, "XT", 2);
    s.pread(a, 10, 0);
    s.write(a, " more");
    s.fstat(other);
    s.close(a);
    s.pread(b, 10, 0);
    s.close(b);
    s.close(other);
    for name in ["atomic-a", "atomic-b", "other"] {
        s.holds(name);
        s.stat(name);
    }
}

fn link_errors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    s.make("atomic-b", "there");
    linked(s, "atomic-a", "atomic-b");
    linked(s, "atomic-a", "atomic-a");
    linked(s, "atomic-none", "atomic-c");
    linked(s, "atomic-a", "none/atomic-c");
    linked(s, ".", "atomic-c");
    linked(s, "atomic-a/", "atomic-c");
    s.fstat(fd);
    s.close(fd);
}

fn link_and_unlink(s: &mut Script) {
    s.make("atomic-a", "text");
    let reads = s.open("atomic-a", O_RDONLY);
    linked(s, "atomic-a", "atomic-b");
    let b = s.open("atomic-b", O_RDWR);
    s.write(b, "TE");
    s.close(b);
    gone(s, "atomic-b");
    let a = s.open("atomic-a", O_RDWR);
    s.pwrite(a, "more", 4);
    s.close(a);
    s.fstat(reads);
    s.pread(reads, 30, 0);
    s.child("a child reads it", || {
        let mut child = Script::default();
        child.holds("atomic-a");
        i32::from(!child.text().contains("TExtmore"))
    });
    s.close(reads);
    s.holds("atomic-a");
}

/// As editors save: written to a new file, synced, renamed over the old one.
fn safe_save(s: &mut Script) {
    s.make("atomic-a", "version one");
    let reader = s.open("atomic-a", O_RDONLY);
    for version in ["version two", "version three, longer"] {
        let fd = s.open("atomic-a.tmp", O_RDWR | O_CREAT | libc::O_EXCL);
        s.write(fd, version);
        // SAFETY: no memory is passed.
        let synced = unsafe { libc::fsync(fd) };
        s.gave("fsync", synced);
        s.close(fd);
        to(s, "atomic-a.tmp", "atomic-a");
        s.holds("atomic-a");
        s.pread(reader, 30, 0);
    }
    s.close(reader);
    s.stat("atomic-a");
}
