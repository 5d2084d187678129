//! A few bytes that overwrite committed ones of a growing file, as they lie in memory and in the file's mark: the redo
//! log of a file without a journal.

use super::bytes::{put, u32_at, u64_at};
use crate::error::Result;
use core::ops::Range;

/// Bytes of a run's header on the medium: offset, length.
const HEADER: usize = 12;
/// Equal bytes between two different ones that both are kept in one run, because a header takes about as much.
const GAP: usize = 16;
/// Compared as a whole first.
const PIECE: usize = 64;

/// Bytes by their offsets in the file: runs in order, which neither overlap nor touch.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Overwrites {
    runs: Vec<Run>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    offset: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl Overwrites {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes.len() as u64).sum()
    }

    /// Adds those of the bytes `new` at `offset` that differ from `old`, which is what the file shows there now.
    pub fn add_differences(&mut self, offset: u64, old: &[u8], new: &[u8]) {
        debug_assert_eq!(old.len(), new.len());
        let mut at = 0;
        while let Some(start) = first_difference(old, new, at) {
            let mut end = start + 1;
            while let Some(next) = first_difference(old, new, end).filter(|&next| next - end < GAP) {
                end = next + 1;
            }
            self.add(offset + start as u64, &new[start..end]);
            at = end;
        }
    }

    /// Adds bytes; they replace earlier ones of the same offsets.
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let first = self.runs.partition_point(|run| run.end() < offset);
        let last = self.runs.partition_point(|run| run.offset <= end);
        let mut merged = Run { offset, bytes: Vec::new() };
        let touched = &self.runs[first..last];
        if let Some(before) = touched.first().filter(|run| run.offset < offset) {
            merged.offset = before.offset;
            merged.bytes.extend_from_slice(&before.bytes[..(offset - before.offset) as usize]);
        }
        merged.bytes.extend_from_slice(bytes);
        if let Some(after) = touched.last().filter(|run| run.end() > end) {
            merged.bytes.extend_from_slice(&after.bytes[(end - after.offset) as usize..]);
        }
        self.runs.splice(first..last, [merged]);
    }

    /// Calls `work` with each run: its offset, and its bytes.
    ///
    /// # Errors
    /// The first of `work`, which is not called again then.
    pub fn each(&self, mut work: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.runs.iter().try_for_each(|run| work(run.offset, &run.bytes))
    }

    /// As [`each`](Self::each), of what lies in a range of the file.
    pub fn each_within(&self, range: Range<u64>, mut work: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let first = self.runs.partition_point(|run| run.end() <= range.start);
        self.runs[first..].iter().take_while(|run| run.offset < range.end).try_for_each(|run| {
            let (from, to) = (run.offset.max(range.start), run.end().min(range.end));
            work(from, &run.bytes[(from - run.offset) as usize..(to - run.offset) as usize])
        })
    }

    /// Bytes that they take on the medium.
    pub fn encoded_len(&self) -> usize {
        self.runs.iter().map(|run| HEADER + run.bytes.len()).sum()
    }

    /// As they lie on the medium.
    pub(super) fn encode(&self, to: &mut [u8]) {
        let mut at = 0;
        for run in &self.runs {
            put(to, at, &run.offset.to_le_bytes());
            put(to, at + 8, &(run.bytes.len() as u32).to_le_bytes());
            put(to, at + HEADER, &run.bytes);
            at += HEADER + run.bytes.len();
        }
    }

    /// Decodes what [`encode`](Self::encode) has made, up to a run without bytes. `below`: the runs end there, at the
    /// latest. `None`: it is damaged.
    pub(super) fn decode(from: &[u8], below: u64) -> Option<Self> {
        let (mut runs, mut at) = (Vec::<Run>::new(), 0);
        while from.len() - at >= HEADER {
            let (offset, len) = (u64_at(from, at), u32_at(from, at + 8) as usize);
            if len == 0 {
                break;
            }
            let bytes = from.get(at + HEADER..(at + HEADER).checked_add(len)?)?.to_vec();
            let is_behind = runs.last().is_none_or(|last| last.end() < offset);
            if !is_behind || offset.checked_add(len as u64)? > below {
                return None;
            }
            runs.push(Run { offset, bytes });
            at += HEADER + len;
        }
        Some(Self { runs })
    }
}

/// The first index at or after `from` at which the two differ.
fn first_difference(old: &[u8], new: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while at < new.len() {
        let end = new.len().min(at + PIECE);
        if old[at..end] != new[at..end] {
            return (at..end).find(|&i| old[i] != new[i]);
        }
        at = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(of: &Overwrites) -> Vec<(u64, Vec<u8>)> {
        of.runs.iter().map(|run| (run.offset, run.bytes.clone())).collect()
    }

    #[test]
    fn what_differs_is_kept_in_few_runs() {
        let old = [0; 200];
        let mut new = old;
        (new[3], new[3 + GAP], new[150]) = (1, 2, 3);
        let mut all = Overwrites::default();
        all.add_differences(1000, &old, &old);
        assert!(all.is_empty() && all.encoded_len() == 0);
        all.add_differences(1000, &old, &new);
        let first: Vec<u8> = (0..=GAP).map(|i| [1, 0, 2][usize::from(i > 0) + usize::from(i == GAP)]).collect();
        assert_eq!(runs(&all), [(1003, first), (1150, vec![3])]);
        assert_eq!(all.bytes(), GAP as u64 + 2);
        assert_eq!(all.encoded_len(), 2 * HEADER + GAP + 2);
    }

    #[test]
    fn damage_is_seen() {
        let mut all = Overwrites::default();
        all.add(10, b"abc");
        all.add(20, b"de");
        let mut bytes = vec![0; all.encoded_len() + 30];
        all.encode(&mut bytes);
        assert_eq!(Overwrites::decode(&bytes, 22), Some(all.clone()));
        assert_eq!(Overwrites::decode(&bytes[..all.encoded_len()], 22), Some(all.clone()));
        assert_eq!(Overwrites::decode(&bytes, 21), None, "beyond what is committed");
        assert_eq!(Overwrites::decode(&bytes[..all.encoded_len() - 1], 22), None, "cut short");
        let second = HEADER + 3;
        for offset in [5u64, 13, u64::MAX] {
            bytes[second..second + 8].copy_from_slice(&offset.to_le_bytes());
            assert_eq!(Overwrites::decode(&bytes, u64::MAX), None, "out of order, touching, or too far: {offset}");
        }
    }

    proptest! {
        /// Against a plain array of bytes, of which the first write changes some, the second others, and so on.
        #[test]
        fn they_show_what_was_written(writes in prop::collection::vec((0usize..300, prop::collection::vec(0u8..3, 1..90)), 1..9)) {
            const LEN: usize = 400;
            let file = vec![1u8; LEN];
            let shown = |all: &Overwrites, offset: usize, len: usize| {
                let mut bytes = file[offset..offset + len].to_vec();
                all.each_within(offset as u64..(offset + len) as u64, |at, run| {
                    bytes[at as usize - offset..][..run.len()].copy_from_slice(run);
                    Ok(())
                })
                .unwrap();
                bytes
            };
            let (mut model, mut all) = (file.clone(), Overwrites::default());
            for (offset, bytes) in &writes {
                let old = shown(&all, *offset, bytes.len());
                all.add_differences(*offset as u64, &old, bytes);
                model[*offset..offset + bytes.len()].copy_from_slice(bytes);
                prop_assert_eq!(&shown(&all, 0, LEN), &model);
                prop_assert_eq!(&shown(&all, *offset, bytes.len()), bytes);
                prop_assert!(all.runs.windows(2).all(|two| two[0].end() < two[1].offset));
            }
            let mut encoded = vec![0; all.encoded_len()];
            all.encode(&mut encoded);
            let end = all.runs.last().map_or(0, Run::end);
            prop_assert_eq!(Overwrites::decode(&encoded, end), Some(all));
        }
    }
}
