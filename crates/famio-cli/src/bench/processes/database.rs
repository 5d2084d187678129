//! A database that many processes read and write: its creation, the work on it, and the check of it.

use crate::bench::sqlite3::{Connection, Sqlite, Statement, Value};
use crate::bench::window::{Call, work};
use std::path::Path;
use std::time::{Duration, Instant};

/// A process that waits longer than this for a lock gives up, and the bench fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of each of the two equal blobs of a row.
const BLOB: usize = 100;

/// How a worker uses the database.
pub struct Mode<'a> {
    pub journal: &'a str,
    pub exclusive: bool,
}

/// What a writer does, with one row per transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Insert,
    Update,
    Delete,
}

/// Creates a database with that many rows, in its plain journal mode.
pub fn prepare(path: &Path, rows: u64, journal: &str) -> Result<(), String> {
    let sqlite = Sqlite::load()?;
    let connection = sqlite.open(path, PATIENCE)?;
    set_journal(&connection, journal)?;
    connection.run(&[
        "BEGIN",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a BLOB NOT NULL, b BLOB NOT NULL, n INTEGER NOT NULL)",
        &fill(1, rows),
        "UPDATE t SET b = a",
        "COMMIT",
    ])
}

fn fill(first: u64, last: u64) -> String {
    format!(
        "WITH RECURSIVE c(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM c WHERE i < {last}) \
         INSERT INTO t SELECT i, randomblob({BLOB}), x'', 0 FROM c"
    )
}

/// SQLite prints the mode in force, and reports no error.
fn set_journal(connection: &Connection<'_>, journal: &str) -> Result<(), String> {
    let in_force = connection.text(&format!("PRAGMA journal_mode={journal}"))?;
    if in_force.eq_ignore_ascii_case(journal) {
        Ok(())
    } else {
        Err(format!("journal_mode={journal}: the database would not take it: {in_force}"))
    }
}

/// Whether the database is intact, has that many rows, each of one write, and all updates that were made.
pub fn check(path: &Path, rows: u64, updates: u64) -> Result<(), String> {
    let sqlite = Sqlite::load()?;
    let connection = sqlite.open(path, PATIENCE)?;
    let sound = connection.text("PRAGMA quick_check")?;
    // Without rows, which deleting may leave, the sum is NULL.
    let sums = "SELECT count(*) || ' ' || total(a <> b) || ' ' || coalesce(sum(n), 0) FROM t";
    let found = connection.text(sums)?;
    let wanted = format!("{rows} 0.0 {updates}");
    if sound == "ok" && found == wanted {
        return Ok(());
    }
    let what = "rows, torn rows and updates are";
    Err(format!("{}: quick_check says {sound}; {what} {found}, and should be {wanted}", path.display()))
}

fn open<'a>(sqlite: &'a Sqlite, path: &Path, mode: &Mode<'_>) -> Result<Connection<'a>, String> {
    let connection = sqlite.open(path, PATIENCE)?;
    let locking = if mode.exclusive { "EXCLUSIVE" } else { "NORMAL" };
    connection.text(&format!("PRAGMA locking_mode={locking}"))?;
    set_journal(&connection, mode.journal)?;
    connection.text("PRAGMA synchronous=FULL")?;
    Ok(connection)
}

const SELECT: &str = "SELECT a, b FROM t WHERE id = ?1";
const UPDATE: &str = "UPDATE t SET a = ?1, b = ?1, n = n + 1 WHERE id = ?2";

/// Reads a row, by [`SELECT`].
fn read_row(select: &mut Statement<'_, '_>, id: u64) -> Result<(), String> {
    let mut is_whole = false;
    select.run(&[Value::Number(id as i64)], |row| {
        is_whole = row.blob(0).len() == BLOB && row.blob(0) == row.blob(1);
        Ok(())
    })?;
    if is_whole { Ok(()) } else { Err(format!("row {id} is not there, or is of two writes")) }
}

/// Reads rows at random, one per transaction.
pub fn read(path: &Path, mode: &Mode<'_>, rows: u64) -> Result<(), String> {
    let sqlite = Sqlite::load()?;
    let connection = open(&sqlite, path, mode)?;
    let mut select = connection.prepare(SELECT)?;
    let mut random = fastrand::Rng::new();
    work(None, |_| {
        let id = random.u64(1..=rows);
        let began = Instant::now();
        read_row(&mut select, id)?;
        Ok(Some(Call::of(began.elapsed())))
    })
}

/// Of so many requests of a worker one changes a row, the first of them.
const REQUESTS_PER_UPDATE: u64 = 10;
/// Rows that each request reads.
const READS_PER_REQUEST: u32 = 5;

/// Opens the database, reads and changes rows, and closes it, for each request.
pub fn handle_requests(path: &Path, mode: &Mode<'_>, rows: u64) -> Result<(), String> {
    let sqlite = Sqlite::load()?;
    let mut random = fastrand::Rng::new();
    let mut handled = 0;
    work(None, |_| {
        let began = Instant::now();
        {
            let connection = open(&sqlite, path, mode)?;
            let mut select = connection.prepare(SELECT)?;
            for _ in 0..READS_PER_REQUEST {
                read_row(&mut select, random.u64(1..=rows))?;
            }
            if handled % REQUESTS_PER_UPDATE == 0 {
                let mut blob = [0; BLOB];
                random.fill(&mut blob);
                let any = Value::Number(random.i64(1..=rows as i64));
                connection.prepare(UPDATE)?.run(&[Value::Blob(&blob), any], |_| Ok(()))?;
            }
        }
        handled += 1;
        Ok(Some(Call::of(began.elapsed())))
    })
}

/// How many updates so many requests of one worker make.
pub fn updates_of(requests: u64) -> u64 {
    requests.div_ceil(REQUESTS_PER_UPDATE)
}

/// Changes rows, one per transaction.
pub fn write(path: &Path, mode: &Mode<'_>, change: Change, rows: u64, rate: Option<f64>) -> Result<(), String> {
    let sqlite = Sqlite::load()?;
    let connection = open(&sqlite, path, mode)?;
    let mut statement = connection.prepare(match change {
        Change::Insert => "INSERT INTO t(a, b, n) VALUES(?1, ?1, 0)",
        Change::Update => UPDATE,
        Change::Delete => "DELETE FROM t WHERE id = ?1",
    })?;
    let mut random = fastrand::Rng::new();
    let mut left: Vec<i64> = (1..=rows as i64).collect();
    random.shuffle(&mut left);
    let mut next = 0;
    work(rate, |_| {
        let mut blob = [0; BLOB];
        random.fill(&mut blob);
        let (new, any) = (Value::Blob(&blob), Value::Number(random.i64(1..=rows as i64)));
        let values = match change {
            Change::Insert => vec![new],
            Change::Update => vec![new, any],
            Change::Delete => {
                if next == left.len() {
                    // Not timed.
                    connection.run(&["BEGIN", &fill(1, rows), "UPDATE t SET b = a", "COMMIT"])?;
                    next = 0;
                }
                next += 1;
                vec![Value::Number(left[next - 1])]
            }
        };
        let began = Instant::now();
        statement.run(&values, |_| Ok(()))?;
        let took = began.elapsed();
        match connection.changes() {
            1 => Ok(Some(Call::of(took))),
            changed => Err(format!("{changed} rows were changed, not one")),
        }
    })
}

/// How many rows exist after that many changes of one kind.
pub fn rows_after(change: Change, rows: u64, changes: u64) -> u64 {
    match change {
        Change::Insert => rows + changes,
        Change::Update => rows,
        // When none is left, the next delete comes after all rows were inserted again.
        Change::Delete if changes == 0 => rows,
        Change::Delete => rows - 1 - (changes - 1) % rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_there() {
        assert_eq!((rows_after(Change::Insert, 10, 5), rows_after(Change::Update, 10, 5)), (15, 10));
        assert_eq!([0, 1, 9, 10, 11, 20].map(|n| rows_after(Change::Delete, 10, n)), [10, 9, 1, 0, 9, 0]);
        assert_eq!([0, 1, 10, 11].map(updates_of), [0, 1, 1, 2]);
    }

    #[test]
    fn a_torn_row_and_a_lost_update_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let Ok(sqlite) = Sqlite::load() else { return };
        prepare(&path, 10, "WAL").unwrap();
        check(&path, 10, 0).unwrap();
        let connection = sqlite.open(&path, PATIENCE).unwrap();
        connection.run(&["UPDATE t SET n = 1 WHERE id = 3"]).unwrap();
        assert!(check(&path, 10, 2).unwrap_err().contains("10 0.0 1, and should be 10 0.0 2"));
        connection.run(&["UPDATE t SET a = x'00' WHERE id = 3"]).unwrap();
        assert!(check(&path, 10, 1).unwrap_err().contains("10 1.0 1"));
        connection.run(&["DELETE FROM t"]).unwrap();
        check(&path, 0, 0).unwrap();
        let wrong = connection.run(&["DELETE FROM elsewhere"]).unwrap_err();
        assert!(wrong.contains("no such table"), "{wrong}");
    }
}
