//! Measures figures.

use super::declared::{Declared, Metric, Work};
use super::extent::Extent;
use crate::bench::document::effort::{Effort, Length};
use crate::bench::document::row::{Row, SideResult};
use crate::bench::document::{Figure, Point};
use crate::bench::io::measure::{measure, steps};
use crate::bench::io::medium::Disk;
use crate::bench::session::Session;
use crate::bench::{apps, container, map, processes, tx};
use crate::settings::Options;

/// Of files on a disk: each measurement writes them several times.
const MOST_ON_DISK: u64 = 64 << 20;
/// Transactions of each measurement.
const TRANSACTIONS: u32 = 2000;

/// How many measurements a figure takes.
pub fn count(figure: &Declared, extent: &Extent) -> u64 {
    match figure.work {
        Work::Calls { sides, cells, .. } => {
            steps(&extent.effort(), sides().len() + extent.preload.len()) * cells().len() as u64
        }
        Work::Maps(task) => map::steps(task, extent.rounds),
        Work::Sqlite => processes::modes_steps(extent.rounds),
        Work::Apps { cells, .. } => apps::steps(&cells(extent), extent.rounds),
        Work::Transactions => tx::steps(),
    }
}

/// Measures one figure; partial if a signal ends the session.
pub fn run(session: &Session, options: &Options, extent: &Extent, declared: &Declared) -> Result<Figure, String> {
    session.show(declared.name);
    let mut figure = Figure::new(declared.name, declared.title);
    figure.paper_says = declared.paper_says.map(Into::into);
    figure.base = declared.base.map(Into::into);
    match &declared.work {
        Work::Calls { .. } => calls(session, options, extent, declared, &mut figure)?,
        Work::Maps(task) => {
            figure.axes("way of mapping", "throughput, MiB/s");
            figure.points = map::figure(session, *task, extent.rounds, extent.map_size)?;
        }
        Work::Sqlite => match processes::sqlite_version() {
            Err(missing) => {
                session.skip(processes::modes_steps(extent.rounds));
                figure.skipped = Some(missing);
            }
            Ok(version) => {
                figure.axes("transaction", "transactions a second");
                figure.notes.push(version);
                figure.points = processes::modes(session, options, extent.rounds, extent.seconds)?;
            }
        },
        Work::Apps { x, y, cells } => {
            figure.axes(x, y);
            let measured = apps::figure(session, options, extent.rounds, extent.seconds, &cells(extent))?;
            (figure.points, figure.notes) = measured;
        }
        Work::Transactions => {
            figure.axes("ranges of a transaction", "time of a transaction, us");
            figure.higher_is_better = false;
            (figure.points, figure.notes) = tx::figure(session, extent.rounds, TRANSACTIONS)?;
        }
    }
    if figure.points.is_empty() && figure.skipped.is_none() && !session.interrupted() {
        figure.skipped = Some(figure.notes.join("; "));
    }
    Ok(figure)
}

fn calls(
    session: &Session,
    options: &Options,
    extent: &Extent,
    declared: &Declared,
    figure: &mut Figure,
) -> Result<(), String> {
    let Work::Calls { x, y, shape, sides, cells } = &declared.work else { return Ok(()) };
    figure.axes(x, y.label());
    figure.higher_is_better = y.higher_is_better();
    figure.shape = *shape;
    let mut effort = extent.effort();
    let mut folder = session.folder();
    let mut options = options.clone();
    if declared.on_disk {
        let Some(disk) = &extent.disk else {
            session.skip(count(declared, extent));
            figure.skipped = Some("needs a folder on a disk: --disk".into());
            return Ok(());
        };
        folder = session.on_disk(disk)?;
        effort.file_size = effort.file_size.min(MOST_ON_DISK);
        // That is for memory; a pool in memory gets it by itself.
        options.domain = None;
        figure.notes.push(format!("on a disk: {}", disk.display()));
    }
    let in_containers = cells().iter().any(|cell| cell.workload.in_containers);
    if let Some(missing) = in_containers.then(container::missing).flatten() {
        session.skip(count(declared, extent));
        figure.skipped = Some(missing);
        return Ok(());
    }
    let mut sides: Vec<_> = sides().into_iter().chain(extent.preload.iter().cloned()).collect();
    if Disk::of(folder).is_some() && sides.iter().any(|side| side.bare().is_some()) {
        // They stand for persistent memory.
        let all = sides.len();
        sides.retain(|side| side.bare().is_none());
        session.skip(steps(&effort, all - sides.len()) * cells().len() as u64);
        figure.notes.push("not measured on a disk: what works without calls".into());
    }
    for cell in cells() {
        // The first second is what counts there.
        let length = if cell.workload.cold { Length::Seconds(2.0 * extent.seconds) } else { effort.length };
        let effort = Effort { length, ..effort };
        session.show(&format!("{}: {}", declared.name, cell.workload.title()));
        let Some(row) = measure(session, folder, &options, &effort, &sides, &cell.workload)? else { break };
        figure.points.extend(points(*y, &cell.x, cell.group, &row));
        figure.rows.push(row);
        if session.interrupted() {
            break;
        }
    }
    Ok(())
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
        Metric::Time => all.map(|side| of(side, &|time, _| time / 1e3)).collect(),
        Metric::Medium => {
            all.filter_map(|side| Some(Point::new(&series(side), x, vec![side.bytes_per_byte()?]))).collect()
        }
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
