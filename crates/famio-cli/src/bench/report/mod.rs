//! A report: a folder with a self-contained page, and the raw data as JSON and CSV.

mod chart;
mod page;

use super::document::{Document, Figure, Point};
use super::io::show::{csv, quoted};
use crate::text::table;
use std::path::Path;

pub const PAGE: &str = "index.html";
const JSON: &str = "figures.json";
const POINTS: &str = "points.csv";
const CALLS: &str = "calls.csv";

/// Writes everything, each file atomically: a reader, or a signal, may come at any time.
pub fn write(folder: &Path, document: &Document) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("--report: {}: {error}", folder.display()))?;
    let json = serde_json::to_string_pretty(document).map_err(|error| error.to_string())?;
    let rows: Vec<_> = document.figures.iter().flat_map(|figure| figure.rows.iter().cloned()).collect();
    for (name, text) in
        [(PAGE, page::page(document)?), (JSON, json), (POINTS, points(&document.figures)), (CALLS, csv(&rows))]
    {
        let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| format!("--report: {}: {error}", path.display()))?;
    }
    Ok(())
}

/// A line for each point of each chart.
fn points(figures: &[Figure]) -> String {
    let mut out = "figure,series,x,y,value,low,high,rounds\n".to_string();
    for figure in figures {
        for point in &figure.points {
            let names = [&figure.name, &point.series, &point.x, &figure.y].map(|text| quoted(text));
            let numbers = [point.value, point.low, point.high].map(|number| format!("{number:.4}"));
            let rounds: Vec<_> = point.rounds.iter().map(|value| format!("{value:.4}")).collect();
            out += &format!("{},{},{}\n", names.join(","), numbers.join(","), rounds.join(" "));
        }
    }
    out
}

/// The meaning of a cell.
const LEGEND: &str = "in brackets the interval of 95 of 100 such runs; x: times as good as plain";

/// A figure on a terminal: its points as a table.
pub fn text(figure: &Figure) -> String {
    let mut out = format!("{}: {}\n", figure.name, figure.title);
    match &figure.skipped {
        Some(why) => out += &format!("skipped: {why}\n"),
        None => {
            out += &table(&cells(figure));
            out += &format!("{}; {}; {LEGEND}\n", figure.y, better(figure));
        }
    }
    out
}

/// The points of a figure, one line for each place on the x axis.
fn cells(figure: &Figure) -> Vec<Vec<String>> {
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

/// The factor by which a point is better than plain calls.
fn times_as_good(figure: &Figure, point: &Point) -> Option<f64> {
    if point.series.starts_with(PLAIN) {
        return None;
    }
    // If a figure has several lines per side, `plain, read` belongs to `Famio, read`.
    let series = figure.names(|point| &point.series).into_iter();
    let plain = series.filter(|name| name.strip_prefix(PLAIN).is_some_and(|group| point.series.ends_with(group)));
    let plain = figure.point(plain.max_by_key(|name| name.len())?, &point.x)?;
    Some(if figure.higher_is_better { point.value / plain.value } else { plain.value / point.value })
}

const PLAIN: &str = "plain";

fn better(figure: &Figure) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::document::Shape;

    pub fn figure(shape: Shape) -> Figure {
        let mut points = Vec::new();
        for (series, scale) in [("plain", 1.0), ("Famio <&>", 40.0)] {
            for (x, value) in [("4 KiB", 100.0), ("64 KiB, a longer name", 300.0)] {
                points.push(Point::new(series, x, [0.9, 1.0, 1.2].map(|noise| noise * value * scale).into()));
            }
        }
        Figure {
            name: "test-1".into(),
            title: "A test".into(),
            x: "size".into(),
            y: "throughput, MiB/s".into(),
            higher_is_better: true,
            shape,
            points,
            rows: Vec::new(),
            skipped: None,
        }
    }

    #[test]
    fn a_table_has_a_column_for_each_series() {
        let text = text(&figure(Shape::Bars));
        assert!(
            text.contains("SIZE") && text.contains("4 KiB") && text.contains("4000 (3600 to 4800), 40.00x"),
            "{text}"
        );
        assert_eq!([0.0, 0.012, 2.345, 23.45, 234.5].map(number), ["0", "0.0120", "2.35", "23.4", "234"]);
    }

    #[test]
    fn points_are_one_a_line() {
        let csv = points(&[figure(Shape::Lines)]);
        assert_eq!(csv.lines().count(), 5);
        assert!(
            csv.contains("test-1,plain,4 KiB,\"throughput, MiB/s\",100.0000,90.0000,120.0000,90.0000 100.0000"),
            "{csv}"
        );
    }

    #[test]
    fn charts_of_both_shapes_are_drawn_and_nothing_in_them_is_markup() {
        for shape in [Shape::Bars, Shape::Lines] {
            let svg = chart::svg(&figure(shape)).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("Famio &lt;&amp;&gt;") && svg.contains("higher is better"), "{svg}");
            // The name space is the only address.
            assert_eq!(svg.matches("http").count(), 1);
        }
    }
}
