//! Writes zeros over a range of an attached file: part of the epoch, as if they had been written. Holes of the file,
//! which read as zeros already, are skipped and take no journal.

use super::Session;
use crate::error::Result;
use crate::file::Descriptors;
use crate::file::base::refusal::Answer;
use crate::file::engine::context::{BlockBuf, Context};
use crate::index::{BLOCK, Calls};

/// Blocks written between two looks for holes, and between two passages of the gate: a SYNC, and a checkpoint, which
/// makes room, need not wait for a whole range.
pub(super) const BLOCKS_AT_ONCE: u64 = 64;

impl Session {
    /// Writes some zeros from `from` on, at most to `to` and to the end of the file; returns how far it came: `to`
    /// when nothing is left.
    pub fn zero_some(&self, fds: &Descriptors, from: u64, to: u64) -> Answer<u64> {
        let mut cx = self.context(fds);
        let shared = cx.shared();
        let _inside = self.enter_gate(&mut cx)?;
        self.check_change(cx)?;
        self.carry_out(&cx)?;
        // Only the thread that closes the gate makes it smaller.
        let end = to.min(shared.size());
        let mut at = self.hole_end(cx, from, end, |cx, at| cx.fds.next_data(at));
        if at >= end {
            self.touch(cx);
            return Ok(to);
        }
        let stop = end.min((at / BLOCK as u64 + BLOCKS_AT_ONCE) * BLOCK as u64);
        shared.make_dirty();
        if self.saves_images() {
            self.save_images(cx, at, stop - at)?;
        }
        shared.counts.mine().wrote(1, stop - at);
        let call = if self.keeps { Some(Calls::begin(&self.arena)?) } else { None };
        call.iter().for_each(|call| call.writes_zeros(at, stop - at));
        let result = self.write_zeros(cx, &mut at, stop);
        drop(call);
        self.touch(cx);
        match result {
            // What was done has to be reported: the caller's follow-up needs it.
            Err(e) if at == from => Err(e.into()),
            _ if at == end => Ok(to),
            _ => Ok(at),
        }
    }

    /// Writes zeros block by block to `to`; `at` is how far it came.
    pub(in crate::file) fn write_zeros(&self, cx: Context<'_>, at: &mut u64, to: u64) -> Result<()> {
        let mut buf = Box::<BlockBuf>::new_uninit(); // the stack may be small
        let buf = buf.as_mut_ptr().cast::<u8>();
        while *at < to {
            let (block, start) = (*at / BLOCK as u64, (*at % BLOCK as u64) as usize);
            let len = (BLOCK - start).min((to - *at) as usize);
            // SAFETY: within the buffer; it has to be zeroed each time, since the engine may fill up granules in it.
            unsafe { buf.wrapping_add(start).write_bytes(0, len) };
            self.engine.write_block(&cx, block, start, start + len, buf)?;
            *at += len as u64;
        }
        Ok(())
    }

    /// The end of the range from `at` on that certainly reads as zeros: blocks that were never written, for which the
    /// file has no bytes. `next_data`: the next offset at which it has; `None` if it cannot say.
    pub(super) fn hole_end(
        &self,
        cx: Context<'_>,
        mut at: u64,
        end: u64,
        next_data: impl Fn(Context<'_>, u64) -> Option<u64>,
    ) -> u64 {
        while at < end {
            // The file first: a block keeps its cell, so one that has none now had none then.
            let readable = self.engine.readable(cx);
            let data = if at >= readable { end } else { next_data(cx, at).unwrap_or(at).min(end) };
            let block = at / BLOCK as u64;
            let run = cx.index().absent_run(block, data.div_ceil(BLOCK as u64) - block);
            let to = data.min((block + run) * BLOCK as u64);
            if to <= at {
                break;
            }
            at = to;
        }
        at
    }
}
