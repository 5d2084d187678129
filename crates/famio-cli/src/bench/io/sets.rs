//! Named groups of rows.

use crate::bench::document::workload::Pattern::{Random, Same, Sequential};
use crate::bench::document::workload::{SyncEvery, Workload};
use clap::ValueEnum;

/// A table of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// The cases of docs/performance.md: one thread, small blocks
    Usual,
    /// What the project wants to reach in memory: reads, writes with and without fsync, a mix, and two threads
    Goals,
    /// The same on a disk
    Disk,
    /// One, 2 and 16 threads, on one file and on files of their own
    Threads,
}

const KIB: u64 = 1024;

impl Set {
    pub fn rows(self) -> Vec<Workload> {
        let (read, write, mix) = (Workload::read, Workload::write, |size| Workload::new(Random, size, 50));
        match self {
            Set::Usual => vec![
                write(Random, 4 * KIB).fsync(10),
                read(Sequential, 4 * KIB),
                Workload { read_only: true, ..read(Sequential, 4 * KIB) },
                Workload { at_position: true, sync: SyncEvery::Pass, ..write(Sequential, 128) },
                write(Same, 4 * KIB),
                write(Same, 4 * KIB).fsync(1),
            ],
            Set::Goals => vec![
                read(Sequential, 128),
                read(Sequential, 4 * KIB),
                read(Sequential, 64 * KIB),
                read(Random, 128),
                read(Random, 4 * KIB),
                write(Sequential, 128),
                write(Sequential, 4 * KIB),
                write(Sequential, 64 * KIB),
                write(Random, 128).fsync(10),
                write(Random, 4 * KIB).fsync(10),
                write(Random, 4 * KIB).fsync(1),
                mix(4 * KIB).fsync(10),
                write(Random, 4 * KIB).fsync(10).threads(2),
            ],
            Set::Disk => vec![
                write(Sequential, 64 * KIB),
                write(Sequential, 4 * KIB).fsync(100),
                write(Random, 4 * KIB).fsync(1),
                write(Random, 4 * KIB).fsync(10),
                mix(4 * KIB).fsync(10),
            ],
            Set::Threads => {
                let kinds = [write(Random, 4 * KIB).fsync(10), write(Random, 4 * KIB), read(Random, 4 * KIB)];
                let counts = |kind: Workload| [1, 2, 16].map(|threads| kind.threads(threads));
                let both = |kind| {
                    let shared = counts(kind);
                    shared.into_iter().chain(shared.into_iter().skip(1).map(Workload::own_files))
                };
                kinds.into_iter().flat_map(both).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_run_and_is_there_once() {
        for set in Set::value_variants() {
            let rows = set.rows();
            assert!(rows.iter().all(|row| row.check(512 << 20).is_ok()));
            let mut titles: Vec<_> = rows.iter().map(Workload::title).collect();
            titles.sort();
            titles.dedup();
            assert_eq!(titles.len(), rows.len());
        }
    }
}
