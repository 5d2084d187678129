//! Durations of calls, in buckets.

use famio::recovery::Times;
use serde::Serialize;

/// How long some calls took.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Quantiles {
    /// Calls that were measured.
    pub measured: u64,
    /// Nanoseconds of all of them together.
    pub sum: u64,
    /// Calls that took less than `below` nanoseconds (`null`: any time) and not less than the previous bucket's
    /// bound; empty buckets are left out.
    pub buckets: Vec<Bucket>,
}

/// See [`Quantiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Nanoseconds.
    pub below: Option<u64>,
    /// Calls.
    pub calls: u64,
}

impl From<&Times> for Quantiles {
    fn from(times: &Times) -> Self {
        let full = times.buckets.iter().filter(|(_, calls)| *calls > 0);
        let buckets = full.map(|&(below, calls)| Bucket { below, calls }).collect();
        Self { measured: times.count(), sum: times.sum, buckets }
    }
}

impl Quantiles {
    /// What was added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let calls_before =
            |below| before.buckets.iter().find(|bucket| bucket.below == below).map_or(0, |bucket| bucket.calls);
        let buckets: Vec<Bucket> = self
            .buckets
            .iter()
            .map(|bucket| Bucket { calls: bucket.calls.saturating_sub(calls_before(bucket.below)), ..*bucket })
            .filter(|bucket| bucket.calls > 0)
            .collect();
        let measured = buckets.iter().fold(0, |sum: u64, bucket| sum.saturating_add(bucket.calls));
        Self { measured, sum: self.sum.saturating_sub(before.sum), buckets }
    }
}

/// The time below which this percentage of calls ended; `None`: there were none. The last bucket has no bound:
/// `u64::MAX`.
pub fn quantile(times: &Quantiles, percent: u64) -> Option<u64> {
    let wanted = (u128::from(times.measured) * u128::from(percent)).div_ceil(100).max(1);
    let mut seen = 0u128;
    times.buckets.iter().find_map(|bucket| {
        seen += u128::from(bucket.calls);
        (seen >= wanted).then_some(bucket.below.unwrap_or(u64::MAX))
    })
}

/// A time for people.
pub fn shown(nanoseconds: Option<u64>) -> String {
    match nanoseconds {
        None => "-".into(),
        Some(u64::MAX) => "more".into(),
        Some(ns) if ns < 1000 => format!("{ns} ns"),
        Some(ns) if ns < 1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        Some(ns) if ns < 1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(buckets: &[(Option<u64>, u64)]) -> Quantiles {
        Quantiles::from(&Times { buckets: buckets.to_vec(), sum: 0 })
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let some = times(&[(Some(128), 0), (Some(256), 98), (Some(512), 1), (None, 1)]);
        assert_eq!([50, 98, 99, 100].map(|percent| quantile(&some, percent)), [256, 256, 512, u64::MAX].map(Some));
        assert_eq!(quantile(&times(&[]), 50), None);
        let later = times(&[(Some(256), 98), (Some(512), 5), (None, 1)]).since(&some);
        assert_eq!((later.measured, later.buckets), (4, vec![Bucket { below: Some(512), calls: 4 }]));
    }

    #[test]
    fn what_somebody_else_wrote_there_is_only_odd() {
        let odd = times(&[(Some(128), u64::MAX), (None, u64::MAX)]);
        assert_eq!((odd.measured, quantile(&odd, 50)), (u64::MAX, Some(128)));
        assert_eq!(shown(Some(1_500_000)), "1.5 ms");
    }
}
