//! The table of a group.

use super::group::Group;
use super::rows::{Calls, Ratio, Row};
use crate::text::table;

const EMPTY: &str = "-";
/// The times shown, besides the longest.
const SHARES: [&str; 3] = ["P50", "P99", "P99.9"];

/// A title, rows with a head, and how many of the plain reads were torn.
pub fn text(group: Group, rows: &[Row]) -> String {
    format!("{}\n{}{}\n\n", group.title(), table(&lines(group, rows)), torn(rows))
}

/// The readers or the writers.
struct Side {
    title: &'static str,
    calls: fn(&Row) -> &Option<Calls>,
    ratio: fn(&Ratio) -> Option<f64>,
}

const READS: Side = Side { title: "READS", calls: |row| &row.reads, ratio: |ratio| ratio.reads };

fn lines(group: Group, rows: &[Row]) -> Vec<Vec<String>> {
    let plain: Vec<_> = group.setups().iter().filter(|setup| !setup.under_famio).map(|setup| setup.title).collect();
    let has_readers = rows.iter().any(|row| row.readers > 0);
    let writes = Side { title: group.writes(), calls: |row| &row.writes, ratio: |ratio| ratio.writes };
    let sides = if has_readers { vec![READS, writes] } else { vec![writes] };

    let mut head = vec!["PATTERN".to_string(), "SETUP".into()];
    for side in &sides {
        head.push(format!("{}/S", side.title));
        head.extend(SHARES.map(String::from));
        head.push("LONGEST".into());
    }
    head.push("HAND-OVERS".into());
    for side in &sides {
        head.extend(plain.iter().map(|base| format!("{} : {base}", side.title)));
    }
    head.extend(has_readers.then(|| "READS : ALONE".into()));

    let line = |row: &Row| {
        let mut line = vec![row.pattern.clone(), row.setup.into()];
        line.extend(sides.iter().flat_map(|side| figures((side.calls)(row))));
        line.push(row.hand_overs.map_or(EMPTY.into(), |count| format!("{count:.0}")));
        for side in &sides {
            line.extend(plain.iter().map(|base| {
                let found = row.ratios.iter().find(|ratio| ratio.to == *base);
                ratio(found.and_then(side.ratio))
            }));
        }
        line.extend(has_readers.then(|| ratio(row.reads_ratio_to_readers_alone)));
        line
    };
    [head].into_iter().chain(rows.iter().map(line)).collect()
}

/// How many of the plain reads were torn, which the kernel permits.
fn torn(rows: &[Row]) -> String {
    match rows.iter().map(|row| row.torn_reads).sum::<u64>() {
        0 => "no read gave parts of two writes".into(),
        all => format!("{all} plain reads gave parts of two writes; under Famio none did"),
    }
}

fn figures(calls: &Option<Calls>) -> Vec<String> {
    let Some(calls) = calls else { return vec![EMPTY.into(); SHARES.len() + 2] };
    let mut figures = vec![format!("{:.0}", calls.calls_per_second)];
    match calls.nanoseconds {
        Some(time) => figures.extend([time.p50, time.p99, time.p99_9, time.longest].map(microseconds)),
        None => figures.extend(vec![EMPTY.into(); SHARES.len() + 1]),
    }
    figures
}

fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        None => EMPTY.into(),
        Some(ratio) if ratio < 0.01 => format!("{ratio:.5}x"),
        Some(ratio) if ratio < 0.1 => format!("{ratio:.3}x"),
        Some(ratio) => format!("{ratio:.2}x"),
    }
}

fn microseconds(nanoseconds: f64) -> String {
    let time = nanoseconds / 1000.0;
    if time < 10.0 { format!("{time:.2}") } else { format!("{time:.0}") }
}

#[cfg(test)]
mod tests {
    use super::super::patterns::{Job, Pattern};
    use super::super::rows::rows;
    use super::super::worker::Task;
    use super::{Group, lines};
    use crate::bench::crew::{Outcome, Side};
    use crate::bench::times::Times;
    use std::time::Duration;

    fn side(rate: f64, microseconds: u64) -> Side {
        let mut times = Times::new().unwrap();
        times.add(Duration::from_micros(microseconds));
        Side { rate, times, all: 1, of_each: vec![1], torn: 0 }
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
        let nothing = || Side { rate: 0.0, times: Times::new().unwrap(), all: 0, of_each: Vec::new(), torn: 0 };
        let alone = |rate| vec![Outcome { reads: side(rate, 5), writes: nothing(), counted: 0 }];
        let both = |reads, writes| {
            [3, 1, 2].map(|n| Outcome { reads: side(reads, n), writes: side(writes, 20 * n), counted: n }).into()
        };
        let outcomes = vec![vec![alone(100.0), alone(90.0)], vec![both(80.0, 1000.0), both(45.0, 50.0)]];
        let rows = lines(Group::Files, &rows(Group::Files, &patterns, &outcomes));
        assert_eq!(rows[2][2..4], ["90", "5.00"]);
        assert_eq!(rows[2][7..], ["-", "-", "-", "-", "-", "0", "0.90x", "-", "-"]);
        assert_eq!(rows[4][2..7], ["45", "2.00", "2.00", "2.00", "3.00"]);
        assert_eq!(rows[4][7..], ["50", "40", "40", "40", "60", "2", "0.56x", "0.050x", "0.50x"]);
        assert_eq!(rows[3][12..], ["-", "-", "-", "0.80x"]);
    }
}
