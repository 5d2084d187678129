//! Cases found by other suites: LTP, pjdfstest, SQLite's own tests.

use super::case::{Case, Differs};
use super::script::Script;
use libc::{O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
use std::ptr::null_mut;

pub const CASES: &[Case] = &[
    Case { name: "suites/bits-of-a-dense-file", run: bits_of_a_dense_file, differs: &[] },
    Case { name: "suites/bits-of-its-owner", run: bits_of_its_owner, differs: &[] },
    Case { name: "suites/bits-set-last", run: bits_set_last, differs: &[] },
    Case { name: "suites/locks-asked-for", run: locks_asked_for, differs: &[] },
    Case { name: "suites/openat2", run: openat2, differs: &[] },
    Case { name: "suites/openat2-errors", run: openat2_errors, differs: &[] },
    Case { name: "suites/map-errors", run: map_errors, differs: &[] },
    Case { name: "suites/splice-errors", run: splice_errors, differs: &[] },
    Case {
        name: "suites/blocks",
        run: blocks,
        differs: &[Differs {
            line: "  blocks",
            on: Some("pool"),
            why: "the mark of a file in use names its pool, and takes a block of the disk",
        }],
    },
    Case { name: "suites/blocks-of-holes", run: blocks_of_holes, differs: &[] },
];

fn as_user(id: u32) {
    // SAFETY: no memory is passed.
    unsafe {
        libc::setgroups(0, std::ptr::null());
        libc::setresgid(id, id, id);
        libc::setresuid(id, id, id);
    }
}

fn mode(s: &mut Script, name: &str, mode: u32) {
    s.named(&format!("chmod({name}, {mode:o})"), &[name], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::chmod(n[0], mode) }
    });
}

/// An unmapped address.
const BAD: usize = 8;

/// A change of a file.
type Change = fn(&str);

/// Changes that clear set-user-id bits, made by a user who is not the owner.
const CHANGES: [(&str, Change); 8] = [
    ("write", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_RDWR);
        s.write(fd, "T");
        s.close(fd);
    }),
    ("write to a descriptor for writing only", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_WRONLY);
        s.pwrite(fd, "T", 100);
        s.close(fd);
    }),
    ("write of nothing", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_RDWR);
        s.write(fd, "");
        s.close(fd);
    }),
    ("O_TRUNC", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_RDWR | O_TRUNC);
        s.close(fd);
    }),
    ("ftruncate to the size that it has", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_RDWR);
        // SAFETY: no memory is passed.
        unsafe { libc::ftruncate(fd, Script::look(fd).st_size) };
        s.close(fd);
    }),
    ("fallocate", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_RDWR);
        // SAFETY: no memory is passed.
        unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, 0, 10) };
        s.close(fd);
    }),
    ("read", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_RDWR);
        s.read(fd, 10);
        s.close(fd);
    }),
    ("copy_file_range", |name| {
        let mut s = Script::default();
        let fd = s.open(name, O_RDWR);
        // SAFETY: the offsets are alive.
        unsafe { libc::copy_file_range(fd, &mut 0, fd, &mut 4096, 16, 0) };
        s.close(fd);
    }),
];

fn bits_of_a_dense_file(s: &mut Script) {
    mode(s, ".", 0o777);
    for size in [0, 100_000] {
        for bits in [0o6777, 0o4766, 0o2777, 0o2767, 0o777] {
            for (what, change) in CHANGES {
                s.make("atomic-a", &"x".repeat(size));
                mode(s, "atomic-a", bits);
                s.child(&format!("{what}, {size} bytes"), || {
                    as_user(65534);
                    change("atomic-a");
                    0
                });
                let name = c"atomic-a";
                // SAFETY: zeros are a valid stat, filled in by the call; the name ends with a zero.
                let shown = unsafe {
                    let mut stat: libc::stat = std::mem::zeroed();
                    libc::stat(name.as_ptr(), &mut stat);
                    stat.st_mode
                };
                s.line("  mode", format!("{shown:o}"));
            }
        }
    }
}

fn bits_of_its_owner(s: &mut Script) {
    mode(s, ".", 0o777);
    s.child("an owner", || {
        as_user(65534);
        let mut child = Script::default();
        let fd = child.open("atomic-a", O_RDWR | O_CREAT);
        child.write(fd, &"x".repeat(20_000));
        // SAFETY: no memory is passed.
        unsafe {
            let done = libc::fchmod(fd, 0o6755);
            child.gave("fchmod", done);
            child.fstat(fd);
            child.write(fd, "more");
            child.fstat(fd);
            libc::fsync(fd);
            libc::fchmod(fd, 0o4711);
            child.pwrite(fd, "again", 0);
            child.fstat(fd);
        }
        mode(&mut child, "atomic-a", 0o2755);
        child.pwrite(fd, "again", 5000);
        child.fstat(fd);
        child.close(fd);
        child.stat("atomic-a");
        print!("{}", child.text());
        use std::io::Write;
        let _ = std::io::stdout().flush();
        0
    });
}

/// Written, then given the bits, then closed, as an installer does: a later checkpoint must not clear them.
fn bits_set_last(s: &mut Script) {
    mode(s, ".", 0o777);
    s.child("an owner", || {
        as_user(65534);
        let mut child = Script::default();
        for (name, bits) in [("atomic-a", 0o4755), ("atomic-b", 0o2750), ("atomic-c", 0o6555)] {
            let fd = child.open(name, O_RDWR | O_CREAT);
            child.write(fd, &"x".repeat(20_000));
            // SAFETY: no memory is passed.
            let done = unsafe { libc::fchmod(fd, bits) };
            child.gave("fchmod", done);
            child.close(fd);
            child.stat(name);
        }
        print!("{}", child.text());
        use std::io::Write;
        let _ = std::io::stdout().flush();
        0
    });
}

fn locks_asked_for(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    for command in [libc::F_GETLK, libc::F_OFD_GETLK] {
        for (whence, start) in [(libc::SEEK_SET, 3), (libc::SEEK_CUR, -4), (libc::SEEK_END, -2)] {
            for kind in [libc::F_RDLCK, libc::F_WRLCK] {
                // SAFETY: zeros are a valid lock; it is alive.
                unsafe {
                    let mut lock: libc::flock = std::mem::zeroed();
                    (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind as i16, whence as i16, start, 2);
                    lock.l_pid = if command == libc::F_GETLK { 4711 } else { 0 };
                    let done = libc::fcntl(fd, command, &mut lock);
                    s.gave("asked", done);
                    let seen = (lock.l_type, lock.l_whence, lock.l_start, lock.l_len, lock.l_pid);
                    s.line("  type, whence, start, length, process", format!("{seen:?}"));
                }
            }
        }
    }
    s.close(fd);
}

fn openat2_with(s: &mut Script, folder: i32, name: &str, how: [u64; 3]) -> i32 {
    let size = size_of_val(&how);
    let mut fd = -1;
    s.named(&format!("openat2({name}, {how:?})"), &[name], |n| {
        // SAFETY: the name ends with a zero, and the request is as long as said.
        fd = unsafe { libc::syscall(libc::SYS_openat2, folder, n[0], how.as_ptr(), size) } as i32;
        fd.min(0)
    });
    fd
}

fn openat2(s: &mut Script) {
    s.make("atomic-a", "text");
    s.named("symlink", &["atomic-a", "link"], |n| {
        // SAFETY: names end with a zero.
        unsafe { libc::symlink(n[0], n[1]) }
    });
    s.named("mkdir", &["in"], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::mkdir(n[0], 0o755) }
    });
    let here = s.open(".", O_RDONLY | libc::O_DIRECTORY);
    let inner = s.open("in", O_RDONLY | libc::O_DIRECTORY);
    let (read, write, both) = (O_RDONLY as u64, O_WRONLY as u64, O_RDWR as u64);
    let make = (O_CREAT | O_RDWR) as u64;
    let append = (libc::O_APPEND | O_WRONLY) as u64;
    let tries = [
        (here, "atomic-a", [both, 0, libc::RESOLVE_NO_SYMLINKS]),
        (here, "atomic-a", [write, 0, libc::RESOLVE_BENEATH]),
        (here, "link", [both, 0, libc::RESOLVE_NO_SYMLINKS]),
        (here, "link", [append, 0, libc::RESOLVE_BENEATH]),
        (here, "/atomic-a", [both, 0, libc::RESOLVE_IN_ROOT]),
        (here, "/atomic-a", [both, 0, libc::RESOLVE_BENEATH]),
        (inner, "../atomic-a", [both, 0, libc::RESOLVE_BENEATH]),
        (inner, "../../atomic-b", [make, 0o640, libc::RESOLVE_IN_ROOT]),
        (inner, "atomic-c", [make, 0o600, libc::RESOLVE_BENEATH]),
        (here, "in/atomic-c", [both | O_TRUNC as u64, 0, libc::RESOLVE_NO_XDEV]),
        (here, "atomic-a", [both, 0, 0]),
        (here, "atomic-d", [make | libc::O_EXCL as u64, 0o4640, libc::RESOLVE_NO_MAGICLINKS]),
        (here, "atomic-d", [make | libc::O_EXCL as u64, 0o640, libc::RESOLVE_NO_MAGICLINKS]),
        (here, "atomic-r", [make, 0o444, libc::RESOLVE_BENEATH]),
        (here, "atomic-none", [both, 0, libc::RESOLVE_BENEATH]),
        (here, "none/atomic-none", [make, 0o600, libc::RESOLVE_BENEATH]),
        (here, "atomic-a/", [both, 0, libc::RESOLVE_BENEATH]),
        (here, "link", [read | libc::O_NOFOLLOW as u64, 0, libc::RESOLVE_BENEATH]),
        (here, "plain", [make, 0o600, libc::RESOLVE_BENEATH]),
        (9999, "atomic-a", [both, 0, libc::RESOLVE_BENEATH]),
    ];
    for (folder, name, how) in tries {
        let fd = openat2_with(s, folder, name, how);
        if fd < 0 {
            continue;
        }
        // SAFETY: no memory is passed.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        s.gave("F_GETFL", flags);
        s.write(fd, "WRITTEN");
        s.fstat(fd);
        s.pread(fd, 30, 0);
        s.close(fd);
    }
    for name in ["atomic-a", "in/atomic-b", "in/atomic-c", "atomic-d", "plain"] {
        s.holds(name);
    }
}

fn openat2_errors(s: &mut Script) {
    s.make("atomic-a", "text");
    let both = O_RDWR as u64;
    for how in [
        [both, 0o600, 0],
        [both, 0, 1 << 40],
        [both | 1 << 40, 0, 0],
        [both | 1 << 30, 0, 0],
        [both | O_CREAT as u64, 0o10600, 0],
        [both | O_CREAT as u64, 1 << 40, 0],
        [both, 0, libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT],
        [both | O_CREAT as u64, 0o600, 0x20],
        [both | libc::O_PATH as u64 | O_TRUNC as u64, 0, 0],
        [both, 0, 0],
    ] {
        openat2_with(s, libc::AT_FDCWD, "atomic-a", how);
    }
    let how = [both, 0, 0, 0, 1];
    for size in [0, 8, 23, 24, 32, 40, 5000] {
        let fd = s.named(&format!("openat2 of {size} bytes"), &["atomic-a"], |n| {
            // SAFETY: the name ends with a zero; the kernel reads no more than a page of the request.
            let fd = unsafe { libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, n[0], how.as_ptr(), size) } as i32;
            fd.min(0)
        });
        let _ = fd;
    }
    // SAFETY: tests bad memory.
    unsafe {
        let bad = 8 as *const libc::c_char;
        s.gave("a bad path", libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, bad, how.as_ptr(), 24));
        s.gave("a bad request", libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, c"atomic-a".as_ptr(), bad, 24));
    }
}

fn map_errors(s: &mut Script) {
    s.make("atomic-a", &"x".repeat(9000));
    let all = [O_RDONLY, O_WRONLY, O_RDWR].map(|flags| s.open("atomic-a", flags));
    for fd in all {
        for (what, len, flags, at) in [
            ("no length", 0usize, libc::MAP_SHARED, 0i64),
            ("no length, private", 0, libc::MAP_PRIVATE, 0),
            ("no length, not a page", 0, libc::MAP_SHARED, 5),
            ("not a page", 4096, libc::MAP_SHARED, 5),
            ("no kind", 4096, 0, 0),
            ("too long", usize::MAX, libc::MAP_SHARED, 0),
            ("far too long", 1 << 62, libc::MAP_SHARED, 0),
        ] {
            // SAFETY: a new map at an address that the kernel chooses.
            let map = unsafe { libc::mmap(null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, at) };
            s.gave(what, if map == libc::MAP_FAILED { -1 } else { 0 });
        }
        s.close(fd);
    }
}

fn splice_errors(s: &mut Script) {
    let empty = s.open("atomic-a", O_RDWR | O_CREAT);
    s.make("atomic-b", "0123456789");
    let (full, write) = (s.open("atomic-b", O_RDONLY), s.open("atomic-b", O_WRONLY));
    let append = s.open("atomic-b", O_RDWR | libc::O_APPEND);
    let folder = s.open(".", O_RDONLY);
    let mut ends = [0; 2];
    // SAFETY: two numbers; the offsets are alive.
    unsafe {
        let made = libc::pipe(ends.as_mut_ptr());
        s.gave("pipe", made);
        let [reader, writer] = ends;
        let null = null_mut::<i64>;
        let mut go = |what: &str, from: i32, at: *mut i64, to: i32, to_at: *mut i64, len: usize, flags: u32| {
            s.gave(what, libc::splice(from, at, to, to_at, len, flags) as i64);
        };
        for (what, file) in [("empty", empty), ("full", full), ("for writing", write)] {
            go(&format!("{what} to the end that reads"), file, null(), reader, null(), 10, 0);
            go(&format!("the end that writes to {what}"), writer, null(), file, null(), 10, 0);
            go(&format!("{what}, of nothing"), file, null(), reader, null(), 0, 0);
            go(&format!("{what}, of nothing, a flag"), file, null(), reader, null(), 0, 1 << 20);
            go(&format!("{what}, a flag"), file, null(), reader, null(), 1, 1 << 20);
            go(&format!("{what}, an offset of the pipe"), file, null(), reader, &mut 1, 1, 0);
            go(&format!("{what} to a file"), file, null(), empty, null(), 1, 0);
            go(&format!("{what} to a folder"), file, null(), folder, null(), 1, 0);
            go(&format!("{what} to nothing"), file, null(), 9999, null(), 1, 0);
            go(&format!("nothing to {what}"), 9999, null(), file, null(), 1, 0);
            go(&format!("{what} from before"), file, &mut -1, writer, null(), 1, 0);
            go(&format!("{what} from nowhere"), file, BAD as *mut i64, writer, null(), 1, 0);
        }
        go("to one that appends", reader, null(), append, null(), 1, 0);
        go("to itself", append, null(), append, null(), 1, 0);
        go("far too much", full, null(), writer, null(), usize::MAX, 0);
        go("full", full, null(), writer, null(), 4, 0);
        go("empty", empty, null(), writer, null(), 4, 0);
    }
    s.read(ends[0], 10);
    for fd in [empty, full, write, append, folder, ends[0], ends[1]] {
        s.close(fd);
    }
}

fn blocks_shown(s: &mut Script, fd: i32) {
    s.line("  blocks", Script::look(fd).st_blocks);
}

fn blocks(s: &mut Script) {
    for size in [1, 256, 4096, 5000, 300_000] {
        let name = format!("atomic-{size}");
        let fd = s.open(&name, O_RDWR | O_CREAT);
        blocks_shown(s, fd);
        s.write(fd, &"x".repeat(size));
        blocks_shown(s, fd);
        // SAFETY: no memory is passed.
        unsafe { libc::fsync(fd) };
        blocks_shown(s, fd);
        s.write(fd, "more");
        blocks_shown(s, fd);
        // SAFETY: no memory is passed.
        unsafe { libc::ftruncate(fd, 200) };
        blocks_shown(s, fd);
        // SAFETY: no memory is passed.
        unsafe { libc::fsync(fd) };
        blocks_shown(s, fd);
        s.write(fd, "");
        s.close(fd);
        let fd = s.open(&name, O_RDONLY);
        blocks_shown(s, fd);
        s.close(fd);
    }
}

fn blocks_of_holes(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.pwrite(fd, "far", 64 << 20);
    let some = |s: &mut Script, what: &str| {
        let blocks = Script::look(fd).st_blocks;
        s.line(what, format!("{}", (8..=64).contains(&blocks)));
    };
    some(s, "a few blocks");
    s.pwrite(fd, "near", 0);
    some(s, "a few more");
    // SAFETY: no memory is passed.
    unsafe { libc::fsync(fd) };
    some(s, "after a SYNC");
    s.close(fd);
    let fd = s.open("atomic-a", O_RDONLY);
    let blocks = Script::look(fd).st_blocks;
    s.line("after its close", (8..=64).contains(&blocks));
    s.close(fd);
}
