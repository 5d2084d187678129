//! `famio bench io`: file calls of one thread.

use super::launch::{Under, me, name};
use super::median::median;
use super::worker::{self, Workload};
use crate::settings::{Options, PolicyName};
use crate::text::table;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads, writes and SYNCs of one file by one thread
///
/// Every workload runs in turn plain and under Famio, in a process of its own, each on its own file. Shown are
/// medians.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench io --folder /dev/shm --domain emulated    # write-backs and fences are executed
  famio bench io --folder /mnt/data")]
pub struct Args {
    /// Where the file goes
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Size of the file in MiB; one that fits the CPU's caches shows other ratios [default: 512, or what fits in half of
    /// the free space]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    size: Option<u64>,
    /// Policy under Famio [default: what Famio chooses]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    policy: Option<PolicyName>,
    #[command(flatten)]
    options: Options,
}

/// Runs every workload, and prints the table.
pub fn main(args: &Args) -> Result<(), String> {
    let size = match args.size {
        Some(size) => size,
        None => super::size::default(&args.folder)?,
    };
    // One for each: Famio leaves a file in huge pages where it can, and the plain one is to be as a plain program has it.
    let files = ["plain", "famio"].map(|kind| args.folder.join(format!("famio-bench-{}-{kind}", std::process::id())));
    let prepared = files
        .iter()
        .try_for_each(|file| worker::prepare(file, size << 20).map_err(|error| format!("{}: {error}", file.display())));
    let result = prepared.and_then(|()| rows(args, &files));
    for file in &files {
        let _ = std::fs::remove_file(file);
    }
    print!("{}", table(&result?));
    println!(
        "{} rounds of {} s, plain and Famio in turn, medians; one thread, {size} MiB, policy {}",
        args.rounds,
        args.seconds,
        args.policy.map_or("as Famio chooses".into(), name)
    );
    Ok(())
}

fn rows(args: &Args, [plain_file, famio_file]: &[PathBuf; 2]) -> Result<Vec<Vec<String>>, String> {
    let mut rows = vec![["WORKLOAD", "PLAIN", "FAMIO", "RATIO"].map(String::from).to_vec()];
    let mut alone = None;
    for &workload in Workload::value_variants() {
        let (mut plain, mut famio) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            plain.push(one(args, plain_file, workload, false)?);
            famio.push(one(args, famio_file, workload, true)?);
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
fn one(args: &Args, file: &Path, workload: Workload, under_famio: bool) -> Result<f64, String> {
    let me = me()?;
    let mut command = if under_famio {
        Under { options: &args.options, policy: args.policy }.famio(file, me.as_os_str())?
    } else {
        Command::new(&me)
    };
    command.args(["bench", "worker", "--workload", &name(workload), "--seconds", &args.seconds.to_string()]).arg(file);
    let output = command.output().map_err(|error| format!("{}: {error}", me.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(nanoseconds) if output.status.success() => Ok(nanoseconds),
        _ => Err(format!("{}: {}", workload.title(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn time(nanoseconds: f64) -> String {
    if nanoseconds.abs() < 10_000.0 {
        format!("{nanoseconds:.0} ns")
    } else {
        format!("{:.1} us", nanoseconds / 1000.0)
    }
}
