//! The table of a group: medians of the rounds, and ratios to the plain setups and to readers without writers.

use super::Outcomes;
use super::crew::{Outcome, Side};
use super::patterns::{Group, Pattern};
use crate::bench::median::median;

const EMPTY: &str = "-";
/// The times that are shown, beside the longest.
const SHARES: [(f64, &str); 3] = [(0.5, "P50"), (0.99, "P99"), (0.999, "P99.9")];

/// Rows under a head.
pub fn rows(group: Group, patterns: &[Pattern], outcomes: &Outcomes) -> Vec<Vec<String>> {
    let setups = group.setups();
    let plain: Vec<usize> = (0..setups.len()).filter(|&setup| !setups[setup].under_famio).collect();
    let has_readers = patterns.iter().any(|pattern| pattern.readers() > 0);
    let sides = if has_readers { &[READS, WRITES][..] } else { &[WRITES] };

    let mut head = vec!["PATTERN".to_string(), "SETUP".into()];
    for (_, title) in sides {
        head.push(format!("{title}/S"));
        head.extend(SHARES.map(|(_, share)| share.into()));
        head.push("LONGEST".into());
    }
    head.push("HAND-OVERS".into());
    for (_, title) in sides {
        head.extend(plain.iter().map(|&setup| format!("{title} : {}", setups[setup].title)));
    }
    if has_readers {
        head.push("READS : ALONE".into());
    }

    let mut rows = vec![head];
    for (pattern, of_setups) in patterns.iter().zip(outcomes) {
        let alone = patterns.iter().position(|other| other.readers() == pattern.readers() && other.writers() == 0);
        for (at, setup) in setups.iter().enumerate() {
            let rounds = &of_setups[at];
            let mut row = vec![pattern.title.clone(), setup.title.into()];
            sides.iter().for_each(|(side, _)| row.extend(figures(rounds, *side)));
            let counts = rounds.iter().map(|round| round.counted as f64).collect();
            row.push(if setup.under_famio { format!("{:.0}", median(counts)) } else { EMPTY.into() });
            for (side, _) in sides {
                let is_shown = setup.under_famio;
                row.extend(
                    plain.iter().map(|&base| ratio(is_shown, rate(rounds, *side), rate(&of_setups[base], *side))),
                );
            }
            if has_readers {
                let alone = alone.filter(|_| pattern.readers() > 0 && pattern.writers() > 0);
                row.push(alone.map_or(EMPTY.into(), |alone| {
                    ratio(true, rate(rounds, READS.0), rate(&outcomes[alone][at], READS.0))
                }));
            }
            rows.push(row);
        }
    }
    rows
}

/// How many of the plain reads were torn, which the kernel allows.
pub fn torn(outcomes: &Outcomes) -> String {
    let all = outcomes.iter().flatten().flatten().map(|outcome| outcome.reads.torn).sum::<u64>();
    match all {
        0 => "no read gave parts of two writes".into(),
        all => format!("{all} plain reads gave parts of two writes; under Famio none did"),
    }
}

type OfSide = fn(&Outcome) -> &Side;
const READS: (OfSide, &str) = (|outcome| &outcome.reads, "READS");
const WRITES: (OfSide, &str) = (|outcome| &outcome.writes, "WRITES");

fn rate(rounds: &[Outcome], side: OfSide) -> f64 {
    median(rounds.iter().map(|round| side(round).rate).collect())
}

fn figures(rounds: &[Outcome], side: OfSide) -> Vec<String> {
    if rounds.iter().all(|round| side(round).all == 0) {
        return vec![EMPTY.into(); SHARES.len() + 2];
    }
    let mut row = vec![format!("{:.0}", rate(rounds, side))];
    // A writer that is to write seldom may have none in a round.
    let times: Vec<_> = rounds.iter().map(|round| &side(round).times).filter(|times| !times.is_empty()).collect();
    if times.is_empty() {
        row.extend(vec![EMPTY.into(); SHARES.len() + 1]);
        return row;
    }
    row.extend(SHARES.map(|(share, _)| microseconds(median(times.iter().map(|times| times.at(share)).collect()))));
    row.push(microseconds(times.iter().map(|times| times.longest()).fold(0.0, f64::max)));
    row
}

fn ratio(is_shown: bool, figure: f64, base: f64) -> String {
    match figure / base {
        ratio if !is_shown || !ratio.is_finite() => EMPTY.into(),
        ratio if ratio < 0.01 => format!("{ratio:.5}x"),
        ratio if ratio < 0.1 => format!("{ratio:.3}x"),
        ratio => format!("{ratio:.2}x"),
    }
}

fn microseconds(nanoseconds: f64) -> String {
    let time = nanoseconds / 1000.0;
    if time < 10.0 { format!("{time:.2}") } else { format!("{time:.0}") }
}

#[cfg(test)]
mod tests {
    use super::super::patterns::Job;
    use super::super::worker::Task;
    use super::*;
    use crate::bench::times::Times;
    use std::time::Duration;

    fn side(rate: f64, microseconds: u64) -> Side {
        let mut times = Times::new().unwrap();
        times.add(Duration::from_micros(microseconds));
        Side { rate, times, all: 1, torn: 0 }
    }

    #[test]
    fn a_row_has_its_ratios() {
        let job = |task| Job { task, rate: None };
        let pattern = |title: &str, jobs: &[Job]| Pattern {
            title: title.into(),
            jobs: jobs.to_vec(),
            exclusive: false,
            uncommitted: 0,
        };
        let [read, write] = [job(Task::ReadBlocks), job(Task::WriteBlocks)];
        let patterns = [pattern("1 reader", &[read]), pattern("both", &[read, write])];
        let nothing = || Side { rate: 0.0, times: Times::new().unwrap(), all: 0, torn: 0 };
        let alone = |rate| vec![Outcome { reads: side(rate, 5), writes: nothing(), counted: 0 }];
        let both = |reads, writes| {
            [3, 1, 2].map(|n| Outcome { reads: side(reads, n), writes: side(writes, 20 * n), counted: n }).into()
        };
        let outcomes = vec![vec![alone(100.0), alone(90.0)], vec![both(80.0, 1000.0), both(45.0, 50.0)]];
        let rows = rows(Group::Files, &patterns, &outcomes);
        assert_eq!(rows[2][2..4], ["90", "5.00"]);
        assert_eq!(rows[2][7..], ["-", "-", "-", "-", "-", "0", "0.90x", "-", "-"]);
        assert_eq!(rows[4][2..7], ["45", "2.00", "2.00", "2.00", "3.00"]);
        assert_eq!(rows[4][7..], ["50", "40", "40", "40", "60", "2", "0.56x", "0.050x", "0.50x"]);
        assert_eq!(rows[3][12..], ["-", "-", "-", "0.80x"]);
    }
}
