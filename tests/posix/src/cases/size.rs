//! Sizes, space and holes.

use super::case::{Case, Differs};
use super::script::Script;
use libc::{O_CREAT, O_RDONLY, O_RDWR, O_WRONLY, SEEK_DATA, SEEK_HOLE};

const NO_HOLES: &str = "an atomic file has no holes: what waits in the journal is data";
const NO_MOVES: &str = "moving the rest of a file is refused, as on most file systems";
const HAS_ZEROS: &str = "zeros are written, as part of the epoch: tmpfs itself has no FALLOC_FL_ZERO_RANGE";

pub const CASES: &[Case] = &[
    Case { name: "size/ftruncate", run: ftruncate, differs: &[] },
    Case {
        name: "size/ftruncate-errors",
        run: ftruncate_errors,
        differs: &[Differs {
            line: "ftruncate(9223372036854775807)",
            on: Some("tmpfs"),
            why: "an atomic file has at most 256 TiB, as on other file systems",
        }],
    },
    Case { name: "size/truncate", run: truncate, differs: &[] },
    Case {
        name: "size/truncate-read-only",
        run: truncate_read_only,
        differs: &[
            Differs {
                line: "truncate(atomic-a, 4)",
                on: None,
                why: "EBUSY: there is no descriptor that it could be done by, and to open one would drop the program's locks",
            },
            Differs { line: "  mode, links, owner, size", on: None, why: "it was not cut" },
        ],
    },
    Case { name: "size/sparse", run: sparse, differs: &[] },
    Case {
        name: "size/holes",
        run: holes,
        differs: &[
            Differs { line: "lseek(0, 4)", on: None, why: NO_HOLES },
            Differs { line: "lseek(0, 3)", on: None, why: NO_HOLES },
        ],
    },
    Case { name: "size/holes-errors", run: holes_errors, differs: &[] },
    Case { name: "size/seek-errors", run: seek_errors, differs: &[] },
    Case {
        name: "size/fallocate",
        run: fallocate,
        differs: &[
            Differs { line: "fallocate(16,", on: Some("tmpfs"), why: HAS_ZEROS },
            Differs { line: "fallocate(17,", on: Some("tmpfs"), why: HAS_ZEROS },
            Differs { line: "  came (zeroed)", on: Some("tmpfs"), why: HAS_ZEROS },
            Differs { line: "  size (zeroed)", on: Some("tmpfs"), why: HAS_ZEROS },
        ],
    },
    Case {
        name: "size/fallocate-moves",
        run: fallocate_moves,
        differs: &[
            Differs { line: "fallocate(8, 4096, 4096)", on: Some("disk"), why: NO_MOVES },
            Differs { line: "fallocate(32, 4096, 4096)", on: Some("disk"), why: NO_MOVES },
        ],
    },
    Case { name: "size/fallocate-errors", run: fallocate_errors, differs: &[] },
    Case { name: "size/blocks", run: blocks, differs: &[] },
    Case { name: "size/too-large", run: too_large, differs: &[] },
    Case { name: "size/limit", run: limit, differs: &[] },
];

fn cut(s: &mut Script, fd: i32, size: i64) {
    // SAFETY: no memory is passed.
    let done = unsafe { libc::ftruncate(fd, size) };
    s.gave(&format!("ftruncate({size})"), done);
}

fn cut_path(s: &mut Script, name: &str, size: i64) {
    s.named(&format!("truncate({name}, {size})"), &[name], |n| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::truncate(n[0], size) }
    });
}

fn reserve(s: &mut Script, fd: i32, mode: i32, at: i64, len: i64) {
    // SAFETY: no memory is passed.
    let done = unsafe { libc::fallocate(fd, mode, at, len) };
    s.gave(&format!("fallocate({mode}, {at}, {len})"), done);
}

fn ftruncate(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    for size in [4, 8, 8, 0, 6] {
        cut(s, fd, size);
        s.fstat(fd);
        s.pread(fd, 20, 0);
    }
    s.seek(fd, 0, libc::SEEK_CUR);
    s.write(fd, "end");
    s.pread(fd, 30, 0);
    s.close(fd);
    s.holds("atomic-a");
}

fn ftruncate_errors(s: &mut Script) {
    s.make("atomic-a", "text");
    let (read, write) = (s.open("atomic-a", O_RDONLY), s.open("atomic-a", O_WRONLY));
    cut(s, read, 0);
    cut(s, write, -1);
    cut(s, write, i64::MIN);
    cut(s, write, i64::MAX);
    cut(s, 9999, 0);
    let folder = s.open(".", O_RDONLY);
    cut(s, folder, 0);
    cut(s, write, 2);
    s.pread(read, 10, 0);
    for fd in [read, write, folder] {
        s.close(fd);
    }
    s.stat("atomic-a");
}

fn truncate(s: &mut Script) {
    s.make("atomic-a", "0123456789");
    cut_path(s, "atomic-a", 4);
    s.holds("atomic-a");
    let fd = s.open("atomic-a", O_RDWR);
    s.pwrite(fd, "xyz", 4);
    cut_path(s, "atomic-a", 6);
    s.fstat(fd);
    cut_path(s, "atomic-a", 9);
    s.pread(fd, 20, 0);
    s.close(fd);
    cut_path(s, "atomic-a", -1);
    cut_path(s, "atomic-none", 0);
    cut_path(s, "atomic-a/b", 0);
    cut_path(s, "", 0);
    cut_path(s, ".", 0);
    s.holds("atomic-a");
}

fn truncate_read_only(s: &mut Script) {
    s.make("atomic-a", "0123456789");
    let fd = s.open("atomic-a", O_RDONLY);
    cut_path(s, "atomic-a", 4);
    s.fstat(fd);
    s.close(fd);
}

fn sparse(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.pwrite(fd, "far", 3 << 20);
    s.pread(fd, 8, (3 << 20) - 4);
    s.pread(fd, 4, 1 << 20);
    s.pread(fd, 4, 4 << 20);
    s.pwrite(fd, "middle", 2 << 20);
    s.fstat(fd);
    cut(s, fd, (2 << 20) + 3);
    cut(s, fd, (2 << 20) + 9);
    s.pread(fd, 20, 2 << 20);
    s.close(fd);
    s.stat("atomic-a");
}

fn holes(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.pwrite(fd, "data", 1 << 20);
    s.seek(fd, 0, SEEK_HOLE);
    s.seek(fd, 0, SEEK_DATA);
    s.seek(fd, (1 << 20) + 3, SEEK_DATA);
    s.seek(fd, (1 << 20) + 3, SEEK_HOLE);
    s.close(fd);
}

fn holes_errors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.seek(fd, 0, SEEK_DATA);
    s.seek(fd, 0, SEEK_HOLE);
    s.write(fd, "data");
    for whence in [SEEK_DATA, SEEK_HOLE] {
        for at in [-1, 4, 5, 3] {
            s.seek(fd, at, whence);
        }
    }
    s.close(fd);
}

fn seek_errors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    for (to, whence) in [(-1, 0), (-11, 2), (-11, 1), (i64::MAX, 1), (i64::MAX, 2), (0, 5), (0, -1), (i64::MIN, 0)] {
        s.seek(fd, to, whence);
        s.seek(fd, 0, libc::SEEK_CUR);
    }
    s.seek(fd, 20, libc::SEEK_SET);
    s.read(fd, 4);
    s.fstat(fd);
    s.write(fd, "!");
    s.fstat(fd);
    s.seek(9999, 0, 0);
    s.close(fd);
}

fn fallocate(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "0123456789");
    reserve(s, fd, 0, 0, 20);
    s.fstat(fd);
    reserve(s, fd, libc::FALLOC_FL_KEEP_SIZE, 0, 100_000);
    s.fstat(fd);
    s.seek(fd, 0, libc::SEEK_CUR);
    reserve(s, fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 2, 3);
    s.pread(fd, 30, 0);
    let zeroed = |s: &mut Script, mode: i32, at: i64, len: i64| {
        reserve(s, fd, mode, at, len);
        let mut bytes = [0u8; 40];
        // SAFETY: the buffer is as long as said.
        let n = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), 40, 0) };
        s.line("  came (zeroed)", String::from_utf8_lossy(&bytes[..n.max(0) as usize]).replace('\0', "0"));
        s.line("  size (zeroed)", Script::look(fd).st_size);
    };
    zeroed(s, libc::FALLOC_FL_ZERO_RANGE, 6, 2);
    zeroed(s, libc::FALLOC_FL_ZERO_RANGE, 18, 10);
    zeroed(s, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, 8, 1000);
    // SAFETY: no memory is passed.
    let done = unsafe { libc::posix_fallocate(fd, 0, 40) };
    s.line("posix_fallocate", done);
    s.fstat(fd);
    s.close(fd);
}

fn fallocate_moves(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    cut(s, fd, 16384);
    reserve(s, fd, libc::FALLOC_FL_COLLAPSE_RANGE, 4096, 4096);
    reserve(s, fd, libc::FALLOC_FL_INSERT_RANGE, 4096, 4096);
    s.fstat(fd);
    s.close(fd);
}

fn fallocate_errors(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.write(fd, "text");
    for (mode, at, len) in [(0, 0, 0), (0, -1, 4), (0, 0, -4), (0, i64::MAX, 1), (0, i64::MAX, i64::MAX)] {
        reserve(s, fd, mode, at, len);
    }
    reserve(s, fd, libc::FALLOC_FL_PUNCH_HOLE, 0, 4);
    reserve(s, fd, 1 << 20, 0, 4);
    let read = s.open("atomic-a", O_RDONLY);
    reserve(s, read, 0, 0, 4);
    reserve(s, 9999, 0, 0, 4);
    s.fstat(fd);
    s.close(read);
    s.close(fd);
}

fn blocks(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    let text = "x".repeat(100_000);
    s.write(fd, &text);
    let plausible = |fd: i32| {
        let stat = Script::look(fd);
        let (bytes, size) = (stat.st_blocks * 512, stat.st_size);
        // Less would be a hole for `cp`; while it is open, more may be preallocated.
        bytes >= size
    };
    s.line("blocks for all bytes", plausible(fd));
    s.close(fd);
    let fd = s.open("atomic-a", O_RDONLY);
    s.line("blocks for all bytes", plausible(fd));
    let stat = Script::look(fd);
    s.line("no more than 64 KiB besides", stat.st_blocks * 512 <= stat.st_size + 65536);
    s.line("block size is one", stat.st_blksize >= 512);
    s.close(fd);
}

fn too_large(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.pwrite(fd, "x", i64::MAX);
    s.pwrite(fd, "xy", i64::MAX - 1);
    s.pwrite(fd, "x", -1);
    s.pread(fd, 4, i64::MAX);
    s.pread(fd, 4, -1);
    s.seek(fd, i64::MAX, libc::SEEK_SET);
    s.write(fd, "x");
    s.read(fd, 1);
    s.fstat(fd);
    s.close(fd);
}

/// More than the journal of a small file needs at first: Famio's files belong to the process, and its limits apply.
const LIMIT: i64 = 1 << 20;

fn limit(s: &mut Script) {
    let fd = s.open("atomic-a", O_RDWR | O_CREAT);
    s.child("a child with a limit", || {
        let mut child = Script::default();
        let limit = libc::rlimit { rlim_cur: LIMIT as u64, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the structure is alive; the signal is ignored.
        unsafe {
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
        let wrote = [0, LIMIT - 3, LIMIT].map(|at| child.pwrite(fd, "0123456", at));
        i32::from(wrote != [7, 3, -1] || !child.text().contains("EFBIG"))
    });
    s.child("a child that does not ignore the signal", || {
        let limit = libc::rlimit { rlim_cur: LIMIT as u64, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the structure is alive.
        unsafe {
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
        Script::default().pwrite(fd, "x", LIMIT);
        0
    });
    s.pread(fd, 20, LIMIT - 10);
    s.fstat(fd);
    s.close(fd);
}
