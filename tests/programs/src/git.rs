//! git, in a repository all of whose files are atomic.

use crate::job::Job;
use crate::report::Report;
use crate::under;
use famio_test_support::session::{self, Kill};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// git maps its index and packs to read them; the shell writes files by redirection, and git passes files to its
/// children.
const MAPS: &[&str] = &["demoted to an ordinary file because of"];

/// An endless history; prints each commit when it is made.
const HISTORY: &str = r#"
git symbolic-ref HEAD refs/heads/main # one that was killed may have been at the other branch, of the same commit
n=$(git rev-list --count HEAD 2>/dev/null || echo 0)
while :; do
  n=$((n + 1))
  seq $n $((n + 300)) > file$((n % 7)); echo $n > number
  git add -A && git commit -q -m "commit $n" && echo "made $(git rev-parse HEAD)" || exit 1
  case $((n % 5)) in
    0) git gc -q --prune=now || exit 1;;
    2) git tag -f last >/dev/null && git checkout -q -B side HEAD && git checkout -q main || exit 1;;
    3) git repack -adq || exit 1;;
  esac
done
"#;

/// As an ordinary user, who can write git's objects, of mode 0444, only by the descriptors that created them.
pub fn by_ordinary_user(job: &mut Job, report: &mut Report) -> Result<(), String> {
    report.skipped = job.under.as_ordinary_user()?;
    if report.skipped.is_some() { Ok(()) } else { run(job, report) }
}

/// A history that is killed; no commit may be lost.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let settings = |command: &mut Command| {
        let pairs =
            [("core.fsync", "all"), ("core.fsyncMethod", "fsync"), ("gc.auto", "0"), ("init.defaultBranch", "main")];
        for (index, (key, value)) in pairs.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), key).env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command
            .env("GIT_CONFIG_COUNT", pairs.len().to_string())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), "a")
                .env(format!("GIT_{who}_EMAIL"), "a@b")
                .env(format!("GIT_{who}_DATE"), "@1700000000 +0000");
        }
    };
    let git = |words: &[&str]| {
        let mut command = job.under.plain("git");
        command.args(words);
        settings(&mut command);
        command
    };
    let famio = |program: &str, words: &[&str]| {
        let mut command = job.under.famio(&["**"], program);
        command.args(words);
        settings(&mut command);
        command
    };
    let ended = under::run(famio("git", &["init", "-q", "."]))?;
    report.check(ended.is_ok(), || format!("git init: {}", ended.messages));
    let mut last = String::new();
    for kill in 0..job.kills + 1 {
        let delay = job.random.time_up_to(Duration::from_millis(900));
        let how = if job.random.below(4) == 0 { Kill::AfterStart(delay) } else { Kill::AfterFirstLine(delay) };
        let ended = session::drive(famio("sh", &["-c", HISTORY]), std::iter::empty(), how)?;
        report.kills += u64::from(ended.killed);
        let rest = report.said(&ended.messages, MAPS);
        for line in ended.text() {
            if let Some(commit) = line.strip_prefix("made ") {
                last = commit.to_string();
                report.acknowledged += 1;
            }
        }
        report.check(ended.killed, || format!("ended by itself: {}\n{rest}", ended.status));
        job.under.recover()?;
        // A crash of git leaves these, with or without Famio, and git says to remove them.
        let left = |path: &Path| {
            path.extension().is_some_and(|end| end == "lock")
                || path.ends_with("gc.pid")
                || path.ends_with("packed-refs.new")
        };
        for path in under::files(job.under.folder)?.iter().filter(|path| left(path)) {
            let _ = std::fs::remove_file(path);
        }
        if last.is_empty() {
            continue;
        }
        let checked = under::run(git(&["fsck", "--full", "--strict", "--no-dangling"]))?;
        let clean = checked.is_ok() && checked.text().is_empty();
        report.check(clean, || format!("after kill {kill}: git fsck: {:?} {}", checked.text(), checked.messages));
        let kept = under::run(git(&["merge-base", "--is-ancestor", &last, "main"]))?;
        report.check(kept.is_ok(), || {
            format!("after kill {kill}: commit {last} was made and is gone: {}", kept.messages)
        });
        let index = under::run(git(&["status", "--porcelain"]))?;
        report.check(index.is_ok(), || format!("after kill {kill}: git status: {}", index.messages));
        if !report.is_clean() {
            return Ok(());
        }
    }
    Ok(())
}
