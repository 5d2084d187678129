//! The report as Markdown, for documentation: machine, ratios beside the papers', and a table a figure.

use super::cells::{better, cells};
use super::page;
use super::ratios::{base, paper_says, shown};
use crate::bench::document::Document;

/// How columns stand.
const TEXT: &str = "---";
const NUMBERS: &str = "---:";

/// All of it.
pub fn markdown(document: &Document) -> String {
    let mut out = "# Figures\n\n".to_string();
    if !document.complete {
        out += "The run has not ended, or was interrupted.\n\n";
    }
    out += &table(&page::about(document).map(|(name, text)| vec![name.into(), text]), &["", ""], TEXT);
    out += "\n## Beside the papers\n\n";
    let rows: Vec<_> = document.figures.iter().map(page::beside_the_paper).collect();
    out += &table(&rows, &page::BESIDE, TEXT);
    for figure in &document.figures {
        out += &format!("\n## {}: {}\n\n", figure.name, figure.title);
        if let Some(why) = &figure.skipped {
            out += &format!("Skipped: {why}\n");
            continue;
        }
        let mut rows = cells(figure).into_iter();
        let head = rows.next().unwrap_or_default();
        out += &table(&rows.collect::<Vec<_>>(), &head.iter().map(String::as_str).collect::<Vec<_>>(), NUMBERS);
        out += &format!("\n{}; {}; x: times as good as {}.", figure.y, better(figure), base(figure));
        out += &format!(" Famio: {}.", shown(figure));
        if !figure.name.starts_with("famio-") {
            out += &format!(" The paper: {}.", paper_says(figure));
        }
        figure.notes.iter().for_each(|note| out += &format!(" {note}."));
        out += "\n";
    }
    out
}

/// `columns`: all but the first.
fn table(rows: &[Vec<String>], head: &[&str], columns: &str) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let cell = |text: &str| text.replace('|', "\\|");
    let mut out = line(head.iter().map(|text| cell(text)).collect());
    out += &line(head.iter().enumerate().map(|(at, _)| if at == 0 { TEXT } else { columns }.to_string()).collect());
    rows.iter().for_each(|row| out += &line(row.iter().map(|text| cell(text)).collect()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::document::effort::{Effort, Length};
    use crate::bench::document::{Figure, Shape};
    use crate::settings::Options;
    use std::path::Path;

    #[test]
    fn every_figure_has_its_table_and_what_the_paper_says() {
        let effort = Effort { rounds: 3, length: Length::Calls(5), file_size: 1 << 20 };
        let mut document = Document::new(Path::new("/tmp"), &effort, &Options::default());
        let figure = super::super::tests::figure(Shape::Bars);
        document.figures.push(Figure { paper_says: Some("up to 9 times".into()), ..figure.clone() });
        document.figures.push(Figure { name: "test-2".into(), skipped: Some("no disk".into()), ..figure });
        let text = markdown(&document);
        assert!(text.contains("| test-1 | A test | plain | 40.00x | up to 9 times |\n"), "{text}");
        assert!(text.contains("| 4 KiB | 100 (61.5 to 163) | 4000 (2459 to 6506), 40.00x |\n"), "{text}");
        assert!(text.contains("## test-2: A test\n\nSkipped: no disk\n") && text.contains("not known to us"), "{text}");
        let columns = |line: &str| line.matches(" | ").count();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).collect();
        assert!(lines.windows(2).filter(|pair| columns(pair[0]) != columns(pair[1])).count() <= 2, "{text}");
    }
}
