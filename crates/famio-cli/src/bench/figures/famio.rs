//! This project's goals: the tables of docs/performance.md.

use super::Work::Calls;
use super::{Cell, Declared, Metric, Paper::Famio, cell, plain_and_famio};
use crate::bench::document::Shape::Bars;
use crate::bench::io::sets::Set;
use crate::bench::io::workload::Workload;

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, cells| Declared {
        name,
        paper: Famio,
        title,
        work: Calls { x: "workload", y: Metric::Ratio, shape: Bars, sides: plain_and_famio, cells },
    };
    vec![
        figure("famio-warm", "File calls, warm", || rows(false)),
        figure("famio-cold", "File calls, from the first call of a process on", || rows(true)),
    ]
}

fn rows(cold: bool) -> Vec<Cell> {
    let rows = Set::Goals.rows().into_iter().map(|row| Workload { cold, ..row });
    rows.map(|row| cell(row.title(), row)).collect()
}
