//! The rows as a table, and as CSV.

use crate::bench::document::row::{Percentiles, Row, SideResult};
use crate::bench::document::words::time;
use crate::text::table;

const HEAD: [&str; 14] = [
    "WORKLOAD", "", "A CALL", "RATIO", "95 %", "CPU", "BY CPU", "P50", "P90", "P99", "P99.9", "P99.99", "LONGEST",
    "FSYNC",
];
const DISK: &str = "TO MEDIUM";

/// For people: one line per side.
pub fn text(rows: &[Row]) -> String {
    // Plain calls on memory count nothing.
    let with_disk = rows.iter().flat_map(|row| &row.sides).any(|side| side.bytes_per_byte().is_some());
    let mut head = HEAD.map(String::from).to_vec();
    head.extend(with_disk.then(|| DISK.into()));
    let mut lines = vec![head];
    for row in rows {
        for (number, side) in row.sides.iter().enumerate() {
            let mut line = line(if number == 0 { &row.title } else { "" }, side);
            let disk = side.bytes_per_byte().map_or("-".into(), |ratio| format!("{ratio:.2}"));
            line.extend(with_disk.then_some(disk));
            lines.push(line);
        }
    }
    table(&lines)
}

fn line(title: &str, side: &SideResult) -> Vec<String> {
    let by_cpu = side.cpu_ratio.map_or(String::new(), |ratio| format!("{:.2}x", ratio.value));
    let (ratio, interval) = match side.ratio {
        Some(ratio) => (format!("{:.2}x", ratio.value), format!("{:.2} to {:.2}", ratio.low, ratio.high)),
        None => ("".into(), "".into()),
    };
    let Percentiles { p50, p90, p99, p99_9, p99_99, longest, .. } = side.calls;
    let mut line = vec![title.into(), side.side.clone(), time(side.nanoseconds), ratio, interval];
    line.extend([time(side.cpu_nanoseconds), by_cpu]);
    line.extend([p50, p90, p99, p99_9, p99_99, longest].map(time));
    line.push(side.syncs.map_or("-".into(), |syncs| time(syncs.mean)));
    line
}

/// For programs: nanoseconds; missing values are empty.
pub fn csv(rows: &[Row]) -> String {
    let mut out =
        "workload,side,ns_per_call,ratio,ratio_low,ratio_high,cpu_ns_per_call,cpu_ratio,calls_timed,mean,p50,p90,p99,p99.9,p99.99,p99.999,\
                   longest,fsync_mean,fsync_longest,disk_bytes_per_byte,medium_bytes_per_byte\n"
            .to_string();
    for row in rows {
        for side in &row.sides {
            let calls = &side.calls;
            let number = |value: f64| format!("{value:.1}");
            let option = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
            let mut cells = vec![quoted(&row.title), quoted(&side.side), number(side.nanoseconds)];
            cells.extend(
                [side.ratio.map(|r| r.value), side.ratio.map(|r| r.low), side.ratio.map(|r| r.high)].map(option),
            );
            cells.extend([number(side.cpu_nanoseconds), option(side.cpu_ratio.map(|ratio| ratio.value))]);
            cells.push(calls.count.to_string());
            let times =
                [calls.mean, calls.p50, calls.p90, calls.p99, calls.p99_9, calls.p99_99, calls.p99_999, calls.longest];
            cells.extend(times.map(number));
            cells.extend(
                [side.syncs.map(|s| s.mean), side.syncs.map(|s| s.longest), side.disk_bytes_per_byte].map(option),
            );
            cells.push(option(side.medium_bytes_per_byte));
            out += &cells.join(",");
            out.push('\n');
        }
    }
    out
}

/// A cell of CSV.
pub fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::document::workload::{Pattern, Workload};
    use crate::bench::io::gathered::{Gathered, row};
    use std::time::Duration;

    fn rows() -> Vec<Row> {
        let mut sides = [Gathered::new().unwrap(), Gathered::new().unwrap()];
        for (side, nanoseconds) in sides.iter_mut().zip([1000, 250]) {
            side.rounds = vec![nanoseconds as f64; 3];
            side.cpu = vec![nanoseconds as f64 * 0.9; 3];
            side.writes.add(Duration::from_nanos(nanoseconds));
        }
        let workload = Workload::write(Pattern::Random, 4096).fsync(10);
        vec![row(&workload, &["plain".into(), "Famio".into()], &sides).unwrap().unwrap()]
    }

    #[test]
    fn a_line_a_side() {
        let text = text(&rows());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("random 4 KiB pwrite, fsync every 10  plain  1000 ns"), "{text}");
        assert!(lines[2].trim_start().starts_with("Famio  250 ns   4.00x"), "{text}");
        assert!(!text.contains("TO MEDIUM"));
    }

    #[test]
    fn csv_has_as_many_cells_as_its_head() {
        let csv = csv(&rows());
        let lines: Vec<_> = csv.lines().collect();
        assert!(lines[1].starts_with("\"random 4 KiB pwrite, fsync every 10\",plain,1000.0,,,,900.0,,1,"));
        let cells = |line: &str| line.split(',').count();
        // One more because of the comma in the title.
        assert!(lines.len() == 3 && lines[1..].iter().all(|line| cells(line) == cells(lines[0]) + 1), "{csv}");
    }
}
