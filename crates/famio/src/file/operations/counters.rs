//! What a file has done, in numbers.

use crate::file::AtomicFile;
use core::sync::atomic::Ordering;

/// As `struct nvcounters` in `include/famio.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that the file has, with the open epoch.
    pub size: u64,
    /// Epochs that its journal has committed; 0 while it has none.
    pub committed: u64,
    /// Writes since the last SYNC.
    pub epoch_writes: u64,
    /// Their bytes.
    pub epoch_bytes: u64,
    /// Reads since the last SYNC that did not come from maps.
    pub epoch_reads: u64,
    /// Bytes of it that are mapped, each as often as it is.
    pub mapped: u64,
    /// 1: it has a journal, since its first write.
    pub attached: u32,
    /// 1: something was written by calls since the last SYNC. What was stored in maps is not known before a SYNC looks.
    pub dirty: u32,
}

impl AtomicFile {
    /// What it has done, in numbers.
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
