//! The order in which files and records are read.

/// Numbers below `count` by Zipf's law with exponent 0.99, as in YCSB: a few often, many seldom.
pub struct Zipf {
    /// For each number, the cumulative share up to it.
    shares: Vec<f64>,
    random: fastrand::Rng,
}

impl Zipf {
    pub fn new(count: u64) -> Self {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-0.99);
                sum
            })
            .collect();
        Self { shares: sums.iter().map(|share| share / sum).collect(), random: fastrand::Rng::with_seed(7) }
    }
}

impl Iterator for Zipf {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = self.random.f64();
        let rank = self.shares.partition_point(|&share| share < at).min(self.shares.len() - 1) as u64;
        // Files of similar rank are not adjacent in the folder. A prime, so that each number occurs once.
        Some(rank * 1_000_003 % self.shares.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_come_often_and_all_can_come() {
        let mut counts = vec![0; 100];
        Zipf::new(100).take(100_000).for_each(|number| counts[number as usize] += 1);
        assert!(counts.iter().all(|&count| count > 0));
        assert!(counts[0] > 15_000);
        assert_eq!(Zipf::new(1).next(), Some(0));
    }
}
