//! GNU coreutils and tar. Each command of `scripts/*.txt` runs in two folders, with and without Famio, and both must
//! be equal afterwards. Then some commands are killed: the file that they replace must have its old or its new
//! contents.

use crate::job::Job;
use crate::report::Report;
use crate::under::{self, Under};
use famio_test_support::random::Random;
use famio_test_support::session::{self, Kill};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Of commands such as `mv` and `chmod`.
const NOT_WRITTEN: &str = "selected no file that the program wrote";
const DEMOTED: &[&str] = &[
    NOT_WRITTEN,
    "demoted to an ordinary file because of its use as a standard stream",
    "written through freopen(3)",
    "because of posix_spawn(3)",
];

/// Commands that replace `atomic-x` with the bytes of `new`, or change it as they do without a kill.
const KILLED: [&[&str]; 7] = [
    &["cp", "new", "atomic-x"],
    &["tee", "atomic-x"],
    &["tee", "-a", "atomic-x"],
    &["truncate", "-s", "100000", "atomic-x"],
    &["cp", "--sparse=always", "new", "atomic-x"],
    &["install", "new", "atomic-x"],
    &["shred", "-n", "1", "-z", "atomic-x"],
];

/// Commands that create `atomic-x`, with mode 0444, with the bytes of `new`, which has that mode, or of its archive.
const MAKING: [&[&str]; 4] = [
    &["cp", "-p", "new", "atomic-x"],
    &["cp", "-a", "new", "atomic-x"],
    &["install", "-m", "444", "new", "atomic-x"],
    &["tar", "-x", "-f", "archive", "atomic-x"],
];

const TAR_KILLED: [&[&str]; 4] = [
    &["tar", "-c", "-f", "atomic-x", "new"],
    &["tar", "-r", "-f", "atomic-x", "new"],
    &["tar", "--delete", "-f", "atomic-x", "first"],
    &["tar", "-x", "-f", "archive", "--overwrite", "atomic-x"],
];

/// coreutils.
pub fn run(job: &mut Job, report: &mut Report) -> Result<(), String> {
    compare(job, report, include_str!("scripts/coreutils.txt"))?;
    kill(job, report, &KILLED)
}

/// tar.
pub fn tar(job: &mut Job, report: &mut Report) -> Result<(), String> {
    compare(job, report, include_str!("scripts/tar.txt"))?;
    kill(job, report, &TAR_KILLED)
}

/// Files of mode 0444, as an ordinary user, who can write such a file only by the descriptor that created it.
pub fn read_only(job: &mut Job, report: &mut Report) -> Result<(), String> {
    report.skipped = job.under.as_ordinary_user()?;
    if report.skipped.is_some() {
        return Ok(());
    }
    compare(job, report, include_str!("scripts/read-only.txt"))?;
    if report.is_clean() { make_and_kill(job, report) } else { Ok(()) }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.next_u64() as u8).collect()
}

fn prepare(folder: &Path) -> Result<(), String> {
    let mut random = Random::new(3);
    let text: String = (0..9000).map(|line| format!("{:x} line {line}\n", random.next_u64())).collect();
    let mut sparse = bytes(4, 10_000);
    sparse.resize(300_000, 0);
    for (name, content) in [
        ("big", bytes(1, 1_000_003)),
        ("small", bytes(2, 4096)),
        ("text", text.into_bytes()),
        ("atomic-file", sparse),
        ("list", b"small\ntext\n".to_vec()),
    ] {
        write(&folder.join(name), &content)?;
    }
    Ok(())
}

/// Size, mode and bytes of a file.
type Seen = (u64, u32, Vec<u8>);

/// All files, by their names.
fn look(folder: &Path) -> Result<BTreeMap<String, Seen>, String> {
    let mut all = BTreeMap::new();
    for path in under::files(folder)? {
        let stat = fs::symlink_metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let content = fs::read(&path).unwrap_or_default();
        all.insert(
            path.strip_prefix(folder).unwrap_or(&path).display().to_string(),
            (stat.len(), stat.mode(), content),
        );
    }
    Ok(all)
}

fn compare(job: &mut Job, report: &mut Report, script: &str) -> Result<(), String> {
    let (with, without) = (job.under.folder.join("with"), job.under.folder.join("without"));
    for folder in [&with, &without] {
        fs::create_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        prepare(folder)?;
    }
    let (with, without) = (job.under.within(&with)?, job.under.within(&without)?);
    for line in script.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (demotes, line) = line.strip_prefix("demotes ").map_or((false, line), |line| (true, line));
        let mut words = line.split(' ');
        let (mut arguments, mut input, mut output) = (Vec::new(), None, None);
        while let Some(word) = words.next() {
            match word {
                "<" => input = words.next(),
                ">" => output = words.next(),
                word => arguments.push(word),
            }
        }
        let one = |under: &Under, mut command: Command| -> Result<_, String> {
            command.args(&arguments[1..]);
            let text = match input {
                Some(name) => {
                    fs::read_to_string(under.folder.join(name)).map_err(|error| format!("{name}: {error}"))?
                }
                None => String::new(),
            };
            let ended = session::drive(command, std::iter::once(text), Kill::Never)?;
            if let Some(name) = output {
                write(&under.folder.join(name), ended.text().join("\n").as_bytes())?;
            }
            Ok(ended)
        };
        let expected = one(&without, without.plain(arguments[0]))?;
        let found = one(&with, with.famio(&["atomic*"], arguments[0]))?;
        let rest = report.said(&found.messages, if demotes { DEMOTED } else { &[NOT_WRITTEN] });
        report.check(found.status == expected.status && !found.hung, || {
            format!("{line}: {}, without Famio {}", found.status, expected.status)
        });
        report.check(found.text() == expected.text(), || format!("{line}: prints something else than without Famio"));
        report.check(rest == expected.messages, || format!("{line}: says\n{rest}without Famio\n{}", expected.messages));
        let (here, there) = (look(with.folder)?, look(without.folder)?);
        for name in here.keys().chain(there.keys().filter(|name| !here.contains_key(*name))) {
            // gzip gives the same bytes for the same input.
            let same = here.get(name) == there.get(name);
            report.check(same, || {
                let say = |found: Option<&Seen>| {
                    found.map_or("is not there".into(), |(size, mode, _)| format!("{size} bytes, mode {mode:o}"))
                };
                format!("{line}: {name} {}, without Famio {}", say(here.get(name)), say(there.get(name)))
            });
        }
        let left = under::leftovers(with.folder)?;
        report.check(left.is_empty(), || format!("{line}: left behind: {}", left.join(", ")));
        if !report.is_clean() {
            break;
        }
    }
    Ok(())
}

fn kill(job: &mut Job, report: &mut Report, commands: &[&[&str]]) -> Result<(), String> {
    let folder = job.under.folder.to_path_buf();
    let atomic = folder.join("atomic-x");
    let new = bytes(11, 6_000_000);
    for (index, words) in commands.iter().enumerate() {
        let count = commands.len() as u64;
        let kills = job.kills / count + u64::from((index as u64) < job.kills % count);
        under::clear(&folder)?;
        write(&folder.join("new"), &new)?;
        write(&folder.join("first"), &bytes(12, 3_000_000))?;
        let before = if words[0] == "tar" && words[1] != "-x" {
            under::succeed(plain(job, &["tar", "-c", "-f", "old", "first", "new"]))?;
            fs::read(folder.join("old")).map_err(|error| format!("old: {error}"))?
        } else {
            bytes(13, 5_000_000)
        };
        if words[1] == "-x" {
            write(&atomic, &new)?;
            under::succeed(plain(job, &["tar", "-c", "-f", "archive", "atomic-x"]))?;
        }
        // The result without a kill, and the time it takes.
        write(&atomic, &before)?;
        let input = || (words[0] == "tee").then(|| "0123456789abcde\n".repeat(1 << 18));
        let started = Instant::now();
        let ended = session::drive(under_famio(job, words), input().into_iter(), Kill::Never)?;
        let longest = started.elapsed() + Duration::from_millis(5);
        report.check(ended.is_ok() && ended.messages.is_empty(), || {
            format!("{words:?}: {} {}", ended.status, ended.messages)
        });
        let after = fs::read(&atomic).map_err(|error| format!("{words:?}: {error}"))?;
        for _ in 0..kills {
            write(&atomic, &before)?;
            let delay = job.random.time_up_to(longest);
            let ended = session::drive(under_famio(job, words), input().into_iter(), Kill::AfterStart(delay))?;
            report.kills += u64::from(ended.killed);
            job.under.recover()?;
            let found = fs::read(&atomic).unwrap_or_default();
            // A file newly created in place of the old one is empty until its first SYNC; the same applies to shred's
            // passes, which SYNC.
            let fresh = words[0] == "install" && found.is_empty();
            let passes = words[0] == "shred" && (before.len()..=after.len()).contains(&found.len());
            report.check(found == before || found == after || fresh || passes, || {
                let differ = found.iter().zip(&before).position(|(a, b)| a != b);
                format!("{words:?}, killed after {delay:?}: {} bytes, neither as before ({} bytes; differs at {differ:?}) nor as after ({})", found.len(), before.len(), after.len())
            });
            if !report.is_clean() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Kills commands that create a file: it must be missing, empty, as before its first SYNC, or complete.
fn make_and_kill(job: &mut Job, report: &mut Report) -> Result<(), String> {
    let folder = job.under.folder.to_path_buf();
    let atomic = folder.join("atomic-x");
    let new = bytes(11, 6_000_000);
    under::clear(&folder)?;
    write(&folder.join("new"), &new)?;
    for words in
        [&["chmod", "444", "new"] as &[&str], &["tar", "-c", "-f", "archive", "--transform=s/new/atomic-x/", "new"]]
    {
        job.under.give()?;
        under::succeed(plain(job, words))?;
    }
    for kill in 0..job.kills {
        let words = MAKING[kill as usize % MAKING.len()];
        let delay = job.random.time_up_to(Duration::from_millis(60));
        let ended = session::drive(under_famio(job, words), std::iter::empty(), Kill::AfterStart(delay))?;
        report.kills += u64::from(ended.killed);
        let rest = report.said(&ended.messages, &[]);
        report.check(ended.killed || ended.is_ok(), || format!("{words:?}: {} {rest}", ended.status));
        job.under.recover()?;
        let found = fs::read(&atomic).unwrap_or_default();
        let is_whole = found == new;
        report.check(is_whole || ended.killed && found.is_empty(), || {
            format!("{words:?}, killed after {delay:?}: {} bytes, neither none nor all {}", found.len(), new.len())
        });
        if !report.is_clean() {
            return Ok(());
        }
        let _ = fs::remove_file(&atomic);
    }
    Ok(())
}

fn plain(job: &Job, words: &[&str]) -> Command {
    let mut command = job.under.plain(words[0]);
    command.args(&words[1..]);
    command
}

fn under_famio(job: &Job, words: &[&str]) -> Command {
    let mut command = job.under.famio(&["atomic*"], words[0]);
    command.args(&words[1..]);
    command
}
