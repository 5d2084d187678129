//! Libnvmmio (Choi, Hong, Kwon, Han: USENIX ATC 2020): failure-atomic file calls by user-level logs.

use super::Work::{Calls, NotBuilt, Sqlite};
use super::{Cell, Declared, Metric, Paper::Libnvmmio, cell, every_policy, plain_and_famio};
use crate::bench::document::Shape::{Bars, Lines};
use crate::bench::io::words::bytes;
use crate::bench::io::workload::Pattern::{Random, Sequential};
use crate::bench::io::workload::{SyncEvery, Workload};

const BLOCK: u64 = 4096;

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, work| Declared { name, paper: Libnvmmio, title, work };
    let calls = |x, shape, cells| Calls { x, y: Metric::Throughput, shape, sides: plain_and_famio, cells };
    vec![
        figure(
            "libnvmmio-1",
            "Where the time of a file call goes",
            NotBuilt("a profile of single calls, which the bench does not take"),
        ),
        figure(
            "libnvmmio-6",
            "Reads and writes mixed, with undo, redo and the choice between them; random 4 KiB, fsync every 10 writes",
            Calls {
                x: "writes, percent of the calls",
                y: Metric::Throughput,
                shape: Lines,
                sides: every_policy,
                cells: || {
                    let mix = |writes: u32| Workload::new(Random, BLOCK, 100 - writes).fsync(10);
                    [0, 20, 40, 60, 80, 100].map(|writes| cell(writes.to_string(), mix(writes))).into()
                },
            },
        ),
        figure(
            "libnvmmio-7",
            "Access patterns; 4 KiB, fsync every 100 writes",
            calls("access pattern", Bars, patterns),
        ),
        figure(
            "libnvmmio-8",
            "Sizes of a call; sequential, fsync every 100 writes",
            calls("bytes of a call", Lines, sizes),
        ),
        figure(
            "libnvmmio-9",
            "How often fsync is called; random writes of 4 KiB",
            calls("writes before each fsync", Lines, || {
                let writes = Workload::write(Random, BLOCK);
                let every = [1, 10, 100, 1000].map(|every| cell(every.to_string(), writes.fsync(every)));
                every.into_iter().chain([cell("never", writes)]).collect()
            }),
        ),
        figure(
            "libnvmmio-10",
            "Threads with files of their own; random writes of 4 KiB, fsync every 10",
            calls("threads", Lines, || threads(Workload::own_files)),
        ),
        figure(
            "libnvmmio-11",
            "Threads that share a file; random writes of 4 KiB, fsync every 10",
            calls("threads", Lines, || threads(|workload| workload)),
        ),
        figure(
            "libnvmmio-table-2",
            "How long single calls take; random 4 KiB, each write with fsync",
            Calls {
                x: "of all calls",
                y: Metric::Latency,
                shape: Bars,
                sides: plain_and_famio,
                cells: || {
                    vec![
                        Cell { group: "pread", ..cell("", Workload::read(Random, BLOCK)) },
                        Cell { group: "pwrite", ..cell("", Workload::write(Random, BLOCK).fsync(1)) },
                    ]
                },
            },
        ),
        figure("libnvmmio-12", "SQLite as in Mobibench: a row in each transaction, synchronous=FULL", Sqlite),
        figure("libnvmmio-13", "TPC-C on SQLite", NotBuilt("its five transactions, which the bench does not have")),
        figure(
            "libnvmmio-14",
            "YCSB on a mapped store",
            NotBuilt("a store with hard transactions to drive, which the bench does not have"),
        ),
    ]
}

fn patterns() -> Vec<Cell> {
    let synced = |workload: Workload| workload.fsync(100);
    vec![
        cell("sequential read", Workload::read(Sequential, BLOCK)),
        cell("random read", Workload::read(Random, BLOCK)),
        cell("sequential write", synced(Workload::write(Sequential, BLOCK))),
        cell("random write", synced(Workload::write(Random, BLOCK))),
    ]
}

fn sizes() -> Vec<Cell> {
    let mut cells = Vec::new();
    for shift in [7, 9, 11, 12, 14, 16, 18, 20] {
        let size = 1 << shift;
        let read = Workload::read(Sequential, size);
        let write = Workload { sync: SyncEvery::Writes(100), ..Workload::write(Sequential, size) };
        cells.push(Cell { group: "read", ..cell(bytes(size), read) });
        cells.push(Cell { group: "write", ..cell(bytes(size), write) });
    }
    cells
}

fn threads(files: fn(Workload) -> Workload) -> Vec<Cell> {
    let writes = Workload::write(Random, BLOCK).fsync(10);
    [1, 2, 4, 8, 16].map(|count| cell(count.to_string(), files(writes.threads(count)))).into()
}
