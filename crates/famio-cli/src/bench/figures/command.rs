//! `famio bench list`, `fig`, `paper` and `all`.

use super::catalog::all_figures;
use super::declared::{Declared, Paper};
use super::extent::Extent;
use super::run::{count, run};
use crate::bench::document::Document;
use crate::bench::io::medium::Disk;
use crate::bench::io::side::Side;
use crate::bench::output::Output;
use crate::bench::report;
use crate::bench::session::Session;
use crate::failure::{FAILED, Failure};
use crate::settings::Options;
use crate::text::table;
use std::path::{Path, PathBuf};

/// The figures that can be measured: names for `famio bench fig`
#[derive(clap::Args)]
pub struct ListArgs {}

/// Measure figures by their names
///
/// Each figure is measured plain and under Famio, alternately. `famio bench list` has the names.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench fig libnvmmio-7 --quick --folder /dev/shm --domain emulated
  famio bench fig libnvmmio-9 lawn-5 --report figures")]
pub struct FigArgs {
    /// Names of figures
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    shared: Shared,
}

/// Measure all figures of a paper
///
/// What is not installed, or has no disk, is left out, and says so.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench paper libnvmmio --quick --folder /dev/shm --domain emulated
  famio bench paper map-ahead --folder /dev/shm --report figures")]
pub struct PaperArgs {
    #[arg(value_enum)]
    paper: Paper,
    #[command(flatten)]
    shared: Shared,
}

/// Measure all figures of all papers
///
/// What is not installed, or has no disk, is left out, and says so. With --quick it takes a quarter of an hour on two
/// processors.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench all --quick --folder /dev/shm --domain emulated --report figures")]
pub struct AllArgs {
    #[command(flatten)]
    shared: Shared,
}

#[derive(clap::Args)]
struct Shared {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Where the files of figures go that are about a disk [default: --folder, or /var/tmp, if it is on a disk]
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Small files and short measurements: whether it works, and roughly how the figure looks
    #[arg(long)]
    quick: bool,
    /// Measurements of each kind [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Seconds of each measurement [default: 0.5, with --quick 0.15]
    #[arg(long, value_name = "S", value_parser = crate::bench::arguments::positive)]
    seconds: Option<f64>,
    /// Size of a figure's file in MiB [default: 512, with --quick 64, or what fits in half of the free space]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..))]
    size: Option<u64>,
    /// Measure another library too, loaded by LD_PRELOAD, in figures of file calls; may be given several times
    #[arg(long, value_name = "NAME=PATH")]
    preload: Vec<Side>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    options: Options,
}

/// Prints the names.
pub fn list(_: &ListArgs) -> Result<(), String> {
    let mut rows = vec![["NAME", "TITLE"].map(String::from).to_vec()];
    rows.extend(all_figures().iter().map(|figure| vec![figure.name.into(), figure.title.into()]));
    print!("{}", table(&rows));
    Ok(())
}

pub fn fig(args: &FigArgs) -> Result<i32, Failure> {
    let mut figures = Vec::new();
    for name in &args.names {
        let found = all_figures().into_iter().find(|figure| figure.name == name);
        let unknown = || Failure::new(FAILED, format!("{name}: no such figure; 'famio bench list' has the names"));
        figures.push(found.ok_or_else(unknown)?);
    }
    measure(figures, &args.shared)
}

pub fn paper(args: &PaperArgs) -> Result<i32, Failure> {
    measure(all_figures().into_iter().filter(|figure| figure.paper == args.paper).collect(), &args.shared)
}

pub fn all(args: &AllArgs) -> Result<i32, Failure> {
    measure(all_figures(), &args.shared)
}

/// Measures figures, and shows each when it is done. A signal keeps the results so far.
fn measure(figures: Vec<Declared>, args: &Shared) -> Result<i32, Failure> {
    let failed = |error: String| Failure::new(FAILED, error);
    let extent = extent(args).map_err(failed)?;
    let session =
        Session::new(&args.folder, figures.iter().map(|figure| count(figure, &extent)).sum()).map_err(failed)?;
    let mut document = Document::new(&args.folder, &extent.effort(), &args.options);
    if let Some(folder) = &args.output.report {
        // Written after each figure, not only at the end.
        report::write(folder, &document).map_err(failed)?;
    }
    document.complete = false;
    for figure in &figures {
        if session.interrupted() {
            break;
        }
        let measured = run(&session, &args.options, &extent, figure);
        let measured = measured.map_err(|error| failed(format!("{}: {error}", figure.name)))?;
        if !args.output.json() {
            session.say(&report::text(&measured));
        }
        document.figures.push(measured);
        document.complete = document.figures.len() == figures.len() && !session.interrupted();
        if let Some(folder) = &args.output.report {
            report::write(folder, &document).map_err(failed)?;
        }
    }
    let status = session.status();
    drop(session); // removes the progress bar
    if args.output.json() {
        crate::out::json(&document)?;
    }
    if let Some(folder) = &args.output.report {
        eprintln!("{}", folder.join(report::PAGE).display());
    }
    Ok(status)
}

fn extent(args: &Shared) -> Result<Extent, String> {
    let usual = if args.quick { Extent::QUICK } else { Extent::WHOLE };
    let fitting = crate::bench::size::default(&args.folder)? << 20;
    Ok(Extent {
        rounds: args.rounds.unwrap_or(usual.rounds),
        seconds: args.seconds.unwrap_or(usual.seconds),
        file_size: args.size.map_or(usual.file_size.min(fitting), |size| size << 20),
        map_size: args.size.map_or(usual.map_size, |size| size << 20),
        disk: disk(args)?,
        preload: args.preload.clone(),
    })
}

/// A folder on a disk, if there is one.
fn disk(args: &Shared) -> Result<Option<PathBuf>, String> {
    if let Some(asked) = &args.disk {
        return match Disk::of(asked) {
            Some(_) => Ok(Some(asked.clone())),
            None => Err(format!("--disk: {} is not on a disk", asked.display())),
        };
    }
    let usual = [args.folder.as_path(), Path::new("/var/tmp")];
    Ok(usual.into_iter().find(|folder| Disk::of(folder).is_some()).map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_paper_has_figures() {
        for paper in Paper::value_variants() {
            assert!(all_figures().iter().any(|figure| figure.paper == *paper));
        }
    }
}
