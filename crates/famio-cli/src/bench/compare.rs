//! `famio bench compare`: what has changed between two runs, beyond their noise.

use super::document::statistics::{Estimate, ratio_of_runs};
use super::document::{Document, Figure, Point};
use super::output::Json;
use crate::failure::{FAILED, Failure};
use crate::out::json;
use crate::text::table;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Compare two runs: what has changed beyond their noise
///
/// Both files are JSON of famio bench io, fig, paper, all or run (--json, or figures.json in the folder of --report). A
/// value has changed if the interval of the ratio of both runs, by a bootstrap over their rounds, excludes 1, and if
/// it differs by more than --threshold. Runs of fewer than three rounds say too little, and are left out.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0; with --fail, 1 if something got worse beyond noise; 1 if a file can't
be read, or the two have nothing in common.

Examples:
  famio bench compare before.json after.json
  famio bench compare --fail --threshold 10 before/figures.json after/figures.json")]
pub struct Args {
    /// The earlier run
    before: PathBuf,
    /// The later run
    after: PathBuf,
    /// Percent that a value may differ by
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    threshold: f64,
    /// Exit with status 1 if something got worse
    #[arg(long)]
    fail: bool,
    /// Show what has not changed too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Json,
}

/// A value that both runs have.
#[derive(Serialize)]
struct Compared {
    figure: String,
    series: String,
    x: String,
    y: String,
    before: f64,
    after: f64,
    /// Ratio of the later value to the earlier one.
    ratio: f64,
    low: f64,
    high: f64,
    /// `better`, `worse`, or `same`.
    verdict: &'static str,
}

/// Compares, and prints the table.
pub fn main(args: &Args) -> Result<i32, Failure> {
    let failed = |error| Failure::new(FAILED, error);
    let (before, after) = (read(&args.before).map_err(failed)?, read(&args.after).map_err(failed)?);
    let mut compared = compare(&before, &after, args.threshold / 100.0);
    if compared.is_empty() {
        let (before, after) = (args.before.display(), args.after.display());
        return Err(failed(format!("{before} and {after} have no value in common that has three rounds in both")));
    }
    let worse = compared.iter().filter(|value| value.verdict == "worse").count();
    let (all, changed) = (compared.len(), compared.iter().filter(|value| value.verdict != "same").count());
    compared.retain(|value| args.all || value.verdict != "same");
    if args.output.json {
        json(&compared)?;
    } else {
        print!("{}", shown(&compared));
        println!("{changed} of {all} values have changed, {worse} for the worse");
    }
    Ok(if args.fail && worse > 0 { FAILED } else { 0 })
}

fn read(path: &Path) -> Result<Document, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text)
        .map_err(|error| format!("{}: not what famio bench writes with --json or --report: {error}", path.display()))
}

fn compare(before: &Document, after: &Document, threshold: f64) -> Vec<Compared> {
    let mut out = Vec::new();
    for figure in &after.figures {
        let Some(earlier) = before.figures.iter().find(|earlier| earlier.name == figure.name) else { continue };
        for point in &figure.points {
            let Some(old) = earlier.point(&point.series, &point.x) else { continue };
            if old.rounds.len() >= 3 && point.rounds.len() >= 3 && earlier.y == figure.y {
                out.push(judge(figure, old, point, threshold));
            }
        }
    }
    out
}

fn judge(figure: &Figure, old: &Point, new: &Point, threshold: f64) -> Compared {
    let Estimate { value: ratio, low, high } = ratio_of_runs(&new.rounds, &old.rounds);
    let changed = (low > 1.0 || high < 1.0) && (ratio - 1.0).abs() > threshold;
    let verdict = match (changed, (ratio > 1.0) == figure.higher_is_better) {
        (false, _) => "same",
        (true, true) => "better",
        (true, false) => "worse",
    };
    Compared {
        figure: figure.name.clone(),
        series: new.series.clone(),
        x: new.x.clone(),
        y: figure.y.clone(),
        before: old.value,
        after: new.value,
        ratio,
        low,
        high,
        verdict,
    }
}

fn shown(compared: &[Compared]) -> String {
    let mut rows = Vec::new();
    if !compared.is_empty() {
        rows.push(["FIGURE", "", "", "BEFORE", "AFTER", "AFTER : BEFORE", "95 %", ""].map(String::from).to_vec());
    }
    for value in compared {
        rows.push(vec![
            value.figure.clone(),
            value.x.clone(),
            value.series.clone(),
            super::report::number(value.before),
            super::report::number(value.after),
            format!("{:.2}", value.ratio),
            format!("{:.2} to {:.2}", value.low, value.high),
            value.verdict.into(),
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::super::document::Shape;
    use super::*;

    fn verdict(higher_is_better: bool, before: [f64; 5], after: [f64; 5]) -> &'static str {
        let figure = Figure {
            name: "a".into(),
            title: String::new(),
            x: String::new(),
            y: String::new(),
            higher_is_better,
            shape: Shape::Bars,
            points: Vec::new(),
            rows: Vec::new(),
            ..Figure::new("a", "")
        };
        let point = |rounds: [f64; 5]| Point::new("s", "x", rounds.into());
        judge(&figure, &point(before), &point(after), 0.05).verdict
    }

    #[test]
    fn noise_is_no_change() {
        let (low, high) = ([100.0, 101.0, 99.0, 100.5, 99.5], [150.0, 151.0, 149.0, 150.5, 149.5]);
        assert_eq!(verdict(true, low, high), "better");
        assert_eq!(verdict(false, low, high), "worse");
        assert_eq!(verdict(true, high, low), "worse");
        assert_eq!(verdict(true, low, low.map(|value| value * 1.02)), "same");
        assert_eq!(verdict(true, [50.0, 200.0, 100.0, 150.0, 80.0], [120.0, 60.0, 190.0, 110.0, 160.0]), "same");
    }
}
