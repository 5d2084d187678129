//! Durations of calls, of one process or many: percentiles cannot be averaged, so histograms are added.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Significant digits: the histogram is accurate to a thousandth of each time.
const DIGITS: u8 = 3;

/// The times of many calls.
#[derive(Clone)]
pub struct Times(Histogram<u64>);

/// The same, in transit from a worker to the bench: nanoseconds, and how many calls took that long.
#[derive(Default, Serialize, Deserialize)]
pub struct Counts(Vec<(u64, u64)>);

impl Times {
    pub fn new() -> Result<Self, String> {
        Histogram::new(DIGITS).map(Self).map_err(|error| error.to_string())
    }

    pub fn add(&mut self, time: Duration) {
        self.add_many(time.as_nanos() as u64, 1);
    }

    fn add_many(&mut self, nanoseconds: u64, calls: u64) {
        // The histogram grows as needed; it fails only for a time of centuries.
        let _ = self.0.record_n(nanoseconds.max(1), calls);
    }

    pub fn add_all(&mut self, counts: &Counts) {
        counts.0.iter().for_each(|&(nanoseconds, calls)| self.add_many(nanoseconds, calls));
    }

    pub fn counts(&self) -> Counts {
        Counts(self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect())
    }

    /// The time within which this share of the calls ended, in nanoseconds.
    pub fn at(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    pub fn longest(&self) -> f64 {
        self.0.max() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_two_workers_add_up() {
        let mut all = Times::new().unwrap();
        for microseconds in [1..=50, 51..=100] {
            let mut one = Times::new().unwrap();
            microseconds.for_each(|time| one.add(Duration::from_micros(time)));
            let text = serde_json::to_string(&one.counts()).unwrap();
            all.add_all(&serde_json::from_str(&text).unwrap());
        }
        let fast_path = |figure: f64, microseconds: f64| (figure / 1000.0 / microseconds - 1.0).abs() < 0.002;
        assert!(fast_path(all.at(0.5), 50.0) && fast_path(all.at(0.99), 99.0) && fast_path(all.longest(), 100.0));
    }
}
