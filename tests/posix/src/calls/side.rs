//! One of the two files, with its descriptors and maps, and the calls on it. The only difference between the two: the
//! plain file is never made durable, which would only slow it down.

use super::step::{MAPS, SLOTS, Step};
use std::ffi::CString;
use std::path::Path;

/// A number that is never open.
const CLOSED: i32 = 1 << 20;
/// Flags that make each write a SYNC.
const EACH: i32 = libc::O_SYNC | libc::O_DSYNC;

/// A shared map.
#[derive(Clone, Copy)]
pub struct Map {
    pub(super) start: usize,
    pub(super) len: usize,
    /// Its offset in the file.
    pub(super) at: usize,
    /// It is writable now.
    pub writable: bool,
}

/// One of the two files.
pub struct Side {
    /// The two names that it may have.
    pub(super) names: [CString; 2],
    /// A temporary name.
    pub(super) link: CString,
    pub(super) fds: [i32; SLOTS],
    /// The flags with which each was opened.
    pub(super) flags: [i32; SLOTS],
    pub(super) maps: [Option<Map>; MAPS],
    pub(super) twin: bool,
    /// The kernel's `fallocate` writes no zeros there.
    pub(super) tmpfs: bool,
    /// The first slot that may be closed.
    first: usize,
}

/// The outcome of a step: the result (or `-errno`), what was read, and other numbers.
pub type Seen = (i64, Vec<u8>, Vec<i64>);

pub(super) fn result(value: impl Into<i64>) -> i64 {
    let value = value.into();
    if value == -1 { -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { value }
}

/// The bytes that a step writes.
pub(super) fn bytes(len: usize, tag: u64) -> Vec<u8> {
    let tag = (tag as u8).wrapping_mul(37);
    (0..len).map(|i| tag.wrapping_add((i % 251) as u8).wrapping_mul(3) | 1).collect()
}

fn iovecs(pieces: &mut [Vec<u8>]) -> Vec<libc::iovec> {
    pieces.iter_mut().map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() }).collect()
}

impl Side {
    /// The file of this name in a folder; a twin is the plain file.
    pub fn new(folder: &Path, name: &str, twin: bool, tmpfs: bool, stays: bool) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let path =
            |end: &str| CString::new(folder.join(format!("{name}-{end}")).as_os_str().as_bytes()).unwrap_or_default();
        let (names, link) = ([path("a"), path("b")], path("link"));
        Self {
            names,
            link,
            fds: [CLOSED; SLOTS],
            flags: [0; SLOTS],
            maps: [None; MAPS],
            twin,
            tmpfs,
            first: usize::from(stays),
        }
    }

    /// Its current name, and the other one. Another process may have renamed it.
    pub(super) fn path(&self) -> [&CString; 2] {
        // SAFETY: a path that ends with a zero.
        let first = unsafe { libc::access(self.names[0].as_ptr(), libc::F_OK) == 0 };
        if first { [&self.names[0], &self.names[1]] } else { [&self.names[1], &self.names[0]] }
    }

    fn put(&mut self, slot: usize, fd: i64, flags: i32) -> i64 {
        if fd < 0 {
            return fd;
        }
        let old = std::mem::replace(&mut self.fds[slot], fd as i32);
        self.flags[slot] = flags;
        // SAFETY: ours, and forgotten.
        if old == CLOSED { 0 } else { result(unsafe { libc::close(old) }) }
    }

    /// Closes a descriptor.
    pub fn close(&mut self, slot: usize) -> i64 {
        // SAFETY: ours, and forgotten.
        result(unsafe { libc::close(std::mem::replace(&mut self.fds[slot], CLOSED)) })
    }

    /// Whether this slot has a descriptor.
    pub fn is_open(&self, slot: usize) -> bool {
        self.fds[slot] != CLOSED
    }

    /// Whether this slot is writable, with a SYNC at each write.
    pub fn is_writable(&self, slot: usize) -> bool {
        self.is_open(slot) && self.flags[slot] & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether each write through this slot is a SYNC.
    pub fn syncs_each(&self, slot: usize) -> bool {
        self.is_open(slot) && self.flags[slot] & EACH != 0
    }

    /// Number of descriptors.
    pub fn descriptors(&self) -> usize {
        self.fds.iter().filter(|&&fd| fd != CLOSED).count()
    }

    /// Number of shared maps.
    pub fn maps(&self) -> usize {
        self.maps.iter().flatten().count()
    }

    /// A map.
    pub fn map(&self, map: usize) -> Option<Map> {
        self.maps[map]
    }

    /// Runs a step. `tag` marks the bytes that it writes.
    pub fn run(&mut self, step: &Step, tag: u64) -> Seen {
        let plain = |result: i64| (result, Vec::new(), Vec::new());
        let fds = self.fds;
        // SAFETY: all buffers are alive and as long as said; paths end with a zero; maps are used only where this
        // side has one.
        unsafe {
            match *step {
                Step::Open { slot, flags } => {
                    let asked = if self.twin { flags & !EACH } else { flags };
                    let fd = result(libc::open(self.path()[0].as_ptr(), asked | libc::O_CLOEXEC, 0o640));
                    plain(self.put(slot, fd, flags))
                }
                Step::Close(slot) => plain(self.close(slot)),
                Step::CloseAll => plain((self.first..SLOTS).map(|slot| self.close(slot)).sum()),
                Step::Dup { from, to } => {
                    let fd = result(libc::fcntl(fds[from], libc::F_DUPFD_CLOEXEC, 0));
                    plain(self.put(to, fd, self.flags[from]))
                }
                Step::Dup2 { from, to } => {
                    let done = result(libc::dup2(fds[from], fds[to]));
                    if done >= 0 {
                        self.flags[to] = self.flags[from];
                    }
                    plain(done.min(0))
                }
                Step::Read { slot, len } => {
                    let mut buffer = vec![0xee; len];
                    (result(libc::read(fds[slot], buffer.as_mut_ptr().cast(), len) as i64), buffer, Vec::new())
                }
                Step::Write { slot, len } => {
                    plain(result(libc::write(fds[slot], bytes(len, tag).as_ptr().cast(), len) as i64))
                }
                Step::Pread { slot, at, len } => {
                    let mut buffer = vec![0xee; len];
                    (result(libc::pread(fds[slot], buffer.as_mut_ptr().cast(), len, at) as i64), buffer, Vec::new())
                }
                Step::Pwrite { slot, at, len } => {
                    plain(result(libc::pwrite64(fds[slot], bytes(len, tag).as_ptr().cast(), len, at) as i64))
                }
                Step::Readv { slot, at, ref lens } => {
                    let mut pieces: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0xee; len]).collect();
                    let (iovecs, count) = (iovecs(&mut pieces), lens.len() as i32);
                    let done = match at {
                        None => libc::readv(fds[slot], iovecs.as_ptr(), count),
                        Some(at) => libc::preadv(fds[slot], iovecs.as_ptr(), count, at),
                    };
                    (result(done as i64), pieces.concat(), Vec::new())
                }
                Step::Writev { slot, at, ref lens, flags } => {
                    let mut pieces: Vec<Vec<u8>> = lens.iter().map(|&len| bytes(len, tag)).collect();
                    let (iovecs, count) = (iovecs(&mut pieces), lens.len() as i32);
                    let asked = if self.twin { flags & !(libc::RWF_DSYNC | libc::RWF_SYNC) } else { flags };
                    let (fd, vector) = (fds[slot], iovecs.as_ptr());
                    plain(result(match (at, flags) {
                        (None, 0) => libc::writev(fd, vector, count),
                        (None, _) => libc::pwritev2(fd, vector, count, -1, asked),
                        (Some(at), 0) => libc::pwritev(fd, vector, count, at),
                        (Some(at), _) => libc::pwritev2(fd, vector, count, at, asked),
                    } as i64))
                }
                Step::Seek { slot, to, whence } => {
                    // Holes may differ: 3 stands for an invalid whence.
                    plain(result(libc::lseek(fds[slot], to, if whence == 3 { 77 } else { whence })))
                }
                Step::Truncate { slot, size } => plain(result(libc::ftruncate(fds[slot], size))),
                Step::TruncatePath { size } => {
                    // Documented: EBUSY for a file that is open here for reading only, or mapped.
                    let busy =
                        self.maps() > 0 || self.descriptors() > 0 && (0..SLOTS).all(|slot| !self.is_writable(slot));
                    plain(if busy { 0 } else { result(libc::truncate(self.path()[0].as_ptr(), size)) })
                }
                Step::Fallocate { slot, mode, at, len } => {
                    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                    let mode = if self.tmpfs && mode & libc::FALLOC_FL_ZERO_RANGE != 0 { punch } else { mode };
                    plain(result(libc::fallocate(fds[slot], mode, at, len)))
                }
                Step::Copy { from, to, from_at, to_at, len } => {
                    let (mut a, mut b) = (from_at.unwrap_or(0), to_at.unwrap_or(0));
                    let from_at = from_at.map_or(std::ptr::null_mut(), |_| &raw mut a);
                    let to_at = to_at.map_or(std::ptr::null_mut(), |_| &raw mut b);
                    let done = libc::copy_file_range(fds[from], from_at, fds[to], to_at, len, 0);
                    (result(done as i64), Vec::new(), vec![a, b])
                }
                Step::Send { from, to, at, len } => self.through_pipes(fds[from], fds[to], at, len, tag),
                Step::Sync { slot, data } => plain(result(match (self.twin, data) {
                    (true, _) => libc::fcntl(fds[slot], libc::F_GETFD).min(0),
                    (false, true) => libc::fdatasync(fds[slot]),
                    (false, false) => libc::fsync(fds[slot]),
                })),
                Step::SyncRange { slot } => plain(result(match self.twin {
                    true => libc::fcntl(fds[slot], libc::F_GETFD).min(0),
                    false => libc::sync_file_range(fds[slot], 0, 0, libc::SYNC_FILE_RANGE_WRITE),
                })),
                Step::Stat { slot } => {
                    let mut stat: libc::stat = std::mem::zeroed();
                    let done = result(libc::fstat(fds[slot], &mut stat));
                    let mut named: libc::stat = std::mem::zeroed();
                    let again = result(libc::stat(self.path()[0].as_ptr(), &mut named));
                    let more = [stat.st_size, i64::from(stat.st_mode), stat.st_nlink as i64, again, named.st_size];
                    (done, Vec::new(), more.to_vec())
                }
                Step::Flags(slot) => {
                    let flags = result(libc::fcntl(fds[slot], libc::F_GETFL));
                    plain(if flags < 0 { flags } else { flags & !i64::from(EACH) })
                }
                Step::Append { slot, on } => {
                    plain(result(libc::fcntl(fds[slot], libc::F_SETFL, if on { libc::O_APPEND } else { 0 })))
                }
                Step::Lock { slot, kind, at, len } => {
                    let mut lock: libc::flock = std::mem::zeroed();
                    let kinds = [libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK];
                    (lock.l_type, lock.l_start, lock.l_len) = (kinds[kind as usize] as i16, at, len);
                    let done = result(libc::fcntl(fds[slot], libc::F_SETLK, &lock));
                    lock.l_type = libc::F_WRLCK as i16;
                    let asked = result(libc::fcntl(fds[slot], libc::F_GETLK, &mut lock));
                    (done, Vec::new(), vec![asked, i64::from(lock.l_type), lock.l_start, lock.l_len, lock.l_pid.into()])
                }
                Step::Rename => {
                    let [now, other] = self.path();
                    plain(result(libc::rename(now.as_ptr(), other.as_ptr())))
                }
                Step::Link { at, len } => self.by_another_name(at, len, tag),
                Step::Stream { mode, at, len, sync } => self.stream(mode, at, len, sync, tag),
                Step::Fork { .. } => unreachable!("both sides at once"),
                _ => self.on_a_map(step, tag),
            }
        }
    }

    /// Opens it, writes its first byte, closes it.
    pub fn write_again(&self, byte: u8, was_empty: bool) -> i64 {
        // SAFETY: the path ends with a zero, the buffer is one byte long, the descriptor is ours.
        unsafe {
            let fd = libc::open(self.path()[0].as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            let wrote = result(libc::pwrite(fd, [byte].as_ptr().cast(), 1, 0) as i64);
            let cut = if was_empty { result(libc::ftruncate(fd, 0)) } else { 0 };
            wrote.min(0) + cut + result(libc::close(fd))
        }
    }

    /// Locks the whole file by the first descriptor, for reading, and unlocks it.
    pub fn lock_all(&self) -> i64 {
        let set = |kind: i32| {
            // SAFETY: all-zero bytes are a `flock` of the whole file, which the call reads.
            unsafe {
                let mut lock: libc::flock = std::mem::zeroed();
                lock.l_type = kind as i16;
                result(libc::fcntl(self.fds[0], libc::F_SETLKW, &lock))
            }
        };
        set(libc::F_RDLCK).min(0) + set(libc::F_UNLCK).min(0)
    }

    /// The position of each descriptor, and the size.
    pub fn positions(&self) -> Vec<i64> {
        // SAFETY: plain words, filled in by the call.
        unsafe {
            let mut all: Vec<i64> = self.fds.iter().map(|&fd| result(libc::lseek(fd, 0, libc::SEEK_CUR))).collect();
            let mut stat: libc::stat = std::mem::zeroed();
            all.extend([result(libc::stat(self.path()[0].as_ptr(), &mut stat)), stat.st_size]);
            all
        }
    }

    /// All bytes, by one of the descriptors; `None`: none of them is readable.
    pub fn bytes(&self) -> Option<Result<Vec<u8>, String>> {
        let reads = |slot: &usize| self.is_open(*slot) && self.flags[*slot] & libc::O_ACCMODE != libc::O_WRONLY;
        (0..SLOTS).find(reads).map(|slot| read_all(self.fds[slot]))
    }

    /// All bytes, by a new descriptor if none of the others is readable.
    pub fn bytes_anyhow(&self) -> Result<Vec<u8>, String> {
        if let Some(bytes) = self.bytes() {
            return bytes;
        }
        // SAFETY: the path ends with a zero; the descriptor is ours.
        unsafe {
            let fd = result(libc::open(self.path()[0].as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC));
            if fd < 0 {
                return Err(format!("{:?}: open: errno {}", self.path()[0], -fd));
            }
            let bytes = read_all(fd as i32);
            libc::close(fd as i32);
            bytes
        }
    }
}

fn read_all(fd: i32) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        // SAFETY: the buffer is as long as said.
        let n = result(unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), bytes.len() as i64) } as i64);
        match n {
            0 => return Ok(bytes),
            1.. => bytes.extend_from_slice(&buffer[..n as usize]),
            _ => return Err(format!("reading at {}: errno {}", bytes.len(), -n)),
        }
    }
}
