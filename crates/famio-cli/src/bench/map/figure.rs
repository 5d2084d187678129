//! The same measurements as points of a chart.

use super::files::{Files, room};
use super::measure::{Figures, measure};
use super::work::{Task, Way};
use crate::bench::document::Point;
use crate::bench::launch::name;
use crate::bench::session::Session;

fn ways(task: Task) -> &'static [Way] {
    match task {
        Task::Sequential => &Way::SEQUENTIAL,
        Task::Random => &Way::RANDOM,
        Task::Zipf => &Way::ZIPF,
    }
}

/// The number of measurements.
pub fn steps(task: Task, rounds: u32) -> u64 {
    ways(task).len() as u64 * u64::from(rounds)
}

/// A bar for each way, in MiB per second. `size`: of the one large file, or of all small ones together.
pub fn figure(session: &Session, task: Task, rounds: u32, size: u64) -> Result<Vec<Point>, String> {
    const SMALL: u64 = 1 << 20;
    const WRITTEN: u64 = 128 << 10;
    let size = size.min(room(session.folder())?).max(SMALL);
    let files = match task {
        Task::Zipf => Files::new(session.folder(), size / SMALL, SMALL, WRITTEN)?,
        _ => Files::new(session.folder(), 2, size & !4095, WRITTEN)?,
    };
    let go_on = || {
        session.step();
        !session.interrupted()
    };
    let ways = ways(task);
    let measured = measure(rounds, &files, task, ways, None, go_on)?;
    let throughput = |figures: &Figures| 4096.0 / figures[0] * 1e9 / f64::from(1 << 20);
    let measured = ways.iter().zip(measured).filter(|(_, all)| !all.is_empty());
    let point = |(way, all): (&Way, Vec<Figures>)| Point::new("", &name(*way), all.iter().map(throughput).collect());
    Ok(measured.map(point).collect())
}
