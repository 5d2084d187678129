//! SQLite's journal modes compared with Famio, as points of a chart.

use super::args::Args;
use super::group::Group;
use super::measure::Bench;
use super::patterns::Setup;
use crate::bench::document::Point;
use crate::bench::median::median;
use crate::bench::output::Json;
use crate::bench::session::Session;
use crate::bench::sqlite3::Sqlite;
use crate::settings::Options;
use std::path::Path;

/// All modes of SQLite, and its in-memory journal under Famio.
const MODES: [Setup; 5] = [
    Setup::plain("DELETE", "DELETE"),
    Setup::plain("TRUNCATE", "TRUNCATE"),
    Setup::plain("PERSIST", "PERSIST"),
    Setup::plain("WAL", "WAL"),
    Setup::famio("Famio, MEMORY", "MEMORY"),
];

/// The number of measurements, of insert, update and delete.
pub fn steps(rounds: u32) -> u64 {
    3 * MODES.len() as u64 * u64::from(rounds)
}

/// The version of the SQLite that is measured, if there is one.
pub fn version() -> Result<String, String> {
    Ok(format!("SQLite {}", Sqlite::load()?.version()))
}

/// Transactions per second of insert, update and delete, in all modes.
pub fn figure(session: &Session, options: &Options, rounds: u32, seconds: f64) -> Result<Vec<Point>, String> {
    let args = arguments(session.folder(), options, rounds, seconds);
    let bench = Bench::new(&args)?;
    let mut patterns = Group::SqliteAlone.patterns(&args);
    patterns.retain(|pattern| !pattern.exclusive);
    let mut rates = vec![vec![Vec::new(); MODES.len()]; patterns.len()];
    'rounds: for _ in 0..rounds {
        for (pattern, rates) in patterns.iter().zip(&mut rates) {
            for (mode, rates) in MODES.iter().zip(rates) {
                let outcome = bench.one(Group::SqliteAlone, pattern, mode);
                if session.interrupted() {
                    break 'rounds;
                }
                let outcome = outcome.map_err(|error| format!("{}, {}: {error}", pattern.title, mode.title))?;
                rates.push(outcome.writes.rate);
                session.step();
            }
        }
    }
    let mut points = Vec::new();
    for (pattern, rates) in patterns.iter().zip(rates) {
        for (mode, rates) in MODES.iter().zip(rates) {
            if !rates.is_empty() && median(rates.clone()) > 0.0 {
                points.push(Point::new(mode.title, &pattern.title, rates));
            }
        }
    }
    Ok(points)
}

fn arguments(folder: &Path, options: &Options, rounds: u32, seconds: f64) -> Args {
    Args {
        folder: folder.into(),
        only: None,
        readers: None,
        writers: None,
        rate: None,
        rounds,
        seconds,
        short: false,
        size: 1,
        rows: 20_000,
        policy: None,
        output: Json::default(),
        options: options.clone(),
    }
}
