//! Kyoto Cabinet: transactions in a hash file and in a tree file, with their logs, by a small C++ program; and its own
//! tests.

use crate::job::Job;
use crate::numbered::Numbered;
use crate::report::Report;
use crate::under;
use std::time::Duration;

const SOURCE: &str = include_str!("scripts/kyoto.cc");

/// Kinds of files and of transactions: `soft` ones are made durable by `synchronize` afterwards.
const KINDS: [(&str, &str); 4] = [("hash", "soft"), ("tree", "soft"), ("hash", "hard"), ("tree", "hard")];

/// Kyoto Cabinet's own tests, which must find nothing.
const TESTS: [(&str, &[&str]); 4] = [
    ("kchashtest", &["wicked", "test.kch", "2000"]),
    ("kchashtest", &["tran", "-hard", "-it", "2", "test.kch", "300"]),
    ("kctreetest", &["wicked", "test.kct", "2000"]),
    ("kctreetest", &["tran", "-hard", "-it", "2", "test.kct", "300"]),
];

/// Transactions, killed; then all acknowledged ones must be there, and none in part. Then its own tests.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let build = job.under.folder.join("build");
    std::fs::create_dir(&build).map_err(|error| format!("{}: {error}", build.display()))?;
    std::fs::write(build.join("kyoto.cc"), SOURCE).map_err(|error| format!("{}: {error}", build.display()))?;
    let mut compile = job.under.plain("c++");
    compile.args(["-O1", "-w", "-o", "build/kyoto", "build/kyoto.cc", "-lkyotocabinet"]);
    let compiled = under::run(compile)?;
    if !compiled.is_ok() {
        let is_missing = compiled.messages.contains("kchashdb.h: No such file");
        report.skipped = is_missing.then(|| "libkyotocabinet-dev is not installed".into());
        return if is_missing { Ok(()) } else { Err(compiled.messages) };
    }
    for (index, (kind, how)) in KINDS.iter().enumerate() {
        let count = KINDS.len() as u64;
        let kills = job.kills / count + u64::from((index as u64) < job.kills % count);
        let transactions = Numbered {
            globs: &["work.*"],
            words: [build.join("kyoto").as_os_str(), kind.as_ref(), how.as_ref()].map(Into::into).to_vec(),
            environment: &[],
            expected: &[],
            longest: Duration::from_millis(300),
            makes_files_unsynced: *how == "hard",
        };
        transactions.run(job, report, kills)?;
        if !report.is_clean() {
            return Ok(());
        }
        for path in under::files(job.under.folder)?.iter().filter(|path| !path.starts_with(&build)) {
            std::fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    for (program, words) in TESTS.iter().filter(|(program, _)| under::find(program).is_some()) {
        let mut test = job.under.famio(&["test.*"], program);
        test.args(*words);
        let ended = under::run(test)?;
        let rest = report.said(&ended.messages, &[]);
        let is_ok = ended.is_ok() && ended.text().contains(&"ok");
        report.check(is_ok, || format!("{program} {words:?}: {} {rest}\n{}", ended.status, ended.text().join("\n")));
    }
    let left = under::leftovers(job.under.folder)?;
    report.check(left.is_empty(), || format!("left behind: {}", left.join(", ")));
    Ok(())
}
