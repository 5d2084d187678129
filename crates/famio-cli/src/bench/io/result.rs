//! The results of a workload: docs/json.md describes them.

use super::statistics::{Estimate, ratio};
use super::workload::Workload;
use crate::bench::median::median;
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

/// The data of one side while the rounds go on.
pub struct Gathered {
    pub rounds: Vec<f64>,
    pub cpu: Vec<f64>,
    pub reads: Times,
    pub writes: Times,
    pub syncs: Times,
    /// Bytes written to the disk, and by the calls.
    pub bytes: Option<(u64, u64)>,
}

impl Gathered {
    pub fn new() -> Result<Self, String> {
        let times = Times::new;
        Ok(Self {
            rounds: Vec::new(),
            cpu: Vec::new(),
            reads: times()?,
            writes: times()?,
            syncs: times()?,
            bytes: Some((0, 0)),
        })
    }

    fn result(&self, side: &str, base: Option<&Gathered>) -> Result<SideResult, String> {
        let mut all = Times::new()?;
        [&self.reads, &self.writes, &self.syncs].into_iter().for_each(|times| all.add_all(&times.counts()));
        Ok(SideResult {
            side: side.into(),
            rounds: self.rounds.clone(),
            nanoseconds: median(self.rounds.clone()),
            ratio: base.map(|base| ratio(&base.rounds, &self.rounds)),
            cpu_nanoseconds: median(self.cpu.clone()),
            cpu_ratio: base.map(|base| ratio(&base.cpu, &self.cpu)),
            calls: Percentiles::of(&all).unwrap_or(Percentiles::NONE),
            reads: Percentiles::of(&self.reads),
            writes: Percentiles::of(&self.writes),
            syncs: Percentiles::of(&self.syncs),
            disk_bytes_per_byte: self.bytes.filter(|bytes| bytes.0 > 0).map(|(disk, calls)| disk as f64 / calls as f64),
        })
    }
}

/// The row for the data of all sides that have at least one round.
pub fn row(workload: &Workload, names: &[String], gathered: &[Gathered]) -> Result<Option<Row>, String> {
    let rounds = gathered.iter().map(|side| side.rounds.len()).min().unwrap_or(0);
    if rounds == 0 {
        return Ok(None);
    }
    let sides = names.iter().zip(gathered).enumerate();
    let sides: Result<_, String> =
        sides.map(|(at, (name, side))| side.result(name, (at > 0).then_some(&gathered[0]))).collect();
    Ok(Some(Row { title: workload.title(), workload: *workload, sides: sides? }))
}
