//! Measures figures.

use super::{Declared, Metric, Work};
use crate::bench::document::{Figure, Point, Shape};
use crate::bench::io::lane::Length;
use crate::bench::io::measure::{Effort, measure, steps};
use crate::bench::io::result::{Row, SideResult};
use crate::bench::session::Session;
use crate::bench::{map, processes};
use crate::settings::Options;

/// The extent of each measurement.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub rounds: u32,
    pub seconds: f64,
    /// Size of a file.
    pub file_size: u64,
    /// Total size of mapped files.
    pub map_size: u64,
}

impl Extent {
    pub const WHOLE: Self = Self { rounds: 5, seconds: 0.5, file_size: 512 << 20, map_size: 2 << 30 };
    pub const QUICK: Self = Self { rounds: 3, seconds: 0.15, file_size: 64 << 20, map_size: 256 << 20 };

    pub fn effort(&self) -> Effort {
        Effort { rounds: self.rounds, length: Length::Seconds(self.seconds), file_size: self.file_size }
    }
}

/// How many measurements a figure takes.
pub fn count(figure: &Declared, extent: &Extent) -> u64 {
    match figure.work {
        Work::Calls { sides, cells, .. } => steps(&extent.effort(), sides().len()) * cells().len() as u64,
        Work::Maps(task) => map::steps(task, extent.rounds),
        Work::Sqlite => processes::modes_steps(extent.rounds),
        Work::NotBuilt(_) => 0,
    }
}

/// Measures one figure; partial if a signal ends the session.
pub fn run(session: &Session, options: &Options, extent: &Extent, declared: &Declared) -> Result<Figure, String> {
    session.show(declared.name);
    let mut figure = Figure {
        name: declared.name.into(),
        title: declared.title.into(),
        x: String::new(),
        y: String::new(),
        higher_is_better: true,
        shape: Shape::Bars,
        points: Vec::new(),
        rows: Vec::new(),
        skipped: None,
    };
    match &declared.work {
        Work::NotBuilt(needs) => figure.skipped = Some(format!("needs {needs}")),
        Work::Calls { x, y, shape, sides, cells } => {
            figure.x = x.to_string();
            figure.y = y.label().into();
            figure.higher_is_better = y.higher_is_better();
            figure.shape = *shape;
            let effort = extent.effort();
            for cell in cells() {
                // For cold measurements, the first second is what counts.
                let length = if cell.workload.cold { Length::Seconds(2.0 * extent.seconds) } else { effort.length };
                let effort = Effort { length, ..effort };
                session.show(&format!("{}: {}", declared.name, cell.workload.title()));
                let Some(row) = measure(session, options, &effort, &sides(), &cell.workload)? else { break };
                figure.points.extend(points(*y, &cell.x, cell.group, &row));
                figure.rows.push(row);
                if session.interrupted() {
                    break;
                }
            }
        }
        Work::Maps(task) => {
            figure.x = "way of mapping".into();
            figure.y = "throughput, MiB/s".into();
            figure.points = map::figure(session, *task, extent.rounds, extent.map_size)?;
        }
        Work::Sqlite => match processes::sqlite_is_there() {
            Err(error) => {
                session.skip(processes::modes_steps(extent.rounds));
                figure.skipped = Some(error);
            }
            Ok(()) => {
                figure.x = "transaction".into();
                figure.y = "transactions a second".into();
                figure.points = processes::modes(session, options, extent.rounds, extent.seconds)?;
            }
        },
    }
    Ok(figure)
}

fn points(metric: Metric, x: &str, group: &str, row: &Row) -> Vec<Point> {
    let bytes = row.workload.io_size as f64;
    let base = &row.sides[0];
    let series = |side: &SideResult| match group {
        "" => side.side.clone(),
        group => format!("{}, {group}", side.side),
    };
    let of = |side: &SideResult, figure: &dyn Fn(f64, f64) -> f64| {
        let rounds = side.rounds.iter().zip(&base.rounds).map(|(&time, &base)| figure(time, base)).collect();
        Point::new(&series(side), x, rounds)
    };
    let all = row.sides.iter();
    match metric {
        Metric::Throughput => all.map(|side| of(side, &|time, _| bytes / time * 1e9 / f64::from(1 << 20))).collect(),
        Metric::Ratio => all.skip(1).map(|side| of(side, &|time, base| base / time)).collect(),
        Metric::Latency => all
            .flat_map(|side| {
                let times = &side.calls;
                let shown = [
                    ("mean", times.mean),
                    ("50 %", times.p50),
                    ("99 %", times.p99),
                    ("99.9 %", times.p99_9),
                    ("99.99 %", times.p99_99),
                    ("longest", times.longest),
                ];
                shown.map(|(x, time)| Point::new(&series(side), x, vec![time / 1e3]))
            })
            .collect(),
    }
}
