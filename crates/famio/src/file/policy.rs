//! Policies, and the choice between them at SYNC.

use crate::index::Shared;
use crate::index::lease::{EXPOSED, HELD};
use crate::journal::inplace::Kind;
use crate::pmem::Lab;
use crate::settings::PolicyChoice;
use core::sync::atomic::Ordering;

/// Which home a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// In place; the pre-image to the log.
    Undo = 1,
    /// To the log.
    Redo = 2,
    /// To whichever does not hold the committed copy.
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

    /// What its entries' bits mean.
    pub fn kind(self) -> Kind {
        match self {
            Self::Undo => Kind::Undo,
            Self::Redo | Self::Alternate => Kind::Map,
        }
    }
}

/// Below this share of writes among an epoch's calls, undo (Libnvmmio, section 3.3): reads then find all in the file.
const REDO_FROM_PERCENT: u64 = 40;

/// The policy for the next epoch. Alternate is never chosen without the write lease: an outsider would see a mix. Called at SYNC with the gate closed, and at attach.
pub(crate) fn choose(shared: &Shared, choice: PolicyChoice) -> Policy {
    match Lab::current().policy.unwrap_or(choice) {
        PolicyChoice::Undo => Policy::Undo,
        PolicyChoice::Redo => Policy::Redo,
        PolicyChoice::Alternate => Policy::Alternate,
        PolicyChoice::Auto => {
            let reads = shared.epoch_reads.load(Ordering::Relaxed);
            let writes = shared.epoch_writes.load(Ordering::Relaxed);
            let undo = match reads + writes {
                0 => Policy::from_number(shared.policy.load(Ordering::Relaxed)) == Policy::Undo,
                calls => writes * 100 < calls * REDO_FROM_PERCENT,
            };
            match shared.lease.load(Ordering::Acquire) {
                // Somebody reads the file as it is: what is not committed stays out of it.
                EXPOSED => Policy::Redo,
                _ if undo => Policy::Undo,
                HELD => Policy::Alternate,
                _ => Policy::Redo,
            }
        }
    }
}
