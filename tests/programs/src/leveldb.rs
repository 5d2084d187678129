//! LevelDB, by Python's plyvel, all of whose files are atomic.

use crate::job::Job;
use crate::numbered::Numbered;
use crate::report::Report;
use crate::under;
use std::time::Duration;

const SCRIPT: &str = include_str!("scripts/leveldb.py");

/// Batches, killed; then all acknowledged ones must be there, and none in part.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let Some(python) = under::python_with("plyvel") else {
        report.skipped = Some("python3-plyvel is not installed".into());
        return Ok(());
    };
    let batches = Numbered {
        globs: &["**"],
        words: vec![python.into(), "-c".into(), SCRIPT.into()],
        environment: &[],
        // LevelDB maps its tables to read them.
        expected: &["demoted to an ordinary file because of mmap(2)"],
        longest: Duration::from_millis(500),
        makes_files_unsynced: false,
    };
    batches.run(job, report, job.kills)
}
