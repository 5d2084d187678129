//! stress-ng's file stressors, with all their files atomic. Most unlink their file at once, which demotes it.

use crate::job::Job;
use crate::report::Report;
use crate::under;

const STRESSORS: &[&str] = &[
    "hdd",
    "iomix",
    "seek",
    "sync-file",
    "readahead",
    "revio",
    "copy-file",
    "sendfile",
    "splice",
    "dentry",
    "link",
    "rename",
    "flock",
    "lockf",
    "locka",
    "lockofd",
    "lease",
    "filename",
    "io",
    "dup",
    "open",
    "utime",
    "xattr",
    "chmod",
    "fcntl",
    "touch",
];
/// Stressors fork, and their children open what the parent has open.
const EXPECTED: &[&str] = &[
    "in use as an atomic file by process",
    "in a child of fork(2) its descriptor is EBUSY",
    "/**' selected no file that the program wrote", // some write no file
];

/// Each ends as it does without Famio.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    for stressor in STRESSORS {
        let words = [format!("--{stressor}"), "1".into(), format!("--{stressor}-ops"), "50".into()];
        let fixed = ["--timeout", "10", "--verify", "--temp-path", "."];
        let mut plain = job.under.plain("stress-ng");
        plain.args(&words).args(fixed);
        let expected = under::run(plain)?;
        under::clear(job.under.folder)?;
        let mut command = job.under.famio(&["**"], "stress-ng");
        command.args(&words).args(fixed);
        let ended = under::run(command)?;
        let rest = report.said(&ended.messages, EXPECTED);
        let same = ended.status == expected.status && rest.contains("fail:") == expected.messages.contains("fail:");
        report.check(same, || format!("{stressor}: {}, without Famio {}\n{rest}", ended.status, expected.status));
        let left = under::files(job.under.folder)?;
        report.check(left.is_empty(), || format!("{stressor}: left behind: {left:?}"));
        under::clear(job.under.folder)?;
    }
    Ok(())
}
