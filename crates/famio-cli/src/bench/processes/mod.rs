//! `famio bench processes`: several processes that read and write one file, plain and under Famio.

mod args;
mod blocks;
mod database;
mod group;
mod measure;
mod modes;
mod patterns;
mod rows;
mod table;
mod token;
mod worker;

pub use args::Args;
pub use modes::{figure as modes, steps as modes_steps, version as sqlite_version};
pub use worker::Args as WorkArgs;
pub use worker::main as work_main;

use super::launch::name;
use super::results::Method;
use crate::bench::sqlite3::Sqlite;
use clap::ValueEnum;
use group::Group;
use measure::Bench;
use rows::Row;
use serde::Serialize;

#[derive(Serialize)]
struct Extent {
    /// Per measurement.
    seconds: f64,
    /// Size of the file, for file calls.
    file_bytes: u64,
    /// Of the database.
    rows: u64,
    /// Under Famio. `None`: Famio's choice.
    policy: Option<String>,
}

/// Measures, and shows the rows: a table for each group when it is done.
pub fn main(args: &Args) -> Result<(), String> {
    if args.readers.unwrap_or(0) + args.writers.unwrap_or(0) == 0 && (args.readers, args.writers) != (None, None) {
        return Err("--readers and --writers: neither is above 0".into());
    }
    let (rounds, seconds) = args.extent();
    let policy = args.policy.map(name);
    let extent = Extent { seconds, file_bytes: args.size << 20, rows: args.rows, policy: policy.clone() };
    let method = Method::new(&args.folder, rounds, extent).under(&args.options);
    let text = |_: &[Row]| {
        format!(
            "{rounds} rounds of {seconds} s, all setups in turn; medians, but LONGEST of all rounds; microseconds; \
             HAND-OVERS in one measurement; policy {}\n",
            policy.unwrap_or("as Famio chooses".into())
        )
    };
    method.show(&args.output, || measure(args), text)
}

fn measure(args: &Args) -> Result<Vec<Row>, String> {
    let groups = Group::value_variants().iter().filter(|&&group| args.only.is_none_or(|only| only == group));
    if groups.clone().any(|group| group.is_sqlite()) {
        Sqlite::load().map_err(|error| format!("{error}, or measure without it: --only files"))?; // now, and not when half of it is measured
    }
    let bench = Bench::new(args)?;
    let mut all = Vec::new();
    for &group in groups {
        let patterns = group.patterns(args);
        let rows = rows::rows(group, &patterns, &bench.measure(group, &patterns)?);
        if !args.output.json {
            print!("{}", table::text(group, &rows));
        }
        all.extend(rows);
    }
    Ok(all)
}
