//! The file that traced processes write and `famio trace` reads: it is mapped, with a record for each file that was
//! opened for writing. It remains usable however a process ends. Counters only grow, and nothing in it is ever
//! locked.
//!
//! Part of both `libfamio_trace.so` and the command: no dependencies but `core`.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The first word of an initialized file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"famio\0t1");
/// The number of records.
pub const RECORDS: usize = 1 << 15;
/// Slots of the hash table over paths; more than records, so that a search ends.
pub const SLOTS: usize = 2 * RECORDS;
/// Bytes for all paths.
pub const PATHS: usize = 6 << 20;

/// What is counted for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Opened for writing.
    Opens,
    /// ... as a stream of libc, whose reads and writes are not seen.
    Streams,
    /// ... with a mode that can write in place (`r+`, `w+`).
    Updates,
    /// ... with `O_SYNC` or `O_DSYNC`.
    SyncOpens,
    /// Calls that read.
    Reads,
    /// Bytes of them.
    ReadBytes,
    /// Calls that wrote.
    Writes,
    /// Bytes of them.
    WrittenBytes,
    /// Writes that began below the end of the file.
    Overwrites,
    /// fsync, fdatasync, msync, sync_file_range, and writes that are durable by themselves.
    Syncs,
    /// Shared writable maps.
    Maps,
    /// Bytes of them.
    MappedBytes,
    /// Locks taken on the file.
    Locks,
    /// Made shorter by `truncate`.
    Cuts,
    /// Deleted.
    Removed,
    /// Another file got this name by a rename.
    Replaced,
    /// Renamed to something else.
    Renamed,
    /// The number of counters.
    End,
}

/// One file.
#[repr(C)]
pub struct Record {
    /// Offset of its path in [`Shared::paths`].
    pub path_at: AtomicU32,
    /// The path's length; 0: no file.
    pub path_length: AtomicU32,
    /// Indexed by [`Count`].
    pub counts: [AtomicU64; Count::End as usize],
}

/// The whole file.
#[repr(C)]
pub struct Shared {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Programs that the library was loaded into.
    pub programs: AtomicU64,
    /// Files for which there was no record.
    pub left_out: AtomicU64,
    /// Records in use.
    pub used: AtomicU32,
    /// Bytes of paths in use.
    pub paths_used: AtomicU32,
    /// A record's number plus 1, by the path's hash; 0: free.
    pub slots: [AtomicU32; SLOTS],
    /// The files.
    pub records: [Record; RECORDS],
    /// Their paths.
    pub paths: [AtomicU8; PATHS],
}

impl Record {
    /// One counter.
    #[inline]
    pub fn count(&self, what: Count) -> &AtomicU64 {
        &self.counts[what as usize]
    }
}

impl Shared {
    /// A record's path. Lengths are untrusted: traced programs may overwrite anything.
    pub fn path(&self, record: &Record) -> Option<&[AtomicU8]> {
        let at = record.path_at.load(Ordering::Relaxed) as usize;
        let length = record.path_length.load(Ordering::Acquire) as usize;
        self.paths.get(at..at.checked_add(length)?).filter(|path| !path.is_empty())
    }
}
