//! The space that a file takes, for `stat`.

use crate::file::atomic::AtomicFile;
use crate::file::session::Session;
use crate::index::BLOCK;

const SECTOR: u64 = 512;

impl Session {
    /// The blocks that a plain file would have, if the inode has `kernels`: without room made in advance and blocks
    /// that a cut has not freed yet, but with space that the program has preallocated. A dense file has at least the
    /// blocks of its bytes: programs take fewer as a sign of holes.
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
    /// The value of `st_blocks` for a file that has this many blocks in the kernel.
    pub fn blocks(&self, kernels: u64) -> u64 {
        self.with_session(|session| session.blocks(kernels)).unwrap_or(kernels)
    }
}
