//! `famio bench small`: the cost of files that are written once, or read.

mod files;
mod work;

use super::launch::{Under, me};
use super::median::median;
use super::output::Json;
use super::results::Method;
use crate::settings::Options;
use crate::text::table;
use files::Way;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
pub use work::{WorkArgs, main as work_main};

/// Small files made, written, read and closed, without and under Famio
///
/// A new process makes files with different bytes in a new folder, alternately without and under Famio: written and
/// closed; written, synced and closed; written, synced and renamed over another file, with a sync of the folder. The
/// first again with --on-close leave. Or the files exist already, and it overwrites, appends to, reads, or just looks at
/// each. The table shows microseconds per file: mean, 99th percentile and longest, medians of the rounds. Afterwards the
/// bytes are checked.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench small --folder /dev/shm
  famio bench small --files 1000 --bytes 65536")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Files of each measurement
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// Bytes of each file
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    bytes: u32,
    #[command(flatten)]
    output: Json,
    #[command(flatten)]
    options: Options,
}

/// Microseconds of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Figures {
    mean: f64,
    p99: f64,
    longest: f64,
}

impl Figures {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { mean: next()?, p99: next()?, longest: next()? })
    }

    fn median(all: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| median(all.iter().map(part).collect());
        Self { mean: of(|one| one.mean), p99: of(|one| one.p99), longest: of(|one| one.longest) }
    }
}

/// The rows: what is done with the files, and whether `--on-close leave` is set.
const ROWS: [(Way, bool); 8] = [
    (Way::Close, false),
    (Way::Close, true),
    (Way::Sync, false),
    (Way::Replace, false),
    (Way::Overwrite, false),
    (Way::Append, false),
    (Way::Read, false),
    (Way::Look, false),
];

#[derive(Serialize)]
struct Extent {
    /// Per measurement.
    files: u32,
    /// Of each file.
    file_bytes: u32,
}

/// The results for one way, plain and under Famio.
#[derive(Serialize)]
struct Row {
    work: &'static str,
    /// The setting under Famio.
    on_close: &'static str,
    sides: [Side; 2],
}

#[derive(Serialize)]
struct Side {
    side: &'static str,
    /// The medians of the rounds.
    microseconds: Figures,
    rounds: Vec<Figures>,
    /// Ratio of the mean to that of plain files.
    times_as_long: Option<f64>,
}

impl Side {
    fn both([plain, famio]: [Vec<Figures>; 2]) -> [Self; 2] {
        let [plain_time, famio_time] = [&plain, &famio].map(|rounds| Figures::median(rounds));
        let times_as_long = Some(famio_time.mean / plain_time.mean);
        [
            Self { side: "plain", microseconds: plain_time, rounds: plain, times_as_long: None },
            Self { side: "Famio", microseconds: famio_time, rounds: famio, times_as_long },
        ]
    }
}

/// Measures, and shows the rows.
pub fn main(args: &Args) -> Result<(), String> {
    let extent = Extent { files: args.files, file_bytes: args.bytes };
    let measure = || {
        let folder = args.folder.join(format!("famio-bench-small-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let result = rows(args, &folder);
        let _ = std::fs::remove_dir_all(&folder);
        result
    };
    let method = Method::new(&args.folder, args.rounds, extent).under(&args.options);
    method.show(&args.output, measure, |rows| text(args, rows))
}

fn rows(args: &Args, folder: &Path) -> Result<Vec<Row>, String> {
    let mut figures = ROWS.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..args.rounds {
        for ((way, is_left), [plain, famio]) in ROWS.into_iter().zip(&mut figures) {
            plain.push(one(args, folder, way, None)?);
            famio.push(one(args, folder, way, Some(on_close(is_left)))?);
        }
    }
    let rows = ROWS.into_iter().zip(figures).map(|((way, is_left), figures)| Row {
        work: way.title(),
        on_close: on_close(is_left),
        sides: Side::both(figures),
    });
    Ok(rows.collect())
}

/// The setting's value as text.
fn on_close(is_left: bool) -> &'static str {
    if is_left { "leave" } else { "commit" }
}

fn text(args: &Args, rows: &[Row]) -> String {
    let head = ["", "PLAIN", "P99", "LONGEST", "FAMIO", "P99", "LONGEST", "RATIO", "EXTRA"];
    let mut lines = vec![head.map(String::from).to_vec()];
    for row in rows {
        let [plain, famio] = row.sides.each_ref().map(|side| side.microseconds);
        let left = if row.on_close == on_close(true) { " (--on-close leave)" } else { "" };
        let mut line = vec![row.work.to_string() + left];
        line.extend([plain, famio].iter().flat_map(|f| [f.mean, f.p99, f.longest]).map(|time| format!("{time:.0}")));
        line.extend(row.sides.iter().filter_map(|side| side.times_as_long).map(|times| format!("{times:.2}x")));
        line.push(format!("{:+.0}", famio.mean - plain.mean));
        lines.push(line);
    }
    let how = format!(
        "microseconds a file; {} files of {} bytes in a new process, {} rounds, alternating, medians",
        args.files, args.bytes, args.rounds
    );
    format!("{}{how}\n", table(&lines))
}

/// Files are dearer to read just after a change, whose time the next one may have, too.
const SETTLED: Duration = Duration::from_millis(30);

/// One measurement, in a new process.
fn one(args: &Args, folder: &Path, way: Way, on_close: Option<&str>) -> Result<Figures, String> {
    work::prepare(folder, way, args.files, args.bytes as usize)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    std::thread::sleep(SETTLED);
    let me = me()?;
    let mut command = match on_close {
        None => Command::new(&me),
        Some(on_close) => {
            let mut command =
                Under { options: &args.options, policy: None, more: &[] }.famio(&[folder], me.as_os_str())?;
            command.env("FAMIO_ON_CLOSE", on_close);
            command
        }
    };
    command.args(["bench", "small-work", super::launch::name(way).as_str()]);
    command.arg("--files").arg(args.files.to_string()).arg("--bytes").arg(args.bytes.to_string()).arg(folder);
    let output = command.output().map_err(|error| format!("{}: {error}", me.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match Figures::parse(&said) {
        Some(figures) if output.status.success() => {
            let found = work::check(folder, way, args.files, args.bytes as usize);
            found.map(|()| figures).map_err(|error| format!("{}: {error}", folder.display()))
        }
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::files::path;
    use super::*;

    #[test]
    fn what_a_run_prints_is_read() {
        let figures = Figures::parse("1.5 2 30.25\n").unwrap();
        assert_eq!(figures, Figures { mean: 1.5, p99: 2.0, longest: 30.25 });
        assert_eq!(Figures::parse("1.5 2"), None);
        assert_eq!(Figures::median(&[figures, Figures { mean: 9.0, p99: 0.0, longest: 0.0 }, figures]), figures);
    }

    #[test]
    fn what_was_made_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let args_of = |way, bytes| WorkArgs::of(way, 3, bytes, folder.path());
        let args = |way| args_of(way, 100);
        work::make(&args(Way::Close)).unwrap();
        work::check(folder.path(), Way::Close, 3, 100).unwrap();
        work::make(&args(Way::Replace)).unwrap();
        work::check(folder.path(), Way::Replace, 3, 100).unwrap();
        assert!(work::check(folder.path(), Way::Sync, 3, 100).is_err(), "they are gone");
        work::make(&args(Way::Sync)).unwrap();
        std::fs::write(path(folder.path(), 1), "other").unwrap();
        assert!(work::check(folder.path(), Way::Sync, 3, 100).is_err());
        assert!(work::make(&args(Way::Overwrite)).is_err(), "there are none");
        work::prepare(folder.path(), Way::Overwrite, 3, 100).unwrap();
        assert!(work::check(folder.path(), Way::Overwrite, 1, 100).is_err(), "it was not overwritten yet");
        for way in [Way::Append, Way::Read, Way::Look] {
            work::prepare(folder.path(), way, 3, 101).unwrap();
            work::make(&args_of(way, 101)).unwrap();
            work::check(folder.path(), way, 3, 101).unwrap();
            work::prepare(folder.path(), way, 3, 99).unwrap();
            let fails = work::make(&args_of(way, 101)).is_err();
            assert!(fails || work::check(folder.path(), way, 1, 101).is_err(), "{way:?}: others were there");
        }
        work::prepare(folder.path(), Way::Overwrite, 3, 100).unwrap();
        work::make(&args(Way::Overwrite)).unwrap();
        work::check(folder.path(), Way::Overwrite, 3, 100).unwrap();
    }
}
