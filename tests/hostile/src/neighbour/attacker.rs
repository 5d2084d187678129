//! What the neighbour knows and holds.

use super::held::Held;
use super::originals::Originals;
use crate::classes::Classes;
use famio_test_support::random::Random;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The neighbour's state.
pub struct Attacker {
    /// The folder of the scene.
    pub scene: PathBuf,
    /// Source of random decisions.
    pub random: Random,
    /// The permitted classes of actions.
    pub classes: Classes,
    /// The secret to search for.
    pub secret: Vec<u8>,
    /// Descriptors with locks, leases and maps.
    pub held: Vec<Held>,
    /// Journals and marks to change.
    pub originals: Originals,
    /// The victim's files.
    pub victims: Vec<PathBuf>,
    /// Programs that it has started.
    pub children: Vec<std::process::Child>,
}

impl Attacker {
    /// One of these, at random.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.random.below(from.len() as u64) as usize].clone())
    }

    /// True with a probability of one in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }
}

/// Prints an action. The outcome does not matter.
pub fn say(what: &str, path: &Path) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{what} {}\n", path.display()).as_bytes());
}
