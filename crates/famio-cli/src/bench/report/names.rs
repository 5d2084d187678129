//! The files of a report.

pub const PAGE: &str = "index.html";
pub const JSON: &str = "figures.json";
pub const POINTS: &str = "points.csv";
pub const CALLS: &str = "calls.csv";
pub const MARKDOWN: &str = "figures.md";
