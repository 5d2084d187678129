//! The files of a report.

/// The page.
pub const PAGE: &str = "index.html";
/// The whole document.
pub const JSON: &str = "figures.json";
/// The points of all figures, as CSV.
pub const POINTS: &str = "points.csv";
/// The rows of file calls, as CSV.
pub const CALLS: &str = "calls.csv";
/// The figures as tables.
pub const MARKDOWN: &str = "figures.md";
