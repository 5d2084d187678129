//! vNVML (MSST 2019; CCF THPC 2020): a disk behind persistent memory. The paper's loads, numbered in its order as far
//! as we know it.

use super::declared::Work::{Calls, Transactions};
use super::declared::{Cell, Declared, Metric, Paper::Vnvml, cell};
use crate::bench::document::Shape::Bars;
use crate::bench::document::workload::Pattern::{Random, Zipf};
use crate::bench::document::workload::Workload;
use crate::bench::io::side::Side;

const RECORD: u64 = 64 << 10;

pub fn figures() -> Vec<Declared> {
    let figure = |name, title, x, y, sides, cells| {
        Declared::new(Vnvml, name, title, Calls { x, y, shape: Bars, sides, cells }).on_disk()
    };
    let speed = |name, title, x, cells| figure(name, title, x, Metric::Throughput, sides, cells);
    let load = |name, title, cells| speed(name, title, "which records", cells);
    let caches = |name, title, y| figure(name, title, "which blocks", y, caches, || synced(4096));
    vec![
        Declared::new(Vnvml, "vnvml-12", "Transactions of several ranges, and libpmemobj's", Transactions)
            .base("libpmemobj")
            .paper_says("less than 10 % overhead (abstract; of what, it does not say)"),
        load("vnvml-13", "Key-value load on a disk, records of 64 KiB: 5 % reads, each write synced", || records(5)),
        load("vnvml-14", "Key-value load on a disk, records of 64 KiB: 70 % reads, each write synced", || records(70)),
        load("vnvml-15", "Key-value load on a disk, records of 64 KiB: writes only, each synced", || records(0)),
        speed(
            "vnvml-16",
            "Processes that share the pool, each with a file: records of 64 KiB, each write synced",
            "processes",
            || [1, 2, 4].map(|processes| cell(processes.to_string(), sharing(processes))).into(),
        ),
        speed("vnvml-16b", "The same, each process in a container of its own", "processes", || {
            let of = |processes| Workload { in_containers: true, ..sharing(processes) };
            [1, 2, 4].map(|processes| cell(processes.to_string(), of(processes))).into()
        }),
        speed("vnvml-17", "Pages of 4 and 8 KiB on a disk, writes only, each synced", "pages", || {
            let pages = |name: &'static str, size| {
                synced(size).into_iter().map(move |cell| Cell { x: format!("{name}, {}", cell.x), ..cell })
            };
            pages("4 KiB", 4 << 10).chain(pages("8 KiB", 8 << 10)).collect()
        }),
        caches("vnvml-18", "Caches of parts of the file: writes of 4 KiB on a disk, each synced", Metric::Throughput),
        caches("vnvml-18b", "The same: bytes written to the disk, by the close at the latest", Metric::Medium),
    ]
}

/// Each process with a file.
fn sharing(processes: u32) -> Workload {
    Workload { processes, own_files: true, ..Workload::write(Random, RECORD).fsync(1) }
}

/// Writes of that size, each with a SYNC.
fn synced(size: u64) -> Vec<Cell> {
    let load = |pattern| Workload::write(pattern, size).fsync(1);
    vec![cell("uniform", load(Random)), cell("Zipf", load(Zipf))]
}

/// Smaller than the file, and larger.
fn caches() -> Vec<Side> {
    vec![Side::plain(), Side::tiered_by(12), Side::tiered_by(50), Side::tiered_by(200)]
}

fn sides() -> Vec<Side> {
    vec![Side::plain(), Side::famio(None), Side::tiered()]
}

fn records(reads: u32) -> Vec<Cell> {
    let load = |pattern| Workload::new(pattern, RECORD, reads).fsync(1);
    vec![cell("uniform", load(Random)), cell("Zipf", load(Zipf))]
}
