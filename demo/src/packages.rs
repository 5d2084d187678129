//! The machine's package database as rows.

use std::path::Path;

/// Where Debian and its relatives keep it.
pub const STATUS: &str = "/var/lib/dpkg/status";

/// One row of either table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A package: name, version, section, summary.
    Package([String; 4]),
    /// A dependency: package, kind, what it needs, in which version.
    Dependency([String; 4]),
}

impl Row {
    /// The table, and the fields.
    pub fn parts(&self) -> (&'static str, &[String; 4]) {
        match self {
            Row::Package(fields) => ("package", fields),
            Row::Dependency(fields) => ("dependency", fields),
        }
    }
}

/// Reads and parses the database.
pub fn read(path: &Path) -> Result<Vec<Row>, String> {
    let text = std::fs::read(path).map_err(|error| {
        format!("{}: {error}; this demo imports the package database of a Debian-like machine", path.display())
    })?;
    let rows = parse(&String::from_utf8_lossy(&text));
    if rows.len() < 100 {
        return Err(format!(
            "{}: only {} packages and dependencies; too few to show anything",
            path.display(),
            rows.len()
        ));
    }
    Ok(rows)
}

/// Each package, followed by its dependencies.
fn parse(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for paragraph in text.split("\n\n") {
        let field = |name: &str| {
            let mut lines = paragraph.lines().filter(|line| !line.starts_with(' '));
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map_or("", str::trim)
        };
        let name = field("Package");
        if name.is_empty() {
            continue;
        }
        rows.push(Row::Package(["Package", "Version", "Section", "Description"].map(|key| tidy(field(key)))));
        for kind in ["Pre-Depends", "Depends", "Recommends", "Suggests", "Breaks", "Conflicts", "Replaces", "Provides"]
        {
            for needed in field(kind).split([',', '|']).map(str::trim).filter(|needed| !needed.is_empty()) {
                let (needs, version) = needed.split_once('(').unwrap_or((needed, ""));
                let version = version.trim_end_matches(')');
                rows.push(Row::Dependency([name, kind, needs, version].map(tidy)));
            }
        }
    }
    rows
}

/// One line without tabs: sqlite3 prints rows as lines of fields between tabs.
fn tidy(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_their_dependencies() {
        let text = "Package: a\nVersion: 1\nSection: x\nDepends: b (>= 2), c | d\nDescription: an\t a\n more: text\n\n\
                    Package: b\nVersion: 2\n";
        let row = |kind: fn([String; 4]) -> Row, fields: [&str; 4]| kind(fields.map(String::from));
        assert_eq!(
            parse(text),
            [
                row(Row::Package, ["a", "1", "x", "an a"]),
                row(Row::Dependency, ["a", "Depends", "b", ">= 2"]),
                row(Row::Dependency, ["a", "Depends", "c", ""]),
                row(Row::Dependency, ["a", "Depends", "d", ""]),
                row(Row::Package, ["b", "2", "", ""]),
            ]
        );
    }
}
