//! The results of a bench with its own kind of rows, as JSON or as a table: docs/json.md describes the rows of each.

use super::document::machine::{Machine, file_system};
use super::document::{durability, emulated};
use super::launch::name;
use super::median::median;
use super::output::Json;
use crate::settings::{DurabilityName, Options};
use serde::Serialize;
use std::path::Path;

/// The results of a run. `M` is the part of the method that only this bench has, `R` a row.
#[derive(Serialize)]
struct Results<M, R> {
    /// The version of this command.
    famio: &'static str,
    /// Seconds since 1970.
    began: u64,
    machine: Machine,
    method: Method<M>,
    rows: Vec<R>,
}

/// How it was measured.
#[derive(Serialize)]
pub struct Method<M> {
    folder: String,
    file_system: String,
    rounds: u32,
    /// `power` or `process`. `None`: nothing is written.
    durability: Option<String>,
    /// Ordinary memory was treated as persistent memory.
    emulated: bool,
    #[serde(flatten)]
    of_bench: M,
}

impl<M: Serialize> Method<M> {
    /// For a bench that writes nothing under Famio.
    pub fn new(folder: &Path, rounds: u32, of_bench: M) -> Self {
        let (folder, file_system) = (folder.display().to_string(), file_system(folder));
        Self { folder, file_system, rounds, durability: None, emulated: false, of_bench }
    }

    /// For a bench whose Famio side runs with these options.
    pub fn under(self, options: &Options) -> Self {
        Self { durability: Some(durability(options)), emulated: emulated(options), ..self }
    }

    /// For a bench that always emulates persistent memory.
    pub fn emulated(self) -> Self {
        Self { durability: Some(name(DurabilityName::Process)), emulated: true, ..self }
    }

    /// Measures the rows, and shows them: as JSON, or as the text that `text` returns.
    pub fn show<R: Serialize>(
        self,
        json: &Json,
        measure: impl FnOnce() -> Result<Vec<R>, String>,
        text: impl FnOnce(&[R]) -> String,
    ) -> Result<(), String> {
        let began = super::clock::seconds_since_1970();
        let rows = measure()?;
        if json.json {
            let famio = env!("CARGO_PKG_VERSION");
            let results = Results { famio, began, machine: Machine::look(), method: self, rows };
            crate::out::json(&results).map_err(|failure| failure.message)
        } else {
            print!("{}", text(&rows));
            Ok(())
        }
    }
}

/// Duration of one call: the median of the rounds, and each round.
#[derive(Clone, Debug, Serialize)]
pub struct Nanoseconds {
    #[serde(rename = "nanoseconds")]
    pub median: f64,
    pub rounds: Vec<f64>,
}

impl Nanoseconds {
    pub fn of(rounds: Vec<f64>) -> Self {
        Self { median: median(rounds.clone()), rounds }
    }
}

/// Transactions per second: the median of the rounds, and each round.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionsPerSecond {
    #[serde(rename = "transactions_per_second")]
    pub median: f64,
    pub rounds: Vec<f64>,
}

impl TransactionsPerSecond {
    pub fn of(rounds: Vec<f64>) -> Self {
        Self { median: median(rounds.clone()), rounds }
    }
}
