//! The rows: each way compared with mmap, with and without MAP_POPULATE.

use super::measure::Figures;
use super::work::{Task, Way};
use crate::bench::launch::name;
use crate::bench::median::median;
use crate::text::table;
use serde::Serialize;

/// The time of one way for one task, per record: the medians of the rounds.
#[derive(Serialize)]
pub struct Row {
    task: String,
    way: String,
    /// What the mapping cache may keep. `None`: everything, or the way does not use it.
    limit_bytes: Option<u64>,
    nanoseconds: f64,
    /// Of each round.
    rounds: Vec<f64>,
    /// Of the reading thread.
    reader_cpu_nanoseconds: f64,
    /// Of all threads.
    cpu_nanoseconds: f64,
    faults_per_1000_records: f64,
    /// Compared with mmap with MAP_POPULATE, and without it.
    ratios: Vec<Ratio>,
}

/// Ratio of another way's time to this one's.
#[derive(Serialize)]
struct Ratio {
    to: String,
    ratio: f64,
    reader_cpu_ratio: f64,
}

/// The ways with which the others are compared.
const BASES: [Way; 2] = [Way::Populate, Way::Default];

/// The rows of ways measured in turn; a way that the file system does not support has none. `limit`: of the mapping
/// cache.
pub fn of_group(task: Task, ways: &[Way], limit: Option<u64>, figures: Vec<Vec<Figures>>) -> Vec<Row> {
    let middle = |all: &[Figures]| [0, 1, 2, 3].map(|i| median(all.iter().map(|figures| figures[i]).collect()));
    let measured = ways.iter().copied().zip(figures).filter(|(_, all)| !all.is_empty());
    let measured: Vec<_> = measured.map(|(way, all)| (way, middle(&all), all)).collect();
    let bases = BASES.map(|base| measured.iter().find(|(way, ..)| *way == base).map(|(_, middle, _)| (base, *middle)));
    let row = |(way, middle, all): &(Way, Figures, Vec<Figures>)| {
        let [nanoseconds, reader_cpu_nanoseconds, cpu_nanoseconds, faults_per_1000_records] = *middle;
        let ratios = bases.iter().flatten().map(|(base, [time, reader, ..])| Ratio {
            to: name(*base),
            ratio: time / nanoseconds,
            reader_cpu_ratio: reader / reader_cpu_nanoseconds,
        });
        Row {
            task: name(task),
            way: name(*way),
            limit_bytes: limit.filter(|_| *way == Way::Cache),
            nanoseconds,
            rounds: all.iter().map(|figures| figures[0]).collect(),
            reader_cpu_nanoseconds,
            cpu_nanoseconds,
            faults_per_1000_records,
            ratios: ratios.collect(),
        }
    };
    measured.iter().map(row).collect()
}

pub fn text(rows: &[Row]) -> String {
    const HEAD: [&str; 9] =
        ["WORKLOAD", "NS", "READER", "CPU", "FAULTS", "POPULATE", "DEFAULT", "READER: POPULATE", "DEFAULT"];
    let mut lines = vec![HEAD.map(String::from).to_vec()];
    lines.extend(rows.iter().map(line));
    table(&lines)
}

fn line(row: &Row) -> Vec<String> {
    let limit = match row.limit_bytes {
        Some(_) => ", limit",
        None if row.way == name(Way::Cache) => ", no limit",
        None => "",
    };
    let mut line = vec![format!("{}, {}{limit}", row.task, row.way)];
    let times = [row.nanoseconds, row.reader_cpu_nanoseconds, row.cpu_nanoseconds];
    line.extend(times.map(|time| format!("{time:.0}")));
    line.push(format!("{:.1}", row.faults_per_1000_records));
    for part in [|ratio: &Ratio| ratio.ratio, |ratio: &Ratio| ratio.reader_cpu_ratio] {
        line.extend(BASES.map(|base| {
            let ratio = row.ratios.iter().find(|ratio| ratio.to == name(base));
            ratio.map_or("-".into(), |ratio| format!("{:.2}x", part(ratio)))
        }));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_compared_with_those_that_took_turns_with_it() {
        let figures = vec![vec![[40.0, 20.0, 30.0, 1.5]], vec![[10.0, 5.0, 8.0, 0.0]]];
        let rows = of_group(Task::Zipf, &Way::ZIPF_LIMITED, Some(4096), figures);
        assert_eq!(line(&rows[1]), ["zipf, cache, limit", "10", "5", "8", "0.0", "4.00x", "-", "4.00x", "-"]);
        assert_eq!((rows[0].limit_bytes, rows[1].limit_bytes), (None, Some(4096)));
        assert!(of_group(Task::Random, &Way::RANDOM, None, vec![Vec::new(); 3]).is_empty());
    }
}
