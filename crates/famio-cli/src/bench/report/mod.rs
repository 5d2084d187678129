//! A report: a folder with a self-contained page, and the raw data as JSON and CSV.

mod cells;
mod chart;
mod markdown;
mod names;
mod page;
mod ratios;
pub mod rows;

use super::document::{Document, Figure};
use crate::text::table;
pub use cells::number;
use cells::{better, cells, legend};
pub use names::PAGE;
use names::{CALLS, JSON, MARKDOWN, POINTS};
use rows::{csv, quoted};
use std::path::Path;

/// Writes everything, each file atomically: a reader, or a signal, may come at any time.
pub fn write(folder: &Path, document: &Document) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("--report: {}: {error}", folder.display()))?;
    let json = serde_json::to_string_pretty(document).map_err(|error| error.to_string())?;
    let rows: Vec<_> = document.figures.iter().flat_map(|figure| figure.rows.iter().cloned()).collect();
    for (name, text) in [
        (PAGE, page::page(document)?),
        (JSON, json),
        (POINTS, points(&document.figures)),
        (CALLS, csv(&rows)),
        (MARKDOWN, markdown::markdown(document)),
    ] {
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

/// A figure on a terminal: its points as a table.
pub fn text(figure: &Figure) -> String {
    let mut out = format!("{}: {}\n", figure.name, figure.title);
    match &figure.skipped {
        Some(why) => out += &format!("skipped: {why}\n"),
        None => {
            out += &table(&cells(figure));
            out += &format!("{}; {}; {}\n", figure.y, better(figure), legend(figure));
            if let Some(paper_says) = &figure.paper_says {
                out += &format!("the paper: {paper_says}; Famio here: {}\n", ratios::shown(figure));
            }
            figure.notes.iter().for_each(|note| out += &format!("{note}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::document::{Point, Shape};

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
            ..Figure::new("test-1", "A test")
        }
    }

    #[test]
    fn a_table_has_a_column_for_each_series() {
        let text = text(&figure(Shape::Bars));
        assert!(
            text.contains("SIZE") && text.contains("4 KiB") && text.contains("4000 (2459 to 6506), 40.00x"),
            "{text}"
        );
        assert_eq!([0.0, 0.012, 2.345, 23.45, 234.5].map(number), ["0", "0.0120", "2.35", "23.4", "234"]);
    }

    #[test]
    fn points_are_one_a_line() {
        let csv = points(&[figure(Shape::Lines)]);
        assert_eq!(csv.lines().count(), 5);
        assert!(
            csv.contains("test-1,plain,4 KiB,\"throughput, MiB/s\",100.0000,61.4854,162.6403,90.0000 100.0000"),
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
