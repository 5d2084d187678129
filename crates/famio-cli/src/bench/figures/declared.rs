//! What a figure is: where it comes from, and how it is measured.

use super::extent::Extent;
use crate::bench::apps::AppCell;
use crate::bench::document::Shape;
use crate::bench::document::workload::Workload;
use crate::bench::io::side::Side;
use crate::bench::map::Task;
use clap::ValueEnum;

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// USENIX ATC 2020
    Libnvmmio,
    /// CCF THPC 2020
    Vnvml,
    /// DAC 2018
    Lawn,
    /// Map-ahead and the mapping cache
    MapAhead,
    /// This project's goals
    Famio,
}

/// A figure.
pub struct Declared {
    pub name: &'static str,
    pub paper: Paper,
    pub title: &'static str,
    /// What the paper says of it, and where.
    pub paper_says: Option<&'static str>,
    /// The series that others are compared with, where it is not `plain`.
    pub base: Option<&'static str>,
    /// Its files lie on a disk (`--disk`), whatever `--folder` is.
    pub on_disk: bool,
    pub work: Work,
}

impl Declared {
    pub fn new(paper: Paper, name: &'static str, title: &'static str, work: Work) -> Self {
        Self { name, paper, title, paper_says: None, base: None, on_disk: false, work }
    }

    /// Only what can be looked up: the words of a source, and which.
    pub fn paper_says(self, paper_says: &'static str) -> Self {
        Self { paper_says: Some(paper_says), ..self }
    }

    pub fn base(self, series: &'static str) -> Self {
        Self { base: Some(series), ..self }
    }

    pub fn on_disk(self) -> Self {
        Self { on_disk: true, ..self }
    }
}

/// How it is measured.
pub enum Work {
    /// By file calls.
    Calls { x: &'static str, y: Metric, shape: Shape, sides: fn() -> Vec<Side>, cells: fn() -> Vec<Cell> },
    /// By mapped files.
    Maps(Task),
    /// By SQLite, in all its journal modes.
    Sqlite,
    /// By programs in small.
    Apps { x: &'static str, y: &'static str, cells: fn(&Extent) -> Vec<AppCell> },
    /// By transactions of the library, and of libpmemobj.
    Transactions,
}

/// One workload of a figure: all sides run it.
pub struct Cell {
    /// Its place on the x axis.
    pub x: String,
    /// Added to the side's name if a figure has several lines per side.
    pub group: &'static str,
    pub workload: Workload,
}

/// The quantity shown for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Bytes per second, of all threads.
    Throughput,
    /// Duration of single calls: the mean, percentiles, and the longest, each a place on the x axis.
    Latency,
    /// Ratio of the plain side's time to this side's.
    Ratio,
    /// How long a call takes, with its part of the fsyncs.
    Time,
    /// Bytes to the medium for each byte of the writes.
    Medium,
}

impl Metric {
    pub fn label(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput, MiB/s",
            Metric::Latency => "time of a call, us",
            Metric::Ratio => "times as fast as plain calls",
            Metric::Time => "time of a call, us",
            Metric::Medium => "bytes to the medium for each byte written",
        }
    }

    pub fn higher_is_better(self) -> bool {
        matches!(self, Metric::Throughput | Metric::Ratio)
    }
}

/// A cell without a group.
pub fn cell(x: impl Into<String>, workload: Workload) -> Cell {
    Cell { x: x.into(), group: "", workload }
}
