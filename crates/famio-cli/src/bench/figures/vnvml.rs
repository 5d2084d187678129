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
    let figure = |name, title, x, cells| {
        let work = Calls { x, y: Metric::Throughput, shape: Bars, sides, cells };
        Declared::new(Vnvml, name, title, work).on_disk()
    };
    let load = |name, title, cells| figure(name, title, "which records", cells);
    vec![
        Declared::new(Vnvml, "vnvml-12", "Transactions of several ranges, and libpmemobj's", Transactions)
            .base("libpmemobj")
            .paper_says("less than 10 % overhead (abstract; of what, it does not say)"),
        load("vnvml-13", "Key-value load on a disk, records of 64 KiB: 5 % reads, each write synced", || records(5)),
        load("vnvml-14", "Key-value load on a disk, records of 64 KiB: 70 % reads, each write synced", || records(70)),
        load("vnvml-15", "Key-value load on a disk, records of 64 KiB: writes only, each synced", || records(0)),
        figure(
            "vnvml-16",
            "Processes that share the pool, each with a file: records of 64 KiB, each write synced",
            "processes",
            || {
                let of =
                    |processes| Workload { processes, own_files: true, ..Workload::write(Random, RECORD).fsync(1) };
                [1, 2, 4].map(|processes| cell(processes.to_string(), of(processes))).into()
            },
        ),
    ]
}

fn sides() -> Vec<Side> {
    vec![Side::plain(), Side::famio(None), Side::tiered()]
}

fn records(reads: u32) -> Vec<Cell> {
    let load = |pattern| Workload::new(pattern, RECORD, reads).fsync(1);
    vec![cell("uniform", load(Random)), cell("Zipf", load(Zipf))]
}
