//! Maps.

use super::case::Case;
use super::script::Script;
use libc::{MAP_PRIVATE, MAP_SHARED, O_CREAT, O_RDONLY, O_RDWR, O_WRONLY, PROT_READ, PROT_WRITE};

const PAGE: usize = 4096;

pub const CASES: &[Case] = &[
    Case { name: "maps/stores", run: stores, differs: &[] },
    Case { name: "maps/errors", run: errors, differs: &[] },
    Case { name: "maps/private", run: private, differs: &[] },
    Case { name: "maps/read-only", run: read_only, differs: &[] },
    Case { name: "maps/beyond-the-end", run: beyond_the_end, differs: &[] },
    Case { name: "maps/after-close", run: after_close, differs: &[] },
    Case { name: "maps/parts", run: parts, differs: &[] },
    Case { name: "maps/fork", run: fork, differs: &[] },
];

fn map(s: &mut Script, fd: i32, len: usize, prot: i32, flags: i32, at: i64) -> *mut u8 {
    // SAFETY: a new map, where the kernel likes.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, at) };
    let what = format!("mmap({len}, {prot}, {flags}, {at})");
    if start == libc::MAP_FAILED {
        s.gave(&what, -1);
        return std::ptr::null_mut();
    }
    s.line(&what, "a map");
    start.cast()
}

fn shown(s: &mut Script, start: *const u8, len: usize) {
    // SAFETY: the caller has mapped this much, of a file that has it.
    let bytes = unsafe { std::slice::from_raw_parts(start, len) };
    s.line("  there is", String::from_utf8_lossy(bytes).replace('\0', "0"));
}

fn store(start: *mut u8, text: &str) {
    // SAFETY: the caller has mapped this much for writing.
    unsafe { start.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
}

fn unmap(s: &mut Script, start: *mut u8, len: usize) {
    // SAFETY: the case's own.
    let done = unsafe { libc::munmap(start.cast(), len) };
    s.gave("munmap", done);
}

fn file(s: &mut Script, len: usize) -> i32 {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, &"abcdefgh".repeat(len / 8));
    fd
}

fn stores(s: &mut Script) {
    let fd = file(s, 2 * PAGE);
    let start = map(s, fd, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    store(start, "STORED");
    s.pread(fd, 10, 0);
    s.pwrite(fd, "written", 4);
    shown(s, start, 16);
    // SAFETY: the map is there.
    unsafe {
        s.gave("msync", libc::msync(start.cast(), 2 * PAGE, libc::MS_SYNC));
        s.gave("msync of a part", libc::msync(start.add(PAGE).cast(), 1, libc::MS_ASYNC));
        s.gave("msync, not a page", libc::msync(start.add(1).cast(), PAGE, libc::MS_SYNC));
        s.gave("msync, both", libc::msync(start.cast(), PAGE, libc::MS_SYNC | libc::MS_ASYNC));
    }
    store(start.wrapping_add(PAGE), "LATER");
    s.pread(fd, 8, PAGE as i64);
    unmap(s, start, 2 * PAGE);
    s.close(fd);
    s.holds("atomic-a");
}

fn errors(s: &mut Script) {
    let fd = file(s, PAGE);
    let (read, write) = (s.open("atomic-a", O_RDONLY), s.open("atomic-a", O_WRONLY));
    let both = PROT_READ | PROT_WRITE;
    map(s, read, PAGE, both, MAP_SHARED, 0);
    map(s, write, PAGE, PROT_READ, MAP_SHARED, 0);
    map(s, write, PAGE, PROT_WRITE, MAP_PRIVATE, 0);
    map(s, fd, 0, both, MAP_SHARED, 0);
    map(s, fd, PAGE, both, MAP_SHARED, 5);
    map(s, fd, PAGE, both, 0, 0);
    map(s, fd, PAGE, both, MAP_SHARED, -(PAGE as i64));
    map(s, 9999, PAGE, both, MAP_SHARED, 0);
    let start = map(s, read, PAGE, PROT_READ, MAP_SHARED, 0);
    // SAFETY: the map is there.
    unsafe {
        s.gave("mprotect", libc::mprotect(start.cast(), PAGE, both));
        s.gave("msync of what is not mapped", libc::msync(8192 as *mut _, PAGE, libc::MS_SYNC));
        s.gave("mremap to nothing", libc::mremap(start.cast(), PAGE, 0, 0) as i64);
    }
    unmap(s, start, PAGE);
    for fd in [fd, read, write] {
        s.close(fd);
    }
}

fn private(s: &mut Script) {
    let fd = file(s, PAGE);
    let start = map(s, fd, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
    shown(s, start, 8);
    store(start, "mine");
    s.pread(fd, 8, 0);
    shown(s, start, 8);
    unmap(s, start, PAGE);
    s.close(fd);
    s.holds("atomic-a");
}

fn read_only(s: &mut Script) {
    let fd = file(s, PAGE);
    let start = map(s, fd, PAGE, PROT_READ, MAP_SHARED, 0);
    s.pwrite(fd, "written", 0);
    shown(s, start, 10);
    s.child("a child stores", || {
        store(start, "x");
        0
    });
    s.pread(fd, 8, 0);
    unmap(s, start, PAGE);
    s.close(fd);
}

fn beyond_the_end(s: &mut Script) {
    let fd = file(s, PAGE);
    let start = map(s, fd, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    // SAFETY: read as the kernel lets it.
    let load = |at: usize| unsafe { start.add(at).read_volatile() };
    s.child("a child reads behind the end", || i32::from(load(PAGE)));
    // SAFETY: no memory is passed.
    let grown = unsafe { libc::ftruncate(fd, 2 * PAGE as i64) };
    s.gave("ftruncate", grown);
    s.child("a child reads what has grown", || i32::from(load(PAGE)));
    s.child("a child reads behind that", || i32::from(load(2 * PAGE)));
    store(start.wrapping_add(PAGE), "grown");
    s.pread(fd, 8, PAGE as i64);
    // SAFETY: no memory is passed.
    let cut = unsafe { libc::ftruncate(fd, PAGE as i64) };
    s.gave("ftruncate", cut);
    s.child("a child reads what was cut", || i32::from(load(PAGE)));
    unmap(s, start, 3 * PAGE);
    s.close(fd);
    s.stat("atomic-a");
}

fn after_close(s: &mut Script) {
    let fd = file(s, PAGE);
    let start = map(s, fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    s.close(fd);
    store(start, "after the close");
    let again = s.open("atomic-a", O_RDWR);
    s.pread(again, 20, 0);
    s.pwrite(again, "AFTER", 0);
    shown(s, start, 16);
    s.close(again);
    store(start.wrapping_add(6), "THE");
    unmap(s, start, PAGE);
    s.holds("atomic-a");
}

fn parts(s: &mut Script) {
    let fd = file(s, 4 * PAGE);
    let start = map(s, fd, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    unmap(s, start.wrapping_add(PAGE), PAGE);
    store(start, "first");
    store(start.wrapping_add(2 * PAGE), "third");
    // SAFETY: within the map.
    unsafe {
        let third = start.add(2 * PAGE).cast();
        s.gave("mprotect", libc::mprotect(third, PAGE, PROT_READ));
        s.gave("msync over the gap", libc::msync(start.cast(), 4 * PAGE, libc::MS_SYNC));
        let moved = libc::mremap(third, 2 * PAGE, 3 * PAGE, libc::MREMAP_MAYMOVE);
        s.line("mremap of two kinds", moved == libc::MAP_FAILED);
        s.gave("mprotect", libc::mprotect(third, PAGE, PROT_READ | PROT_WRITE));
        let moved = libc::mremap(third, 2 * PAGE, PAGE, 0);
        s.line("mremap, smaller", moved == third);
        s.gave("madvise", libc::madvise(third, PAGE, libc::MADV_DONTNEED));
    }
    shown(s, start.wrapping_add(2 * PAGE), 8);
    s.pread(fd, 8, 2 * PAGE as i64);
    unmap(s, start, 4 * PAGE);
    s.close(fd);
    s.holds("atomic-a");
}

fn fork(s: &mut Script) {
    let fd = file(s, PAGE);
    let start = map(s, fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    s.child("a child stores", || {
        store(start, "child");
        0
    });
    shown(s, start, 8);
    s.pread(fd, 8, 0);
    unmap(s, start, PAGE);
    s.close(fd);
    s.holds("atomic-a");
}
