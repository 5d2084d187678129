//! How much is measured.

use serde::{Deserialize, Serialize};

/// The length of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    Seconds(f64),
    Calls(u64),
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub rounds: u32,
    pub length: Length,
    /// Bytes of a workload's file or files.
    pub file_size: u64,
}
