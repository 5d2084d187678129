//! LAWN (DAC 2018): writes that are atomic without a log of their own.

use super::Work::{Calls, NotBuilt};
use super::{Cell, Declared, Metric, Paper::Lawn, cell, every_policy};
use crate::bench::document::Shape::Lines;
use crate::bench::io::words::bytes;
use crate::bench::io::workload::Pattern::Random;
use crate::bench::io::workload::Workload;

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, work| Declared { name, paper: Lawn, title, work };
    let calls = |x, y, cells| Calls { x, y, shape: Lines, sides: every_policy, cells };
    let folders = NotBuilt("a mix of files that are made and removed, which the generator does not have");
    vec![
        figure(
            "lawn-5",
            "Each write atomic by itself: random writes, each with fsync",
            calls("bytes of a write", Metric::Throughput, synced_writes),
        ),
        figure(
            "lawn-6",
            "Threads that share a file: random writes of 1 KiB, each with fsync",
            calls("threads", Metric::Throughput, || {
                let write = Workload::write(Random, 1024).fsync(1);
                [1, 2, 4, 8].map(|threads| cell(threads.to_string(), write.threads(threads))).into()
            }),
        ),
        figure(
            "lawn-7",
            "Bytes to the medium for each byte written",
            NotBuilt("counters of the bytes to the medium in the library"),
        ),
        figure("lawn-8", "Filebench: fileserver, webserver, webproxy, varmail", folders),
        figure(
            "lawn-9",
            "FFSB's mix",
            NotBuilt("a mix of files that are made and removed, which the generator does not have"),
        ),
    ]
}

fn synced_writes() -> Vec<Cell> {
    [64, 128, 256, 512, 1024, 2048, 4096].map(|size| cell(bytes(size), Workload::write(Random, size).fsync(1))).into()
}
