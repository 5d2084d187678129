//! DuckDB, by Python's module: transactions in one file and the log beside it, both atomic, with DuckDB's
//! checkpoints.

use crate::job::Job;
use crate::numbered::Numbered;
use crate::report::Report;
use crate::under;
use std::time::Duration;

const SCRIPT: &str = include_str!("scripts/duckdb.py");

/// Transactions, killed; then all acknowledged ones must be there, and none in part.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let Some(python) = under::python_with("duckdb") else {
        report.skipped = Some("Python's module duckdb is not installed".into());
        return Ok(());
    };
    let transactions = Numbered {
        globs: &["work.db*"],
        words: vec![python.into(), "-c".into(), SCRIPT.into()],
        environment: &[],
        expected: &[],
        longest: Duration::from_millis(700),
        makes_files_unsynced: false,
    };
    transactions.run(job, report, job.kills)
}
