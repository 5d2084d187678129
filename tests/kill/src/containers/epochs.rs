//! What a process writes in each of its epochs. The seed and the number of the last epoch determine every byte of the
//! file, so a file that has lost part of an epoch, or has part of another, is recognised.

use famio_test_support::random::Random;
use std::io::Read;
use std::ops::Range;

/// Less than a block, so that epochs also write parts of blocks.
pub const CELL: usize = 1024;

/// Epochs between two changes of the length of the file.
const LENGTH_LASTS: u64 = 16;

/// All epochs of one file.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Of this file.
    pub seed: u64,
    /// The least length, in cells.
    pub cells: u32,
}

/// One epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The length of the file, in cells.
    pub length: u32,
    /// The cells to write, in this order. One of the runs is cell 0.
    pub runs: Vec<Range<u32>>,
}

/// Which epoch wrote each cell last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The last epoch.
    pub epoch: u64,
    cells: Vec<u64>,
}

impl State {
    /// Goes on to a later epoch.
    pub fn advance(&mut self, script: &Script, to: u64) {
        for number in self.epoch + 1..=to {
            let epoch = script.epoch(number);
            // Cut cells are gone; those that are added are zeros.
            self.cells.resize(epoch.length as usize, 0);
            epoch.runs.into_iter().for_each(|run| self.cells[run.start as usize..run.end as usize].fill(number));
        }
        self.epoch = self.epoch.max(to);
    }

    /// For another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        std::iter::once(&self.epoch).chain(&self.cells).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// From the other process.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        Self { epoch: words.next().unwrap_or(0), cells: words.collect() }
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It ends with this epoch, although later ones were committed.
    Lost(u64),
    /// It is the state after no epoch.
    Torn(String),
}

impl Script {
    fn random(&self, kind: u64, number: u64) -> Random {
        Random::new(Random::new(self.seed ^ kind << 56 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64())
    }

    /// The length of the file after an epoch, in cells.
    pub fn length(&self, epoch: u64) -> u32 {
        match epoch / LENGTH_LASTS {
            0 => self.cells,
            period => self.cells + self.random(1, period).below(512) as u32,
        }
    }

    /// What the epoch writes: mostly some ten kilobytes, at times a thirtieth of the file.
    pub fn epoch(&self, number: u64) -> Epoch {
        let mut random = self.random(2, number);
        let length = self.length(number);
        let count = if random.below(128) == 0 { u64::from(self.cells) / 256 } else { 1 + random.below(12) };
        let mut run = || {
            let first = random.below(length.into()) as u32;
            first..(first + 1 + random.below(16) as u32).min(length)
        };
        let mut runs: Vec<_> = (0..count).map(|_| run()).collect();
        // The number of the epoch, anywhere among its writes.
        let at = random.below(count + 1) as usize;
        runs.insert(at, 0..1);
        Epoch { length, runs }
    }

    /// The bytes of a cell that this epoch has written; epoch 0: never written.
    pub fn fill(&self, cell: u32, epoch: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        if epoch == 0 {
            return;
        }
        let mut random = self.random(3, epoch ^ u64::from(cell) << 40);
        let (mut word, step) = (random.next_u64(), random.next_u64() | 1);
        for (index, into) in bytes.chunks_exact_mut(8).enumerate() {
            word = word.wrapping_add(step);
            let says = match index {
                0 => epoch,
                1 => cell.into(),
                _ => word,
            };
            into.copy_from_slice(&says.to_le_bytes());
        }
    }

    /// The file before its first epoch.
    pub fn beginning(&self) -> State {
        State { epoch: 0, cells: vec![0; self.cells as usize] }
    }

    /// Reads a file of which the state up to the last epoch known to be committed is known. Returns its last epoch:
    /// that one, or the next, whose SYNC may have been under way.
    pub fn check(&self, mut file: impl Read, known: &State) -> std::io::Result<Result<u64, Wrong>> {
        let last = known.epoch;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let number = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if number < last {
            return Ok(Err(Wrong::Lost(number)));
        }
        if number > last + 1 {
            return Ok(Err(Wrong::Torn(format!("epoch {number} was never written, {last} is the last"))));
        }
        let mut expected = known.clone();
        expected.advance(self, number);
        let expected = expected.cells;
        if bytes.len() != expected.len() * CELL {
            let text = format!("{} bytes after epoch {number}, instead of {}", bytes.len(), expected.len() * CELL);
            return Ok(Err(Wrong::Torn(text)));
        }
        let mut right = [0; CELL];
        let (mut wrong, mut first) = (0, String::new());
        for (cell, (found, &epoch)) in bytes.chunks_exact(CELL).zip(&expected).enumerate() {
            self.fill(cell as u32, epoch, &mut right);
            if found != right {
                let has = found.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                if wrong == 0 {
                    first = format!("after epoch {number}, cell {cell} is of epoch {has} instead of {epoch}");
                }
                wrong += 1;
            }
        }
        Ok(if wrong == 0 { Ok(number) } else { Err(Wrong::Torn(format!("{first}; {wrong} cells are wrong"))) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: Script = Script { seed: 7, cells: 300 };

    fn write(bytes: &mut Vec<u8>, number: u64, runs: Range<usize>) {
        let epoch = SCRIPT.epoch(number);
        bytes.resize(epoch.length as usize * CELL, 0);
        for cell in epoch.runs[runs].iter().cloned().flatten() {
            let at = cell as usize * CELL;
            SCRIPT.fill(cell, number, &mut bytes[at..at + CELL]);
        }
    }

    /// The file after an epoch.
    fn after(last: u64) -> Vec<u8> {
        let mut bytes = vec![0; 300 * CELL];
        (1..=last).for_each(|number| write(&mut bytes, number, 0..SCRIPT.epoch(number).runs.len()));
        bytes
    }

    fn check(bytes: &[u8], last: u64) -> Result<u64, Wrong> {
        let mut known = SCRIPT.beginning();
        known.advance(&SCRIPT, last / 2);
        let mut known = State::of_bytes(&known.to_bytes());
        known.advance(&SCRIPT, last);
        SCRIPT.check(bytes, &known).unwrap()
    }

    #[test]
    fn the_last_epoch_or_the_next() {
        for last in [0, 1, 15, 16, 17, 100] {
            let bytes = after(last);
            assert_eq!(check(&bytes, last), Ok(last));
            assert_eq!(check(&bytes, last.saturating_sub(1)), Ok(last));
            assert_eq!(check(&bytes, last + 1), Err(Wrong::Lost(last)));
        }
        assert!(matches!(check(&after(100), 98), Err(Wrong::Torn(_))));
    }

    #[test]
    fn part_of_an_epoch_is_torn() {
        let runs = SCRIPT.epoch(50).runs.len();
        for written in 1..runs {
            let mut bytes = after(49);
            write(&mut bytes, 50, 0..written);
            assert!(matches!(check(&bytes, 49), Err(Wrong::Torn(_))), "{written} of {runs} runs");
        }
    }

    #[test]
    fn a_wrong_byte_or_length_is_torn() {
        let right = after(40);
        for at in [9, right.len() / 2, right.len() - 1] {
            let mut bytes = right.clone();
            bytes[at] ^= 1;
            assert!(matches!(check(&bytes, 40), Err(Wrong::Torn(_))), "byte {at}");
        }
        assert!(matches!(check(&right[..right.len() - CELL], 40), Err(Wrong::Torn(_))));
    }
}
