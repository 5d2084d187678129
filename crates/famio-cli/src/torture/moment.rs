//! When and how a program is killed: decisions that a seed reproduces.

use std::time::Duration;

/// Assumed running time until it is measured or given.
const UNKNOWN: Duration = Duration::from_secs(2);
/// Shorter than the start of a program.
const SHORTEST: Duration = Duration::from_millis(1);

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// From the start to the signal.
    pub after: Duration,
    /// How long it stays stopped before the kill; `None`: killed at once.
    pub stopped: Option<Duration>,
}

/// The decisions.
pub struct Moments {
    random: fastrand::Rng,
    within: Duration,
    fixed: bool,
    measured: bool,
}

impl Moments {
    pub fn new(seed: u64, within: Option<Duration>) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, within: within.unwrap_or(UNKNOWN), fixed: within.is_some(), measured: within.is_some() }
    }

    /// The next decision. If the running time is unknown, the first one is as late as possible, to measure it.
    pub fn next(&mut self) -> Moment {
        let (part, stop, long) = (self.random.f64(), self.random.u8(..4) == 0, self.random.u64(1..20_000));
        let part = if std::mem::replace(&mut self.measured, true) { part } else { 1.0 };
        Moment { after: self.within.mul_f64(part), stopped: stop.then(|| Duration::from_micros(long)) }
    }

    /// The program ended by itself after that time, which may vary.
    pub fn ended_after(&mut self, after: Duration) {
        if !self.fixed {
            self.within = ((self.within.min(after * 2) + after) / 2).max(SHORTEST);
        }
    }
}

/// Parses seconds, with or without a fraction.
pub fn parse(text: &str) -> Result<Duration, String> {
    let number =
        text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    match Duration::try_from_secs_f64(number) {
        Ok(time) if !time.is_zero() && number <= 86_400.0 => Ok(time),
        _ => Err(format!("'{text}': more than 0 seconds and at most a day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_stays_within() {
        let within = Duration::from_millis(300);
        let (mut a, mut b) = (Moments::new(5, Some(within)), Moments::new(5, Some(within)));
        let all: Vec<Moment> = (0..1000).map(|_| a.next()).collect();
        assert!(all.iter().all(|moment| *moment == b.next() && moment.after <= within));
        let stopped = all.iter().filter(|moment| moment.stopped.is_some()).count();
        assert!((150..350).contains(&stopped), "{stopped}");
        assert!(
            all.iter().any(|moment| moment.after < within / 10) && all.iter().any(|moment| moment.after > within / 2)
        );
    }

    #[test]
    fn the_first_run_measures() {
        let mut moments = Moments::new(1, None);
        assert_eq!(moments.next().after, UNKNOWN);
        moments.ended_after(Duration::from_millis(10));
        assert!((0..100).all(|_| moments.next().after <= Duration::from_millis(15)));
        moments.ended_after(Duration::ZERO);
        assert!(moments.within >= SHORTEST);
    }

    #[test]
    fn seconds_are_read() {
        assert_eq!(parse("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("2s"), Ok(Duration::from_secs(2)));
        for bad in ["", "x", "0", "-1", "nan", "inf", "1e9"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
