//! The confidence of a ratio: a bootstrap over the rounds.

use crate::bench::median::median;
use serde::{Deserialize, Serialize};

/// A value, and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

const RESAMPLES: usize = 2000;

/// The median of the rounds' values.
pub fn estimate(values: &[f64]) -> Estimate {
    bootstrap(values.len(), |rounds| median(rounds.iter().map(|&round| values[round]).collect()))
}

/// Ratio `base : values` of the medians. Pairs of one round stay together: a disturbance affects both.
pub fn ratio(base: &[f64], values: &[f64]) -> Estimate {
    bootstrap(base.len().min(values.len()), |rounds| {
        let of = |values: &[f64]| median(rounds.iter().map(|&round| values[round]).collect());
        of(base) / of(values)
    })
}

/// The same for two runs with unrelated rounds.
pub fn ratio_of_runs(base: &[f64], values: &[f64]) -> Estimate {
    let mut random = fastrand::Rng::with_seed(2);
    let mut draw = |values: &[f64]| median((0..values.len()).map(|_| values[random.usize(..values.len())]).collect());
    let value = median(base.to_vec()) / median(values.to_vec());
    interval(value, (0..RESAMPLES).map(|_| draw(base) / draw(values)).collect())
}

/// A statistic of all rounds, and of many resamples of as many rounds. The resamples are the same in each run.
fn bootstrap(rounds: usize, figure: impl Fn(&[usize]) -> f64) -> Estimate {
    let mut random = fastrand::Rng::with_seed(1);
    let value = figure(&(0..rounds).collect::<Vec<_>>());
    let draw = |_| figure(&(0..rounds).map(|_| random.usize(..rounds)).collect::<Vec<_>>());
    interval(value, (0..RESAMPLES).map(draw).collect())
}

fn interval(value: f64, mut draws: Vec<f64>) -> Estimate {
    draws.sort_by(f64::total_cmp);
    Estimate { value, low: draws[RESAMPLES / 40], high: draws[RESAMPLES - 1 - RESAMPLES / 40] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_value_and_grows_with_the_noise() {
        let quiet = ratio(&[20.0, 20.2, 19.8, 20.1, 19.9], &[10.0, 10.1, 9.9, 10.0, 10.0]);
        let noisy = ratio(&[20.0, 30.0, 15.0, 25.0, 18.0], &[10.0, 9.0, 14.0, 11.0, 10.0]);
        for estimate in [quiet, noisy] {
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{estimate:?}");
        }
        assert!((quiet.value - 2.0).abs() < 0.01);
        assert!(noisy.high - noisy.low > 4.0 * (quiet.high - quiet.low));
        assert_eq!(estimate(&[3.0]), Estimate { value: 3.0, low: 3.0, high: 3.0 });
    }

    #[test]
    fn a_run_beside_itself_is_one() {
        let same = ratio_of_runs(&[10.0, 11.0, 10.5, 10.2, 10.9], &[10.1, 10.8, 10.6, 10.3, 11.0]);
        assert!(same.low < 1.0 && 1.0 < same.high, "{same:?}");
    }
}
