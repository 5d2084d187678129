//! What the open epoch has changed, block by block: for a hand-over image, and for the record of a group's SYNC.

use super::Session;
use crate::error::{Error, Result};
use crate::file::engine::context::Context;
use crate::file::{Descriptors, UserBuf};
use crate::index::BLOCK;
use crate::journal::joint::Builder;
use core::sync::atomic::Ordering;

fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

impl Session {
    /// The blocks within the file that the open epoch may have changed, in order. The gate is closed.
    pub(in crate::file) fn open_blocks(&self, cx: Context<'_>) -> Result<Vec<u64>> {
        let shared = cx.shared();
        let end = shared.size().div_ceil(BLOCK as u64);
        if let Some(mut blocks) = self.engine.open_blocks(cx) {
            blocks.retain(|&block| block < end);
            return Ok(blocks);
        }
        let low = shared.epoch_low.load(Ordering::Acquire);
        let open = shared.committed() + 1;
        // In place, beyond the committed end, only the cell of a block shows that it was written.
        let first = low.min(shared.committed_size.load(Ordering::Acquire)) / BLOCK as u64;
        let beyond = first..shared.stale_end.load(Ordering::Acquire).div_ceil(BLOCK as u64);
        let mut blocks = Vec::new();
        let Some(last) = end.checked_sub(1) else { return Ok(blocks) };
        cx.index().for_each(0, last, |block, cell| {
            if beyond.contains(&block) || (0..2).any(|version| cell.version(version).epoch == open) {
                blocks.push(block);
            }
            Ok(())
        })?;
        Ok(blocks)
    }

    /// The bytes of a block, as far as the file goes. The gate is closed.
    pub(in crate::file) fn read_open(&self, fds: &Descriptors, block: u64) -> Result<Vec<u8>> {
        let offset = block * BLOCK as u64;
        let mut piece = vec![0; (self.arena.shared().size().saturating_sub(offset)).min(BLOCK as u64) as usize];
        // SAFETY: our memory.
        let read = unsafe { self.read(fds, offset, &[UserBuf::of(&mut piece)]) }?;
        if read == piece.len() { Ok(piece) } else { Err(Error::new(libc::EIO)) }
    }

    /// Adds steps to a record that lead from the committed state to the one of the open epoch, which has changed
    /// `blocks`. The gate is closed.
    pub(in crate::file) fn put_open(&self, fds: &Descriptors, blocks: &[u64], builder: &mut Builder) -> Result<()> {
        let shared = self.arena.shared();
        let committed = shared.committed_size.load(Ordering::Acquire);
        let low = shared.epoch_low.load(Ordering::Acquire).min(committed);
        // A cut first: what the file has again above it is zeros, unless it was written.
        if low < committed {
            builder.set_size(low);
        }
        if shared.size() != low {
            builder.set_size(shared.size());
        }
        for &block in blocks {
            let bytes = self.read_open(fds, block)?;
            if block * (BLOCK as u64) < low || !is_zeros(&bytes) {
                builder.write(block * BLOCK as u64, &bytes);
            }
        }
        Ok(())
    }

    /// Leaves out blocks for which [`put_open`](Self::put_open) adds nothing: a file that was cut and made longer again
    /// may have many. The gate is closed.
    pub(in crate::file) fn retain_put(&self, fds: &Descriptors, blocks: &mut Vec<u64>) -> Result<()> {
        let shared = self.arena.shared();
        let low = shared.epoch_low.load(Ordering::Acquire).min(shared.committed_size.load(Ordering::Acquire));
        let mut kept = Vec::new();
        for &block in blocks.iter() {
            if block * (BLOCK as u64) < low || !is_zeros(&self.read_open(fds, block)?) {
                kept.push(block);
            }
        }
        *blocks = kept;
        Ok(())
    }
}
