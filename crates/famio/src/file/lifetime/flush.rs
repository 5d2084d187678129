//! `famio flush`: brings files to what is committed, while programs use them.

mod wait;

use self::wait::{Clock, LONG, Others, Waited, wait};
use crate::beside::is_beside_name;
use crate::error::{Error, Result};
use crate::index::{Control, FlushRequest, Owner};
use crate::journal::control;
use crate::journal::pools::reach::look_at;
use crate::recovery::{Found, Options, Progress, Report, recover_path, survey};
use crate::settings::Settings;
use crate::sys::monotonic_now;
use core::time::Duration;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How one file was flushed.
#[derive(Debug)]
pub enum Flush {
    /// What is committed was in the file already: it has no journal, or no process has changed it.
    NothingToDo,
    /// The process that owns it has written back this many bytes.
    Flushed(u64),
    /// No process has it open: it was recovered, or needs a decision.
    Left(Report),
    /// Its owner, if known, did not answer.
    NoAnswer(Option<Owner>, Error),
    /// It failed, or could not be examined.
    Failed(Error),
}

/// What was done for one file.
#[derive(Debug)]
pub struct Flushed {
    /// The file; of a journal whose file is unknown, the journal.
    pub file: PathBuf,
    /// How it went.
    pub flush: Flush,
}

/// How to wait for the owners of files.
pub struct Waiting<'a> {
    /// A process that does not begin within this long, or has stopped, is not waited for any more.
    pub patience: Duration,
    /// Called once for a file whose owner has not answered after a second.
    pub report: &'a dyn Fn(&Path, Option<Owner>),
}

/// Files whose flushes are requested at once: for each, a descriptor and a map.
const AT_ONCE: usize = 64;
/// How often at least a file is examined again if its session has ended or not begun.
const TRIES: u32 = 20;
const PAUSE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Brings a file, or all files of a pool or below a folder, to what is committed, durably: everything that was
/// committed when the call began. Programs go on, and their open epochs stay open. A file that a killed process left is
/// recovered. The file itself is not opened as long as a process has it open: nobody's lease ends.
///
/// # Errors
/// For a path that does not exist. Other errors are those of single files.
pub fn flush_path(
    path: &Path,
    settings: &Settings,
    waiting: &Waiting<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Flushed>> {
    let mut flushed = Vec::new();
    for some in survey(path, settings)?.chunks(AT_ONCE) {
        // Asked for first, so that a process with many files looks at them once.
        let mut asked: Vec<_> = some.iter().map(|found| request_flush(found, &settings_for(found, settings))).collect();
        let mut clock = Clock::new(monotonic_now(), waiting.patience);
        for (at, found) in some.iter().enumerate() {
            let mine = core::mem::replace(&mut asked[at], Ok(None));
            let mut others = Others::new(&asked[at + 1..], &mut clock);
            flushed.push(one(found.clone(), mine, settings, waiting, &mut others, progress));
        }
    }
    Ok(flushed)
}

fn one(
    mut found: Found,
    asked: Result<Option<FlushRequest>>,
    settings: &Settings,
    waiting: &Waiting<'_>,
    others: &mut Others<'_>,
    progress: &dyn Progress,
) -> Flushed {
    let file = found.file.clone();
    let settings = settings_for(&found, settings);
    let flush = |flush| Flushed { file: file.clone(), flush };
    let mut asked = Some(asked);
    let (begun, mut is_told) = (monotonic_now(), false);
    let patience = waiting.patience.as_nanos() as u64;
    for attempt in 0.. {
        let now = monotonic_now();
        if attempt >= TRIES && now > begun + patience {
            break;
        }
        if attempt > 0 {
            if !is_told && now > begun + LONG {
                (waiting.report)(&file, found.owner);
                is_told = true;
            }
            let _ = rustix::thread::nanosleep(&PAUSE);
            // As it is now.
            match survey(&file, &settings).map(|mut now| now.pop()) {
                Ok(Some(now)) => found = now,
                Ok(None) => return flush(Flush::NothingToDo),
                Err(e) => match outcome_of_vanished(e, &found, attempt) {
                    Some(end) => return flush(end),
                    None => continue,
                },
            }
        }
        if found.state == Found::UNEXAMINED {
            return flush(Flush::Failed(Error::with(libc::EACCES, found.why.unwrap_or_default())));
        }
        if found.in_use && found.kind == Some(Found::GROWING) {
            return flush(Flush::NothingToDo); // a SYNC of it goes to the file itself
        }
        match asked.take().unwrap_or_else(|| request_flush(&found, &settings)) {
            Ok(Some(request)) => {
                progress.begin(found.waiting.unwrap_or(0));
                let waited = wait(request, &found.file, others, waiting.report, progress);
                progress.end();
                match waited {
                    Waited::Flushed(bytes) => return flush(Flush::Flushed(bytes)),
                    Waited::Failed(e) => return flush(Flush::Failed(e)),
                    Waited::NoAnswer(owner, e) => return flush(Flush::NoAnswer(owner, e)),
                    Waited::Over => continue,
                }
            }
            Ok(None) => {}
            Err(e) => return flush(Flush::Failed(e)),
        }
        if !found.in_use {
            match recover_unopened(&found, &settings, progress) {
                Ok(Some(report)) => return flush(Flush::Left(report)),
                Ok(None) => {} // a process has opened it meanwhile
                Err(e) => {
                    if let Some(end) = outcome_of_vanished(e, &found, attempt) {
                        return flush(end);
                    }
                }
            }
        }
    }
    let what = "a process has it open, and cannot be asked: it is still recovering it (try again, with a longer --timeout), it is of another version of Famio, its control file was removed, or its session begins and ends again and again";
    flush(Flush::NoAnswer(found.owner, Error::with(libc::EBUSY, what)))
}

/// The outcome for a file that was found before, and now gives this error. `None`: to be examined again.
fn outcome_of_vanished(e: Error, found: &Found, attempt: u32) -> Option<Flush> {
    let is_absent = e.errno() == libc::ENOENT;
    if is_absent && look_at(&found.journal).is_err_and(|e| e.errno() == libc::ENOENT) {
        return Some(Flush::NothingToDo); // its program has removed it, and with it the journal
    }
    (!is_absent || attempt >= TRIES).then_some(Flush::Failed(e))
}

/// The settings with the pool in which the journal lies.
fn settings_for(found: &Found, settings: &Settings) -> Settings {
    Settings { pool: pool_of(found).or(settings.pool.clone()), ..settings.clone() }
}

/// The pool of the journal, unless it lies beside the file.
fn pool_of(found: &Found) -> Option<PathBuf> {
    let folder = found.journal.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    (!folder.file_name().is_some_and(is_beside_name)).then(|| folder.to_path_buf())
}

/// Recovers a file that no process has open. `None`: a process has it open now.
fn recover_unopened(found: &Found, settings: &Settings, progress: &dyn Progress) -> Result<Option<Report>> {
    let options = Options::default();
    let path = if found.state == Found::UNREADABLE && found.file.as_os_str().is_empty() {
        return Err(Error::with(libc::EIO, found.why.clone().unwrap_or_default()));
    } else {
        &found.file
    };
    let report = recover_path(path, settings, &options, progress)?.pop();
    Ok(report.filter(|report| !matches!(report.outcome, crate::recovery::Outcome::InUse(_))))
}

/// Requests a flush from the process that has a session. `None`: there is none.
fn request_flush(found: &Found, settings: &Settings) -> Result<Option<FlushRequest>> {
    if found.state == Found::UNEXAMINED {
        return Ok(None);
    }
    let looked = match look_at(&found.file) {
        Err(e) if e.errno() == libc::ENOENT => return Ok(None),
        looked => looked?,
    };
    let Some(control) = control::find(looked.as_fd(), settings.pool.as_deref())? else { return Ok(None) };
    FlushRequest::new(Control::new(control))
}

#[cfg(test)]
mod tests;
