//! `famio bench cost`: what costs that should stay flat grow with.

mod grow;
mod work;

use super::launch::{Under, me, name};
use super::median::median;
use super::output::Json;
use super::results::Method;
use crate::settings::Options;
use crate::text::table;
use clap::ValueEnum;
use grow::Growing;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
pub use work::{WorkArgs, main as work_main};

/// Costs that should not grow: with the size of the file, open files, the writes of an epoch, small files
///
/// A new process opens a file, writes, syncs and closes, alternately without and under Famio, and times each step:
/// with sparse files of 1 MiB to 8 TiB; with 1 to 10,000 atomic files open; with 1 to 10 million writes of 64 B before
/// one SYNC; with 100 to 50,000 files of 4 KiB, made one after the other. The table shows microseconds per call,
/// medians of the rounds.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench cost --folder /dev/shm --domain emulated
  famio bench cost --only open-files --all")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only rows of this kind
    #[arg(long, value_name = "KIND")]
    only: Option<Growing>,
    /// Also the largest numbers, which take minutes, on a disk perhaps hours
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Json,
    #[command(flatten)]
    options: Options,
}

#[derive(Serialize)]
struct Extent {
    /// With the largest numbers.
    all: bool,
}

/// The times of one step.
#[derive(Serialize)]
struct Row {
    grows: String,
    number: u64,
    step: &'static str,
    sides: [Side; 2],
    #[serde(skip)]
    growing: Growing,
}

#[derive(Serialize)]
struct Side {
    side: &'static str,
    /// Per call, the median of the rounds.
    microseconds: f64,
    rounds: Vec<f64>,
}

impl Side {
    fn of(side: &'static str, rounds: Vec<f64>) -> Self {
        Self { side, microseconds: median(rounds.clone()), rounds }
    }
}

/// Measures, and shows the rows.
pub fn main(args: &Args) -> Result<(), String> {
    let method = Method::new(&args.folder, args.rounds, Extent { all: args.all }).under(&args.options);
    method.show(&args.output, || rows(args), |rows| text(args, rows))
}

fn rows(args: &Args) -> Result<Vec<Row>, String> {
    let kinds = Growing::value_variants().iter().filter(|&&kind| args.only.is_none_or(|only| only == kind));
    let all: Vec<_> = kinds.flat_map(|&kind| kind.numbers(args.all).into_iter().map(move |n| (kind, n))).collect();
    let bar = crate::progress::measurements(all.len() as u64 * u64::from(args.rounds) * 2);
    let rows = all.into_iter().map(|(growing, number)| measure(args, growing, number, &bar));
    let rows = rows.collect::<Result<Vec<_>, String>>();
    bar.finish_and_clear();
    Ok(rows?.into_iter().flatten().collect())
}

fn measure(args: &Args, growing: Growing, number: u64, bar: &ProgressBar) -> Result<Vec<Row>, String> {
    bar.set_message(format!("{} {}", growing.title(), growing.shown(number)));
    let mut sides = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        for (times, under) in sides.iter_mut().zip([false, true]) {
            times.push(one(args, growing, number, under)?);
            bar.inc(1);
        }
    }
    let row = |(at, step): (usize, &&'static str)| {
        let of = |side: &Vec<Vec<f64>>| side.iter().map(|round| round[at]).collect();
        let both = [Side::of("plain", of(&sides[0])), Side::of("Famio", of(&sides[1]))];
        Row { grows: name(growing), number, step, sides: both, growing }
    };
    Ok(growing.steps().iter().enumerate().map(row).collect())
}

/// One measurement, in a new process and a new folder.
fn one(args: &Args, growing: Growing, number: u64, under: bool) -> Result<Vec<f64>, String> {
    let folder = args.folder.join(format!("famio-bench-cost-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let result = one_in(args, growing, number, under, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn one_in(args: &Args, growing: Growing, number: u64, under: bool, folder: &Path) -> Result<Vec<f64>, String> {
    let named = |error| format!("{}: {error}", folder.display());
    work::prepare(growing, number, folder).map_err(named)?;
    let me = me()?;
    let mut command = match under {
        false => Command::new(&me),
        true => Under { options: &args.options, policy: None, more: &[] }.famio(&[folder], me.as_os_str())?,
    };
    command.args(["bench", "cost-work", &name(growing), "--number", &number.to_string()]).arg(folder);
    let output = command.output().map_err(|error| format!("{}: {error}", me.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let times: Vec<f64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    match times.len() == growing.steps().len() && output.status.success() {
        true => work::check(growing, number, folder).map(|()| times).map_err(named),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

fn text(args: &Args, rows: &[Row]) -> String {
    let head = ["WITH", "", "STEP", "PLAIN", "FAMIO", "RATIO", "EXTRA"];
    let mut lines = vec![head.map(String::from).to_vec()];
    let mut last = None;
    for row in rows {
        let [plain, famio] = row.sides.each_ref().map(|side| side.microseconds);
        let is_new = last.replace((row.growing, row.number)) != last;
        let of = |text: String| if is_new { text } else { String::new() };
        lines.push(vec![
            of(row.growing.title().to_string()),
            of(row.growing.shown(row.number)),
            row.step.to_string(),
            shown(plain),
            shown(famio),
            format!("{:.1}x", famio / plain),
            if famio < plain { format!("-{}", shown(plain - famio)) } else { format!("+{}", shown(famio - plain)) },
        ]);
    }
    let how = format!("microseconds a call; a new process each, {} rounds, alternating, medians", args.rounds);
    format!("{}{how}\n", table(&lines))
}

fn shown(microseconds: f64) -> String {
    match microseconds {
        time if time < 10.0 => format!("{time:.2}"),
        time if time < 100.0 => format!("{time:.1}"),
        time => format!("{time:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_does_its_steps_and_is_checked() {
        for &growing in Growing::value_variants() {
            let folder = tempfile::tempdir().unwrap();
            let number = if growing == Growing::FileSize { 1 << 20 } else { 3 };
            work::prepare(growing, number, folder.path()).unwrap();
            let times = work::times(growing, number, folder.path()).unwrap();
            assert_eq!(times.len(), growing.steps().len());
            work::check(growing, number, folder.path()).unwrap();
            for entry in std::fs::read_dir(folder.path()).unwrap() {
                std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap().set_len(0).unwrap();
            }
            assert!(work::check(growing, number, folder.path()).is_err(), "{growing:?}: the bytes are gone");
        }
    }
}
