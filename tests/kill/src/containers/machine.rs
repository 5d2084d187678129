//! How long the machine itself let a process wait meanwhile: for a processor, and for the disk.

use super::board::{Commit, now};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shorter waits are not noted.
const SHORT: u64 = 20_000_000;

/// Waits: when each began, and how long it took, in nanoseconds of monotonic time.
#[derive(Clone, Debug, Default)]
pub struct Waits(Vec<(u64, u64)>);

impl Waits {
    fn note(&mut self, begun: u64, expected: u64) {
        let taken = (now() - begun).saturating_sub(expected);
        if taken > SHORT {
            self.0.push((begun, taken));
        }
    }

    /// The longest of them.
    pub fn longest(&self) -> u64 {
        self.0.iter().map(|&(_, taken)| taken).max().unwrap_or(0)
    }

    /// How much of a time they cover.
    fn within(&self, begun: u64, taken: u64) -> u64 {
        let covers = |&(at, long): &(u64, u64)| (at + long).min(begun + taken).saturating_sub(at.max(begun));
        self.0.iter().map(covers).sum()
    }
}

/// A thread that sleeps for a millisecond at a time.
pub fn processor(is_over: &AtomicBool) -> Waits {
    let mut waits = Waits::default();
    while !is_over.load(Ordering::Relaxed) {
        let begun = now();
        std::thread::sleep(Duration::from_millis(1));
        waits.note(begun, 1_000_000);
    }
    waits
}

/// A plain program that writes and syncs one block of a plain file on the same disk, ten times a second.
pub fn disk(folder: &Path, is_over: &AtomicBool) -> std::io::Result<Waits> {
    let file = File::create(folder.join("plain"))?;
    let mut waits = Waits::default();
    for number in 0u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = now();
        file.write_all_at(&number.to_le_bytes().repeat(512), number % 64 * 4096)?;
        file.sync_data()?;
        waits.note(begun, 0);
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(waits)
}

/// Both.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub processor: Waits,
    pub disk: Waits,
}

impl Machine {
    /// How much longer a commit took than the machine let it wait, or a plain program at the same time.
    pub fn less(&self, commit: &Commit) -> u64 {
        let (begun, taken) = (commit.begun, commit.total());
        let not_run = commit.not_run.max(self.processor.within(begun, taken));
        taken.saturating_sub(not_run.max(self.disk.within(begun, taken)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_machine_took_is_less() {
        let commit = Commit { epoch: 1, begun: 1000, writing: 100, sync: 400, not_run: 50 };
        let waits = |list: &[(u64, u64)]| Waits(list.to_vec());
        let less = |processor, disk| Machine { processor, disk }.less(&commit);
        assert_eq!(less(waits(&[]), waits(&[])), 450);
        assert_eq!(less(waits(&[(900, 50), (1500, 100)]), waits(&[])), 450);
        assert_eq!(less(waits(&[(900, 200), (1400, 900)]), waits(&[])), 300);
        assert_eq!(less(waits(&[]), waits(&[(0, 5000)])), 0);
    }
}
