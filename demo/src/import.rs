//! The import: transactions of 50 rows, each with a line in a ledger that tells whether all of it is there.

use crate::packages::Row;
use famio_test_support::launch::Launcher;
use famio_test_support::session::{self, Kill};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

/// Rows of a transaction.
pub const ROWS: u64 = 50;

/// The data set, imported as snapshot 1, 2, 3 and so on.
#[derive(Clone, Copy)]
pub struct Import<'a> {
    /// The rows of one snapshot.
    pub rows: &'a [Row],
    /// SQLite's journal mode.
    pub journal_mode: &'a str,
    /// A cache smaller than a transaction's pages: SQLite then writes in the middle of transactions, as it does with
    /// large ones. `None`: SQLite's default.
    pub cache_pages: Option<u32>,
}

/// What a look at the database found.
#[derive(Debug, Default)]
pub struct Found {
    /// What `integrity_check` says, or the error that came instead.
    pub integrity: Vec<String>,
    /// The last transaction of the ledger.
    pub last: u64,
    /// Transactions of which only a part is there.
    pub torn: u64,
    /// Rows that were read.
    pub rows: u64,
}

impl Found {
    /// Whether SQLite calls the database sound.
    pub fn is_ok(&self) -> bool {
        self.integrity == ["ok"]
    }
}

impl<'a> Import<'a> {
    fn pragmas(&self) -> String {
        let mode = self.journal_mode;
        let cache = self.cache_pages.map_or(String::new(), |pages| format!("PRAGMA cache_size={pages};\n"));
        format!(".output /dev/null\nPRAGMA journal_mode={mode};\n.output stdout\nPRAGMA synchronous=FULL;\n{cache}")
    }

    /// The statements from transaction `first` on, without end.
    pub fn statements(self, first: u64) -> impl Iterator<Item = String> + Send + 'a {
        let start = self.pragmas()
            + "BEGIN;\n\
               CREATE TABLE IF NOT EXISTS ledger(tx INTEGER PRIMARY KEY, rows INTEGER, checksum INTEGER);\n\
               CREATE TABLE IF NOT EXISTS package(tx INTEGER, snapshot INTEGER, name, version, section, summary);\n\
               CREATE TABLE IF NOT EXISTS dependency(tx INTEGER, snapshot INTEGER, package, kind, needs, version);\n\
               CREATE INDEX IF NOT EXISTS package_name ON package(name, version);\n\
               CREATE INDEX IF NOT EXISTS dependency_needs ON dependency(needs, package);\n\
               COMMIT;\n";
        std::iter::once(start).chain((first..).map(move |number| self.transaction(number)))
    }

    /// Transaction `number`, which says `ack` when its COMMIT is through.
    fn transaction(&self, number: u64) -> String {
        let mut text = String::from("BEGIN;\n");
        for (snapshot, row) in self.rows_of(number) {
            let (table, fields) = row.parts();
            let fields = fields.each_ref().map(|field| format!("'{}'", field.replace('\'', "''"))).join(",");
            let _ = writeln!(text, "INSERT INTO {table} VALUES({number},{snapshot},{fields});");
        }
        let checksum = self.checksum(number);
        let _ = writeln!(text, "INSERT INTO ledger VALUES({number},{ROWS},{checksum});\nCOMMIT;\n.print ack {number}");
        text
    }

    /// The rows of a transaction, counted from 1, and the snapshot of each.
    fn rows_of(&self, number: u64) -> impl Iterator<Item = (u64, &'a Row)> {
        let (rows, count) = (self.rows, self.rows.len() as u64);
        ((number - 1) * ROWS..number * ROWS).map(move |index| (index / count + 1, &rows[(index % count) as usize]))
    }

    fn checksum(&self, number: u64) -> u64 {
        self.rows_of(number).fold(0, |sum, (snapshot, row)| {
            let (table, fields) = row.parts();
            sum_up(sum, hash([table, &snapshot.to_string()].into_iter().chain(fields.iter().map(String::as_str))))
        })
    }

    /// Reads everything back: SQLite's own check, and every row of every transaction against the ledger.
    pub fn look(&self, launcher: &Launcher, database: &Path) -> Result<Found, String> {
        let statements = self.pragmas()
            + "PRAGMA integrity_check;\n.print end\n.mode tabs\nSELECT 'ledger', tx, rows, checksum FROM ledger;\n\
               SELECT 'package', * FROM package;\nSELECT 'dependency', * FROM dependency;\n.print end\n";
        let ended = session::run(launcher, database, std::iter::once(statements), Kill::Never)?;
        let mut found = Found::default();
        let mut lines = ended.lines.iter().map(|(_, line)| line.as_str());
        found.integrity = lines.by_ref().take_while(|&line| line != "end").map(String::from).collect();
        let mut ledger = HashMap::new();
        let mut sums: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut complete = false;
        for line in lines {
            complete = line == "end";
            let fields: Vec<&str> = line.split('\t').collect();
            match (fields.first(), fields.get(1).and_then(|field| field.parse::<u64>().ok())) {
                (Some(&"ledger"), Some(tx)) => {
                    found.last = found.last.max(tx);
                    ledger.insert(tx, fields[2..].join(" "));
                }
                (Some(&table), Some(tx)) => {
                    let sum = sums.entry(tx).or_default();
                    found.rows += 1;
                    *sum = (sum.0 + 1, sum_up(sum.1, hash([table].into_iter().chain(fields[2..].iter().copied()))));
                }
                _ => {}
            }
        }
        if !ended.is_ok() || !complete {
            found.integrity.extend(ended.messages.lines().map(String::from));
        }
        // Without a line in the ledger, in another number or with another sum: torn.
        let stray = sums.keys().filter(|tx| !ledger.contains_key(tx)).count() as u64;
        let broken = (1..=found.last).filter(|tx| {
            let is = sums.get(tx).map(|(rows, sum)| format!("{rows} {sum}"));
            is.is_none() || is.as_ref() != ledger.get(tx)
        });
        found.torn = broken.count() as u64 + stray;
        Ok(found)
    }
}

/// FNV-1a over fields.
fn hash<'s>(fields: impl Iterator<Item = &'s str>) -> u64 {
    let bytes = fields.flat_map(|field| field.bytes().chain([b'\t']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A sum that does not depend on the order of rows, and fits SQLite's integers.
fn sum_up(sum: u64, hash: u64) -> u64 {
    (sum + (hash >> 24)) % (1 << 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_go_round_the_data() {
        let rows: Vec<Row> =
            (0..70).map(|n| Row::Package([n.to_string(), "it's".into(), "".into(), "".into()])).collect();
        let import = Import { rows: &rows, journal_mode: "MEMORY", cache_pages: None };
        let second: Vec<_> = import.rows_of(2).collect();
        assert_eq!((second.len(), second[0].0, second[19].0, second[20].0), (50, 1, 1, 2));
        assert_eq!(second[20].1, &rows[0]);
        assert!(import.transaction(1).contains("INSERT INTO package VALUES(1,1,'0','it''s','','');"));
        assert_ne!(import.checksum(1), import.checksum(2));
    }
}
