//! What an owner that leaves the session tells the next one of the log.

use super::{EVERYWHERE, RecordLog, UNKNOWN};
use crate::error::{Error, Result};
use crate::journal::records::PAGE;
use xxhash_rust::xxh3::xxh3_64;

impl RecordLog {
    /// Adds to `words` what the next owner has to know. False: impossible now, a segment is being prepared.
    pub fn leave_state(&mut self, words: &mut Vec<u64>) -> Result<bool> {
        self.usable()?;
        if self.shared.is_preparing() {
            return Ok(false);
        }
        self.adopt();
        let (index, page) = self.current.map_or((0, 0), |(index, page)| (index as u64 + 1, page));
        let anchor = self.anchor.map_or(0, |index| index as u64 + 1);
        words.extend([index, page, anchor, self.generation, self.previous as u64, (self.previous >> 64) as u64]);
        words.extend([self.committed, self.begun.into(), self.size, self.committed_size, self.cut]);
        words.extend([self.checkpointed, self.tail, self.written, self.asked, self.shared.stores()]);
        words.push(self.shared.booked() as u64);
        words.push(self.segments.len() as u64 * 2);
        words.extend(self.segments.iter().flat_map(|segment| [segment.generation, segment.last_epoch]));
        Ok(true)
    }

    /// Continues where the last owner has stopped.
    ///
    /// # Errors
    /// `EIO`: no such journal can exist. Those of reading its header.
    pub fn take_state(
        &mut self,
        [index, page, anchor, generation, low, high]: [u64; 6],
        [committed, begun, size, committed_size, cut]: [u64; 5],
        [checkpointed, tail, written, asked, stores, booked]: [u64; 6],
        segments: &[u64],
    ) -> Result<()> {
        self.shared.prepared_by_others(segments.len() / 2, booked as usize, stores)?;
        self.segments.truncate(segments.len() / 2);
        self.adopt();
        let at = |number: u64| (number as usize).checked_sub(1);
        let is_there = |number: u64| at(number).is_none_or(|index| index < self.segments.len());
        if self.segments.len() != segments.len() / 2 || !is_there(index) || !is_there(anchor) {
            return Err(Error::with(libc::EIO, "the shared index is damaged: the journal has not so many segments"));
        }
        for (segment, words) in self.segments.iter_mut().zip(segments.chunks_exact(2)) {
            (segment.generation, segment.last_epoch) = (words[0], words[1]);
            segment.checks.fill(UNKNOWN);
        }
        self.zeroed = EVERYWHERE;
        self.current = at(index).map(|index| (index, page));
        self.anchor = at(anchor);
        self.generation = generation;
        self.previous = u128::from(high) << 64 | u128::from(low);
        (self.committed, self.begun) = (committed, begun != 0);
        (self.size, self.committed_size, self.cut) = (size, committed_size, cut);
        (self.checkpointed, self.tail, self.written, self.asked) = (checkpointed, tail, written, asked);
        Ok(())
    }

    /// Learns the checks of these pages of a segment.
    pub(super) fn know(&mut self, index: usize, pages: core::ops::Range<u64>) -> Result<()> {
        let segment = &mut self.segments[index];
        let mut page = Vec::new(); // seldom needed, and the stack may be small
        for number in pages.start..pages.end.min(segment.checks.len() as u64) {
            let check = &mut segment.checks[number as usize];
            if *check == UNKNOWN {
                page.resize(PAGE, 0);
                let offset = segment.place.offset + number * PAGE as u64;
                let got = self.shared.journal().run(|journal| crate::sys::read_at(journal, offset, &mut page))?;
                if got != PAGE {
                    return Err(Error::with(libc::EIO, "the journal was cut short"));
                }
                *check = xxh3_64(&page);
            }
        }
        Ok(())
    }
}
