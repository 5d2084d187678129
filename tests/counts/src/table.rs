//! What is printed.

use crate::measure::Measured;

/// A line for each path: the checked-in count, the current one, the change, and the range of several counts.
pub fn text(rows: &[(&Measured, Option<f64>)]) -> String {
    let mut text = line(["PATH", "CHECKED IN", "NOW", "CHANGE", "SPREAD"]);
    for (measured, before) in rows {
        let now = measured.per_operation;
        let count = before.map_or("-".to_string(), |before| format!("{before:.1}"));
        let change = before.map_or("-".to_string(), |before| format!("{:+.1} %", (now / before - 1.0) * 100.0));
        let spread = measured.spread.map_or("-".to_string(), |spread| format!("{:.2} %", spread * 100.0));
        text += &line([measured.name, &count, &format!("{now:.1}"), &change, &spread]);
    }
    text
}

fn line([path, count, now, change, spread]: [&str; 5]) -> String {
    format!("{path:<20} {count:>11} {now:>9} {change:>8} {spread:>7}\n")
}
