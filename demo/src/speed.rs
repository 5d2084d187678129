//! The table: transactions per second under Famio and under SQLite's own journals.

use crate::import::Import;
use crate::packages::Row;
use crate::paint::head;
use famio_test_support::launch::{Famio, Launcher};
use famio_test_support::place;
use famio_test_support::session::{self, Kill};
use std::path::Path;
use std::time::{Duration, Instant};

/// Transactions of one measurement.
const TRANSACTIONS: u64 = 100;
/// Measurements of each cell, interleaved.
const ROUNDS: usize = 5;
/// No further round is begun after this time, if there are three.
const PATIENCE: Duration = Duration::from_secs(40);

/// Measures and prints.
pub fn table(rows: &[Row], famio: &Famio, folders: [&Path; 2]) -> Result<(), String> {
    let started = Instant::now();
    let modes = [("MEMORY", true), ("DELETE", false), ("WAL", false)];
    let mut cells = vec![Vec::new(); modes.len() * folders.len()];
    let mut rounds = 0;
    while rounds < ROUNDS && (rounds < 3 || started.elapsed() < PATIENCE) {
        for (index, cell) in cells.iter_mut().enumerate() {
            let (journal_mode, under_famio) = modes[index % modes.len()];
            let launcher = Launcher::new(under_famio.then(|| famio.clone()))?;
            let import = Import { rows, journal_mode, cache_pages: None };
            cell.push(measure(import, &launcher, folders[index / modes.len()])?);
        }
        rounds += 1;
    }
    println!(
        "{}",
        head(&format!(
            "Transactions per second ({} rows each, synchronous=FULL, median of {rounds})",
            crate::import::ROWS
        ))
    );
    println!("  {:28} {:>18} {:>14} {:>14}", "", "Famio, MEMORY", "DELETE", "WAL");
    for (folder, row) in folders.iter().zip(cells.chunks(modes.len())) {
        let values: Vec<f64> = row.iter().map(|cell| median(cell)).collect();
        let kind = place::file_system(folder);
        let name = if kind == "tmpfs" { "tmpfs (no power loss)".into() } else { format!("{kind}, this folder") };
        println!("  {name:28} {:>18.0} {:>14.0} {:>14.0}", values[0], values[1], values[2]);
        println!(
            "  {:28} {:>18} {:>13.2}x {:>13.2}x",
            "  Famio against it",
            "",
            values[0] / values[1],
            values[0] / values[2]
        );
    }
    Ok(())
}

/// From the first acknowledgement to the last.
fn measure(import: Import<'_>, launcher: &Launcher, folder: &Path) -> Result<f64, String> {
    let database = folder.join("speed.db");
    let statements = import.statements(1).take(TRANSACTIONS as usize + 1);
    let ended = session::run(launcher, &database, statements, Kill::Never)?;
    let (Some(first), Some(last)) = (ended.lines.first(), ended.lines.last()) else {
        return Err(format!("sqlite3: {}", ended.messages.trim()));
    };
    if !ended.is_ok() || ended.lines.len() as u64 != TRANSACTIONS {
        return Err(format!("sqlite3 ({}): {}", import.journal_mode, ended.messages.trim()));
    }
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(folder.join(format!("speed.db{suffix}")));
    }
    Ok((TRANSACTIONS - 1) as f64 / last.0.duration_since(first.0).as_secs_f64())
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_one() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
