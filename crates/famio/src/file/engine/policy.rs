//! The policies, and the choice between them at a SYNC.

use crate::index::lease::{EXPOSED, HELD};
use crate::index::{Shared, Sums};
use crate::journal::inplace::Kind;
use crate::pmem::TestHooks;
use crate::settings::PolicyChoice;
use core::sync::atomic::Ordering;

/// The home to which a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// In place; the pre-image to the log.
    Undo = 1,
    /// To the log.
    Redo = 2,
    /// To the home without the committed copy.
    Alternate = 3,
}

impl Policy {
    pub fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Undo,
            3 => Self::Alternate,
            _ => Self::Redo,
        }
    }

    /// The meaning of its entries' bits.
    pub fn kind(self) -> Kind {
        match self {
            Self::Undo => Kind::Undo,
            Self::Redo | Self::Alternate => Kind::Map,
        }
    }
}

/// Below this share of writes among an epoch's calls, undo (Libnvmmio, section 3.3): reads then find everything in
/// the file.
const REDO_FROM_PERCENT: u64 = 40;
/// A share within this distance changes nothing.
const NEAR_PERCENT: u64 = 5;

/// The policy for the next epoch, from what was done in the last. Never alternate without the write lease: an
/// outsider would see a mix. Called at a SYNC with the gate closed, and at attach.
pub(crate) fn choose(shared: &Shared, done: &Sums, choice: PolicyChoice) -> Policy {
    match TestHooks::current().policy.unwrap_or(choice) {
        PolicyChoice::Undo => Policy::Undo,
        PolicyChoice::Redo => Policy::Redo,
        PolicyChoice::Alternate => Policy::Alternate,
        PolicyChoice::Auto => {
            let Sums { reads, writes, .. } = *done;
            let was_undo = Policy::from_number(shared.policy.load(Ordering::Relaxed)) == Policy::Undo;
            match shared.lease.load(Ordering::Acquire) {
                // An outsider reads the file as it is: uncommitted bytes stay out of it.
                EXPOSED => Policy::Redo,
                // It stores once, and reads cost what they do under undo, for any number of them.
                HELD => Policy::Alternate,
                _ if is_for_undo(reads, writes, was_undo) => Policy::Undo,
                _ => Policy::Redo,
            }
        }
    }
}

/// Whether undo is better than redo after an epoch with this many calls.
fn is_for_undo(reads: u64, writes: u64, was_undo: bool) -> bool {
    let limit = if was_undo { REDO_FROM_PERCENT + NEAR_PERCENT } else { REDO_FROM_PERCENT - NEAR_PERCENT };
    match reads + writes {
        0 => was_undo,
        calls => writes * 100 < calls * limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_reads_are_for_undo_and_a_share_near_the_limit_changes_nothing() {
        for (writes, after_undo, after_redo) in
            [(0, true, true), (34, true, true), (38, true, false), (44, true, false), (45, false, false)]
        {
            assert_eq!(is_for_undo(100 - writes, writes, true), after_undo, "{writes}");
            assert_eq!(is_for_undo(100 - writes, writes, false), after_redo, "{writes}");
        }
        assert!(is_for_undo(0, 0, true) && !is_for_undo(0, 0, false));
    }
}
