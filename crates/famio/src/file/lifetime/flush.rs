//! `famio flush`: brings files to what is committed, while programs use them.

use crate::beside::is_beside_name;
use crate::error::{Error, Result};
use crate::index::{Asked, Control, FlushRequest, Owner};
use crate::journal::control;
use crate::journal::pools::reach::look_at;
use crate::recovery::{Found, Options, Progress, Report, recover_path, survey};
use crate::settings::Settings;
use crate::sys::{monotonic_now, read_at};
use core::time::Duration;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How one file was flushed.
#[derive(Debug)]
pub enum Flush {
    /// What is committed was in the file already: it has no journal, or no process has changed it.
    NothingToDo,
    /// The process that owns it has written back so many bytes.
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
    /// A process that does nothing for so long is not waited for any more.
    pub patience: Duration,
    /// Called once for a file whose owner has not answered after a second.
    pub report: &'a dyn Fn(&Path, Option<Owner>),
}

/// Files that are asked for at once: for each, a descriptor and a map.
const AT_ONCE: usize = 64;
/// After so many nanoseconds the user is told what is waited for.
const LONG: u64 = 1_000_000_000;
/// How often a file at least is looked at again whose session has ended meanwhile, or has not begun.
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
    let (mut flushed, mut silent) = (Vec::new(), Vec::new());
    for some in survey(path, settings)?.chunks(AT_ONCE) {
        // Asked for first, so that a process with many files looks at them once.
        let mut asked: Vec<_> = some.iter().map(|found| ask(found, &settings_for(found, settings))).collect();
        for (at, found) in some.iter().enumerate() {
            let mine = core::mem::replace(&mut asked[at], Ok(None));
            let mut owners = Owners::new(&mut silent, &asked[at + 1..]);
            flushed.push(one(found.clone(), mine, settings, waiting, &mut owners, progress));
        }
    }
    Ok(flushed)
}

fn one(
    mut found: Found,
    asked: Result<Option<FlushRequest>>,
    settings: &Settings,
    waiting: &Waiting<'_>,
    owners: &mut Owners<'_>,
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
                Err(e) => return flush(Flush::Failed(e)),
            }
        }
        if found.state == Found::UNEXAMINED {
            return flush(Flush::Failed(Error::with(libc::EACCES, found.why.unwrap_or_default())));
        }
        if found.in_use && found.kind == Some(Found::GROWING) {
            return flush(Flush::NothingToDo); // a SYNC of it goes to the file itself
        }
        match asked.take().unwrap_or_else(|| ask(&found, &settings)) {
            Ok(Some(request)) => {
                progress.begin(found.waiting.unwrap_or(0));
                let done = wait(request, &found, waiting, owners, progress);
                progress.end();
                match done {
                    Some(done) => return flush(done),
                    None => continue,
                }
            }
            Ok(None) => {}
            Err(e) => return flush(Flush::Failed(e)),
        }
        if !found.in_use {
            match left(&found, &settings, progress) {
                Ok(Some(report)) => return flush(Flush::Left(report)),
                Ok(None) => {} // a process has opened it meanwhile
                Err(e) => return flush(Flush::Failed(e)),
            }
        }
    }
    let what = "a process has it open, and cannot be asked: it is still recovering it (try again, with a longer --timeout), its control file was removed, or its session begins and ends again and again";
    flush(Flush::NoAnswer(found.owner, Error::with(libc::EBUSY, what)))
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
fn left(found: &Found, settings: &Settings, progress: &dyn Progress) -> Result<Option<Report>> {
    let options = Options::default();
    let path = if found.state == Found::UNREADABLE && found.file.as_os_str().is_empty() {
        return Err(Error::with(libc::EIO, found.why.clone().unwrap_or_default()));
    } else {
        &found.file
    };
    let report = recover_path(path, settings, &options, progress)?.pop();
    Ok(report.filter(|report| !matches!(report.outcome, crate::recovery::Outcome::InUse(_))))
}

/// Asks the process that has a session. `None`: there is none.
fn ask(found: &Found, settings: &Settings) -> Result<Option<FlushRequest>> {
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

/// Waits for the answer. `None`: the session has ended meanwhile.
fn wait(
    mut request: FlushRequest,
    found: &Found,
    waiting: &Waiting<'_>,
    owners: &mut Owners<'_>,
    progress: &dyn Progress,
) -> Option<Flush> {
    let begun = monotonic_now();
    let (mut seen, mut since, mut is_told) = (Asked::Pending { begun: false, moved: 0 }, begun, false);
    let patience = waiting.patience.as_nanos() as u64;
    loop {
        let asked = request.look();
        let moved = |asked: Asked| if let Asked::Pending { begun: true, moved, .. } = asked { moved } else { 0 };
        match asked {
            Asked::Done(0) => return Some(Flush::Flushed(request.moved())),
            Asked::Done(errno) => {
                let who = request.control().owner().map_or("its owner".into(), |owner| owner.to_string());
                let what = match errno {
                    // Of a journal in place (`Session::flush_in_place`).
                    libc::EBUSY => format!("{who} has appended too much since its last SYNC, which the file has, too"),
                    _ => format!("{who} could not write back what is committed; the journal keeps it"),
                };
                return Some(Flush::Failed(Error::with(errno, what)));
            }
            Asked::NobodyIsThere => return None,
            Asked::Pending { .. } => {}
        }
        let now = monotonic_now();
        let owner = || request.control().owner();
        // An owner looks at its files in turn, in an order of its own.
        if owners.go_on(owner) || asked != seen {
            progress.advance(moved(asked).saturating_sub(moved(seen)));
            (seen, since) = (asked, now);
        }
        let has_begun = matches!(asked, Asked::Pending { begun: true, .. });
        let is_silent = || owner().is_some_and(|owner| owners.silent.contains(&owner));
        if now > since + patience || (!has_begun && is_silent()) {
            owners.silent.extend(owner().filter(|_| !has_begun));
            return Some(Flush::NoAnswer(owner(), no_answer(asked, owner(), waiting.patience)));
        }
        if !is_told && now > begun + LONG {
            (waiting.report)(&found.file, owner());
            is_told = true;
        }
    }
}

/// What is known of the owners while one file is waited for.
struct Owners<'a> {
    /// Those that were waited for in vain: for files with which they have not begun they are not waited for again.
    silent: &'a mut Vec<Owner>,
    /// The other files that are asked for, and how far they were.
    others: Vec<(&'a FlushRequest, (u32, u32, u64))>,
}

impl<'a> Owners<'a> {
    fn new(silent: &'a mut Vec<Owner>, others: &'a [Result<Option<FlushRequest>>]) -> Self {
        let requests = others.iter().filter_map(|other| other.as_ref().ok()?.as_ref());
        Self { silent, others: requests.map(|request| (request, request.how_far())).collect() }
    }

    /// Whether `owner` went on with another file since the last call.
    fn go_on(&mut self, owner: impl Fn() -> Option<Owner>) -> bool {
        let mut any = false;
        for (request, seen) in &mut self.others {
            let now = request.how_far();
            any |= core::mem::replace(seen, now) != now && request.control().owner() == owner();
        }
        any
    }
}

/// What to do about a process that does not go on.
fn no_answer(asked: Asked, owner: Option<Owner>, patience: Duration) -> Error {
    let who = owner.map_or("the processes that use it".into(), |owner| format!("its owner, {owner},"));
    let seconds = patience.as_secs_f64();
    let what = match asked {
        _ if owner.and_then(Owner::pid_here).is_some_and(is_stopped) => {
            format!("{who} is stopped: continue it (kill -CONT), and try again")
        }
        Asked::Pending { begun: true, .. } => {
            format!(
                "{who} has begun, and written nothing for {seconds} s; it may still end: try again, with a longer --timeout"
            )
        }
        _ => format!(
            "{who} has not answered for {seconds} s; it may be stopped, or of another version of Famio: end it, and try again"
        ),
    };
    Error::with(libc::ETIMEDOUT, format!("{what}; nothing is lost, the journal keeps it"))
}

/// Whether a process is stopped, by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    let path = format!("/proc/{pid}/stat");
    let Ok(stat) = crate::sys::openat(CWD, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut text = [0; 256];
    let length = read_at(&stat, 0, &mut text).unwrap_or(0);
    // "4711 (name) T ...": the name may have brackets.
    let state = text[..length].iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    state.is_some_and(|state| b"Tt".contains(state))
}
