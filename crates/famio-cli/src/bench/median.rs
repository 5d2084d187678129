//! The median of several measurements, which a single disturbed one does not move.

/// The median; for an even number, the upper of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_count() {
        assert_eq!(median(vec![3.0, 1000.0, 2.0]), 3.0);
        assert_eq!(median(vec![7.0]), 7.0);
    }
}
