//! Libnvmmio (Choi, Hong, Kwon, Han: USENIX ATC 2020): failure-atomic file calls by user-level logs.

use super::declared::Work::{Apps, Calls, Sqlite};
use super::declared::{Cell, Declared, Metric, Paper::Libnvmmio, cell};
use super::extent::Extent;
use super::sides::{every_policy, plain_and_famio, with_the_limit};
use crate::bench::apps::{App, AppCell, Engine, Letter, Scale, Tpcc, Ycsb};
use crate::bench::document::Shape::{Bars, Lines};
use crate::bench::document::words::bytes;
use crate::bench::document::workload::Pattern::{Random, Sequential};
use crate::bench::document::workload::{SyncEvery, Workload};
use crate::bench::io::bare::Bare;
use crate::bench::io::side::Side;

const BLOCK: u64 = 4096;
const MICRO: &str = "up to 2.2 times the throughput of system calls (abstract, all microbenchmarks)";
const SCALES: &str = "up to 13 times better scalability than system calls (abstract)";

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, work| Declared::new(Libnvmmio, name, title, work);
    let calls = |x, shape, cells| Calls { x, y: Metric::Throughput, shape, sides: plain_and_famio, cells };
    vec![
        figure(
            "libnvmmio-1",
            "Where the time of a file call goes: the system call, the copy, and the rest; 4 KiB at random",
            Calls {
                x: "call",
                y: Metric::Time,
                shape: Bars,
                sides: || {
                    let parts = [Bare::SystemCall, Bare::Copy, Bare::Durable].map(Side::without_calls);
                    plain_and_famio().into_iter().chain(parts).collect()
                },
                cells: || {
                    let write = Workload::write(Random, BLOCK);
                    vec![
                        cell("pread", Workload::read(Random, BLOCK)),
                        cell("pwrite", write),
                        cell("pwrite and fsync", write.fsync(1)),
                    ]
                },
            },
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
            Calls { x: "access pattern", y: Metric::Throughput, shape: Bars, sides: with_the_limit, cells: patterns },
        )
        .paper_says(MICRO),
        figure(
            "libnvmmio-8",
            "Sizes of a call; sequential, fsync every 100 writes",
            calls("bytes of a call", Lines, sizes),
        )
        .paper_says(MICRO),
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
        )
        .paper_says(SCALES),
        figure(
            "libnvmmio-11",
            "Threads that share a file; random writes of 4 KiB, fsync every 10",
            calls("threads", Lines, || threads(|workload| workload)),
        )
        .paper_says(SCALES),
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
        figure("libnvmmio-12", "SQLite as in Mobibench: a row in each transaction, synchronous=FULL", Sqlite)
            .base("WAL")
            .paper_says("up to 1.93 times Mobibench (abstract)"),
        figure(
            "libnvmmio-13",
            "TPC-C on SQLite, one warehouse, all five transactions, synchronous=FULL",
            Apps { x: "transactions", y: "transactions a second", cells: tpcc },
        )
        .base("WAL")
        .paper_says("up to 1.27 times TPC-C on SQLite (abstract)"),
        figure(
            "libnvmmio-14",
            "YCSB with records of 1 KiB: a store's own hard transactions, and none under Famio, which syncs instead",
            Apps { x: "workload", y: "operations a second", cells: ycsb },
        )
        .paper_says("up to 1.42 times YCSB's workloads with many writes on MongoDB (abstract)"),
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

fn tpcc(extent: &Extent) -> Vec<AppCell> {
    let scale = if extent.is_quick() { Scale::QUICK } else { Scale::WHOLE };
    let plain = ["DELETE", "TRUNCATE", "PERSIST", "WAL"].map(|journal| (journal, journal, Side::plain()));
    let famio = [("Famio, MEMORY", "MEMORY", Side::famio(None)), ("Famio, WAL", "WAL", Side::famio(None))];
    let cell = |(series, journal, side): (&str, &str, Side)| AppCell {
        series: series.into(),
        x: "all five".into(),
        side,
        app: App::Tpcc(Tpcc { journal: journal.into(), scale }),
    };
    plain.into_iter().chain(famio).map(cell).collect()
}

fn ycsb(extent: &Extent) -> Vec<AppCell> {
    let records = if extent.is_quick() { 4000 } else { 50_000 };
    let sides = || {
        [
            ("plain, HashDB", Engine::Hash { hard: true }, Side::plain()),
            ("Famio, HashDB", Engine::Hash { hard: false }, Side::famio(None)),
            ("plain, TreeDB", Engine::Tree { hard: true }, Side::plain()),
            ("Famio, TreeDB", Engine::Tree { hard: false }, Side::famio(None)),
            ("LMDB", Engine::Lmdb, Side::plain()),
        ]
    };
    let mut cells = Vec::new();
    for letter in Letter::ALL {
        // A hash file has no order to scan in.
        for (series, engine, side) in sides().into_iter().filter(|side| letter != Letter::E || side.1.has_order()) {
            let app = App::Ycsb(Ycsb { engine, letter, records });
            cells.push(AppCell { series: series.into(), x: letter.title().into(), side, app });
        }
    }
    cells
}
