//! The same measurements as points of a chart.

use super::{Args, Shape, measure};
use crate::bench::document::Point;
use crate::bench::output::Json;
use crate::bench::session::Session;
use std::path::Path;

/// Ranges of a transaction, and bytes of each.
const SHAPES: [(u32, u32); 3] = [(32, 128), (8, 1024), (1, 4096)];

/// How many measurements it takes.
pub fn steps() -> u64 {
    SHAPES.len() as u64
}

/// The time of a transaction in each way, and what is missing.
pub fn figure(session: &Session, rounds: u32, count: u32) -> Result<(Vec<Point>, Vec<String>), String> {
    let (mut points, mut notes) = (Vec::new(), Vec::new());
    let file = session.folder().join("tx");
    for (ranges, bytes) in SHAPES {
        if session.interrupted() {
            break;
        }
        let args = arguments(session.folder(), rounds, ranges, bytes, count);
        let shape = Shape { ranges: ranges as usize, bytes: bytes as usize, size: 4 << 20 };
        let figures = measure(&args, shape, &file, &file.with_extension("obj"));
        for name in ["tx", "tx.obj"] {
            let _ = std::fs::remove_file(session.folder().join(name));
        }
        let figures = figures?;
        let x = format!("{ranges} x {}", crate::bench::document::words::bytes(bytes.into()));
        for (series, rounds) in [
            ("bare copy, written back", figures.copy),
            ("Famio, transaction", figures.transaction),
            ("Famio, writes and a SYNC", figures.writes),
            ("libpmemobj", figures.libpmemobj),
        ] {
            if rounds.is_empty() {
                notes = vec!["not measured: libpmemobj is not installed".to_string()];
            } else {
                points.push(Point::new(series, &x, rounds.into_iter().map(|time| time / 1e3).collect()));
            }
        }
        session.step();
    }
    Ok((points, notes))
}

fn arguments(folder: &Path, rounds: u32, ranges: u32, bytes: u32, count: u32) -> Args {
    Args { folder: folder.into(), rounds, ranges, bytes, mib: 4, count, output: Json::default() }
}
