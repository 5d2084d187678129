//! Random calls on an atomic file and on a plain one must give the same results, bytes, errnos and sizes, and finally
//! the same file. `FAMIO_DIFFERENTIAL_CALLS` is the number of calls for each configuration.

use famio::file::UserBuf;
use famio::pmem::TestHooks;
use famio::posix::{self, Config, Globs, Ret, process};
use famio::{Durability, PolicyChoice, Settings, TierChoice};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestError, TestRunner};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls in one sequence.
const LENGTH: usize = 60;
/// Number of descriptors that a sequence uses.
const SLOTS: usize = 5;
/// Number of maps that it uses.
const MAPS: usize = 3;
/// A number that is never open.
const CLOSED: i32 = 1 << 20;

#[derive(Clone, Debug)]
enum Call {
    Open {
        slot: usize,
        access: i32,
        flags: i32,
    },
    Close(usize),
    CloseAll,
    Dup {
        from: usize,
        to: usize,
    },
    Dup2 {
        from: usize,
        to: usize,
    },
    Read {
        slot: usize,
        len: usize,
    },
    Write {
        slot: usize,
        len: usize,
        seed: u8,
    },
    Pread {
        slot: usize,
        at: i64,
        len: usize,
    },
    Pwrite {
        slot: usize,
        at: i64,
        len: usize,
        seed: u8,
    },
    Readv {
        slot: usize,
        at: Option<i64>,
        lens: Vec<usize>,
    },
    Writev {
        slot: usize,
        at: Option<i64>,
        lens: Vec<usize>,
        flags: i32,
        seed: u8,
    },
    Seek {
        slot: usize,
        to: i64,
        whence: i32,
    },
    Truncate {
        slot: usize,
        size: i64,
    },
    TruncatePath {
        size: i64,
    },
    Fallocate {
        slot: usize,
        mode: i32,
        at: i64,
        len: i64,
    },
    Sync {
        slot: usize,
        data: bool,
    },
    Stat {
        slot: usize,
    },
    StatPath,
    GetFlags(usize),
    SetAppend {
        slot: usize,
        on: bool,
    },
    BadPointer {
        slot: usize,
        write: bool,
        vector: bool,
    },
    BadCount {
        slot: usize,
        write: bool,
        count: usize,
    },
    Copy {
        from: usize,
        to: usize,
        from_at: Option<i64>,
        to_at: Option<i64>,
        len: usize,
    },
    Map {
        slot: usize,
        map: usize,
        page: i64,
        pages: usize,
        shared: bool,
        prot: i32,
    },
    Unmap(usize),
    Load {
        map: usize,
        at: usize,
        len: usize,
    },
    Store {
        map: usize,
        at: usize,
        len: usize,
        seed: u8,
    },
    Msync {
        map: usize,
        flags: i32,
    },
    Protect {
        map: usize,
        prot: i32,
    },
    Remap {
        map: usize,
        pages: usize,
    },
    /// Bytes stay, since the map is shared.
    DontNeed(usize),
}

fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0i64..20_000,
        3 => (0i64..12, -3i64..4).prop_map(|(block, fast_path)| block * 4096 + fast_path),
        1 => 0i64..600_000,
        1 => prop_oneof![Just(-1i64), Just(i64::MIN), Just(-4096)],
    ]
}

fn size() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0i64..20_000, 2 => (0i64..10).prop_map(|blocks| blocks * 4096), 1 => 0i64..500_000, 1 => Just(0), 1 => Just(-1)]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..200, 4 => 0usize..9000, 2 => (1usize..5).prop_map(|blocks| blocks * 4096), 1 => 0usize..150_000]
}

fn call() -> impl Strategy<Value = Call> {
    let slot = || 0..SLOTS;
    let flags = prop_oneof![
        6 => Just(libc::O_CREAT),
        2 => Just(libc::O_CREAT | libc::O_APPEND),
        2 => Just(libc::O_CREAT | libc::O_TRUNC),
        1 => Just(libc::O_CREAT | libc::O_SYNC),
        1 => Just(libc::O_CREAT | libc::O_DSYNC | libc::O_APPEND),
        1 => Just(0),
        1 => Just(libc::O_CREAT | libc::O_EXCL),
        1 => Just(libc::O_DIRECTORY),
    ];
    let access = prop_oneof![6 => Just(libc::O_RDWR), 2 => Just(libc::O_WRONLY), 1 => Just(libc::O_RDONLY)];
    let at = || prop_oneof![Just(None), offset().prop_map(Some)];
    let lens = || proptest::collection::vec(0usize..6000, 0..6);
    let rwf = prop_oneof![8 => Just(0), 1 => Just(2), 1 => Just(4), 2 => Just(16), 1 => Just(1 << 20)];
    // 8 and 32 alone, which move the rest of a file, are in `fallocate.rs`, since the answers differ.
    let mode = prop_oneof![
        4 => Just(0),
        2 => Just(libc::FALLOC_FL_KEEP_SIZE),
        4 => Just(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
        4 => Just(libc::FALLOC_FL_ZERO_RANGE),
        2 => Just(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE),
        1 => Just(libc::FALLOC_FL_UNSHARE_RANGE),
        1 => prop_oneof![
            Just(libc::FALLOC_FL_PUNCH_HOLE),
            Just(libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_KEEP_SIZE),
            Just(libc::FALLOC_FL_INSERT_RANGE | libc::FALLOC_FL_ZERO_RANGE),
            Just(libc::FALLOC_FL_UNSHARE_RANGE | libc::FALLOC_FL_PUNCH_HOLE),
            Just(4),
            Just(1 << 20),
        ],
    ];
    let range = || prop_oneof![12 => offset(), 1 => Just(i64::MAX)];
    prop_oneof![
        6 => (slot(), access, flags).prop_map(|(slot, access, flags)| Call::Open { slot, access, flags }),
        2 => slot().prop_map(Call::Close),
        1 => Just(Call::CloseAll),
        2 => (slot(), slot()).prop_map(|(from, to)| Call::Dup { from, to }),
        1 => (slot(), slot()).prop_map(|(from, to)| Call::Dup2 { from, to }),
        6 => (slot(), length()).prop_map(|(slot, len)| Call::Read { slot, len }),
        8 => (slot(), length(), any::<u8>()).prop_map(|(slot, len, seed)| Call::Write { slot, len, seed }),
        6 => (slot(), offset(), length()).prop_map(|(slot, at, len)| Call::Pread { slot, at, len }),
        8 => (slot(), offset(), length(), any::<u8>())
            .prop_map(|(slot, at, len, seed)| Call::Pwrite { slot, at, len, seed }),
        3 => (slot(), at(), lens()).prop_map(|(slot, at, lens)| Call::Readv { slot, at, lens }),
        4 => (slot(), at(), lens(), rwf, any::<u8>())
            .prop_map(|(slot, at, lens, flags, seed)| Call::Writev { slot, at, lens, flags, seed }),
        5 => (slot(), offset(), 0..4i32).prop_map(|(slot, to, whence)| Call::Seek { slot, to, whence }),
        5 => (slot(), size()).prop_map(|(slot, size)| Call::Truncate { slot, size }),
        1 => size().prop_map(|size| Call::TruncatePath { size }),
        5 => (slot(), mode, range(), size()).prop_map(|(slot, mode, at, len)| Call::Fallocate { slot, mode, at, len }),
        4 => (slot(), any::<bool>()).prop_map(|(slot, data)| Call::Sync { slot, data }),
        3 => slot().prop_map(|slot| Call::Stat { slot }),
        1 => Just(Call::StatPath),
        1 => slot().prop_map(Call::GetFlags),
        1 => (slot(), any::<bool>()).prop_map(|(slot, on)| Call::SetAppend { slot, on }),
        1 => (slot(), any::<bool>(), any::<bool>())
            .prop_map(|(slot, write, vector)| Call::BadPointer { slot, write, vector }),
        1 => (slot(), any::<bool>(), prop_oneof![Just(usize::MAX), Just(1 << 63), Just(0)])
            .prop_map(|(slot, write, count)| Call::BadCount { slot, write, count }),
        1 => (slot(), slot(), at(), at(), length())
            .prop_map(|(from, to, from_at, to_at, len)| Call::Copy { from, to, from_at, to_at, len }),
    ]
}

/// Calls on maps, and all others.
fn mapped_call() -> impl Strategy<Value = Call> {
    let map = || 0..MAPS;
    let prot = || prop_oneof![1 => Just(libc::PROT_READ), 2 => Just(libc::PROT_READ | libc::PROT_WRITE)];
    let at = || prop_oneof![4 => 0usize..20_000, 2 => (0usize..6, 0usize..70).prop_map(|(page, fast_path)| page * 4096 + fast_path)];
    let flags = prop_oneof![4 => Just(libc::MS_SYNC), 1 => Just(libc::MS_ASYNC), 1 => Just(64)];
    prop_oneof![
        30 => call(),
        5 => (0..SLOTS, map(), 0i64..4, 1usize..7, prop_oneof![3 => Just(true), 1 => Just(false)], prot())
            .prop_map(|(slot, map, page, pages, shared, prot)| Call::Map { slot, map, page, pages, shared, prot }),
        1 => map().prop_map(Call::Unmap),
        8 => (map(), at(), length()).prop_map(|(map, at, len)| Call::Load { map, at, len }),
        8 => (map(), at(), length(), any::<u8>()).prop_map(|(map, at, len, seed)| Call::Store { map, at, len, seed }),
        2 => (map(), flags).prop_map(|(map, flags)| Call::Msync { map, flags }),
        2 => (map(), prot()).prop_map(|(map, prot)| Call::Protect { map, prot }),
        1 => (map(), 1usize..9).prop_map(|(map, pages)| Call::Remap { map, pages }),
        1 => map().prop_map(Call::DontNeed),
    ]
}

/// One of the two files, with its descriptors.
struct Side {
    path: CString,
    fds: [i32; SLOTS],
    maps: [Option<Map>; MAPS],
    /// Maps of the atomic file are private.
    private_maps: bool,
    /// Its `fallocate` writes no zeros; an atomic file's does.
    tmpfs: bool,
}

#[derive(Clone, Copy)]
struct Map {
    start: usize,
    len: usize,
    /// Its offset in the file.
    at: usize,
    /// It was writable at some time.
    stores: bool,
}

/// The outcome of a call: the result, what was read, and offsets that it changed.
type Seen = (Ret, Vec<u8>, Vec<i64>);

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_add((i % 251) as u8).wrapping_mul(3) | 1).collect()
}

impl Side {
    fn new(path: &Path) -> Self {
        let folder = std::fs::File::open(path.parent().unwrap()).unwrap();
        let tmpfs = rustix::fs::fstatfs(folder).unwrap().f_type == libc::TMPFS_MAGIC;
        Side {
            path: CString::new(path.as_os_str().as_bytes()).unwrap(),
            fds: [CLOSED; SLOTS],
            maps: [None; MAPS],
            private_maps: PRIVATE_MAPS.load(Ordering::Relaxed),
            tmpfs,
        }
    }

    fn put(&mut self, slot: usize, fd: Ret) -> Ret {
        if fd < 0 {
            return fd;
        }
        let old = std::mem::replace(&mut self.fds[slot], fd as i32);
        if old != CLOSED {
            assert_eq!(posix::close(old), 0);
        }
        0
    }

    fn close_all(&mut self) -> Ret {
        let results: Vec<Ret> = self
            .fds
            .iter_mut()
            .filter(|fd| **fd != CLOSED)
            .map(|fd| posix::close(std::mem::replace(fd, CLOSED)))
            .collect();
        results.into_iter().find(|&result| result < 0).unwrap_or(0)
    }

    fn run(&mut self, call: &Call) -> Seen {
        let plain = |result: Ret| (result, Vec::new(), Vec::new());
        let fds = self.fds;
        // SAFETY: buffers are alive and as long as said, or bad on purpose.
        unsafe {
            match call {
                &Call::Open { slot, access, flags } => {
                    let fd = posix::openat(libc::AT_FDCWD, self.path.as_ptr(), access | flags | libc::O_CLOEXEC, 0o640);
                    plain(self.put(slot, fd))
                }
                &Call::Close(slot) => plain(posix::close(std::mem::replace(&mut self.fds[slot], CLOSED))),
                Call::CloseAll => plain(self.close_all()),
                &Call::Dup { from, to } => {
                    let fd = posix::dup(fds[from]);
                    plain(self.put(to, fd))
                }
                &Call::Dup2 { from, to } => {
                    let result = posix::dup2(fds[from], fds[to]);
                    plain(if result == fds[to] as Ret { 0 } else { result })
                }
                &Call::Read { slot, len } => {
                    let mut buffer = vec![0xee; len];
                    (posix::read(fds[slot], buffer.as_mut_ptr(), len), buffer, Vec::new())
                }
                &Call::Write { slot, len, seed } => plain(posix::write(fds[slot], bytes(len, seed).as_ptr(), len)),
                &Call::Pread { slot, at, len } => {
                    let mut buffer = vec![0xee; len];
                    (posix::pread(fds[slot], buffer.as_mut_ptr(), len, at), buffer, Vec::new())
                }
                &Call::Pwrite { slot, at, len, seed } => {
                    plain(posix::pwrite(fds[slot], bytes(len, seed).as_ptr(), len, at))
                }
                Call::Readv { slot, at, lens } => {
                    let mut pieces: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0xee; len]).collect();
                    let bufs: Vec<UserBuf> =
                        pieces.iter_mut().map(|piece| UserBuf { base: piece.as_mut_ptr(), len: piece.len() }).collect();
                    let result = match at {
                        None => posix::readv(fds[*slot], bufs.as_ptr(), bufs.len()),
                        Some(at) => posix::preadv(fds[*slot], bufs.as_ptr(), bufs.len(), *at),
                    };
                    (result, pieces.concat(), Vec::new())
                }
                Call::Writev { slot, at, lens, flags, seed } => {
                    let pieces: Vec<Vec<u8>> = lens.iter().map(|&len| bytes(len, *seed)).collect();
                    let bufs: Vec<UserBuf> = pieces
                        .iter()
                        .map(|piece| UserBuf { base: piece.as_ptr().cast_mut(), len: piece.len() })
                        .collect();
                    let (fd, bufs, count) = (fds[*slot], bufs.as_ptr(), bufs.len());
                    plain(match (at, flags) {
                        (None, 0) => posix::writev(fd, bufs, count),
                        (None, flags) => posix::pwritev2(fd, bufs, count, -1, *flags),
                        (Some(at), 0) => posix::pwritev(fd, bufs, count, *at),
                        (Some(at), flags) => posix::pwritev2(fd, bufs, count, *at, *flags),
                    })
                }
                &Call::Seek { slot, to, whence } => {
                    // Holes may differ: 3 stands for an invalid whence.
                    plain(posix::lseek(fds[slot], to, if whence == 3 { 77 } else { whence }))
                }
                &Call::Truncate { slot, size } => plain(posix::ftruncate(fds[slot], size)),
                &Call::TruncatePath { size } => {
                    // If it is open for reading only, the atomic file returns EBUSY where the plain one is cut.
                    plain(if self.readable_only() || self.is_mapped() {
                        0
                    } else {
                        posix::truncate(self.path.as_ptr(), size)
                    })
                }
                &Call::Fallocate { slot, mode, at, len } => {
                    let mode = if mode & libc::FALLOC_FL_ZERO_RANGE != 0 && self.tmpfs { 3 } else { mode };
                    plain(posix::fallocate(fds[slot], mode, at, len))
                }
                &Call::Sync { slot, data } => {
                    plain(if data { posix::fdatasync(fds[slot]) } else { posix::fsync(fds[slot]) })
                }
                &Call::Stat { slot } => {
                    let mut stat: libc::stat = std::mem::zeroed();
                    let result = posix::fstat(fds[slot], &mut stat);
                    (result, Vec::new(), vec![stat.st_size, i64::from(stat.st_mode), stat.st_nlink as i64])
                }
                Call::StatPath => {
                    let mut stat: libc::stat = std::mem::zeroed();
                    let result = posix::fstatat(libc::AT_FDCWD, self.path.as_ptr(), &mut stat, 0);
                    let mut more: libc::statx = std::mem::zeroed();
                    let again = posix::statx(libc::AT_FDCWD, self.path.as_ptr(), 0, libc::STATX_SIZE, &mut more);
                    assert_eq!(result, again);
                    assert_eq!(stat.st_size as u64, more.stx_size);
                    (result, Vec::new(), vec![stat.st_size, i64::from(stat.st_mode)])
                }
                &Call::GetFlags(slot) => plain(posix::fcntl(fds[slot], libc::F_GETFL, 0)),
                &Call::SetAppend { slot, on } => {
                    plain(posix::fcntl(fds[slot], libc::F_SETFL, if on { libc::O_APPEND as usize } else { 0 }))
                }
                &Call::BadPointer { slot, write, vector } => {
                    let bad = 8 as *mut u8;
                    let bufs = [UserBuf { base: bad, len: 10 }];
                    // At 0: a failed write beyond the end makes a plain file grow.
                    plain(match (write, vector) {
                        (true, false) => posix::pwrite(fds[slot], bad, 10, 0),
                        (false, false) => posix::read(fds[slot], bad, 10),
                        (true, true) => posix::pwritev(fds[slot], bufs.as_ptr(), 1, 0),
                        (false, true) => posix::readv(fds[slot], bad.cast(), 1),
                    })
                }
                &Call::BadCount { slot, write, count } => {
                    let bad = 8 as *mut u8;
                    plain(if write { posix::write(fds[slot], bad, count) } else { posix::read(fds[slot], bad, count) })
                }
                &Call::Copy { from, to, from_at, to_at, len } => {
                    let (mut a, mut b) = (from_at.unwrap_or(0), to_at.unwrap_or(0));
                    let from_at = from_at.map_or(std::ptr::null_mut(), |_| &raw mut a);
                    let to_at = to_at.map_or(std::ptr::null_mut(), |_| &raw mut b);
                    let result = posix::copy_file_range(fds[from], from_at, fds[to], to_at, len, 0);
                    (result, Vec::new(), vec![a, b])
                }
                &Call::Map { slot, map, page, pages, shared, prot } => {
                    self.unmap(map);
                    let shared = shared || self.private_maps; // what other maps show does not matter then
                    let stores = prot & libc::PROT_WRITE != 0;
                    if shared && self.is_second_map(map, page as usize * 4096, pages * 4096, stores) {
                        return plain(0);
                    }
                    let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
                    let start = posix::mmap(0, pages * 4096, prot, flags, fds[slot], page * 4096);
                    if start < 0 {
                        return plain(start);
                    }
                    let (start, at) = (start as usize, page as usize * 4096);
                    self.maps[map] = Some(Map { start, len: pages * 4096, at, stores });
                    let seen = self.load(map, 0, pages * 4096);
                    if !shared {
                        self.unmap(map); // what it shows later is undefined
                    }
                    seen
                }
                &Call::Unmap(map) => plain(self.unmap(map)),
                &Call::Load { map, at, len } => self.load(map, at, len),
                &Call::Store { map, at, len, seed } => {
                    let Some((start, len)) = self.below_size(map, at, len) else { return plain(0) };
                    let bytes = bytes(len, seed);
                    let [from, to] = [bytes.as_ptr().cast_mut().cast(), start as *mut _]
                        .map(|iov_base| libc::iovec { iov_base, iov_len: len });
                    plain(libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0))
                }
                &Call::Msync { map, flags } => {
                    plain(self.maps[map].map_or(0, |map| posix::msync(map.start, map.len, flags)))
                }
                &Call::Protect { map, prot } => {
                    let Some(there) = self.maps[map] else { return plain(0) };
                    let stores = there.stores || prot & libc::PROT_WRITE != 0;
                    if self.is_second_map(map, there.at, there.len, stores) {
                        return plain(0);
                    }
                    let done = posix::mprotect(there.start, there.len, prot);
                    if done == 0 {
                        self.maps[map] = Some(Map { stores, ..there });
                    }
                    plain(done)
                }
                &Call::DontNeed(map) => {
                    plain(self.maps[map].map_or(0, |map| posix::madvise(map.start, map.len, libc::MADV_DONTNEED)))
                }
                &Call::Remap { map, pages } => {
                    let Some(old) = self.maps[map] else { return plain(0) };
                    if self.is_second_map(map, old.at, pages * 4096, old.stores) {
                        return plain(0);
                    }
                    let start = posix::mremap(old.start, old.len, pages * 4096, libc::MREMAP_MAYMOVE, 0);
                    if start >= 0 {
                        self.maps[map] = Some(Map { start: start as usize, len: pages * 4096, ..old });
                    }
                    plain(start.min(0))
                }
            }
        }
    }

    /// Whether maps are private, and there is another map of these bytes, and one of the two is writable: that is
    /// refused.
    fn is_second_map(&self, map: usize, at: usize, len: usize, stores: bool) -> bool {
        let others = self.maps.iter().enumerate().filter(|(other, _)| *other != map).filter_map(|(_, other)| *other);
        let touches = |other: Map| other.at < at + len && at < other.at + other.len;
        self.private_maps && others.into_iter().any(|other| touches(other) && (stores || other.stores))
    }

    fn is_mapped(&self) -> bool {
        self.maps.iter().any(Option::is_some)
    }

    fn unmap(&mut self, map: usize) -> Ret {
        // SAFETY: ours, and forgotten.
        self.maps[map].take().map_or(0, |map| unsafe { posix::munmap(map.start, map.len) })
    }

    /// The part of a map within the file: after its end, the last page may hold anything.
    fn below_size(&self, map: usize, at: usize, len: usize) -> Option<(usize, usize)> {
        let map = self.maps[map]?;
        // SAFETY: plain words, filled in by the call.
        let size = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(posix::fstatat(libc::AT_FDCWD, self.path.as_ptr(), &mut stat, 0), 0);
            stat.st_size as usize
        };
        let len = len.min(map.len.saturating_sub(at)).min(size.saturating_sub(map.at + at));
        (len > 0).then_some((map.start + at, len))
    }

    /// Reads through a map, by the kernel: unmapped pages give an error.
    fn load(&self, map: usize, at: usize, len: usize) -> Seen {
        let Some((start, len)) = self.below_size(map, at, len) else { return (0, Vec::new(), Vec::new()) };
        let mut bytes = vec![0xee; len];
        let [to, from] =
            [bytes.as_mut_ptr().cast(), start as *mut _].map(|iov_base| libc::iovec { iov_base, iov_len: len });
        // SAFETY: the buffer has that length; a bad address is an error.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
        (read, bytes, Vec::new())
    }

    fn readable_only(&self) -> bool {
        let access = |fd: &i32| {
            // SAFETY: no memory is passed.
            unsafe { posix::fcntl(*fd, libc::F_GETFL, 0) as i32 & libc::O_ACCMODE }
        };
        let open: Vec<i32> = self.fds.iter().filter(|fd| **fd != CLOSED).map(access).collect();
        !open.is_empty() && open.iter().all(|&access| access == libc::O_RDONLY)
    }
}

fn history(folder: &Path, calls: &[Call]) -> Result<(), TestCaseError> {
    let paths = [folder.join("file.atomic"), folder.join("file.plain")];
    for path in &paths {
        let _ = std::fs::remove_file(path);
    }
    let mut sides = paths.each_ref().map(|path| Side::new(path));
    let mut outcome = Ok(());
    for (step, call) in calls.iter().enumerate() {
        let [atomic, plain] = sides.each_mut().map(|side| side.run(call));
        if atomic != plain {
            let first = atomic.1.iter().zip(&plain.1).position(|(a, b)| a != b);
            outcome = Err(TestCaseError::fail(format!(
                "call {step}: {call:?}: atomic {} {:?}, plain {} {:?}, first byte that differs {first:?}",
                atomic.0, atomic.2, plain.0, plain.2
            )));
            break;
        }
    }
    let closed = sides.each_mut().map(|side| {
        let closed = side.close_all();
        (0..MAPS).for_each(|map| assert_eq!(side.unmap(map), 0));
        closed
    });
    outcome?;
    prop_assert_eq!(closed[0], closed[1]);
    let [atomic, plain] = paths.each_ref().map(|path| std::fs::read(path).ok());
    prop_assert_eq!(atomic.as_ref().map(Vec::len), plain.as_ref().map(Vec::len), "sizes after close");
    prop_assert!(atomic == plain, "bytes after close");
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    prop_assert!(left.iter().all(|name| name == "file.atomic" || name == "file.plain"), "left behind: {:?}", left);
    Ok(())
}

/// Runs about `calls` random calls on files in a new folder below `parent`.
fn differential(parent: &Path, settings: &Settings, calls: usize) {
    run(parent, settings, calls, call());
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn one_history(calls: &[Call]) {
    history_with(&Settings::default(), calls);
}

fn history_with(settings: &Settings, calls: &[Call]) {
    history_in(&tmpfs(), settings, calls);
}

fn history_in(parent: &Path, settings: &Settings, calls: &[Call]) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = parent.join(format!("famio-history-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    PRIVATE_MAPS.store(settings.map_memory == Some(0), Ordering::Relaxed);
    let globs = Globs::new(b"*.atomic", b"/", None).unwrap();
    process::start_with(Config {
        globs,
        settings: settings.clone(),
        kept: None,
        write_atomic: None,
        groups: Vec::new(),
        async_io: false,
    });
    let outcome = history(&folder, calls);
    let _ = std::fs::remove_dir_all(&folder);
    outcome.unwrap();
}

fn run(parent: &Path, settings: &Settings, calls: usize, call: impl Strategy<Value = Call>) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    PRIVATE_MAPS.store(settings.map_memory == Some(0), Ordering::Relaxed);
    let folder = parent.join(format!("famio-differential-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let globs = Globs::new(b"*.atomic", b"/", None).unwrap();
    process::start_with(Config {
        globs,
        settings: settings.clone(),
        kept: None,
        write_atomic: None,
        groups: Vec::new(),
        async_io: false,
    });
    let runs = Runs {
        cases: (calls / LENGTH).max(1) as u32,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Runs::default()
    };
    let result =
        TestRunner::new(runs).run(&proptest::collection::vec(call, 1..2 * LENGTH), |calls| history(&folder, &calls));
    let _ = std::fs::remove_dir_all(&folder);
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, calls)) => {
            let calls: Vec<String> = calls.iter().map(|call| format!("  {call:?}")).collect();
            panic!("{settings:?}\n{}\n{why}", calls.join("\n"));
        }
        Err(other) => panic!("{other}"),
    }
}

/// A map that may become writable, of a file whose writable descriptors are closed while another one is open.
#[test]
fn the_last_writable_descriptor_of_a_mapped_file() {
    let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
    one_history(&[
        Call::Open { slot: 1, access: libc::O_RDWR, flags: libc::O_CREAT },
        Call::Map { slot: 1, map: 1, page: 0, pages: 1, shared: true, prot: read },
        Call::Open { slot: 2, access: libc::O_RDONLY, flags: 0 },
        Call::Close(1),
        Call::Protect { map: 1, prot: write },
        Call::Store { map: 1, at: 0, len: 1, seed: 3 },
        Call::Close(2),
        Call::Msync { map: 1, flags: libc::MS_SYNC },
    ]);
}

/// The page in which an uncommitted cut ended showed the file's former bytes.
#[test]
fn a_private_map_of_a_file_that_was_cut_and_has_grown() {
    let settings = Settings { map_memory: Some(0), ..Settings::default() };
    for parent in [tmpfs(), disk()] {
        let calls = [
            Call::Open { slot: 4, access: libc::O_RDWR, flags: libc::O_CREAT | libc::O_DSYNC },
            Call::Pwrite { slot: 4, at: 0, len: 12_288, seed: 0 },
            Call::Open { slot: 3, access: libc::O_RDWR, flags: 0 },
            Call::Truncate { slot: 3, size: 8193 },
            Call::Pwrite { slot: 3, at: 12_288, len: 1, seed: 0 },
            Call::Map { slot: 3, map: 0, page: 0, pages: 3, shared: true, prot: libc::PROT_READ },
            Call::Map { slot: 3, map: 1, page: 1, pages: 3, shared: true, prot: libc::PROT_READ },
            Call::Sync { slot: 3, data: false },
            Call::Load { map: 0, at: 0, len: 12_288 },
        ];
        history_in(&parent, &settings, &calls);
    }
}

/// A private map that was extended became several maps of the kernel's, and could not be moved any more.
#[test]
fn a_private_map_becomes_longer_again_and_again() {
    TestHooks { shadow_limit: Some(128 << 10), alone: true, ..TestHooks::default() }.enter();
    let settings = Settings { map_memory: Some(0), ..Settings::default() };
    let grown = |size| Call::Truncate { slot: 1, size };
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let mut calls = vec![
        Call::Open { slot: 1, access: libc::O_RDWR, flags: libc::O_CREAT },
        Call::Map { slot: 1, map: 1, page: 0, pages: 1, shared: true, prot: both },
        grown(5000),
    ];
    for pages in 2..9 {
        calls.push(Call::Remap { map: 1, pages });
        calls.push(Call::Map { slot: 1, map: 2, page: 10, pages, shared: true, prot: both }); // in the way
        calls.push(grown(pages as i64 * 4096 - 7));
        calls.push(Call::Store { map: 1, at: pages * 4096 - 3000, len: 100, seed: pages as u8 });
        calls.push(Call::Load { map: 1, at: 0, len: 40_000 });
    }
    history_with(&settings, &calls);
    TestHooks::default().enter();
}

fn calls(default: usize) -> usize {
    std::env::var("FAMIO_DIFFERENTIAL_CALLS").map_or(default, |text| text.parse().expect("a number of calls"))
}

fn tmpfs() -> PathBuf {
    PathBuf::from("/dev/shm")
}

fn disk() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// On a disk, with the journals in a pool in memory.
fn tiered(name: &str) -> Settings {
    let pool = tmpfs().join(format!("famio-pool-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&pool).unwrap();
    Settings { pool: Some(pool), tier: TierChoice::Auto, ..settings(PolicyChoice::Auto, Durability::Process, true) }
}

fn settings(policy: PolicyChoice, durability: Durability, emulated: bool) -> Settings {
    Settings { policy, durability, emulated, ..Settings::default() }
}

#[test]
fn tmpfs_undo() {
    differential(&tmpfs(), &settings(PolicyChoice::Undo, Durability::Power, false), calls(4_000));
}

#[test]
fn tmpfs_redo() {
    differential(&tmpfs(), &settings(PolicyChoice::Redo, Durability::Power, false), calls(4_000));
}

#[test]
fn tmpfs_alternate() {
    differential(&tmpfs(), &settings(PolicyChoice::Alternate, Durability::Power, false), calls(4_000));
}

#[test]
fn tmpfs_emulated() {
    differential(&tmpfs(), &settings(PolicyChoice::Auto, Durability::Power, true), calls(4_000));
}

#[test]
fn disk_power() {
    differential(&disk(), &settings(PolicyChoice::Auto, Durability::Power, false), calls(1_000));
}

#[test]
fn disk_process() {
    differential(&disk(), &settings(PolicyChoice::Auto, Durability::Process, false), calls(3_000));
}

#[test]
fn disk_tiered() {
    let settings = tiered("calls");
    differential(&disk(), &settings, calls(3_000));
    std::fs::remove_dir(settings.pool.unwrap()).expect("nothing is left in the pool");
}

#[test]
fn disk_tiered_mapped() {
    let settings = tiered("mapped");
    run(&disk(), &settings, calls(2_000), mapped_call());
    std::fs::remove_dir(settings.pool.unwrap()).expect("nothing is left in the pool");
}

#[test]
fn tmpfs_mapped() {
    for policy in [PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate] {
        run(&tmpfs(), &settings(policy, Durability::Power, false), calls(2_000), mapped_call());
    }
}

/// Whether [`run`] uses private maps.
static PRIVATE_MAPS: AtomicBool = AtomicBool::new(false);

/// With maps as for a file larger than a quarter of memory; copied pages are dropped as soon as there are some.
fn mapped_privately(unwatched: bool, parent: &Path, settings: Settings, calls: usize) {
    TestHooks { shadow_limit: Some(128 << 10), alone: true, unwatched, ..TestHooks::default() }.enter();
    run(parent, &Settings { map_memory: Some(0), ..settings }, calls, mapped_call());
    TestHooks::default().enter();
}

#[test]
fn tmpfs_mapped_privately() {
    for policy in [PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate] {
        mapped_privately(false, &tmpfs(), settings(policy, Durability::Power, false), calls(2_000));
    }
}

#[test]
fn disk_tiered_mapped_privately() {
    let settings = tiered("privately");
    mapped_privately(false, &disk(), settings.clone(), calls(1_000));
    std::fs::remove_dir(settings.pool.unwrap()).expect("nothing is left in the pool");
}

#[test]
fn disk_mapped_privately() {
    for (unwatched, durability) in [(false, Durability::Process), (false, Durability::Power), (true, Durability::Power)]
    {
        mapped_privately(unwatched, &disk(), settings(PolicyChoice::Auto, durability, false), calls(1_000));
    }
}

#[test]
fn disk_mapped() {
    run(&disk(), &settings(PolicyChoice::Auto, Durability::Process, false), calls(2_000), mapped_call());
}

#[test]
fn disk_mapped_and_compared() {
    let settings = settings(PolicyChoice::Auto, Durability::Process, false);
    TestHooks { unwatched: true, ..TestHooks::default() }.enter();
    run(&disk(), &settings, calls(2_000), mapped_call());
    TestHooks::default().enter();
}
