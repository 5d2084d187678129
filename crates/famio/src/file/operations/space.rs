//! How much space a file takes, as `stat` is to show it.

use crate::file::atomic::AtomicFile;
use crate::file::session::Session;
use crate::index::BLOCK;

const SECTOR: u64 = 512;

impl Session {
    /// Of so many blocks that the inode has, those that a plain file would have: the room made ahead is not among them, but what
    /// the program has preallocated, nor what a cut has left that is not applied yet. A dense file has no fewer than its bytes take: programs take fewer for holes.
    fn blocks(&self, kernels: u64) -> u64 {
        let shared = self.arena.shared();
        let size = shared.size();
        let end = |offset: u64| offset.next_multiple_of(BLOCK as u64);
        let theirs = size.max(self.home.preallocated());
        let ahead = end(self.home.room_end(shared)).saturating_sub(end(theirs));
        let shown = kernels.saturating_sub(ahead / SECTOR);
        if self.home.is_sparse() { shown } else { shown.max(size.div_ceil(SECTOR)) }
    }
}

impl AtomicFile {
    /// What `st_blocks` is to show of a file that has so many in the kernel.
    pub fn blocks(&self, kernels: u64) -> u64 {
        self.with_session(|session| session.blocks(kernels)).unwrap_or(kernels)
    }
}
