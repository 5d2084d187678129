//! Committed blocks that no pass has taken up yet. A commit adds to them, so that it takes a short time whatever waits:
//! no commit sorts them all.

/// Blocks that are added before they are compared with the others: about 50 µs of a commit.
const RECENT: usize = 512;

/// The waiting blocks. Few are there twice.
#[derive(Default)]
pub(super) struct Waiting {
    /// In ascending order, each once.
    sorted: Vec<u64>,
    /// In any order.
    recent: Vec<u64>,
}

impl Waiting {
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.recent.is_empty()
    }

    pub fn push(&mut self, block: u64) {
        self.recent.push(block);
    }

    /// Takes over the blocks of a commit.
    pub fn append(&mut self, blocks: &mut Vec<u64>) {
        self.recent.append(blocks);
        if self.recent.len() > RECENT {
            self.tidy();
        }
    }

    /// All of them, in ascending order; none are left.
    pub fn take(&mut self) -> Vec<u64> {
        self.tidy();
        core::mem::take(&mut self.sorted)
    }

    /// All of them, in ascending order.
    pub fn all(&mut self) -> &[u64] {
        self.tidy();
        &self.sorted
    }

    /// Brings the recent ones among the others. Of a working set that is written again and again there are no new ones.
    fn tidy(&mut self) {
        let sorted = &self.sorted;
        self.recent.retain(|block| sorted.binary_search(block).is_err());
        self.recent.sort_unstable();
        self.recent.dedup();
        // From the end, where there is room for them.
        let (mut old, mut to) = (self.sorted.len(), self.sorted.len() + self.recent.len());
        self.sorted.resize(to, 0);
        while let Some(&new) = self.recent.last() {
            to -= 1;
            if old > 0 && self.sorted[old - 1] > new {
                self.sorted[to] = self.sorted[old - 1];
                old -= 1;
            } else {
                self.sorted[to] = new;
                self.recent.pop();
            }
        }
    }
}

impl From<Vec<u64>> for Waiting {
    fn from(recent: Vec<u64>) -> Self {
        let mut waiting = Self { recent, ..Self::default() };
        waiting.tidy();
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio_test_support::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn they_are_a_set_in_order() {
        let mut random = Random::new(1);
        for most in [3, 1000, 1 << 40] {
            let (mut waiting, mut model) = (Waiting::default(), BTreeSet::new());
            for round in 0..200 {
                let mut blocks: Vec<u64> = (0..random.below(300)).map(|_| random.below(most)).collect();
                model.extend(blocks.iter().copied());
                if round % 3 == 0 {
                    blocks.drain(..).for_each(|block| waiting.push(block));
                } else {
                    waiting.append(&mut blocks);
                }
                assert!(blocks.is_empty());
                assert_eq!(waiting.is_empty(), model.is_empty());
                assert!(waiting.recent.len() <= RECENT + 300);
                if round % 20 == 19 {
                    assert!(waiting.all().iter().eq(&model));
                    let taken = waiting.take();
                    assert!(taken.iter().eq(&model) && waiting.is_empty());
                    let (back, gone) = taken.split_at(taken.len() / 2);
                    gone.iter().for_each(|block| assert!(model.remove(block)));
                    waiting = Waiting::from(back.to_vec());
                }
            }
            assert!(Waiting::from(waiting.take()).all().iter().eq(&model));
        }
    }
}
