//! Transactions with numbers, so that one script works on a database in whatever state a kill left it: each adds rows
//! to `item`, rewrites all of `slot`, drops old rows, and enters its number into `ledger`.

use famio_test_support::random::Random;

/// Rows that every transaction rewrites: about 30 pages, more than the cache holds, so that SQLite writes to the file
/// in the middle of the transaction.
const SLOTS: u64 = 500;
/// Items of older transactions are deleted: the file shrinks and grows.
const KEPT: u64 = 20;

/// The value of row `seq` of transaction `tx`, in SQL.
fn value(tx: &str, seq: &str) -> String {
    format!("(({tx}) * 7919 + ({seq}) * 104729) % 1000003")
}

/// The beginning of every session.
pub fn pragmas(journal_mode: &str) -> String {
    // The journal mode first: a write before it would use a rollback journal, whose removal no fsync makes durable.
    // After a power cut that journal may reappear, and SQLite would roll back from it to an old state. auto_vacuum,
    // which writes, has an effect only before the first table; then every commit gives free pages back to the file
    // system.
    format!(
        ".output /dev/null\nPRAGMA journal_mode={journal_mode};\n.output stdout\nPRAGMA auto_vacuum=FULL;\n\
         PRAGMA synchronous=FULL;\nPRAGMA cache_size=8;\n"
    )
}

/// Creates the tables if they do not exist: in one transaction, which a kill may undo.
pub fn schema() -> String {
    format!(
        "BEGIN IMMEDIATE;\n\
         CREATE TABLE IF NOT EXISTS ledger(tx INTEGER PRIMARY KEY, rows INTEGER, sum INTEGER);\n\
         CREATE TABLE IF NOT EXISTS item(tx INTEGER, seq INTEGER, value INTEGER, text TEXT);\n\
         CREATE INDEX IF NOT EXISTS item_value ON item(value);\n\
         CREATE TABLE IF NOT EXISTS slot(id INTEGER PRIMARY KEY, tx INTEGER, text TEXT);\n\
         INSERT INTO slot SELECT value, 0, printf('%0200d', 0) FROM generate_series(1, {SLOTS})\n\
           WHERE NOT EXISTS (SELECT 1 FROM slot);\n\
         COMMIT;\n"
    )
}

/// One transaction; prints `ack N` after its COMMIT.
pub fn transaction(random: &mut Random) -> String {
    let rows = 1 + random.below(200);
    let tx = "(SELECT max(tx) FROM ledger)";
    format!(
        "BEGIN IMMEDIATE;\n\
         INSERT INTO ledger SELECT coalesce(max(tx), 0) + 1, {rows}, 0 FROM ledger;\n\
         INSERT INTO item SELECT tx, value, v, printf('%0150d', v) FROM (SELECT tx, value, {} AS v FROM\n\
           (SELECT {tx} AS tx), generate_series(1, {rows}));\n\
         UPDATE slot SET tx = {tx}, text = printf('%0200d', {tx} + id);\n\
         DELETE FROM item WHERE tx <= {tx} - {KEPT};\n\
         UPDATE ledger SET sum = (SELECT sum(value) FROM item WHERE item.tx = ledger.tx) WHERE tx = {tx};\n\
         COMMIT;\n\
         SELECT 'ack ' || max(tx) FROM ledger;\n",
        value("tx", "value"),
    )
}

/// Prints `integrity`, `last N` and `torn WHAT` lines, and `checked` at the end.
pub fn check() -> String {
    format!(
        "SELECT 'integrity ' || integrity_check FROM pragma_integrity_check;\n\
         SELECT 'last ' || coalesce(max(tx), 0) FROM ledger;\n\
         SELECT 'torn ledger: ' || count(*) || ' of ' || max(tx) FROM ledger HAVING count(*) <> max(tx);\n\
         SELECT 'torn slots: of transactions ' || min(tx) || ' to ' || max(tx) || ', ledger at ' ||\n\
           (SELECT coalesce(max(tx), 0) FROM ledger) FROM slot\n\
           HAVING min(tx) <> max(tx) OR max(tx) <> (SELECT coalesce(max(tx), 0) FROM ledger);\n\
         SELECT 'torn slots: ' || count(*) FROM slot HAVING count(*) <> {SLOTS};\n\
         SELECT 'torn slot ' || id FROM slot WHERE tx > 0 AND text <> printf('%0200d', tx + id) LIMIT 3;\n\
         SELECT 'torn transaction ' || l.tx || ': ' || count(i.tx) || ' of ' || l.rows || ' rows'\n\
           FROM ledger l LEFT JOIN item i ON i.tx = l.tx WHERE l.tx > (SELECT max(tx) FROM ledger) - {KEPT}\n\
           GROUP BY l.tx HAVING count(i.tx) <> l.rows OR sum(i.value) <> l.sum LIMIT 3;\n\
         SELECT 'torn item of transaction ' || tx FROM item WHERE tx NOT IN (SELECT tx FROM ledger)\n\
           OR tx <= (SELECT max(tx) FROM ledger) - {KEPT} LIMIT 3;\n\
         SELECT 'torn item ' || tx || '.' || seq FROM item\n\
           WHERE value <> {} OR text <> printf('%0150d', value) LIMIT 3;\n\
         SELECT 'checked';\n",
        value("tx", "seq"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio_test_support::launch::Launcher;
    use famio_test_support::place::Place;
    use famio_test_support::session::{self, Kill};

    /// Runs statements; returns their output, and the names that were created in the folder meanwhile.
    fn run(launcher: &Launcher, place: &Place, statements: String) -> (Vec<String>, Vec<u8>) {
        let folder = std::ffi::CString::new(place.path().to_str().unwrap()).unwrap();
        // SAFETY: a string that ends with zero, and a descriptor of our own.
        let watch = unsafe {
            let watch = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            assert!(watch >= 0 && libc::inotify_add_watch(watch, folder.as_ptr(), libc::IN_CREATE) >= 0, "inotify");
            watch
        };
        let database = place.path().join("kill.db");
        let ended = session::run(launcher, &database, std::iter::once(statements), Kill::Never).unwrap();
        assert!(ended.is_ok(), "{ended:?}");
        let mut events = vec![0u8; 1 << 16];
        // SAFETY: a buffer with its length; the descriptor is closed once.
        let read = unsafe {
            let read = libc::read(watch, events.as_mut_ptr().cast(), events.len());
            libc::close(watch);
            read
        };
        events.truncate(read.max(0) as usize);
        (ended.text().iter().map(|line| line.to_string()).collect(), events)
    }

    #[test]
    fn sqlite_never_makes_a_journal_of_its_own() {
        let place = Place::new(&std::env::temp_dir(), "famio-kill-pragmas").unwrap();
        let launcher = Launcher::new(None).unwrap();
        let mut random = Random::new(1);
        for mode in ["OFF", "MEMORY"] {
            // In the second session, auto_vacuum finds an existing database.
            for _ in 0..2 {
                let text = pragmas(mode) + &schema() + &transaction(&mut random) + "PRAGMA auto_vacuum;\n";
                let (lines, created) = run(&launcher, &place, text);
                assert_eq!(lines.last().map(String::as_str), Some("1"), "auto_vacuum");
                let names = String::from_utf8_lossy(&created).replace('\0', "");
                assert!(!names.contains("kill.db-"), "created: {names}");
            }
        }
    }
}
