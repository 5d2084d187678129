//! After a SIGKILL: an atomic file must be as at its last SYNC, all others as the program left them.
//!
//! The plain twin shows what the file was then: it does the same up to that answer, and is killed there.

use super::board::{ATOMIC, Entry};
use super::case::Case;
use super::compare::{differ, has_gone_apart, stderr};
use super::side::{self, Run, Side, contents};
use crate::findings::Found;
use crate::people;
use crate::space::Space;
use crate::watch::{self, Ended};
use famio_kill::harness::has_mark;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Compares both.
pub fn judge(space: &Space, case: &Case, only: &[u32], famio: &Side, plain: &Side) -> Result<Option<Found>, String> {
    if has_gone_apart(famio, plain) {
        return Ok(None);
    }
    let (a, b) = (contents(&famio.folder)?, contents(&plain.folder)?);
    for (name, (.., bytes)) in b.iter().filter(|(name, _)| !name.starts_with("atomic")) {
        match a.get(name) {
            Some((.., mine)) if mine == bytes => {}
            Some((.., mine)) => return Ok(Some(differ("after a kill, a plain file", name, mine, bytes))),
            None => return Ok(Some(Found::new("after a kill, a plain file is gone", name.clone()))),
        }
    }
    if famio.board.strange || famio.board.out_of_reach {
        return Ok(None);
    }
    let removed = famio.board.entries.iter().rposition(|entry| entry.what.starts_with("rm -r"));
    let (code, said) = match recover(space, famio)? {
        Recovered::Ended(code, said) => (code, said),
        Recovered::Crashed(found) => return Ok(Some(found)),
    };
    let after = contents(&famio.folder)?;
    for file in 0..ATOMIC {
        // Renamed files are followed to where the twin has them.
        let Some(name) = b.keys().find(|name| name.starts_with(&format!("atomic-{file}"))) else { continue };
        let allowed = allowed(&famio.board.entries, file, case);
        let Some(mine) = after.get(name) else {
            return Ok(Some(Found::new("after a kill, an atomic file is gone", name.clone())));
        };
        let is_done = |line: &str| line.contains("recovered to") || line.contains("nothing was pending");
        let refused = |line: &str| line.contains(&format!("/{name}")) && !is_done(line);
        if code != Some(0) && removed.is_some_and(|at| allowed.synced > Some(at)) && said.lines().any(refused) {
            let found = Found::new("famio recover refuses a file that was synced after rm -r .famio", said.trim());
            return Ok(Some(found));
        }
        // Removing the journal loses what only the journal had; a later SYNC must restore it.
        if removed.is_some_and(|at| allowed.synced.is_none_or(|synced| synced < at)) {
            continue;
        }
        // Under the name that it had then.
        let told = famio.messages.contains(&format!("atomic-{file}")) || famio.board.mute || famio.board.jail;
        if told && b.get(name).is_some_and(|(.., bytes)| *bytes == mine.2) {
            continue;
        }
        if allowed.empty && mine.2.is_empty() {
            continue;
        }
        let mut fits = false;
        let mut closest = None;
        for &limit in allowed.limits.iter().rev() {
            let twin = side::run(space, case, false, Run { only, kill: case.kill, limit: Some(limit) })?;
            let then = contents(&twin.folder)?;
            // It may have had another name.
            let bytes = then
                .iter()
                .find(|(name, _)| name.starts_with(&format!("atomic-{file}")))
                .map(|(_, (.., bytes))| bytes.clone());
            if bytes.as_deref().unwrap_or_default() == mine.2 {
                fits = true;
                break;
            }
            closest = closest.or(bytes);
        }
        if allowed.synced.is_none() && case.begins(file).is_some_and(|bytes| bytes == mine.2) {
            fits = true;
        }
        if !fits {
            let wanted = closest.or_else(|| case.begins(file)).unwrap_or_default();
            let found = differ("after a kill and recover, an atomic file", name, &mine.2, &wanted);
            let last = allowed
                .synced
                .map_or("no SYNC".into(), |at| format!("last SYNC in step {}", famio.board.entries[at].step));
            let said = said.trim();
            return Ok(Some(Found::new(
                found.kind,
                format!("{}\n{last}; recover: {code:?} {said}{}", found.detail, stderr(famio)),
            )));
        }
    }
    let marked: Vec<&String> = after.keys().filter(|name| has_mark(&famio.folder.join(name))).collect();
    if code == Some(0) && !marked.is_empty() {
        let detail = format!("{marked:?} still marked: {}", said.trim());
        return Ok(Some(Found::new("famio recover says that all is well beside a marked file", detail)));
    }
    if code != Some(0) && removed.is_none() {
        return Ok(Some(Found::new(
            format!("famio recover: {code:?} after a kill"),
            said.trim().to_owned() + &stderr(famio),
        )));
    }
    Ok(None)
}

struct Allowed {
    /// The file may be as after any of these numbers of answers.
    limits: Vec<usize>,
    /// It may be empty.
    empty: bool,
    /// The last SYNC.
    synced: Option<usize>,
}

fn allowed(entries: &[Entry], file: i8, case: &Case) -> Allowed {
    let done = |entry: &Entry| entry.result >= 0;
    let synced = entries.iter().rposition(|entry| entry.kind == 1 && entry.file == file && done(entry));
    let mut limits: BTreeSet<usize> = synced.into_iter().map(|at| at + 1).collect();
    let from = synced.map_or(0, |at| at + 1);
    let mut empty = synced.is_none() && case.begins(file).is_none();
    for (at, entry) in entries.iter().enumerate().skip(from) {
        // A file is committed before its `rename` is tried, so also if that is refused.
        let is_done = done(entry) || entry.what.starts_with("rename");
        let may_commit = entry.kind == 2 && (entry.file == file || entry.file < 0) && is_done;
        if may_commit || (changes_rights(entry) && had_set_id(&entries[..at], file)) {
            limits.insert(at + 1);
        }
        empty |= entry.file == file && (entry.what.starts_with("unlink") || entry.what.starts_with("open"));
    }
    // The kernel keeps a new file until its first SYNC: only after that, something can be lost.
    Allowed {
        limits: limits.into_iter().collect(),
        empty: empty && synced.is_none_or(|_| replaced(entries, file, from)),
        synced,
    }
}

/// Before this, a file with set-user-id bits is committed, so that it keeps them.
fn changes_rights(entry: &Entry) -> bool {
    ["setgroups", "setresgid", "setresuid", "seteuid", "chroot"].iter().any(|what| entry.what.starts_with(what))
}

fn had_set_id(entries: &[Entry], file: i8) -> bool {
    entries.iter().any(|entry| entry.file == file && entry.what.contains("chmod") && entry.sum & 0o6000 != 0)
}

fn replaced(entries: &[Entry], file: i8, from: usize) -> bool {
    entries[from..].iter().any(|entry| entry.file == file && entry.what.starts_with("unlink") && entry.result >= 0)
}

enum Recovered {
    Ended(Option<i32>, String),
    Crashed(Found),
}

/// After a normal exit of a program that lacked the right to clean up: root can, and that must change no byte.
pub fn tidy(space: &Space, famio: &Side) -> Result<Option<Found>, String> {
    let before = contents(&famio.folder)?;
    let (code, said) = match recover(space, famio)? {
        Recovered::Ended(code, said) => (code, said),
        Recovered::Crashed(found) => return Ok(Some(found)),
    };
    let after = contents(&famio.folder)?;
    for (name, (.., bytes)) in &before {
        match after.get(name) {
            Some((.., now)) if now == bytes => {}
            Some((.., now)) => {
                return Ok(Some(differ("after recover without a crash, an atomic file", name, now, bytes)));
            }
            None => return Ok(Some(Found::new("after recover without a crash, a file is gone", name.clone()))),
        }
    }
    let marked: Vec<&String> = after.keys().filter(|name| has_mark(&famio.folder.join(name))).collect();
    if code == Some(0) && marked.is_empty() {
        return Ok(None);
    }
    let found =
        Found::new("root can't tidy up after a program that gave up its rights", format!("{marked:?} {}", said.trim()));
    Ok(Some(found))
}

/// As root, who must be able to.
fn recover(space: &Space, famio: &Side) -> Result<Recovered, String> {
    let said = famio.folder.with_file_name("recover");
    let out = std::fs::File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
    let err = out.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(space.binary("famio"));
    command.arg("recover").arg(&famio.folder).stdin(Stdio::null()).stdout(out).stderr(err).current_dir("/");
    people::run_as(&mut command, 0, &[]);
    let mut child = command.spawn().map_err(|error| format!("famio recover: {error}"))?;
    let ended = watch::wait(&mut child, || 0)?;
    let text = String::from_utf8_lossy(&std::fs::read(&said).unwrap_or_default()).into_owned();
    Ok(match (&ended, ended.crash()) {
        (Ended::Hung(what), _) => Recovered::Crashed(Found::new("famio recover hung after a kill", what.clone())),
        (_, Some(crash)) => Recovered::Crashed(Found::new(format!("famio recover: {crash} after a kill"), text)),
        (Ended::Status(status), None) => Recovered::Ended(status.code(), text),
    })
}
