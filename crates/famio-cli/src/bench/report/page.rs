//! The page: charts, tables, machine and method, in one file that makes no network request.

use super::{CALLS, JSON, LEGEND, POINTS, cells, chart};
use crate::bench::document::{Document, Figure};
use crate::bench::io::result::{Row, SideResult};
use crate::bench::io::words::{bytes, time};

const STYLE: &str = "\
body { font-family: sans-serif; color: #222; max-width: 1040px; margin: 2em auto; padding: 0 1em; line-height: 1.4 }
h2 { margin-top: 2.5em; border-top: 1px solid #ccc; padding-top: 1em }
table { border-collapse: collapse; margin: .8em 0; font-size: 13px }
th, td { border: 1px solid #ddd; padding: .25em .6em; text-align: right }
th { background: #f3f3f3 } th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto } .wide { overflow-x: auto } .note { color: #666 }
.left td { text-align: left }";

/// The whole page.
pub fn page(document: &Document) -> Result<String, String> {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>Famio, measured</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>Famio, measured</h1>\n"
    );
    if !document.complete {
        out +=
            "<p class=\"note\">The run has not ended, or was interrupted: what was measured until then is here.</p>\n";
    }
    out += &contents(&document.figures);
    out += &about(document);
    for figure in &document.figures {
        out += &section(figure)?;
    }
    out += "</body>\n</html>\n";
    Ok(out)
}

fn contents(figures: &[Figure]) -> String {
    let item = |figure: &Figure| {
        let skipped = if figure.skipped.is_some() { " <span class=\"note\">(skipped)</span>" } else { "" };
        format!("<li><a href=\"#{0}\">{0}</a>: {1}{skipped}</li>\n", escaped(&figure.name), escaped(&figure.title))
    };
    format!("<ul>\n{}</ul>\n", figures.iter().map(item).collect::<String>())
}

fn about(document: &Document) -> String {
    let (machine, method) = (&document.machine, &document.method);
    let length = match (method.seconds, method.calls) {
        (Some(seconds), _) => format!("{seconds} s"),
        (_, calls) => format!("{} calls", calls.unwrap_or(0)),
    };
    let memory =
        if method.emulated { "; ordinary memory treated as persistent memory (--domain emulated)" } else { "" };
    let rows = [
        ("Famio", document.famio.clone()),
        ("Processor", format!("{} processors: {} ({})", machine.processors, machine.processor, machine.features)),
        ("Memory", bytes(machine.memory & !((1 << 20) - 1))),
        ("Kernel", machine.kernel.clone()),
        ("Files", format!("{} ({}), {}", method.folder, method.file_system, bytes(method.file_size))),
        ("Durability", format!("{}{memory}", method.durability)),
        (
            "Method",
            format!(
                "{} rounds of {length}; all sides in each round, in an order drawn anew, each in processes of its own; shown \
                 are medians, and the interval in which 95 of 100 such runs would be (a bootstrap over the rounds)",
                method.rounds
            ),
        ),
    ];
    let row = |(name, text): &(&str, String)| format!("<tr><td>{name}</td><td>{}</td></tr>\n", escaped(text));
    let table: String = rows.iter().map(row).collect();
    let files = [JSON, POINTS, CALLS].map(|name| format!("<a href=\"{name}\">{name}</a>"));
    format!("<table class=\"left\">\n{table}</table>\n<p>Raw data: {}</p>\n", files.join(", "))
}

fn section(figure: &Figure) -> Result<String, String> {
    let mut out = format!("<h2 id=\"{0}\">{0}: {1}</h2>\n", escaped(&figure.name), escaped(&figure.title));
    if let Some(why) = &figure.skipped {
        return Ok(out + &format!("<p class=\"note\">Skipped: {}</p>\n", escaped(why)));
    }
    out += &chart::svg(figure)?;
    out += &table(&cells(figure));
    out += &format!("<p class=\"note\">{LEGEND}</p>\n");
    if !figure.rows.is_empty() {
        out += "<details><summary>Single calls</summary>\n";
        out += &table(&details(&figure.rows));
        out += "</details>\n";
    }
    Ok(out)
}

/// For each workload and side, what the chart leaves out.
fn details(rows: &[Row]) -> Vec<Vec<String>> {
    let head = [
        "WORKLOAD", "", "A CALL", "RATIO", "CPU", "BY CPU", "P50", "P90", "P99", "P99.9", "P99.99", "LONGEST", "FSYNC",
        "TO DISK",
    ];
    let mut out = vec![head.map(String::from).to_vec()];
    for row in rows {
        out.extend(row.sides.iter().map(|side| detail(row, side)));
    }
    out
}

fn detail(row: &Row, side: &SideResult) -> Vec<String> {
    let calls = &side.calls;
    let mut cells = vec![row.title.clone(), side.side.clone(), time(side.nanoseconds)];
    cells.push(side.ratio.map_or(String::new(), |ratio| format!("{:.2}x", ratio.value)));
    cells.push(time(side.cpu_nanoseconds));
    cells.push(side.cpu_ratio.map_or(String::new(), |ratio| format!("{:.2}x", ratio.value)));
    cells.extend([calls.p50, calls.p90, calls.p99, calls.p99_9, calls.p99_99, calls.longest].map(time));
    cells.push(side.syncs.map_or("-".into(), |syncs| time(syncs.mean)));
    cells.push(side.disk_bytes_per_byte.map_or("-".into(), |ratio| format!("{ratio:.2}")));
    cells
}

fn table(rows: &[Vec<String>]) -> String {
    let mut out = "<div class=\"wide\"><table>\n".to_string();
    for (number, row) in rows.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        out += &format!("<tr>{cells}</tr>\n");
    }
    out + "</table></div>\n"
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::document::Shape;
    use crate::bench::io::lane::Length;
    use crate::bench::io::measure::Effort;
    use crate::settings::Options;
    use std::path::Path;

    #[test]
    fn the_page_has_every_figure_and_asks_for_nothing() {
        let effort = Effort { rounds: 3, length: Length::Calls(5), file_size: 1 << 20 };
        let mut document = Document::new(Path::new("/tmp"), &effort, &Options::default());
        document.figures.push(super::super::tests::figure(Shape::Bars));
        document.figures.push(Figure {
            name: "test-2".into(),
            skipped: Some("needs <x>".into()),
            ..super::super::tests::figure(Shape::Bars)
        });
        let page = page(&document).unwrap();
        assert!(
            page.contains("<svg") && page.contains("Skipped: needs &lt;x&gt;") && page.contains("3 rounds of 5 calls")
        );
        // SVG's name space is not a request.
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("http"));
        assert!(!page.contains("<script") && !page.contains("src="));
    }
}
