//! One process of a measurement.

use super::blocks;
use super::database::{self, Change, Mode};
use clap::ValueEnum;
use std::path::PathBuf;

/// What one process does.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_enum)]
    task: Task,
    /// Calls a second at most
    #[arg(long)]
    rate: Option<f64>,
    /// SQLite's journal mode
    #[arg(long, default_value = "DELETE")]
    journal: String,
    /// SQLite's locking mode
    #[arg(long)]
    exclusive: bool,
    /// Rows of the database
    #[arg(long, default_value_t = 1)]
    rows: u64,
    /// The token of two processes that write in turn
    #[arg(long, default_value = "")]
    token: PathBuf,
    /// Which of the two this is
    #[arg(long, default_value_t = 0)]
    me: u32,
    /// Blocks that they write and do not sync
    #[arg(long, default_value_t = 0)]
    uncommitted: u64,
    file: PathBuf,
}

/// The work that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Task {
    ReadBlocks,
    WriteBlocks,
    InTurn,
    Select,
    Update,
    Insert,
    Delete,
    Request,
}

impl Task {
    pub fn is_read(self) -> bool {
        matches!(self, Task::ReadBlocks | Task::Select)
    }

    /// What it does to a database.
    pub fn change(self) -> Option<Change> {
        match self {
            Task::Insert => Some(Change::Insert),
            Task::Update => Some(Change::Update),
            Task::Delete => Some(Change::Delete),
            _ => None,
        }
    }
}

/// Works when the bench says so on stdin, and reports on stdout.
pub fn main(args: &Args) -> Result<(), String> {
    let (file, rate) = (&args.file, args.rate);
    let mode = Mode { journal: &args.journal, exclusive: args.exclusive };
    match (args.task, args.task.change()) {
        (_, Some(change)) => database::write(file, &mode, change, args.rows, rate),
        (Task::Request, _) => database::handle_requests(file, &mode, args.rows),
        (Task::Select, _) => database::read(file, &mode, args.rows),
        (Task::ReadBlocks, _) => blocks::read(file),
        (Task::InTurn, _) => blocks::in_turn(file, &args.token, args.me, args.uncommitted),
        _ => blocks::write(file, rate),
    }
}
