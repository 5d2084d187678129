//! `famio bench sqlite`: inserts under Famio with SQLite's journal in memory, against SQLite's own journals.

use super::launch::{Under, name};
use super::output::Json;
use super::results::{Method, TransactionsPerSecond};
use crate::settings::{Options, PolicyName};
use crate::text::table;
use serde::Serialize;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// SQLite inserts, under Famio and with SQLite's own journals
///
/// Inserts rows into a new database in three ways, alternately: journal_mode MEMORY under Famio, plain WAL, plain
/// DELETE; all with synchronous=FULL. The time is from the first insert to the end of sqlite3, so it includes work
/// that a journal leaves for later. The table shows transactions per second, medians.
#[derive(clap::Args)]
pub struct Args {
    /// Where the databases go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Rows, for one row in a transaction; five times as many for fifty
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Policy under Famio [default: what Famio chooses]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    policy: Option<PolicyName>,
    #[command(flatten)]
    output: Json,
    #[command(flatten)]
    options: Options,
}

/// Journal mode, whether under Famio, and title.
const WAYS: [(&str, bool, &str); 3] =
    [("MEMORY", true, "FAMIO, MEMORY"), ("WAL", false, "WAL"), ("DELETE", false, "DELETE")];
const MANY: u64 = 50;

#[derive(Serialize)]
struct Extent {
    /// `PRAGMA synchronous`.
    synchronous: &'static str,
    /// Under Famio. `None`: Famio's choice.
    policy: Option<String>,
}

/// Transactions of one size.
#[derive(Serialize)]
struct Row {
    rows_per_transaction: u64,
    /// Per measurement.
    transactions: u64,
    sides: Vec<Side>,
}

#[derive(Serialize)]
struct Side {
    side: &'static str,
    journal_mode: &'static str,
    #[serde(flatten)]
    rate: TransactionsPerSecond,
    /// Ratio of the rate under Famio to this one.
    ratio: Option<f64>,
}

/// Runs every way in turn, and shows the rows.
pub fn main(args: &Args) -> Result<(), String> {
    let method = Method::new(&args.folder, args.rounds, Extent { synchronous: "FULL", policy: args.policy.map(name) });
    method.under(&args.options).show(&args.output, || measure(args), |rows| text(args, rows))
}

fn measure(args: &Args) -> Result<Vec<Row>, String> {
    // A new folder: a database has files beside it.
    let folder = args.folder.join(format!("famio-bench-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let sizes = [(1, args.rows), (MANY, (args.rows * 5).div_ceil(MANY))];
    let result = sizes.into_iter().map(|(each, transactions)| row(args, &folder, each, transactions)).collect();
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn row(args: &Args, folder: &Path, each: u64, transactions: u64) -> Result<Row, String> {
    let mut rates = WAYS.map(|_| Vec::new());
    for _ in 0..args.rounds {
        for (rates, (mode, under_famio, _)) in rates.iter_mut().zip(WAYS) {
            rates.push(one(args, folder, mode, under_famio, transactions, each)?);
        }
    }
    let rates = rates.map(TransactionsPerSecond::of);
    let famio = rates[0].median;
    let sides = rates.into_iter().zip(WAYS).map(|(rate, (journal_mode, under_famio, _))| Side {
        side: if under_famio { "Famio" } else { "plain" },
        journal_mode,
        ratio: (!under_famio).then(|| famio / rate.median),
        rate,
    });
    Ok(Row { rows_per_transaction: each, transactions, sides: sides.collect() })
}

fn text(args: &Args, rows: &[Row]) -> String {
    let mut head = vec!["ROWS PER TRANSACTION".to_string()];
    head.extend(WAYS.map(|(_, _, title)| title.to_string()));
    head.extend(["FAMIO : WAL", "FAMIO : DELETE"].map(String::from));
    let mut lines = vec![head];
    for row in rows {
        let mut line = vec![row.rows_per_transaction.to_string()];
        line.extend(row.sides.iter().map(|side| format!("{:.0}", side.rate.median)));
        line.extend(row.sides.iter().filter_map(|side| side.ratio).map(|ratio| format!("{ratio:.2}x")));
        lines.push(line);
    }
    let how =
        format!("transactions per second, synchronous=FULL; {} rounds of each, alternating, medians", args.rounds);
    format!("{}{how}\n", table(&lines))
}

/// One measurement: transactions per second.
fn one(args: &Args, folder: &Path, mode: &str, under_famio: bool, transactions: u64, each: u64) -> Result<f64, String> {
    let database = folder.join("bench.db");
    let sqlite = OsStr::new("sqlite3");
    let mut command = if under_famio {
        Under { options: &args.options, policy: args.policy }.famio(&[&database], sqlite)?
    } else {
        Command::new(sqlite)
    };
    // Ignores the user's ~/.sqliterc.
    command.args(["-batch", "-bail", "-init", "/dev/null"]).arg(&database);
    let measured = drive(command, &script(mode, transactions, each))
        .and_then(|(mode_in_force, seconds)| {
            if mode_in_force.eq_ignore_ascii_case(mode) {
                Ok(transactions as f64 / seconds)
            } else {
                Err(format!("the database would not take it: {mode_in_force}"))
            }
        })
        .map_err(|error| format!("sqlite3, journal_mode {mode}{}: {error}", if under_famio { ", Famio" } else { "" }));
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(folder.join(format!("bench.db{suffix}")));
    }
    measured
}

/// The input of sqlite3: first the journal mode, whose name it prints; then, when the table exists, `begin`.
fn script(mode: &str, transactions: u64, each: u64) -> String {
    let mut text = format!(
        "PRAGMA journal_mode={mode};\nPRAGMA synchronous=FULL;\n\
         CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);\nSELECT 'begin';\n"
    );
    let rows = vec!["(hex(randomblob(50)))"; each as usize].join(",");
    for _ in 0..transactions {
        let _ = writeln!(text, "BEGIN; INSERT INTO t(b) VALUES {rows}; COMMIT;");
    }
    text.push_str("SELECT 'rows ' || count(*) FROM t;\n");
    text
}

/// Runs sqlite3 with the script; returns the first line of its output, and the seconds from `begin` to its end.
fn drive(mut command: Command, script: &str) -> Result<(String, f64), String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut input), Some(output), Some(mut messages)) = pipes else { return Err("no pipes".into()) };
    std::thread::scope(|scope| {
        // A broken pipe: sqlite3 has ended, and its status says why.
        scope.spawn(move || input.write_all(script.as_bytes()));
        let messages = scope.spawn(move || {
            let mut text = Vec::new();
            let _ = messages.read_to_end(&mut text);
            String::from_utf8_lossy(&text).trim().to_string()
        });
        let (mut lines, mut started) = (Vec::new(), None);
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line == "begin" {
                started = Some(Instant::now());
            }
            lines.push(line);
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        let seconds = started.map(|started| started.elapsed().as_secs_f64());
        match (seconds, lines.as_slice()) {
            (Some(seconds), [mode, .., last]) if status.success() && last.starts_with("rows ") => {
                Ok((mode.clone(), seconds))
            }
            _ => Err(format!("{status}: {}", messages.join().unwrap_or_default())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_one_line() {
        let text = script("WAL", 3, 2);
        let inserts: Vec<&str> = text.lines().filter(|line| line.contains("INSERT")).collect();
        assert_eq!(inserts.len(), 3);
        assert_eq!(inserts[0].matches("randomblob").count(), 2);
    }
}
