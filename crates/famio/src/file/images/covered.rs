//! Bytes that have an image already: a process that changes them again in the same tenure needs no second image,
//! since all of it is rolled back together.

use crate::index::Writer;
use core::ops::Range;
use std::collections::BTreeMap;

/// The bytes whose images the last writer has saved in this epoch.
#[derive(Default)]
pub(in crate::file) struct Covered {
    /// The epoch, and the writer in its tenure.
    by: Option<(u64, Writer)>,
    /// Start by end; no two ranges overlap or touch.
    ranges: BTreeMap<u64, u64>,
}

impl Covered {
    /// Whether all of `range` has images by this writer, of this epoch.
    pub fn has(&self, by: (u64, Writer), range: &Range<u64>) -> bool {
        self.by == Some(by) && self.last_before(range.start).is_some_and(|(_, end)| range.end <= end)
    }

    fn last_before(&self, at: u64) -> Option<(u64, u64)> {
        self.ranges.range(..=at).next_back().map(|(&start, &end)| (start, end))
    }

    /// The images of `range` are saved.
    pub fn add(&mut self, by: (u64, Writer), range: &Range<u64>) {
        if self.by != Some(by) {
            self.clear();
            self.by = Some(by);
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((first, last)) = self.last_before(end).filter(|&(_, last)| last >= start) {
            self.ranges.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
    }

    /// Another process has changed `range`.
    pub fn remove(&mut self, range: &Range<u64>) {
        while let Some((first, last)) = range.end.checked_sub(1).and_then(|at| self.last_before(at)) {
            if last <= range.start {
                break;
            }
            self.ranges.remove(&first);
            if last > range.end {
                self.ranges.insert(range.end, last);
            }
            if first < range.start {
                self.ranges.insert(first, range.start);
                break;
            }
        }
    }

    pub fn clear(&mut self) {
        self.by = None;
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const A: (u64, Writer) = (7, Writer { place: 1, id: 5, tenure: 3 });

    #[test]
    fn is_of_one_epoch_and_one_tenure() {
        let mut covered = Covered::default();
        covered.add(A, &(0..10));
        assert!(covered.has(A, &(0..10)) && covered.has(A, &(3..4)));
        let next_tenure = (7, Writer { tenure: 4, ..A.1 });
        assert!(!covered.has(next_tenure, &(0..10)) && !covered.has((8, A.1), &(0..10)));
        covered.add(next_tenure, &(20..30));
        assert!(covered.has(next_tenure, &(20..30)) && !covered.has(next_tenure, &(0..10)));
        covered.clear();
        assert!(!covered.has(next_tenure, &(20..30)));
    }

    proptest! {
        #[test]
        fn is_what_a_set_of_bytes_would_be(steps in vec((0..60usize, 1..30usize, any::<bool>()), 1..200)) {
            let (mut covered, mut bytes) = (Covered::default(), [false; 90]);
            for (start, len, is_added) in steps {
                let (within, range) = (start..start + len, start as u64..(start + len) as u64);
                prop_assert_eq!(covered.has(A, &range), bytes[within.clone()].iter().all(|&byte| byte));
                if is_added {
                    covered.add(A, &range);
                } else {
                    covered.remove(&range);
                }
                bytes[within].fill(is_added);
            }
        }
    }
}
