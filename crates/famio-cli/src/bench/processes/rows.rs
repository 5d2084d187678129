//! The rows of a group: medians of the rounds, and ratios to the plain setups and to readers without writers.

use super::group::Group;
use super::measure::Outcomes;
use super::patterns::Pattern;
use crate::bench::crew::{Outcome, Side};
use crate::bench::launch::name;
use crate::bench::median::median;
use serde::Serialize;

/// A pattern in one setup.
#[derive(Serialize)]
pub struct Row {
    pub group: String,
    pub pattern: String,
    pub setup: &'static str,
    pub readers: usize,
    pub writers: usize,
    /// `None`: there are no readers, or no writers.
    pub reads: Option<Calls>,
    pub writes: Option<Calls>,
    /// In one measurement, under Famio.
    pub hand_overs: Option<f64>,
    /// Reads that returned parts of two writes, in all rounds.
    pub torn_reads: u64,
    /// Under Famio: compared with each plain setup.
    pub ratios: Vec<Ratio>,
    /// Ratio of the readers' rate to that of as many readers without writers.
    pub reads_ratio_to_readers_alone: Option<f64>,
}

/// The calls of all readers, or of all writers.
#[derive(Serialize)]
pub struct Calls {
    pub calls_per_second: f64,
    /// Of each round.
    pub rounds: Vec<f64>,
    /// `None`: no call ended during the measurement.
    pub nanoseconds: Option<Nanoseconds>,
}

/// Durations of single calls: medians of the rounds; the longest is that of all rounds.
#[derive(Clone, Copy, Serialize)]
pub struct Nanoseconds {
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub longest: f64,
}

/// Ratios of the rates to those of another setup.
#[derive(Serialize)]
pub struct Ratio {
    pub to: &'static str,
    pub reads: Option<f64>,
    pub writes: Option<f64>,
}

/// A row for each pattern in each setup.
pub fn rows(group: Group, patterns: &[Pattern], outcomes: &Outcomes) -> Vec<Row> {
    let setups = group.setups();
    let mut rows = Vec::new();
    for (pattern, of_setups) in patterns.iter().zip(outcomes) {
        let is_mixed = pattern.readers() > 0 && pattern.writers() > 0;
        let alone = patterns.iter().position(|other| other.readers() == pattern.readers() && other.writers() == 0);
        for (at, setup) in setups.iter().enumerate() {
            let rounds = &of_setups[at];
            let bases = setups.iter().zip(of_setups).filter(|(base, _)| setup.under_famio && !base.under_famio);
            let ratios = bases.map(|(base, base_rounds)| Ratio {
                to: base.title,
                reads: ratio(rounds, base_rounds, reads),
                writes: ratio(rounds, base_rounds, writes),
            });
            let hand_overs = || median(rounds.iter().map(|round| round.counted as f64).collect());
            rows.push(Row {
                group: name(group),
                pattern: pattern.title.clone(),
                setup: setup.title,
                readers: pattern.readers(),
                writers: pattern.writers(),
                reads: calls(rounds, reads),
                writes: calls(rounds, writes),
                hand_overs: setup.under_famio.then(hand_overs),
                torn_reads: rounds.iter().map(|round| round.reads.torn).sum(),
                ratios: ratios.collect(),
                reads_ratio_to_readers_alone: alone
                    .filter(|_| is_mixed)
                    .and_then(|alone| ratio(rounds, &outcomes[alone][at], reads)),
            });
        }
    }
    rows
}

type OfSide = fn(&Outcome) -> &Side;

fn reads(outcome: &Outcome) -> &Side {
    &outcome.reads
}

fn writes(outcome: &Outcome) -> &Side {
    &outcome.writes
}

fn rate(rounds: &[Outcome], side: OfSide) -> f64 {
    median(rounds.iter().map(|round| side(round).rate).collect())
}

/// `None`: there is nothing to compare with.
fn ratio(rounds: &[Outcome], base: &[Outcome], side: OfSide) -> Option<f64> {
    Some(rate(rounds, side) / rate(base, side)).filter(|ratio| ratio.is_finite())
}

fn calls(rounds: &[Outcome], side: OfSide) -> Option<Calls> {
    if rounds.iter().all(|round| side(round).all == 0) {
        return None;
    }
    // A writer with a low rate may make no write in a round.
    let times: Vec<_> = rounds.iter().map(|round| &side(round).times).filter(|times| !times.is_empty()).collect();
    let at = |share: f64| median(times.iter().map(|times| times.at(share)).collect());
    let nanoseconds = (!times.is_empty()).then(|| Nanoseconds {
        p50: at(0.5),
        p99: at(0.99),
        p99_9: at(0.999),
        longest: times.iter().map(|times| times.longest()).fold(0.0, f64::max),
    });
    let each = rounds.iter().map(|round| side(round).rate).collect();
    Some(Calls { calls_per_second: rate(rounds, side), rounds: each, nanoseconds })
}
