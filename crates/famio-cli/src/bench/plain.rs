//! `famio bench plain`: the cost under Famio of calls on non-atomic files.

use super::calls::Call;
use super::launch::{Under, me};
use super::output::Json;
use super::results::{Method, Nanoseconds};
use crate::settings::Options;
use crate::text::table;
use clap::ValueEnum;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls on a file that is not atomic, without and under Famio
///
/// One program makes each call on an ordinary file, alternately without Famio, under Famio with another file named as
/// atomic, and with that file open and written. The table shows nanoseconds per call, medians, what Famio adds, and
/// how much of that is the filter against io_uring, which `--async-io allow` leaves out.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench plain --folder /dev/shm
  famio bench plain --rounds 21
  famio bench plain --json")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.1)]
    seconds: f64,
    #[command(flatten)]
    output: Json,
    #[command(flatten)]
    options: Options,
}

/// How the program runs.
#[derive(Clone, Copy)]
enum Way {
    Without,
    Unfiltered,
    Under,
    Beside,
}

const WAYS: [Way; 4] = [Way::Without, Way::Unfiltered, Way::Under, Way::Beside];

impl Way {
    fn side(self) -> &'static str {
        match self {
            Way::Without => "plain",
            Way::Unfiltered => "Famio, async-io allow",
            Way::Under => "Famio",
            Way::Beside => "Famio, an atomic file open",
        }
    }
}

#[derive(Serialize)]
struct Extent {
    /// Duration of each call's measurement in a round.
    seconds: f64,
}

/// The times of one call.
#[derive(Serialize)]
struct Row {
    call: &'static str,
    /// In the order of `WAYS`.
    sides: [Side; 4],
}

#[derive(Serialize)]
struct Side {
    side: &'static str,
    #[serde(flatten)]
    time: Nanoseconds,
}

/// Measures, and shows the rows.
pub fn main(args: &Args) -> Result<(), String> {
    let method = Method::new(&args.folder, args.rounds, Extent { seconds: args.seconds }).under(&args.options);
    method.show(&args.output, || measure(args), |rows| text(args, rows))
}

/// Measures on two temporary files.
fn measure(args: &Args) -> Result<Vec<Row>, String> {
    let [plain, atomic] =
        ["plain", "atomic"].map(|kind| args.folder.join(format!("{kind}-famio-bench-{}", std::process::id())));
    let made = [&plain, &atomic]
        .into_iter()
        .try_for_each(|file| std::fs::write(file, [0; 4096]).map_err(|error| format!("{}: {error}", file.display())));
    let result = made.and_then(|()| rows(args, &plain, &atomic));
    for file in [&plain, &atomic] {
        let _ = std::fs::remove_file(file);
    }
    result
}

fn rows(args: &Args, plain: &Path, atomic: &Path) -> Result<Vec<Row>, String> {
    let calls = Call::value_variants();
    let mut figures = WAYS.map(|_| vec![Vec::new(); calls.len()]);
    for _ in 0..args.rounds {
        for (way, figures) in WAYS.into_iter().zip(&mut figures) {
            for (all, one) in figures.iter_mut().zip(one(args, plain, atomic, way)?) {
                all.push(one);
            }
        }
    }
    let side =
        |index: usize, way: Way| Side { side: way.side(), time: Nanoseconds::of(figures[way as usize][index].clone()) };
    let rows = calls.iter().enumerate();
    Ok(rows.map(|(index, call)| Row { call: call.title(), sides: WAYS.map(|way| side(index, way)) }).collect())
}

fn text(args: &Args, rows: &[Row]) -> String {
    let head = ["CALL", "WITHOUT FAMIO", "FAMIO", "EXTRA", "BY THE FILTER", "AN ATOMIC FILE OPEN", "EXTRA"];
    let mut lines = vec![head.map(String::from).to_vec()];
    for row in rows {
        let [plain, unfiltered, famio, beside] = row.sides.each_ref().map(|side| side.time.median);
        let (figure, extra) = (|figure: f64| format!("{figure:.0}"), |extra: f64| format!("{extra:+.0}"));
        let mut line = vec![row.call.to_string(), figure(plain)];
        line.extend([figure(famio), extra(famio - plain), extra(famio - unfiltered)]);
        line.extend([figure(beside), extra(beside - plain)]);
        lines.push(line);
    }
    let how = format!("nanoseconds a call; {} rounds of {} s, alternating, medians", args.rounds, args.seconds);
    format!("{}{how}\n", table(&lines))
}

/// One measurement of every call, in a new process.
fn one(args: &Args, plain: &Path, atomic: &Path, way: Way) -> Result<Vec<f64>, String> {
    let me = me()?;
    let mut command = match way {
        Way::Without => Command::new(&me),
        _ => Under { options: &args.options, policy: None }.famio(&[atomic], me.as_os_str())?,
    };
    if matches!(way, Way::Unfiltered) {
        command.env("FAMIO_ASYNC_IO", "allow");
    }
    command.args(["bench", "calls", "--seconds", &args.seconds.to_string()]);
    if matches!(way, Way::Beside) {
        command.arg("--beside").arg(atomic);
    }
    let output = command.arg(plain).output().map_err(|error| format!("{}: {error}", me.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Result<Vec<f64>, _> = text.lines().map(str::parse).collect();
    match figures {
        Ok(figures) if output.status.success() && figures.len() == Call::value_variants().len() => Ok(figures),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}
