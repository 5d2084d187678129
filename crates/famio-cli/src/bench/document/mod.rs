//! The results of a bench, for programs and for `famio bench compare`: docs/json.md describes them.

pub mod effort;
pub mod machine;
pub mod row;
pub mod statistics;
pub mod words;
pub mod workload;

use crate::settings::Options;
use effort::{Effort, Length};
use machine::Machine;
use row::Row;
use serde::{Deserialize, Serialize};
use statistics::estimate;
use std::path::Path;

/// All figures of a run.
#[derive(Serialize, Deserialize)]
pub struct Document {
    /// The version of this command.
    pub famio: String,
    /// Seconds since 1970.
    pub began: u64,
    pub machine: Machine,
    pub method: Method,
    /// False if a signal ended the run early.
    pub complete: bool,
    pub figures: Vec<Figure>,
}

/// How it was measured.
#[derive(Clone, Serialize, Deserialize)]
pub struct Method {
    pub folder: String,
    pub file_system: String,
    pub rounds: u32,
    /// Of each measurement, unless that is a number of calls.
    pub seconds: Option<f64>,
    pub calls: Option<u64>,
    /// Bytes of the file, or of the files of all threads together.
    pub file_size: u64,
    /// `power` or `process`.
    pub durability: String,
    /// Ordinary memory was treated as persistent memory.
    pub emulated: bool,
}

/// A chart with its table.
#[derive(Clone, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub title: String,
    /// The quantity on the x axis.
    pub x: String,
    /// The quantity on the y axis, with its unit.
    pub y: String,
    pub higher_is_better: bool,
    pub shape: Shape,
    pub points: Vec<Point>,
    /// Details, for figures that consist of file calls.
    pub rows: Vec<Row>,
    /// Why there is no result.
    pub skipped: Option<String>,
    /// The series that others are compared with. `None`: `plain`.
    #[serde(default)]
    pub base: Option<String>,
    /// What the paper says of it.
    #[serde(default)]
    pub paper_says: Option<String>,
    /// Versions of what was measured, and what was not.
    #[serde(default)]
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Bars,
    Lines,
}

/// A bar, or a point of a line.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    pub series: String,
    pub x: String,
    /// The median of the rounds, and its 95 % confidence interval.
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// The value of each round.
    pub rounds: Vec<f64>,
}

impl Point {
    pub fn new(series: &str, x: &str, rounds: Vec<f64>) -> Self {
        let estimate = estimate(&rounds);
        Self {
            series: series.into(),
            x: x.into(),
            value: estimate.value,
            low: estimate.low,
            high: estimate.high,
            rounds,
        }
    }
}

impl Figure {
    /// Without anything measured.
    pub fn new(name: &str, title: &str) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            x: String::new(),
            y: String::new(),
            higher_is_better: true,
            shape: Shape::Bars,
            points: Vec::new(),
            rows: Vec::new(),
            skipped: None,
            base: None,
            paper_says: None,
            notes: Vec::new(),
        }
    }

    pub fn axes(&mut self, x: &str, y: &str) {
        (self.x, self.y) = (x.into(), y.into());
    }

    /// Names of the series, or of the places on the x axis, in their order.
    pub fn names(&self, of: impl Fn(&Point) -> &str) -> Vec<&str> {
        let mut names = Vec::new();
        for point in &self.points {
            if !names.contains(&of(point)) {
                names.push(of(point));
            }
        }
        names
    }

    pub fn point(&self, series: &str, x: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.series == series && point.x == x)
    }
}

impl Document {
    /// A document without figures, for a run that begins now.
    pub fn new(folder: &Path, effort: &Effort, options: &Options) -> Self {
        let (seconds, calls) = match effort.length {
            Length::Seconds(seconds) => (Some(seconds), None),
            Length::Calls(calls) => (None, Some(calls)),
        };
        let method = Method {
            folder: folder.display().to_string(),
            file_system: machine::file_system(folder),
            rounds: effort.rounds,
            seconds,
            calls,
            file_size: effort.file_size,
            durability: durability(options),
            emulated: emulated(options),
        };
        let famio = env!("CARGO_PKG_VERSION").into();
        Self {
            famio,
            began: super::clock::seconds_since_1970(),
            machine: Machine::look(),
            method,
            complete: true,
            figures: Vec::new(),
        }
    }
}

/// What a SYNC survives with these options.
pub fn durability(options: &Options) -> String {
    options.durability.map_or("power".into(), super::launch::name)
}

/// Whether these options treat ordinary memory as persistent memory.
pub fn emulated(options: &Options) -> bool {
    options.domain.is_some()
}
