//! The results of a workload: docs/json.md describes them.

use super::statistics::Estimate;
use super::workload::Workload;
use crate::bench::times::Times;
use serde::{Deserialize, Serialize};

/// A row of the table.
#[derive(Clone, Serialize, Deserialize)]
pub struct Row {
    pub title: String,
    pub workload: Workload,
    /// The others are compared with the first.
    pub sides: Vec<SideResult>,
}

/// The results of one side.
#[derive(Clone, Serialize, Deserialize)]
pub struct SideResult {
    pub side: String,
    /// Nanoseconds per call, for each round: the total time of all threads, divided by all their calls.
    pub rounds: Vec<f64>,
    /// The median of the rounds.
    pub nanoseconds: f64,
    /// Ratio of the first side's time to this side's.
    pub ratio: Option<Estimate>,
    /// The same by the CPU time of the calling threads, which is less disturbed on a busy machine.
    pub cpu_nanoseconds: f64,
    pub cpu_ratio: Option<Estimate>,
    /// Durations of single calls, of all rounds.
    pub calls: Percentiles,
    pub reads: Option<Percentiles>,
    pub writes: Option<Percentiles>,
    pub syncs: Option<Percentiles>,
    /// Bytes written to the disk per byte of the calls.
    pub disk_bytes_per_byte: Option<f64>,
    /// Bytes that the library wrote to journal and file, or a baseline wrote back, for each byte of the writes.
    #[serde(default)]
    pub medium_bytes_per_byte: Option<f64>,
}

impl SideResult {
    /// For each byte of the writes: of the disk, or where there is none, of the memory that stands for the medium.
    pub fn bytes_per_byte(&self) -> Option<f64> {
        self.disk_bytes_per_byte.or(self.medium_bytes_per_byte)
    }
}

/// Durations of single calls, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub p99_999: f64,
    pub longest: f64,
}

impl Percentiles {
    pub fn of(times: &Times) -> Option<Self> {
        (!times.is_empty()).then(|| Self {
            count: times.count(),
            mean: times.mean(),
            p50: times.at(0.5),
            p90: times.at(0.9),
            p99: times.at(0.99),
            p99_9: times.at(0.999),
            p99_99: times.at(0.9999),
            p99_999: times.at(0.99999),
            longest: times.longest(),
        })
    }

    pub const NONE: Self =
        Self { count: 0, mean: 0.0, p50: 0.0, p90: 0.0, p99: 0.0, p99_9: 0.0, p99_99: 0.0, p99_999: 0.0, longest: 0.0 };
}
