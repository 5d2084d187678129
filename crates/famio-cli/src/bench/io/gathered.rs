//! The data of a workload while it is measured, and its row of results.

use crate::bench::document::row::{Percentiles, Row, SideResult};
use crate::bench::document::statistics::ratio;
use crate::bench::document::workload::Workload;
use crate::bench::median::median;
use crate::bench::times::Times;

/// The data of one side while the rounds go on.
pub struct Gathered {
    pub rounds: Vec<f64>,
    pub cpu: Vec<f64>,
    pub reads: Times,
    pub writes: Times,
    pub syncs: Times,
    /// Bytes written to the disk, and by the calls.
    pub bytes: Option<(u64, u64)>,
    /// To the medium, and by the writes, as the library or a baseline counts them.
    pub medium: (u64, u64),
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
            medium: (0, 0),
        })
    }

    /// Bytes to the medium, and of the writes.
    pub fn add_to_medium(&mut self, bytes: Option<(u64, u64)>) {
        if let Some((medium, written)) = bytes {
            self.medium = (self.medium.0 + medium, self.medium.1 + written);
        }
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
            medium_bytes_per_byte: (self.medium.1 > 0).then(|| self.medium.0 as f64 / self.medium.1 as f64),
            disk_bytes_per_byte: self.bytes.filter(|bytes| bytes.1 > 0).map(|(disk, calls)| disk as f64 / calls as f64),
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
