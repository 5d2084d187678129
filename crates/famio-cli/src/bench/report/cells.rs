//! The points of a figure as the cells of a table.

use super::ratios::{base, times_as_good};
use crate::bench::document::Figure;

/// The points of a figure, one line for each place on the x axis.
pub fn cells(figure: &Figure) -> Vec<Vec<String>> {
    let series = figure.names(|point| &point.series);
    let mut rows = vec![vec![figure.x.to_uppercase()]];
    rows[0].extend(series.iter().map(|name| name.to_string()));
    for x in figure.names(|point| &point.x) {
        let mut row = vec![x.to_string()];
        row.extend(series.iter().map(|series| {
            let Some(point) = figure.point(series, x) else { return "-".into() };
            let mut cell = number(point.value);
            if point.rounds.len() > 1 {
                cell += &format!(" ({} to {})", number(point.low), number(point.high));
            }
            if let Some(times) = times_as_good(figure, point) {
                cell += &format!(", {times:.2}x");
            }
            cell
        }));
        rows.push(row);
    }
    rows
}

/// What a cell has.
pub fn legend(figure: &Figure) -> String {
    format!("in brackets the interval of 95 of 100 such runs; x: times as good as {}", base(figure))
}

/// Which way is better.
pub fn better(figure: &Figure) -> &'static str {
    if figure.higher_is_better { "higher is better" } else { "lower is better" }
}

/// With three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
