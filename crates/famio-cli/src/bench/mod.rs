//! `famio bench`: the same system calls plain and under Famio, in turn.

mod worker;

use crate::failure::{FAILED, Failure};
use crate::settings::{Options, PolicyName};
use crate::text::table;
use clap::{Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::Command;
use worker::Workload;

/// Compare plain file calls with those under Famio
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Io(Io),
    #[command(hide = true)]
    Worker(worker::Args),
}

/// Reads, writes and SYNCs of one file by one thread
///
/// Every workload runs in turn plain and under Famio, in a process of its own, on a file of the same size in the same
/// folder. Shown are medians.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench io --folder /dev/shm --domain emulated    # write-backs and fences are executed
  famio bench io --folder /mnt/data")]
struct Io {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Size of the file in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    size: u64,
    /// Policy under Famio
    #[arg(long, value_enum)]
    policy: Option<PolicyName>,
    #[command(flatten)]
    options: Options,
}

/// Dispatches.
pub fn main(args: Args) -> Result<i32, Failure> {
    match args.what {
        What::Io(io) => measure_all(&io).map(|()| 0).map_err(|error| Failure::new(FAILED, error)),
        What::Worker(args) => worker::main(&args).map(|()| 0).map_err(|error| Failure::new(FAILED, error)),
    }
}

/// Runs every workload, and prints a row as soon as it is known.
fn measure_all(io: &Io) -> Result<(), String> {
    let file = io.folder.join(format!("famio-bench-{}", std::process::id()));
    let result = rows(io, &file);
    let _ = std::fs::remove_file(&file);
    let rows = result?;
    print!("{}", table(&rows));
    println!("{} rounds of {} s, plain and Famio in turn, medians; one thread, {} MiB", io.rounds, io.seconds, io.size);
    Ok(())
}

fn rows(io: &Io, file: &Path) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![["WORKLOAD", "PLAIN", "FAMIO", "RATIO"].map(String::from).to_vec()];
    let mut alone = None;
    for &workload in Workload::value_variants() {
        let (mut plain, mut famio) = (Vec::new(), Vec::new());
        for _ in 0..io.rounds {
            plain.push(one(io, file, workload, false)?);
            famio.push(one(io, file, workload, true)?);
        }
        let (plain, famio) = (median(plain), median(famio));
        rows.push(vec![workload.title().into(), time(plain), time(famio), format!("{:.2}x", plain / famio)]);
        match (workload, alone) {
            (Workload::OneBlock, _) => alone = Some((plain, famio)),
            (Workload::OneBlockSync, Some((plain_alone, famio_alone))) => {
                let (plain, famio) = (plain - plain_alone, famio - famio_alone);
                let title = "  so the fsync alone takes";
                rows.push(vec![title.into(), time(plain), time(famio), format!("{:.2}x", plain / famio)]);
            }
            _ => {}
        }
    }
    Ok(rows)
}

/// One measurement in a process of its own: nanoseconds per call.
fn one(io: &Io, file: &Path, workload: Workload, under_famio: bool) -> Result<f64, String> {
    worker::prepare(file, io.size << 20).map_err(|error| format!("{}: {error}", file.display()))?;
    let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let mut command = Command::new(&me);
    if under_famio {
        command.args(["run", "--atomic"]).arg(file);
        if let Some(pool) = &io.options.pool {
            command.arg("--pool").arg(pool);
        }
        if let Some(config) = &io.options.config {
            command.arg("--config").arg(config);
        }
        let mut word = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                command.arg(option).arg(value);
            }
        };
        word("--durability", io.options.durability.map(name));
        word("--domain", io.options.domain.map(name));
        word("--policy", io.policy.map(name));
        command.arg("--").arg(&me);
    }
    command.args(["bench", "worker", "--workload", &name(workload), "--seconds", &io.seconds.to_string()]).arg(file);
    let output = command.output().map_err(|error| format!("{}: {error}", me.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(nanoseconds) if output.status.success() => Ok(nanoseconds),
        _ => Err(format!("{}: {}", workload.title(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn time(nanoseconds: f64) -> String {
    if nanoseconds.abs() < 10_000.0 {
        format!("{nanoseconds:.0} ns")
    } else {
        format!("{:.1} us", nanoseconds / 1000.0)
    }
}
