//! The rows: the time of each kind of change, compared with the bare copy; and the rate of two threads, compared with
//! one.

use crate::bench::median::median;
use crate::text::table;
use serde::Serialize;

/// The results of each round: nanoseconds, and for the last two, transactions per second.
#[derive(Default)]
pub struct Figures {
    pub copy: Vec<f64>,
    pub transaction: Vec<f64>,
    pub checked: Vec<f64>,
    pub writes: Vec<f64>,
    /// Empty: not installed.
    pub libpmemobj: Vec<f64>,
    pub one_thread: Vec<f64>,
    pub two_threads: Vec<f64>,
}

/// A row has a time or a rate.
#[derive(Serialize)]
pub struct Row {
    work: &'static str,
    threads: u32,
    nanoseconds: Option<f64>,
    /// Ratio of the time to that of the bare copy.
    times_as_long: Option<f64>,
    transactions_per_second: Option<f64>,
    /// Ratio of the rate to that of one thread.
    ratio: Option<f64>,
    rounds: Vec<f64>,
    /// Why there is neither a time nor a rate.
    skipped: Option<&'static str>,
}

impl Row {
    fn skipped(work: &'static str, why: &'static str) -> Self {
        let skipped = Some(why);
        Self {
            work,
            threads: 1,
            nanoseconds: None,
            times_as_long: None,
            transactions_per_second: None,
            ratio: None,
            rounds: Vec::new(),
            skipped,
        }
    }

    fn time(work: &'static str, rounds: Vec<f64>, copy: f64) -> Self {
        let time = median(rounds.clone());
        Self { nanoseconds: Some(time), times_as_long: Some(time / copy), ..Self::measured(work, 1, rounds) }
    }

    /// `base`: the rate of one thread.
    fn rate(work: &'static str, threads: u32, rounds: Vec<f64>, base: Option<f64>) -> Self {
        let rate = median(rounds.clone());
        let ratio = base.map(|base| rate / base);
        Self { transactions_per_second: Some(rate), ratio, ..Self::measured(work, threads, rounds) }
    }

    fn measured(work: &'static str, threads: u32, rounds: Vec<f64>) -> Self {
        Self { threads, rounds, skipped: None, ..Self::skipped(work, "") }
    }
}

impl Figures {
    pub fn rows(self) -> Vec<Row> {
        let [copy, one] = [&self.copy, &self.one_thread].map(|rounds| median(rounds.clone()));
        let libpmemobj = "transaction of libpmemobj";
        vec![
            Row::time("bare copy, write-backs, a fence", self.copy, copy),
            Row::time("transaction", self.transaction, copy),
            Row::time("transaction that checks", self.checked, copy),
            Row::time("writes and a SYNC", self.writes, copy),
            match self.libpmemobj {
                rounds if rounds.is_empty() => Row::skipped(libpmemobj, "not installed"),
                rounds => Row::time(libpmemobj, rounds, copy),
            },
            Row::rate("transactions a second, one thread", 1, self.one_thread, None),
            Row::rate("transactions a second, two threads", 2, self.two_threads, Some(one)),
        ]
    }
}

pub fn text(rows: &[Row]) -> String {
    let mut lines = vec![["", "MICROSECONDS", "OF THE BARE COPY"].map(String::from).to_vec()];
    lines.extend(rows.iter().map(|row| {
        let (figure, beside) = match (row.nanoseconds, row.transactions_per_second) {
            (Some(time), _) => (format!("{:.2}", time / 1000.0), row.times_as_long.map(|times| format!("{times:.2}x"))),
            (_, Some(rate)) => (format!("{rate:.0}"), row.ratio.map(|ratio| format!("{ratio:.2}x one thread"))),
            _ => (row.skipped.unwrap_or_default().into(), None),
        };
        vec![row.work.into(), figure, beside.unwrap_or_default()]
    }));
    table(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_says_so() {
        let one = |value| vec![value; 3];
        let figures = Figures {
            copy: one(500.0),
            transaction: one(2000.0),
            checked: one(3000.0),
            writes: one(4000.0),
            libpmemobj: Vec::new(),
            one_thread: one(100.0),
            two_threads: one(150.0),
        };
        let text = text(&figures.rows());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(lines[0], ["bare copy, write-backs, a fence", "0.50", "1.00x"]);
        assert_eq!(lines[1], ["transaction", "2.00", "4.00x"]);
        assert_eq!(lines[4], ["transaction of libpmemobj", "not installed"]);
        assert_eq!(lines[6], ["transactions a second, two threads", "150", "1.50x one thread"]);
    }
}
