//! The confidence of a ratio: a bootstrap over the rounds. Of few rounds it gives too narrow an interval: at the most
//! from the least to the greatest value, which holds the median of what is measured in 75 of 100 runs of three rounds.
//! So with fewer than [`ENOUGH`] the interval is at least that of Student's distribution, of the logarithms.

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

/// Rounds of which the bootstrap is good enough.
const ENOUGH: usize = 12;
/// Of Student's distribution, the quantile of 0.975 for 1 to 10 degrees of freedom, for two to eleven values.
const STUDENT: [f64; ENOUGH - 2] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
/// The standard deviation of a normal distribution, by its median deviation; and the median's, by the mean's.
const OF_NORMAL: f64 = 1.4826;
const OF_MEDIAN: f64 = 1.2533;

/// The median of the rounds' values.
pub fn estimate(values: &[f64]) -> Estimate {
    let bootstrap = bootstrap(values.len(), |rounds| median(rounds.iter().map(|&round| values[round]).collect()));
    bootstrap.at_least(half_width(values.iter().copied()))
}

/// Ratio `base : values` of the medians. Pairs of one round stay together: a disturbance affects both.
pub fn ratio(base: &[f64], values: &[f64]) -> Estimate {
    let bootstrap = bootstrap(base.len().min(values.len()), |rounds| {
        let of = |values: &[f64]| median(rounds.iter().map(|&round| values[round]).collect());
        of(base) / of(values)
    });
    bootstrap.at_least(half_width(base.iter().zip(values).map(|(base, value)| base / value)))
}

/// The same for two runs with unrelated rounds.
pub fn ratio_of_runs(base: &[f64], values: &[f64]) -> Estimate {
    let mut random = fastrand::Rng::with_seed(2);
    let mut draw = |values: &[f64]| median((0..values.len()).map(|_| values[random.usize(..values.len())]).collect());
    let value = median(base.to_vec()) / median(values.to_vec());
    let bootstrap = interval(value, (0..RESAMPLES).map(|_| draw(base) / draw(values)).collect());
    bootstrap.at_least(half_width(base.iter().copied()).hypot(half_width(values.iter().copied())))
}

/// Half of the interval of Student's distribution, in logarithms; 0 if the bootstrap is good enough, or if there is
/// only one value, or one that has no logarithm. From the median deviation: one round that was disturbed is an end of
/// the bootstrap's interval already.
fn half_width(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    let count = logs.len() as f64;
    let Some(&quantile) = logs.len().checked_sub(2).and_then(|freedom| STUDENT.get(freedom)) else { return 0.0 };
    let middle = median(logs.clone());
    let deviation = OF_NORMAL * median(logs.iter().map(|log| (log - middle).abs()).collect());
    let width = quantile * OF_MEDIAN * deviation / count.sqrt();
    if width.is_finite() { width } else { 0.0 }
}

impl Estimate {
    /// The same with an interval that is at least as wide, in logarithms.
    fn at_least(self, half_width: f64) -> Self {
        let factor = half_width.exp();
        Self { value: self.value, low: self.low.min(self.value / factor), high: self.high.max(self.value * factor) }
    }
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

    /// With any seed: of values around 1 with a normal deviation, the interval has to hold 1 as often as it says.
    #[test]
    fn the_interval_is_as_wide_as_it_says() {
        let mut random = fastrand::Rng::new();
        let mut around = || (0.05 * ((0..12).map(|_| random.f64()).sum::<f64>() - 6.0)).exp();
        for rounds in [3, 5, 7, 11] {
            let mut run = || (0..rounds).map(|_| around()).collect::<Vec<_>>();
            let holds = |found: Estimate| usize::from(found.low <= 1.0 && 1.0 <= found.high);
            let (mut of_one, mut of_pairs) = (0, 0);
            for _ in 0..1000 {
                of_one += holds(estimate(&run()));
                of_pairs += holds(ratio(&run(), &run()));
            }
            assert!(of_one >= 870 && of_pairs >= 870, "{rounds} rounds: {of_one} and {of_pairs} of 1000");
        }
    }

    #[test]
    fn a_run_beside_itself_is_one() {
        let same = ratio_of_runs(&[10.0, 11.0, 10.5, 10.2, 10.9], &[10.1, 10.8, 10.6, 10.3, 11.0]);
        assert!(same.low < 1.0 && 1.0 < same.high, "{same:?}");
    }
}
