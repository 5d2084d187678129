//! A Java program: `RandomAccessFile`, `FileChannel` and `MappedByteBuffer`, one file each.

use crate::job::Job;
use crate::numbered::Numbered;
use crate::report::Report;
use crate::under;
use std::time::Duration;

const SOURCE: &str = include_str!("scripts/Rounds.java");

/// Rounds through three files, killed; then each must hold a complete round that is not older than the last
/// acknowledged one.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let source = job.under.folder.join("Rounds.java");
    std::fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut compile = job.under.plain("javac");
    compile.args(["-d", "classes"]).arg(&source);
    under::succeed(compile)?;
    let words = ["java", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", "classes", "Rounds"];
    let rounds = Numbered {
        globs: &["*.dat"],
        words: words.map(Into::into).to_vec(),
        environment: &[],
        expected: &[],
        longest: Duration::from_millis(500),
        makes_files_unsynced: false,
    };
    rounds.run(job, report, job.kills)
}
