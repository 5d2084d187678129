//! A Node program: synchronous calls, callbacks and promises, which libuv carries out in its own threads.

use crate::job::Job;
use crate::numbered::Numbered;
use crate::report::Report;
use std::time::Duration;

const SCRIPT: &str = include_str!("scripts/rounds.js");

/// Rounds through four files, killed; then each must hold a complete round that is not older than the last
/// acknowledged one. With threads, and with a libuv configured for io_uring, which Famio refuses.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let kills = if job.short { job.kills.div_ceil(4) } else { job.kills };
    for (environment, kills) in [(("UV_USE_IO_URING", "0"), kills.div_ceil(2)), (("UV_USE_IO_URING", "1"), kills / 2)] {
        crate::under::clear(job.under.folder)?;
        let rounds = Numbered {
            globs: &["*.dat"],
            words: ["node", "-e", SCRIPT, "--"].map(Into::into).to_vec(),
            environment: &[environment],
            expected: &["io_uring refused"],
            longest: Duration::from_millis(300),
            makes_files_unsynced: false,
        };
        rounds.run(job, report, kills)?;
    }
    Ok(())
}
