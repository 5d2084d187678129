//! Recovery of one file, when it is opened or on request.

use super::Replayed;
use super::examine::{Examined, conflict, examine};
use super::found_file::FoundFile;
use super::{Options, Outcome, Progress, Silent, Use};
use crate::error::{Error, Result};
use crate::index::OwnerLock;
use crate::journal::header::{Kind, LEN as HEADER_LEN};
use crate::journal::live::durability_of;
use crate::journal::pools::access::as_owner;
use crate::journal::{Beside, BootId, Header, Mark, SUFFIX, State, Verdict, lock, look_beside, mark, path_of};
use crate::pmem::{Domain, medium};
use crate::recovery::formats::{Source, growing, in_place, joint, records, tiered};
use crate::rule::{Rule, holds};
use crate::settings::Settings;
use crate::sys::log::{self, Level};
use crate::sys::{InternalFd, open_again, without_signal_at_limit};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Before an atomic file is used: recovers it if a crash left a journal. If that is not safe: `EIO`, with a message
/// that names both files. A file without a journal costs three system calls.
pub(crate) fn at_open(
    fd: BorrowedFd<'_>,
    is_writable: bool,
    owner_lock: &mut OwnerLock,
    settings: &Settings,
) -> Result<()> {
    if is_ordinary(fd, Known::default(), settings)? {
        return Ok(());
    }
    owner_lock.upgrade()?;
    let own;
    let fd = if is_writable {
        fd
    } else {
        match writable(fd) {
            Ok(writable) => own = writable,
            Err(_) if is_leftover(fd, owner_lock, settings) => return Ok(()),
            Err(e) => {
                let what = match e.errno() {
                    libc::EPERM => {
                        "a crash left a journal for it, and it may not be written (is it immutable? chattr -i); then open it again, or run famio recover"
                    }
                    _ => "a crash left a journal for it, and to recover it takes write access; run famio recover",
                };
                return Err(e.context(what));
            }
        }
        own.as_fd()
    };
    let examined = match examine(fd, Some(owner_lock), settings, true, FoundFile::default()) {
        Err(e) if e.is_denied() && is_leftover(fd, owner_lock, settings) => return Ok(()),
        examined => examined?,
    };
    let (outcome, epoch, _) = recover(fd, &examined, Some(owner_lock), settings, Options::default(), &Silent)?;
    match outcome {
        Outcome::Conflict(text) => Err(conflict(&text)),
        Outcome::Failed(e) => Err(e),
        Outcome::Recovered => {
            if let Ok(path) = path_of(fd) {
                let of = if examined.growing.is_some() { String::new() } else { format!(", epoch {epoch}") };
                let what = format!(": recovered to its last SYNC{of}");
                log::say(Level::Info, &[path.as_os_str().as_bytes(), what.as_bytes()]);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// How many epochs a dead process had committed to its journal; 0 without a journal. Changes nothing.
pub(crate) fn commits_since_attach(fd: BorrowedFd<'_>, owner_lock: &OwnerLock, settings: &Settings) -> Result<u64> {
    if is_ordinary(fd, Known::default(), settings)? {
        return Ok(0);
    }
    let examined = examine(fd, Some(owner_lock), settings, false, FoundFile::default())?;
    let options = Options { dry_run: true, ..Options::default() };
    let (outcome, epoch, _) = recover(fd, &examined, Some(owner_lock), settings, options, &Silent)?;
    match (outcome, &examined.header) {
        // In a journal with slots, the first slot holds the size that the file had at the beginning.
        (Outcome::Recovered, Some(header)) => {
            // The record of a commit of several files is a commit.
            let has_next = joint::has_next(examined.pool.as_ref(), fd, header, epoch)?;
            Ok(epoch.saturating_sub(u64::from(header.kind != Kind::Records)) + u64::from(has_next))
        }
        (Outcome::Conflict(text), _) => Err(conflict(&text)),
        _ => Ok(0),
    }
}

/// The journal that a killed process has left, with its length and header, if the file must be recovered from it and
/// the machine has not been rebooted since. Changes nothing.
pub(crate) fn left_journal(
    fd: BorrowedFd<'_>,
    owner_lock: &OwnerLock,
    settings: &Settings,
) -> Result<Option<(InternalFd, u64, Header)>> {
    let examined = examine(fd, Some(owner_lock), settings, false, FoundFile::default())?;
    let boot = BootId::current()?;
    let header = examined.header.filter(|header| examined.verdict == Verdict::Recover && header.boot_id == boot);
    Ok(examined.journal.zip(header).map(|((journal, length), header)| (journal, length, header)))
}

/// Examines a file that this process cannot own; changes nothing.
///
/// # Errors
/// `EIO`: file and journal contradict each other.
pub(crate) fn look(file: BorrowedFd<'_>, settings: &Settings) -> Result<()> {
    match examine(file, None, settings, false, FoundFile::default())?.verdict {
        Verdict::Conflict(text) => Err(conflict(&text)),
        _ => Ok(()),
    }
}

/// Waits up to a second while the file is marked and has no journal. After `rm -r .famio` another process may be
/// remaking the journal or removing the mark, and nothing identifies that process. Not for other users' files: they
/// could have many of these.
pub(crate) fn await_journal(file: BorrowedFd<'_>, settings: &Settings) {
    let look = || match examine(file, None, settings, false, FoundFile::default()) {
        Ok(examined) if examined.is_without_journal() => Err(()),
        _ => Ok(()),
    };
    let _ = await_others(look, |()| true);
}

/// Waits up to a second for the end of another process's session. For a process that cannot be a member, so that
/// nothing announces the end.
pub(crate) fn await_end_of_session(file: BorrowedFd<'_>, settings: &Settings) {
    let look = || if is_in_session(file, settings) { Err(()) } else { Ok(()) };
    let _ = await_others(look, |()| true);
}

/// Whether a process has a session with the file's journal. For a caller whom the control file does not tell: it may
/// have been removed.
pub(crate) fn is_in_session(file: BorrowedFd<'_>, settings: &Settings) -> bool {
    let examined = examine(file, None, settings, false, FoundFile::default());
    examined.ok().and_then(|examined| examined.journal).is_some_and(|(journal, _)| lock::is_in_session(journal))
}

/// The error for a caller that finds such a session.
pub(crate) fn in_session() -> Error {
    let what = "another process has it open as an atomic file, but the control file beside its journal was removed; close the file there";
    Error::with(libc::EBUSY, what)
}

/// What is already known of a file that was just opened.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known<'a> {
    /// Its path, as the kernel names it.
    pub path: Option<&'a Path>,
    /// It was created a moment ago, and is empty ([`look_at`](crate::sys::look_at)).
    pub is_new: bool,
    /// When it was changed last, in seconds and nanoseconds.
    pub changed: Option<(i64, u64)>,
}

/// Whether a file has neither mark nor journal, by the cheapest check.
pub(crate) fn is_ordinary(fd: BorrowedFd<'_>, known: Known<'_>, settings: &Settings) -> Result<bool> {
    match mark::get_any(fd) {
        // A journal without a mark is left if a crash of the machine or a kill lost the mark, or removed it too
        // early.
        Ok(None) if known.is_new && settings.pool.is_none() => return Ok(true),
        Ok(None) => {}
        // The mark is not readable by this process, which received the file from another user's: the journal's name
        // decides.
        Err(e) if e.errno() == libc::EACCES => {}
        _ => return Ok(false), // a damaged mark is examined with the journal
    }
    if settings.pool.is_none() && look_beside(fd, known.path, &[SUFFIX])? != Beside::MayBe {
        return Ok(true);
    }
    // Without a mark, there is at most a leftover, or a journal whose mark was lost. The pool may not exist.
    match crate::journal::Pool::find(fd, settings.pool.as_deref()) {
        // A `.famio` that belongs to another user, or is no folder: no journal in it would be used, and it must not
        // hinder any process.
        Err(e) if settings.pool.is_none() && [libc::EACCES, libc::ENOTDIR, libc::ELOOP].contains(&e.errno()) => {
            Ok(true)
        }
        Err(e) => Err(e),
        Ok(None) => Ok(true),
        Ok(Some(pool)) => {
            let name = crate::journal::journal_name(&crate::journal::Identity::of_fd(fd)?);
            match pool.open_read_only(&name, Some(fd)) {
                // Nor must a journal that another user has put there.
                Err(e) if e.errno() == libc::EACCES && !pool.is_trusted(&name, fd) => Ok(true),
                found => Ok(found?.is_none()),
            }
        }
    }
}

/// An internal descriptor of the same file, for reading and writing. Makes a process with a lease on the file give it
/// up.
pub(crate) fn writable(fd: BorrowedFd<'_>) -> Result<InternalFd> {
    let open = || as_owner(fd, || open_again(fd, OFlags::RDWR | OFlags::NONBLOCK));
    Ok(await_others(open, |e| *e == Errno::WOULDBLOCK)?)
}

/// Repeats `attempt` while it fails with an error for which `may_pass` says that another process may be about to end
/// its cause: for a second, which is less than the kernel would wait for a lease.
pub(crate) fn await_others<T, E>(
    mut attempt: impl FnMut() -> core::result::Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
) -> core::result::Result<T, E> {
    const TRIES: u32 = 100;
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    for _ in 1..TRIES {
        match attempt() {
            Err(e) if may_pass(&e) => {
                let _ = rustix::thread::nanosleep(&PAUSE);
                crate::sys::internal::undisturbed::renew();
            }
            done => return done,
        }
    }
    attempt()
}

/// Whether the journal has ended, but could not be removed by the processes that ended it: the file has everything.
fn is_leftover(fd: BorrowedFd<'_>, owner_lock: &OwnerLock, settings: &Settings) -> bool {
    examine(fd, Some(owner_lock), settings, false, FoundFile::default()).is_ok_and(|examined| {
        matches!(examined.verdict, Verdict::Leftover | Verdict::Nothing)
            && examined.header.is_none_or(|header| has_ended_as(header.state))
    })
}

/// Of a leftover: whether it is the last state of a journal.
fn has_ended_as(state: State) -> bool {
    matches!(state, State::Clean | State::AsMarked)
}

/// As [`is_leftover`], for a process that cannot own the file.
pub(crate) fn has_ended(fd: BorrowedFd<'_>, settings: &Settings) -> bool {
    examine(fd, None, settings, false, FoundFile::default()).is_ok_and(|examined| match examined.verdict {
        Verdict::Nothing => true,
        // A journal without a header may be about to get it.
        Verdict::Leftover => examined.header.is_some_and(|header| has_ended_as(header.state)),
        _ => false,
    })
}

/// As [`has_ended`]; or the file was growing, and has exactly what is committed. Its mark stays.
pub(crate) fn has_nothing_to_recover(fd: BorrowedFd<'_>, settings: &Settings) -> bool {
    match examine(fd, None, settings, false, FoundFile::default()) {
        Ok(Examined { growing: Some(mark), verdict: Verdict::Growing, .. }) => {
            growing::has_just_what_is_committed(fd, &mark)
        }
        _ => has_ended(fd, settings),
    }
}

/// Whether the journal, which fits the file, can be read.
pub(super) fn can_be_replayed(
    file: BorrowedFd<'_>,
    examined: &Examined,
    owner_lock: Option<&OwnerLock>,
    options: Options,
    progress: &dyn Progress,
) -> bool {
    let own = examined.header.clone().filter(|header| header.identity == examined.identity);
    own.zip(examined.journal.as_ref()).is_some_and(|(mut header, (journal, length))| {
        let dry_run = Options { dry_run: true, ..options };
        replay(file, owner_lock, journal.as_fd(), *length, &mut header, dry_run, progress).is_ok()
    })
}

/// Does what the verdict, or the user, says. Returns the outcome, the epoch and the bytes copied; for a growing file,
/// the bytes cut off.
pub(super) fn recover(
    file: BorrowedFd<'_>,
    examined: &Examined,
    owner_lock: Option<&OwnerLock>,
    settings: &Settings,
    options: Options,
    progress: &dyn Progress,
) -> Result<(Outcome, u64, u64)> {
    let Examined { verdict, header, journal, .. } = examined;
    if let Some(mark) = &examined.growing
        && (*verdict == Verdict::Growing || options.on_conflict != Use::Refuse)
    {
        if let Verdict::Conflict(text) = verdict
            && options.on_conflict == Use::Journal
            && header.as_ref().is_some_and(|header| header.state.is_pending(true))
        {
            let text =
                format!("{text}; --use=journal: the file's mark is of another kind, and says nothing of the journal");
            return Ok((Outcome::Conflict(text), 0, 0));
        }
        // Without a conflict there is nothing to decide.
        let keeps_all =
            options.on_conflict == Use::Dropped || options.on_conflict == Use::File && *verdict != Verdict::Growing;
        let (outcome, cut) = growing::recover(file, mark, settings, options, keeps_all, &examined.file_path)?;
        if journal.is_some() && *verdict == Verdict::Growing && !options.dry_run {
            finish(file, examined, header.clone(), Domain::PageCache)?; // a leftover
        }
        return Ok((outcome, 0, cut));
    }
    if examined.is_of_another {
        return match (verdict, options.on_conflict) {
            (_, Use::File | Use::Dropped) => {
                if !options.dry_run {
                    mark::remove(file)?;
                }
                Ok((Outcome::Discarded, 0, 0))
            }
            (Verdict::Conflict(text), _) => Ok((Outcome::Conflict(text.clone()), 0, 0)),
            _ => Err(Error::with(libc::EIO, "the journal is another file's")),
        };
    }
    let own = header.as_ref().filter(|header| header.identity == examined.identity);
    let act = match (verdict, options.on_conflict) {
        (Verdict::Nothing | Verdict::Growing, _) => return Ok((Outcome::NothingToDo, 0, 0)),
        (Verdict::Leftover, _) => Act::Clean,
        (Verdict::Recover, Use::Refuse | Use::Journal) => Act::Replay,
        (Verdict::Conflict(text), Use::Refuse) => return Ok((Outcome::Conflict(text.clone()), 0, 0)),
        (Verdict::Conflict(text), Use::Journal) => match own {
            Some(header) if header.state.is_pending(true) => Act::Replay,
            _ => {
                let text = format!("{text}; --use=journal: there is no journal of this very file to use");
                return Ok((Outcome::Conflict(text), 0, 0));
            }
        },
        // Without a conflict there is nothing to decide, unless the journal cannot be read.
        (Verdict::Recover, Use::File) if can_be_replayed(file, examined, owner_lock, options, progress) => Act::Replay,
        (Verdict::Recover, Use::File) => Act::Discard,
        (Verdict::Conflict(_), Use::File) | (Verdict::Recover | Verdict::Conflict(_), Use::Dropped) => Act::Discard,
    };
    let domain = header.as_ref().map_or(Domain::PageCache, |header| header.file_domain);
    match act {
        Act::Clean if options.dry_run => Ok((Outcome::Clean, 0, 0)),
        Act::Clean => finish(file, examined, own.cloned(), domain).map(|()| (Outcome::Clean, 0, 0)),
        Act::Discard if options.dry_run => Ok((Outcome::Discarded, 0, 0)),
        Act::Discard => finish(file, examined, own.cloned(), domain).map(|()| (Outcome::Discarded, 0, 0)),
        Act::Replay => {
            let (Some(mut header), Some((journal, length))) = (own.cloned(), journal) else {
                return Err(Error::with(libc::EIO, "the journal is gone"));
            };
            let found = header.clone();
            let takes_back = !options.dry_run && holds(Rule::RecoveryTakesClosingBack);
            if let Some(mark) = examined.closing.as_ref().filter(|_| takes_back) {
                // After a power cut from here on, it is not as the mark said.
                mark::replace(file, &Mark { is_closing: false, ..mark.clone() })?;
            }
            let try_to = |header: &mut Header, options| {
                // The file's writers may have had a higher limit.
                without_signal_at_limit(|| {
                    replay(file, owner_lock, journal.as_fd(), *length, header, options, progress)
                })
            };
            let replayed = try_to(&mut header, options).map_err(|e| {
                // It is read before anything is changed: if it can be, the disk has failed.
                let dry_run = Options { dry_run: true, ..options };
                if e.errno() == libc::EIO && try_to(&mut found.clone(), dry_run).is_err() {
                    return examined.unreadable("not recovered", &e);
                }
                let (file, journal) = (examined.file_path.display(), examined.journal_path.display());
                let limit = if e.errno() == libc::EFBIG { " under this limit (ulimit -f)" } else { "" };
                e.context(format_args!("file {file}, journal {journal}: not recovered{limit}, both are kept"))
            })?;
            let mut bytes = replayed.bytes;
            if !options.dry_run {
                let pool = examined.pool.as_ref();
                let before = || match header.kind {
                    Kind::InPlace if holds(Rule::EntriesAreKept) => {
                        in_place::keep_entries(journal.as_fd(), *length, &header, medium(header.file_domain, false))
                    }
                    _ => Ok(()),
                };
                bytes += without_signal_at_limit(|| {
                    joint::apply(pool, file, &header, replayed.epoch, medium(domain, false), before)
                })?;
                finish(file, examined, Some(header), domain)?;
                joint::remove_old(pool, file);
            }
            Ok((Outcome::Recovered, replayed.epoch, bytes))
        }
    }
}

enum Act {
    Clean,
    Replay,
    Discard,
}

fn replay(
    file: BorrowedFd<'_>,
    owner_lock: Option<&OwnerLock>,
    journal: BorrowedFd<'_>,
    length: u64,
    header: &mut Header,
    options: Options,
    progress: &dyn Progress,
) -> Result<Replayed> {
    let medium = medium(header.file_domain, false);
    let found = header.clone();
    let adopt = || -> Result<()> {
        // From here on the file is changed by this recovery, in this boot. If it crashes, the changes must not look
        // like an outsider's.
        owner_lock.iter().for_each(|owner_lock| owner_lock.forget_arena());
        // Its flush also covers what the caller has written to the journal before.
        header.secure(journal, medium)?;
        header.boot_id = BootId::current()?;
        header.store(journal, medium)
    };
    let source = Source { file, journal, length, header: &found, medium };
    match found.kind {
        Kind::InPlace => in_place::replay(source, options, progress, adopt),
        Kind::Records => records::replay(file, owner_lock, journal, header, medium, options, progress),
        Kind::Tiered => tiered::replay(source, options, progress, adopt),
    }
}

/// The file has everything, or is accepted as it is: the journal is marked *clean*, then the mark is removed, then
/// the journal. `header`: of a journal of this very file.
fn finish(file: BorrowedFd<'_>, examined: &Examined, header: Option<Header>, domain: Domain) -> Result<()> {
    if let (Some((journal, _)), Some(mut header)) = (&examined.journal, header) {
        let medium = medium(domain, false);
        // Even if it says *clean* already: that must be durable before the mark is removed.
        header.secure(journal.as_fd(), medium)?;
        if header.state != State::Clean {
            header.state = State::Clean;
            header.store(journal.as_fd(), medium)?;
        }
    }
    end(file, examined, domain)
}

/// A *clean* journal of this file gives its room.
fn give_room_for_mark(examined: &Examined) -> Result<()> {
    match &examined.journal {
        Some((journal, _)) if examined.has_own_journal() => Ok(rustix::fs::ftruncate(journal, HEADER_LEN as u64)?),
        _ => Err(Error::new(libc::ENOSPC)),
    }
}

fn end(file: BorrowedFd<'_>, examined: &Examined, domain: Domain) -> Result<()> {
    if examined.is_marked {
        match mark::remove_with_room(file, || give_room_for_mark(examined)) {
            // The journal says clean; both stay.
            Err(e) if e.is_denied() && examined.journal.is_some() => return Ok(()),
            Err(e) if e.is_full() && examined.has_own_journal() => return Ok(()),
            removed => removed?,
        }
    }
    if examined.is_marked || examined.journal.is_some() {
        // Even if the mark is gone already: the process that removed it may have died before that was durable.
        mark::persist(file, durability_of(domain), medium(domain, false))?;
    }
    let others = examined.header.is_some() && !examined.has_own_journal();
    if examined.journal.is_some()
        && !others
        && let Some(pool) = &examined.pool
    {
        match pool.remove(&examined.name()) {
            Err(e) if e.is_denied() => {} // it is never replayed
            removed => {
                removed?;
                pool.remove_if_empty();
            }
        }
    }
    Ok(())
}
