//! TPC-C on SQLite: its nine tables, its five transactions in their shares, and its consistency conditions. One
//! terminal that does not think or type, as research uses it; amounts are whole cents, and text is random.

mod check;
mod draw;
mod load;
mod scale;
mod transactions;

use crate::bench::sqlite3::{Connection, Sqlite};
use crate::bench::window::{Call, work};
use draw::Drawn;
pub use scale::Scale;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use transactions::Terminal;

/// A database of that size, in a journal mode of SQLite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tpcc {
    pub journal: String,
    pub scale: Scale,
}

const FILE: &str = "tpcc.db";
const PATIENCE: Duration = Duration::from_secs(10);

impl Tpcc {
    pub fn version(&self) -> Result<String, String> {
        Ok(format!("SQLite {}", Sqlite::load()?.version()))
    }

    pub fn data(&self) -> String {
        format!("tpcc-{}-{}", self.scale.items, self.scale.customers)
    }

    pub fn prepare(&self, folder: &Path) -> Result<(), String> {
        let sqlite = Sqlite::load()?;
        let connection = sqlite.open(&file(folder), PATIENCE)?;
        load::load(&connection, self.scale)
    }

    pub fn work(&self, folder: &Path) -> Result<(), String> {
        let sqlite = Sqlite::load()?;
        let connection = self.open(&sqlite, folder)?;
        let mut terminal = Terminal::new(&connection)?;
        let mut number = 0;
        work(None, |_| {
            number += 1;
            let drawn = Drawn::of(number, self.scale);
            let began = Instant::now();
            terminal.run(&drawn).map_err(|error| format!("{}: {error}", drawn.name()))?;
            Ok(Some(Call::of(began.elapsed())))
        })
    }

    fn open<'a>(&self, sqlite: &'a Sqlite, folder: &Path) -> Result<Connection<'a>, String> {
        let connection = sqlite.open(&file(folder), PATIENCE)?;
        let in_force = connection.text(&format!("PRAGMA journal_mode={}", self.journal))?;
        if !in_force.eq_ignore_ascii_case(&self.journal) {
            return Err(format!("journal_mode={}: the database would not take it: {in_force}", self.journal));
        }
        connection.text("PRAGMA synchronous=FULL")?;
        Ok(connection)
    }

    pub fn check(&self, folder: &Path, calls: u64) -> Result<(), String> {
        let sqlite = Sqlite::load()?;
        let connection = sqlite.open(&file(folder), PATIENCE)?;
        check::check(&connection, self.scale, calls)
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_five_transactions_keep_the_database_consistent() {
        let app = Tpcc { journal: "MEMORY".into(), scale: Scale { items: 200, customers: 30 } };
        if let Err(missing) = app.version() {
            return eprintln!("skipped: {missing}");
        }
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        app.prepare(folder.path()).unwrap();
        app.check(folder.path(), 0).unwrap();
        let sqlite = Sqlite::load().unwrap();
        let connection = app.open(&sqlite, folder.path()).unwrap();
        let mut terminal = Terminal::new(&connection).unwrap();
        let mut names = std::collections::BTreeMap::new();
        for number in 1..=600 {
            let drawn = Drawn::of(number, app.scale);
            *names.entry(drawn.name()).or_insert(0) += 1;
            terminal.run(&drawn).unwrap_or_else(|error| panic!("{number}, {}: {error}", drawn.name()));
        }
        assert!(names.len() == 5 && names.values().all(|&count| count > 5), "{names:?}");
        drop(terminal);
        app.check(folder.path(), 600).unwrap();
        // A transaction that is lost, and one that is there in part.
        let lost = (601..).find(|&number| Drawn::of(number, app.scale).name() == "Payment").unwrap();
        assert!(app.check(folder.path(), lost).is_err());
        connection.run(&["UPDATE district SET d_ytd = d_ytd + 1 WHERE d_id = 3"]).unwrap();
        assert!(app.check(folder.path(), 600).unwrap_err().contains("d_ytd"));
    }
}
