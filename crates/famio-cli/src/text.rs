//! Numbers, paths and tables as text.

use crate::color::{Style, paint, width};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A number of bytes for people: `512 B`, `4.0 KiB`, `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

/// A word in shell syntax.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "./_-+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Text from others, such as file names, without control characters for a terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_command = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_command) {
        return text.into();
    }
    text.chars().map(|c| if is_command(c) { c.escape_default().to_string() } else { c.into() }).collect()
}

/// A path for one line: without control characters and line breaks.
pub fn name(path: &Path) -> String {
    let path = path.display().to_string();
    path.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() }).collect()
}

/// An error with its path, unless it already names the path.
pub fn named(path: &Path, error: &impl std::fmt::Display) -> String {
    let (name, error) = (path.display().to_string(), error.to_string());
    if error.starts_with(&format!("{name}: ")) || error.starts_with(&format!("{}: ", whole(path).display())) {
        error
    } else {
        format!("{}: {error}", self::name(path))
    }
}

/// A count with its noun: `1 file`, `2 files`.
pub fn count(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// An absolute path, so that output can be used elsewhere; unchanged if it leads nowhere.
pub fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Rows with a head, columns aligned to the left, two spaces apart.
pub fn table(rows: &[Vec<String>]) -> String {
    let text = list(rows);
    match text.split_once('\n') {
        Some((head, rest)) => format!("{}\n{rest}", paint(head, Style::Head)),
        None => text,
    }
}

/// As [`table`], without a head.
pub fn list(rows: &[Vec<String>]) -> String {
    // A name may contain a line break.
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| cell.replace('\n', "\\n")).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, &wide)| cell.clone() + &" ".repeat(wide - width(cell)));
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_said_once() {
        let path = Path::new("nosuch");
        assert_eq!(named(path, &"nosuch: no such file"), "nosuch: no such file");
        assert_eq!(named(path, &"no such file"), "nosuch: no such file");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            (count(1u64, "file"), count(2u64, "file"), count(0u64, "file")),
            ("1 file".into(), "2 files".into(), "0 files".into())
        );
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("./app-1.db"), "./app-1.db");
        assert_eq!(quoted("*.db"), "'*.db'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn names_give_no_commands() {
        assert_eq!(printable("a file\n: done"), "a file\n: done");
        assert_eq!(printable("\u{1b}[2Ja\rb"), "\\u{1b}[2Ja\\rb");
        assert_eq!(name(Path::new("a\nfamio: b\u{7}")), "a\\nfamio: b\\u{7}");
        assert_eq!(list(&[vec!["a\nb".into(), "c".into()]]), "a\\nb  c\n");
    }

    #[test]
    fn units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4096), "4.0 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
    }
}
