//! The figures of papers, and our own: what each shows, and how it is measured. A figure is a declaration of a few
//! lines in the file of its paper; add new ones there.

mod command;
mod famio;
mod lawn;
mod libnvmmio;
mod map_ahead;
mod run;
mod vnvml;

use run::Extent;

pub use command::{AllArgs, FigArgs, ListArgs, PaperArgs, all, fig, list, paper};

use super::apps::AppCell;
use super::document::Shape;
use super::io::bare::Bare;
use super::io::side::Side;
use super::io::workload::Workload;
use super::map::Task;
use crate::settings::PolicyName;
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
    pub owner_lock: Option<&'static str>,
    /// The series that others are compared with, where it is not `plain`.
    pub base: Option<&'static str>,
    /// Its files lie on a disk (`--disk`), whatever `--folder` is.
    pub on_disk: bool,
    pub work: Work,
}

impl Declared {
    pub fn new(paper: Paper, name: &'static str, title: &'static str, work: Work) -> Self {
        Self { name, paper, title, owner_lock: None, base: None, on_disk: false, work }
    }

    /// Only what can be looked up: the words of a source, and which.
    pub fn owner_lock(self, owner_lock: &'static str) -> Self {
        Self { owner_lock: Some(owner_lock), ..self }
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
fn cell(x: impl Into<String>, workload: Workload) -> Cell {
    Cell { x: x.into(), group: "", workload }
}

fn plain_and_famio() -> Vec<Side> {
    vec![Side::plain(), Side::famio(None)]
}

/// Beside the limits of a store through a map, and the ways that came before.
fn with_baselines() -> Vec<Side> {
    let before = [Bare::PageCopy, Bare::FineLog].map(Side::without_calls);
    every_policy().into_iter().chain(before).collect()
}

/// Beside a copy into a map.
fn with_the_limit() -> Vec<Side> {
    plain_and_famio().into_iter().chain([Bare::Copy, Bare::Durable].map(Side::without_calls)).collect()
}

/// The comparison of the papers: one way of logging for everything, and the choice between them.
fn every_policy() -> Vec<Side> {
    let policies = [PolicyName::Undo, PolicyName::Redo, PolicyName::Alternate].map(Some);
    [Side::plain()].into_iter().chain(policies.into_iter().chain([None]).map(Side::famio)).collect()
}

/// All of them, by paper.
pub fn all_figures() -> Vec<Declared> {
    [famio::figures(), libnvmmio::figures(), vnvml::figures(), lawn::figures(), map_ahead::figures()]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_name_of_its_own_and_can_be_run() {
        let figures = all_figures();
        let mut names: Vec<_> = figures.iter().map(|figure| figure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), figures.len());
        for figure in figures {
            let paper = figure.paper.to_possible_value().unwrap();
            assert!(figure.name.starts_with(paper.get_name()), "{}", figure.name);
            if let Work::Apps { cells, .. } = figure.work {
                let (whole, quick) = (cells(&Extent::WHOLE), cells(&Extent::QUICK));
                assert!(!whole.is_empty() && whole.len() == quick.len());
            }
            if let Work::Calls { sides, cells, .. } = figure.work {
                assert!(sides().len() > 1);
                for cell in cells() {
                    assert!(cell.workload.check(64 << 20).is_ok(), "{} {}", figure.name, cell.x);
                    // What works without calls has one thread.
                    let is_bare = sides().iter().any(|side| side.bare().is_some());
                    assert!(!is_bare || cell.workload.lanes() == 1, "{} {}", figure.name, cell.x);
                }
            }
        }
    }
}
