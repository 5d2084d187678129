//! This project's goals: the tables of docs/performance.md.

use super::declared::Work::Calls;
use super::declared::{Cell, Declared, Metric, Paper::Famio, cell};
use super::sides::plain_and_famio;
use crate::bench::document::Shape::Bars;
use crate::bench::document::workload::Pattern::{Random, Sequential};
use crate::bench::document::workload::Workload;
use crate::bench::io::sets::Set;
use crate::bench::io::side::Side;

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, cells| {
        let work = Calls { x: "workload", y: Metric::Ratio, shape: Bars, sides: plain_and_famio, cells };
        Declared::new(Famio, name, title, work)
    };
    let control = Calls { x: "workload", y: Metric::Ratio, shape: Bars, sides: plain_twice, cells: controls };
    vec![
        figure("famio-warm", "File calls, warm", || rows(false)),
        figure("famio-cold", "File calls, from the first call of a process on", || rows(true)),
        Declared::new(Famio, "famio-control", "Plain calls against plain calls: what differs by itself", control),
    ]
}

fn rows(cold: bool) -> Vec<Cell> {
    let rows = Set::Goals.rows().into_iter().map(|row| Workload { cold, ..row });
    rows.map(|row| cell(row.title(), row)).collect()
}

fn plain_twice() -> Vec<Side> {
    vec![Side::plain(), Side::plain_again()]
}

fn controls() -> Vec<Cell> {
    let write = Workload::write(Random, 4096);
    [Workload::read(Sequential, 4096), Workload::read(Random, 4096), write, write.fsync(10), write.fsync(10).threads(2)]
        .map(|row| cell(row.title(), row))
        .into()
}
