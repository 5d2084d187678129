//! The page: charts, tables, machine and method, in one file that makes no network request.

use super::cells::{cells, legend};
use super::chart;
use super::names::{CALLS, JSON, MARKDOWN, POINTS};
use super::ratios::{base, paper_says, shown};
use crate::bench::document::row::{Row, SideResult};
use crate::bench::document::words::{bytes, time};
use crate::bench::document::{Document, Figure};

const STYLE: &str = "\
body { font-family: sans-serif; color: #222; max-width: 1040px; margin: 2em auto; padding: 0 1em; line-height: 1.4 }
h2 { margin-top: 2.5em; border-top: 1px solid #ccc; padding-top: 1em }
table { border-collapse: collapse; margin: .8em 0; font-size: 13px }
th, td { border: 1px solid #ddd; padding: .25em .6em; text-align: right }
th { background: #f3f3f3 } th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto } .wide { overflow-x: auto } .note { color: #666 }
.left td, .left th { text-align: left } .left td:nth-child(4) { white-space: nowrap }";

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
    out += &head(document);
    out += &summary(&document.figures);
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

/// Machine and method.
pub fn about(document: &Document) -> [(&'static str, String); 7] {
    let (machine, method) = (&document.machine, &document.method);
    let length = match (method.seconds, method.calls) {
        (Some(seconds), _) => format!("{seconds} s"),
        (_, calls) => format!("{} calls", calls.unwrap_or(0)),
    };
    let memory =
        if method.emulated { "; ordinary memory treated as persistent memory (--domain emulated)" } else { "" };
    [
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
    ]
}

fn head(document: &Document) -> String {
    let row = |(name, text): &(&str, String)| format!("<tr><td>{name}</td><td>{}</td></tr>\n", escaped(text));
    let table: String = about(document).iter().map(row).collect();
    let files = [JSON, POINTS, CALLS, MARKDOWN].map(|name| format!("<a href=\"{name}\">{name}</a>"));
    format!("<table class=\"left\">\n{table}</table>\n<p>Raw data: {}</p>\n", files.join(", "))
}

/// What stands above the columns of `beside_the_paper`.
pub const BESIDE: [&str; 5] = ["FIGURE", "", "COMPARED WITH", "FAMIO", "THE PAPER"];

/// A figure's ratios beside what its paper says.
pub fn beside_the_paper(figure: &Figure) -> Vec<String> {
    let ours = if figure.skipped.is_some() { "skipped".into() } else { shown(figure) };
    vec![figure.name.clone(), figure.title.clone(), base(figure).into(), ours, paper_says(figure).into()]
}

/// Our ratios beside the papers'.
fn summary(figures: &[Figure]) -> String {
    if figures.iter().all(|figure| figure.paper_says.is_none()) {
        return String::new();
    }
    let rows = [BESIDE.map(String::from).to_vec()].into_iter().chain(figures.iter().map(beside_the_paper));
    let table = table(&rows.collect::<Vec<_>>()).replace("<table>", "<table class=\"left\">");
    format!(
        "<h2>Beside the papers</h2>\n{table}<p class=\"note\">Famio: the least and the most of a figure's ratios on this machine. \
         The papers' machines and file systems were others.</p>\n"
    )
}

fn section(figure: &Figure) -> Result<String, String> {
    let mut out = format!("<h2 id=\"{0}\">{0}: {1}</h2>\n", escaped(&figure.name), escaped(&figure.title));
    if let Some(why) = &figure.skipped {
        return Ok(out + &format!("<p class=\"note\">Skipped: {}</p>\n", escaped(why)));
    }
    out += &chart::svg(figure)?;
    out += &table(&cells(figure));
    out += &format!("<p class=\"note\">{}</p>\n", escaped(&legend(figure)));
    if let Some(paper_says) = &figure.paper_says {
        out += &format!("<p>Famio here: {}. The paper: {}.</p>\n", shown(figure), escaped(paper_says));
    }
    for note in &figure.notes {
        out += &format!("<p class=\"note\">{}</p>\n", escaped(note));
    }
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
        "WORKLOAD",
        "",
        "A CALL",
        "RATIO",
        "CPU",
        "BY CPU",
        "P50",
        "P90",
        "P99",
        "P99.9",
        "P99.99",
        "LONGEST",
        "FSYNC",
        "TO MEDIUM",
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
    cells.push(side.bytes_per_byte().map_or("-".into(), |ratio| format!("{ratio:.2}")));
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
    use crate::bench::document::effort::{Effort, Length};
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
