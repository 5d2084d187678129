//! `famio bench run`: a user's own command, plain and under Famio.

use super::document::effort::{Effort, Length};
use super::document::statistics::{Estimate, ratio};
use super::document::{Document, Figure, Point, Shape};
use super::io::medium::Disk;
use super::launch::{Under, me};
use super::output::Output;
use super::report;
use super::session::Session;
use crate::failure::{FAILED, Failure};
use crate::settings::{Options, PolicyName};
use crate::text::{count, quoted, table};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Compare a command of yours, plain and under Famio
///
/// Runs the command plain and under famio run, in each round, in random order, and compares wall time, CPU time, and
/// the bytes written to, and the flushes of, the disk of the current folder (by all programs: use a quiet machine).
/// With --baseline, another command is the plain side: the same program with its own journal or double writes, which
/// Famio makes unnecessary. The command's output is discarded, unless --output is given.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench run --atomic app.db --prepare 'cp empty.db app.db' -- ./import app.db
  famio bench run --atomic app.db --prepare 'rm -f app.db*' \\
    --baseline 'sqlite3 app.db <wal.sql' -- sh -c 'sqlite3 app.db <memory.sql'
  famio bench run --atomic 'data/base/*' \\
    --baseline './pg-bench full_page_writes=on' -- ./pg-bench full_page_writes=off")]
pub struct Args {
    /// Files that are atomic in the runs under Famio, as for famio run; may be given several times
    #[arg(long, value_name = "GLOB", required = true)]
    atomic: Vec<OsString>,
    /// The plain side's command, for the shell [default: the same command]
    #[arg(long, value_name = "CMD")]
    baseline: Option<String>,
    /// A command for the shell, before each run and not in its time: it puts the files back to where they were
    #[arg(long, value_name = "CMD")]
    prepare: Option<String>,
    /// Runs of each side
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Count SYNCs, too, in one more run of each side's command, unprotected, under famio trace
    #[arg(long)]
    syncs: bool,
    /// Let the command's output be seen
    #[arg(long)]
    output: bool,
    /// Policy under Famio [default: what Famio chooses]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "auto|undo|redo|alternate")]
    policy: Option<PolicyName>,
    #[command(flatten)]
    shown: Output,
    #[command(flatten)]
    options: Options,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The measurements of a run.
struct Sample {
    seconds: f64,
    /// Of the command and of all processes that it has waited for.
    cpu: f64,
    /// MiB.
    to_disk: Option<f64>,
    /// What SYNCs, the program's or those of Famio's background, made of the disk's own cache.
    flushes: Option<f64>,
}

const SIDES: [&str; 2] = ["plain", "Famio"];

/// Measures, and prints the table.
pub fn main(args: &Args) -> Result<i32, Failure> {
    let failed = |error: String| Failure::new(FAILED, error);
    // The session's folder is not needed beside the user's files.
    let session = Session::new(&std::env::temp_dir(), u64::from(args.rounds) * 2).map_err(failed)?;
    let here = Path::new(".");
    // Only the rounds of the method apply to a user's command.
    let effort = Effort { rounds: args.rounds, length: Length::Calls(1), file_size: 0 };
    let mut document = Document::new(here, &effort, &args.options);
    let samples = measure(args, &session, Disk::of(here).as_ref()).map_err(failed)?;
    let mut syncs = None;
    if args.syncs && !session.interrupted() {
        match syncs_of(args, &session, 0).and_then(|plain| Ok([plain, syncs_of(args, &session, 1)?])) {
            Ok(counts) => syncs = Some(counts),
            Err(_) if session.interrupted() => {} // the signal may have ended the command, too
            Err(error) => eprintln!("famio: --syncs: {error}"),
        }
    }
    let status = session.status();
    drop(session); // removes the progress bar
    document.complete = status == 0;
    document.figures = figures(args, &samples);
    if let Some(counts) = syncs {
        let point = |(side, count): (&&str, u64)| Point::new("", side, vec![count as f64]);
        let points = SIDES.iter().zip(counts).map(point).collect();
        document.figures.push(figure(args, "run-syncs", "SYNCs of a run", points));
    }
    if let Some(folder) = &args.shown.report {
        report::write(folder, &document).map_err(failed)?;
    }
    if args.shown.json() {
        crate::out::json(&document)?;
    } else if !samples[1].is_empty() {
        print!("{}", table(&rows(&samples)));
        println!(
            "{}, in an order drawn anew; medians: CPU time, MiB to the disk, flushes of it",
            count(samples[1].len() as u64, "round")
        );
        if let Some([plain, famio]) = syncs {
            println!("SYNCs of one more run, under famio trace: plain {plain}, Famio {famio}");
        }
    }
    Ok(status)
}

/// The rounds that both sides have.
fn measure(args: &Args, session: &Session, disk: Option<&Disk>) -> Result<[Vec<Sample>; 2], String> {
    let mut samples = [Vec::new(), Vec::new()];
    let mut random = fastrand::Rng::new();
    let mut order = [0, 1];
    'rounds: for _ in 0..args.rounds {
        random.shuffle(&mut order);
        for side in order {
            session.show(SIDES[side]);
            let sample = prepare(args).and_then(|()| one(args, command(args, side)?, disk));
            if session.interrupted() {
                break 'rounds; // the signal may have ended the command, too
            }
            samples[side].push(sample.map_err(|error| format!("{}: {error}", SIDES[side]))?);
            session.step();
        }
    }
    let both = samples[0].len().min(samples[1].len());
    samples.iter_mut().for_each(|side| side.truncate(both));
    Ok(samples)
}

/// The SYNCs that a side's command makes, of files that it has opened for writing.
fn syncs_of(args: &Args, session: &Session, side: usize) -> Result<u64, String> {
    prepare(args)?;
    let report = session.folder().join("trace.json");
    let mut traced = Command::new(me()?);
    traced.args(["trace", "--json", "--output"]).arg(&report).arg("--");
    match &args.baseline {
        Some(baseline) if side == 0 => traced.args(["sh", "-c", baseline]),
        _ => traced.args(&args.command),
    };
    one(args, traced, None)?;
    let read = std::fs::read_to_string(&report).map_err(|error| format!("{}: {error}", report.display()))?;
    let found: serde_json::Value = serde_json::from_str(&read).map_err(|error| format!("famio trace: {error}"))?;
    let files = found["files"].as_array().ok_or("famio trace: no files in its report")?;
    Ok(files.iter().filter_map(|file| file["syncs"].as_u64()).sum())
}

fn command(args: &Args, side: usize) -> Result<Command, String> {
    let (program, arguments) = args.command.split_first().ok_or("no command")?;
    Ok(match (side, &args.baseline) {
        (0, Some(baseline)) => shell(baseline),
        (0, None) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        _ => {
            let mut command =
                Under { options: &args.options, policy: args.policy, more: &[] }.famio(&args.atomic, program)?;
            command.args(arguments);
            command
        }
    })
}

fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    command
}

fn prepare(args: &Args) -> Result<(), String> {
    let Some(line) = &args.prepare else { return Ok(()) };
    let status = shell(line).status().map_err(|error| format!("--prepare: sh: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("--prepare: {status}: {line}")) }
}

fn one(args: &Args, mut command: Command, disk: Option<&Disk>) -> Result<Sample, String> {
    command.stdin(Stdio::null());
    if !args.output {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let (written, flushes) = (|| disk.and_then(Disk::written), || disk.and_then(Disk::flushes));
    let (disk_before, cpu_before, began) = ((written(), flushes()), children_cpu(), Instant::now());
    let status = command.status();
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), children_cpu() - cpu_before);
    // Under Famio, or with a baseline, another program starts it.
    let line = || command_line(&command);
    match status {
        Err(error) => Err(format!("{}: {error}", line())),
        Ok(status) if !status.success() => {
            let more = if args.output { "" } else { "; --output shows what it says" };
            Err(format!("{status}{more}: {}", line()))
        }
        Ok(_) => {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let since = |(after, before): (u64, u64)| after.saturating_sub(before);
            let to_disk = written().zip(disk_before.0).map(since).map(mib);
            let flushes = flushes().zip(disk_before.1).map(|both| since(both) as f64);
            Ok(Sample { seconds, cpu, to_disk, flushes })
        }
    }
}

fn command_line(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// CPU seconds of all processes that were waited for.
fn children_cpu() -> f64 {
    // SAFETY: all-zero bytes are an `rusage`; the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The values of all rounds, if each has one.
fn values(side: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> Option<Vec<f64>> {
    side.iter().map(of).collect::<Option<Vec<_>>>().filter(|values| !values.is_empty())
}

type Value = fn(&Sample) -> Option<f64>;
const VALUES: [(&str, &str, Value); 4] = [
    ("run-time", "wall time, s", |sample| Some(sample.seconds)),
    ("run-cpu", "CPU time, s", |sample| Some(sample.cpu)),
    ("run-disk", "written to the disk, MiB", |sample| sample.to_disk),
    ("run-flushes", "flushes of the disk", |sample| sample.flushes),
];

fn figures(args: &Args, samples: &[Vec<Sample>; 2]) -> Vec<Figure> {
    let points = |value: Value| {
        let sides = SIDES.iter().zip(samples);
        sides.filter_map(|(side, samples)| Some(Point::new("", side, values(samples, value)?))).collect()
    };
    let all = VALUES.into_iter().map(|(name, y, value)| figure(args, name, y, points(value)));
    all.filter(|figure| !figure.points.is_empty()).collect()
}

fn figure(args: &Args, name: &str, y: &str, points: Vec<Point>) -> Figure {
    let words: Vec<_> = args.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    Figure {
        name: name.into(),
        title: words.join(" "),
        x: "how it was run".into(),
        y: y.into(),
        higher_is_better: false,
        shape: Shape::Bars,
        points,
        rows: Vec::new(),
        ..Figure::new(name, "")
    }
}

fn rows(samples: &[Vec<Sample>; 2]) -> Vec<Vec<String>> {
    let mut rows = vec![["", "TIME", "RATIO", "95 %", "CPU", "TO DISK", "FLUSHES"].map(String::from).to_vec()];
    let seconds = |side: &[Sample]| values(side, VALUES[0].2).unwrap_or_default();
    for (number, (name, side)) in SIDES.iter().zip(samples).enumerate() {
        let shown = |value: Value| values(side, value).map(|all| report::number(super::median::median(all)));
        let second = |text: Option<String>| text.map_or("-".into(), |text| format!("{text} s"));
        let mut row = vec![name.to_string(), second(shown(VALUES[0].2))];
        if number == 0 {
            row.extend(["".into(), "".into()]);
        } else {
            let Estimate { value, low, high } = ratio(&seconds(&samples[0]), &seconds(side));
            row.extend([format!("{value:.2}x"), format!("{low:.2} to {high:.2}")]);
        }
        row.push(second(shown(VALUES[1].2)));
        row.extend([VALUES[2].2, VALUES[3].2].map(|value| shown(value).unwrap_or("-".into())));
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_both_sides() {
        let side = |seconds: f64| {
            let sample = |noise: f64| Sample { seconds: seconds + noise, cpu: 0.5, to_disk: None, flushes: Some(7.0) };
            [0.0, 0.1, 0.2].map(sample).into_iter().collect::<Vec<_>>()
        };
        let rows = rows(&[side(4.0), side(2.0)]);
        assert_eq!(rows[1], ["plain", "4.10 s", "", "", "0.50 s", "-", "7.00"]);
        assert_eq!(rows[2][..3], ["Famio", "2.10 s", "1.95x"]);
    }
}
