//! The patterns measured: numbers of readers and writers, and the setups in which they run.

use super::args::Args;
use super::group::Group;
use super::worker::Task;

/// How a pattern is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub title: &'static str,
    pub under_famio: bool,
    /// SQLite's journal mode.
    pub journal: &'static str,
    /// Other options of `famio run`.
    pub options: &'static [&'static str],
}

impl Setup {
    pub const fn plain(title: &'static str, journal: &'static str) -> Self {
        Self { title, under_famio: false, journal, options: &[] }
    }

    pub const fn famio(title: &'static str, journal: &'static str) -> Self {
        Self { title, under_famio: true, journal, options: &[] }
    }
}

const FILES: [Setup; 2] = [Setup::plain("plain", ""), Setup::famio("Famio", "")];
const SQLITE: [Setup; 3] =
    [Setup::plain("DELETE", "DELETE"), Setup::plain("WAL", "WAL"), Setup::famio("Famio, MEMORY", "MEMORY")];
const REQUESTS: [Setup; 4] = [
    SQLITE[0],
    SQLITE[1],
    SQLITE[2],
    Setup { options: &["--defer-close", "auto"], ..Setup::famio("Famio, MEMORY, --defer-close auto", "MEMORY") },
];

/// The work of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    pub task: Task,
    pub rate: Option<f64>,
}

/// The processes that work at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    pub title: String,
    pub jobs: Vec<Job>,
    /// SQLite's locking mode.
    pub exclusive: bool,
    pub uncommitted: u64,
}

impl Pattern {
    fn of(title: impl Into<String>, jobs: Vec<Job>) -> Self {
        Self { title: title.into(), jobs, exclusive: false, uncommitted: 0 }
    }

    fn of_both(reads: Task, readers: u32, writes: Task, writers: u32, rate: Option<f64>) -> Self {
        let people = |count: u32, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            _ => Some(format!("{count} {what}s")),
        };
        let pace = rate.filter(|_| writers > 0).map_or(String::new(), |rate| format!(" at {rate}/s"));
        let title: Vec<_> = [people(readers, "reader"), people(writers, "writer")].into_iter().flatten().collect();
        let mut jobs = vec![Job { task: reads, rate: None }; readers as usize];
        jobs.extend(vec![Job { task: writes, rate }; writers as usize]);
        Self::of(title.join(", ") + &pace, jobs)
    }

    pub fn readers(&self) -> usize {
        self.jobs.iter().filter(|job| job.task.is_read()).count()
    }

    pub fn writers(&self) -> usize {
        self.jobs.len() - self.readers()
    }
}

/// Readers, writers, and the rate of each of these writers.
const TOGETHER: [(u32, u32, Option<f64>); 10] = [
    (1, 0, None),
    (2, 0, None),
    (8, 0, None),
    (2, 1, Some(50.0)),
    (8, 1, Some(50.0)),
    (2, 1, None),
    (8, 1, None),
    (0, 1, None),
    (0, 2, None),
    (0, 4, None),
];

/// Processes that handle requests.
const WORKERS: [(usize, &str); 2] = [(1, "1 worker"), (3, "3 workers")];

/// Number of blocks handed over.
const UNCOMMITTED: u64 = 16;

impl Group {
    pub fn setups(self) -> &'static [Setup] {
        match self {
            Group::Requests => &REQUESTS,
            _ if self.is_sqlite() => &SQLITE,
            _ => &FILES,
        }
    }

    pub fn patterns(self, args: &Args) -> Vec<Pattern> {
        match self {
            Group::Files => together(Task::ReadBlocks, Task::WriteBlocks, args),
            Group::Sqlite => together(Task::Select, Task::Update, args),
            Group::SqliteAlone => [(Task::Insert, "insert"), (Task::Update, "update"), (Task::Delete, "delete")]
                .into_iter()
                .flat_map(|(task, title)| {
                    let one = Pattern::of(title, vec![Job { task, rate: None }]);
                    let title = format!("{title}, locking_mode EXCLUSIVE");
                    [one.clone(), Pattern { title, exclusive: true, ..one }]
                })
                .collect(),
            Group::Requests => WORKERS
                .map(|(workers, title)| Pattern::of(title, vec![Job { task: Task::Request, rate: None }; workers]))
                .to_vec(),
            Group::HandOver => {
                let committed = Pattern::of("nothing uncommitted", vec![Job { task: Task::InTurn, rate: None }; 2]);
                let title = format!("{UNCOMMITTED} blocks uncommitted");
                vec![committed.clone(), Pattern { title, uncommitted: UNCOMMITTED, ..committed }]
            }
        }
    }
}

/// The usual patterns, or the one asked for and its readers without writers.
fn together(reads: Task, writes: Task, args: &Args) -> Vec<Pattern> {
    let asked = match (args.readers, args.writers) {
        (None, None) => TOGETHER.to_vec(),
        (readers, writers) => {
            let (readers, writers) = (readers.unwrap_or(0), writers.unwrap_or(0));
            let mut asked = vec![(readers, 0, None), (readers, writers, args.rate)];
            asked.retain(|&(readers, writers, _)| readers + writers > 0);
            asked.dedup();
            asked
        }
    };
    asked.into_iter().map(|(readers, writers, rate)| Pattern::of_both(reads, readers, writes, writers, rate)).collect()
}
