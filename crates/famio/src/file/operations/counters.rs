//! Statistics of a file.

use crate::file::AtomicFile;
use core::sync::atomic::Ordering;

/// As `struct nvcounters` in `include/famio.h`. Of a file without a journal all but the size and the mapped bytes are
/// 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The size in bytes, with the open epoch.
    pub size: u64,
    /// Epochs committed by its journal; 0 while it has none.
    pub committed: u64,
    /// Writes since the last SYNC.
    pub epoch_writes: u64,
    /// Their bytes.
    pub epoch_bytes: u64,
    /// Reads since the last SYNC, without those through maps.
    pub epoch_reads: u64,
    /// Bytes that are mapped; those mapped twice count twice.
    pub mapped: u64,
    /// 1: it has a journal. A file that is new, only grows, or has a few bytes overwritten, may have none.
    pub attached: u32,
    /// 1: calls have written since the last SYNC. Stores in maps are only found by the next SYNC.
    pub dirty: u32,
}

impl AtomicFile {
    /// Its statistics.
    pub fn counters(&self) -> Counters {
        let of_session = self.with_session(|session| {
            let shared = session.arena.shared();
            let open = shared.counts.sums();
            Counters {
                committed: shared.committed(),
                epoch_writes: open.writes,
                epoch_bytes: open.bytes,
                epoch_reads: open.reads,
                attached: 1,
                dirty: shared.dirty.load(Ordering::Relaxed),
                ..Counters::default()
            }
        });
        Counters { size: self.size(), mapped: self.mapped_bytes(), ..of_session.unwrap_or_default() }
    }
}
