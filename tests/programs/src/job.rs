//! What a program is run with.

use crate::under::Under;
use famio_test_support::random::Random;

/// The parameters of a run.
pub struct Job<'a> {
    /// Where the program's files are.
    pub under: Under<'a>,
    /// How many SIGKILLs.
    pub kills: u64,
    /// Source of random decisions.
    pub random: Random,
    /// Only what takes seconds.
    pub short: bool,
}
