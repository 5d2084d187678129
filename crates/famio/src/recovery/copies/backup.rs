//! `famio backup`: a copy of a file as of its last SYNC, while programs write to it.
//!
//! A copy is made as if the machine had crashed and recovered: first the file is copied, in whatever state it is,
//! then its journal; then the journal's commits are applied to the copy. This is correct if the journal, when it is
//! copied, has everything that the file may have lacked when its copy began.
//!
//! - Journal of records: the file never has anything uncommitted, and the journal has everything after its tail. The
//!   copy counts if the tail is the same before and after. Meanwhile the processes are asked not to write back, for
//!   some seconds at a time.
//! - Journal in place: it is overwritten all the time. The copy counts if meanwhile no write ended, nothing was
//!   committed, and nothing was checkpointed (which is counted after the file has the bytes and before they leave the
//!   journal). To make such a period likely, the next SYNC waits for the copy, for two seconds at most, and writers
//!   wait for the SYNC.

use super::copying::{copy_all, copy_to_memory, copy_with, kernels};
use super::destination;
use super::kept::{Kept, Left};
use crate::error::{Error, Result};
use crate::index::{Control, DeadArena, LONGEST_FREEZE};
use crate::journal::header::{Kind, first_bytes};
use crate::journal::pools::access::mode_without_list;
use crate::journal::records::{apply, scan};
use crate::journal::tiered::scan as scan_tiered;
use crate::journal::{Header, State, Verdict, control, lock};
use crate::pmem::{Domain, medium};
use crate::recovery::examine::{Examined, examine};
use crate::recovery::formats::{Source, growing, in_place, tiered};
use crate::recovery::found_file::FoundFile;
use crate::recovery::unfinished::Unfinished;
use crate::settings::Settings;
use crate::sys::InternalFd;
use core::sync::atomic::Ordering;
use rustix::fs::{Mode, Stat, fstat};
use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Copies that are started over because too much has changed meanwhile.
const TRIES: u32 = 40;
/// Pause between two of them.
const PAUSE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long write-backs are asked to wait, in nanoseconds; less if space runs short, longer if asked again.
const HOLD: u64 = 5_000_000_000;

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The commit whose state the copy has; 0: the file has no journal.
    pub epoch: u64,
    /// Bytes of the copy.
    pub bytes: u64,
    /// It also has what a killed process had written since that commit (`on-kill = keep`).
    pub is_kept: bool,
    /// The copy shares its blocks with the file (reflink) until either is changed.
    pub is_reflink: bool,
}

/// See [`backup`](fn@crate::recovery::backup). `kept`: lists what a recovery would keep of killed processes.
pub(crate) fn backup(
    from: &Path,
    to: &Path,
    replace: bool,
    settings: &Settings,
    waits: &dyn Fn(Option<u32>),
    kept: &Kept,
) -> Result<Backup> {
    let to = destination::find(to)?;
    let source = source(from)?;
    if let Some(there) = &to.there {
        destination::refuse_same(source.as_fd(), from, there.as_fd(), &to.path)?;
        if !replace {
            return Err(named(&to.path)(Error::new(libc::EEXIST)));
        }
        destination::refuse_atomic(there.as_fd(), settings).map_err(named(&to.path))?;
    }
    let (new, stat, backup) = copy(from, &to.path, settings, waits, kept)?;
    give(&new, source.as_fd(), &stat).map_err(named(&to.path))?;
    match &to.there {
        Some(there) => destination::replace_ordinary(new, there.as_fd(), &to.path, settings),
        None => new.publish(&to.path),
    }
    .map_err(named(&to.path))?;
    Ok(backup)
}

/// Adds the file's name to an error that does not name it.
pub(in crate::recovery) fn named(path: &Path) -> impl Fn(Error) -> Error {
    let path = path.display().to_string();
    move |e: Error| if e.detail().is_some_and(|said| said.contains(&path)) { e } else { e.context(&path) }
}

/// The file to copy, as an `O_PATH` descriptor.
pub(in crate::recovery) fn source(from: &Path) -> Result<InternalFd> {
    let looked = crate::journal::pools::reach::look_at(from).map_err(named(from))?;
    if !crate::journal::pools::reach::is_regular(&fstat(&looked)?) {
        return Err(named(from)(Error::with(libc::EINVAL, "not a regular file")));
    }
    Ok(looked)
}

/// A complete copy that has no name yet, with the attributes of the file.
pub(in crate::recovery) fn copy(
    from: &Path,
    to: &Path,
    settings: &Settings,
    waits: &dyn Fn(Option<u32>),
    kept: &Kept,
) -> Result<(Unfinished, Stat, Backup)> {
    // After the lease has ended: until then the file may be in the middle of an epoch.
    let file = crate::recovery::search::leases::open_after(from, waits).map_err(|e| named(from)(e.into()))?;
    let new = Unfinished::beside(to).map_err(named(to))?;
    let copied = copy_of_last_sync(file.as_fd(), new.file.as_fd(), settings, kept);
    let backup = copied.map_err(|e| if is_of_destination(&e) { named(to)(e) } else { named(from)(e) })?;
    Ok((new, fstat(&file)?, backup))
}

/// Whether the error is the destination's, such as a full disk, and not the file's.
fn is_of_destination(error: &Error) -> bool {
    [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EROFS].contains(&error.errno())
}

/// Gives the copy owner, group and mode of `like`, as far as this process may, and makes it durable. Access control lists
/// are not copied; nobody may do more with the copy for the lack of one, or of the group.
pub(in crate::recovery) fn give(new: &Unfinished, like: BorrowedFd<'_>, stat: &Stat) -> Result<()> {
    let (owner, group) = (Some(rustix::fs::Uid::from_raw(stat.st_uid)), Some(rustix::fs::Gid::from_raw(stat.st_gid)));
    // Without the right to give files away, this process remains the owner, and may still be in the group.
    if rustix::fs::fchown(&new.file, owner, group).is_err() {
        let _ = rustix::fs::fchown(&new.file, None, group);
    }
    let of_others = mode_without_list(like, stat, fstat(&new.file)?.st_gid)?;
    rustix::fs::fchmod(&new.file, Mode::from_raw_mode(stat.st_mode & 0o700 | of_others & 0o077))?;
    Ok(rustix::fs::fsync(&new.file)?)
}

fn copy_of_last_sync(file: BorrowedFd<'_>, to: BorrowedFd<'_>, settings: &Settings, kept: &Kept) -> Result<Backup> {
    let mut why = Cow::from("it is written all the time");
    for round in 0..TRIES {
        if round > 0 {
            let _ = rustix::thread::nanosleep(&PAUSE);
        }
        match try_with_kept(file, to, settings, kept)? {
            Tried::Done(backup) => return Ok(backup),
            Tried::Again(what) => why = what,
        }
    }
    Err(Error::with(
        libc::EAGAIN,
        format!(
            "{why}, and could not be copied as of one SYNC in {TRIES} tries; try when less is written, or stop the program for a moment"
        ),
    ))
}

enum Tried {
    Done(Backup),
    /// Why.
    Again(Cow<'static, str>),
}

fn again(why: impl Into<Cow<'static, str>>) -> Tried {
    Tried::Again(why.into())
}

/// A copy as of the last SYNC; of a file that killed processes have left, as a recovery would leave it.
fn try_with_kept(file: BorrowedFd<'_>, to: BorrowedFd<'_>, settings: &Settings, kept: &Kept) -> Result<Tried> {
    // Without the right to write the file, this process cannot see what is to be kept.
    let control = control::find(file, settings.pool.as_deref()).ok().flatten().map(Control::new);
    let is_recovering = |control: &Control| {
        control.says_it_recovers() || control.is_owned() && !control.has_members() && control.may_keep()
    };
    if control.as_ref().is_some_and(is_recovering) {
        return Ok(again("a process is making durable what a killed one has left"));
    }
    let left = Left::find(control);
    let (backup, left) = match (try_copy(file, to, settings)?, left) {
        (Tried::Done(backup), Some(left)) => (backup, left),
        (tried, _) => return Ok(tried),
    };
    Ok(match left.add(file, to, settings, kept)? {
        Some(is_kept) => Tried::Done(Backup { bytes: fstat(to)?.st_size as u64, is_kept, ..backup }),
        None => again("a process has begun to use it"),
    })
}

fn try_copy(file: BorrowedFd<'_>, to: BorrowedFd<'_>, settings: &Settings) -> Result<Tried> {
    let before = examine(file, None, settings, false, FoundFile::default())?;
    let control = control_of(&before, file);
    let is_owned = || control.as_ref().is_some_and(Control::is_owned);
    let (Some((journal, _)), Some(header)) = (&before.journal, &before.header) else {
        return match &before.verdict {
            // While a process creates its journal, file and journal may be read in different states.
            Verdict::Conflict(_) if is_owned() => Ok(again("its journal is being made")),
            Verdict::Conflict(text) => Err(crate::recovery::examine::conflict(text)),
            _ => of_file_alone(&before, file, to, settings),
        };
    };
    let is_used = lock::is_in_session(journal) || is_owned();
    match &before.verdict {
        Verdict::Conflict(text) if !is_used => return Err(crate::recovery::examine::conflict(text)),
        verdict if is_used && is_being_made(header.state, verdict) => return Ok(again("its journal is being made")),
        Verdict::Nothing | Verdict::Leftover | Verdict::Growing => {
            return of_file_alone(&before, file, to, settings);
        }
        Verdict::Recover | Verdict::Conflict(_) => {}
    }
    match header.kind {
        Kind::Records | Kind::Tiered => of_epochs(&before, header, journal, file, to, is_used),
        Kind::InPlace => in_place_of(&before, header, journal, file, to, is_used),
    }
}

/// Whether it has no mark yet, or is without it just now.
fn is_being_made(state: State, verdict: &Verdict) -> bool {
    state == State::Creating || state == State::AsMarked && *verdict == Verdict::Leftover
}

/// For a file with everything it was given: it has no journal, or one that has ended.
fn of_file_alone(before: &Examined, file: BorrowedFd<'_>, to: BorrowedFd<'_>, settings: &Settings) -> Result<Tried> {
    let seen = |found: &Examined| {
        let changes = control_of(found, file).map(|control| control.changes());
        let stat = fstat(file)?;
        let stamp = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
        Ok::<_, Error>((stamp, changes, found.header.clone(), found.journal.is_some()))
    };
    let first = seen(before)?;
    let is_reflink = copy_all(file, to)?;
    if let Some(mark) = &before.growing {
        // As a killed process left it: bytes beyond the last SYNC are not part of the file, and overwrites are.
        growing::apply(to, mark, medium(Domain::PageCache, false))?;
    }
    let after = examine(file, None, settings, false, FoundFile::default())?;
    done(seen(&after)? == first, to, 0, is_reflink)
}

fn done(is_good: bool, to: BorrowedFd<'_>, epoch: u64, is_reflink: bool) -> Result<Tried> {
    if !is_good {
        return Ok(again("it is changed while it is copied"));
    }
    Ok(Tried::Done(Backup { epoch, bytes: fstat(to)?.st_size as u64, is_reflink, is_kept: false }))
}

/// Completes a copy as of this epoch, unless a transaction of several files has yet to be applied to the file.
fn done_at(
    found: &Examined,
    header: &Header,
    journal: &InternalFd,
    file: BorrowedFd<'_>,
    (to, epoch, is_reflink): (BorrowedFd<'_>, u64, bool),
) -> Result<Tried> {
    match crate::recovery::formats::joint::refuse_unfinished(found.pool.as_ref(), file, header, epoch) {
        Err(_) if lock::is_in_session(journal) => Ok(again("it is in a transaction of several files")),
        refused => refused.and_then(|()| done(true, to, epoch, is_reflink)),
    }
}

/// For a journal that is only appended to.
fn of_epochs(
    found: &Examined,
    header: &Header,
    journal: &InternalFd,
    file: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    is_used: bool,
) -> Result<Tried> {
    const TURNED: &str = "its journal was restarted meanwhile";
    let control = control_of(found, file);
    let hold = || control.iter().for_each(|control| control.hold_write_backs(HOLD));
    hold();
    // While the owner commits, the header and the chain may be read in different states.
    let may_change = || is_used || lock::is_in_session(journal) || control.as_ref().is_some_and(Control::is_owned);
    let unread = |e: Error| match e.errno() {
        _ if may_change() => Ok(again(format!("its journal can't be read while it is used ({e})"))),
        libc::EIO => Err(found.unreadable("not copied", &e).context(found.file_path.display())),
        _ => Err(e),
    };
    let first = match held(journal.as_fd(), header) {
        Ok(first) => first,
        Err(e) => return unread(e),
    };
    let is_reflink = copy_with(file, to, &hold)?;
    let copy = copy_to_memory(journal.as_fd(), &hold)?;
    let (bytes, read) = first_bytes(copy.as_fd())?;
    let Ok((now, _)) = Header::read(&bytes[..read]) else { return Ok(again(TURNED)) };
    let is_same = now.journal_id == header.journal_id && now.kind == header.kind;
    if !is_same || now.state == State::Clean {
        return Ok(again(TURNED));
    }
    let last = match held(copy.as_fd(), &now) {
        Ok(last) => last,
        Err(e) => return unread(e),
    };
    if last.checkpointed != first.checkpointed || last.epoch < first.epoch {
        return Ok(again("too much of it is written back"));
    }
    let epoch = match now.kind {
        Kind::Tiered => {
            let length = fstat(&copy)?.st_size as u64;
            let medium = medium(Domain::Emulated, false);
            tiered::list(Source { file: to, journal: copy.as_fd(), length, header: &now, medium }, kernels())?
        }
        _ => apply(copy.as_fd(), &now, to, kernels())?,
    };
    done_at(found, header, journal, file, (to, epoch, is_reflink))
}

/// Where a journal ends, and from where on the file needs it.
struct Held {
    epoch: u64,
    checkpointed: u64,
}

fn held(journal: BorrowedFd<'_>, header: &Header) -> Result<Held> {
    if header.kind == Kind::Tiered {
        let length = fstat(journal)?.st_size as u64;
        let scan = scan_tiered(journal, length, header, medium(Domain::Emulated, false))?;
        return Ok(Held { epoch: scan.epoch(), checkpointed: scan.checkpointed() });
    }
    let plan = scan(journal, header)?.plan();
    Ok(Held { epoch: plan.epoch, checkpointed: plan.checkpointed })
}

fn in_place_of(
    found: &Examined,
    header: &Header,
    journal: &InternalFd,
    file: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    is_used: bool,
) -> Result<Tried> {
    const BUSY: &str = "its journal is one in place, which is written over all the time";
    let control = control_of(found, file);
    let activity = || control.as_ref().and_then(activity);
    let _frozen = control.as_ref().filter(|_| is_used).map(Frozen::begin);
    let mut before = activity();
    for _ in 0..LOOKS {
        if !is_used || before.is_some_and(|activity| activity[0] == 0) {
            break;
        }
        let _ = rustix::thread::nanosleep(&LOOK);
        before = activity();
    }
    if is_used && before.is_none() {
        return Ok(again("what its processes share can't be read")); // or there is none yet
    }
    let is_reflink = copy_all(file, to)?;
    let copy = copy_to_memory(journal.as_fd(), &|| ())?;
    if activity() != before || lock::is_in_session(journal) != is_used && before.is_none() {
        return Ok(again(BUSY));
    }
    // It may have grown since it was found.
    let length = fstat(&copy)?.st_size as u64;
    let medium = medium(Domain::Emulated, false);
    let source = Source { file: to, journal: copy.as_fd(), length, header, medium };
    let epoch = in_place::list(source, kernels()).map_err(|e| match in_place::read_through(source) {
        Err(why) if e.errno() == libc::EIO => found.unreadable("not copied", &why).context(found.file_path.display()),
        _ => e,
    })?;
    done_at(found, header, journal, file, (to, epoch, is_reflink))
}

/// How often it is checked whether a SYNC has ended.
const LOOKS: u32 = 200;
const LOOK: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A file whose next SYNC waits until this is dropped.
struct Frozen<'a>(&'a Control);

impl<'a> Frozen<'a> {
    fn begin(control: &'a Control) -> Self {
        control.freeze(LONGEST_FREEZE - LONGEST_FREEZE / 10);
        Self(control)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.freeze(0);
    }
}

fn control_of(found: &Examined, file: BorrowedFd<'_>) -> Option<Control> {
    Some(Control::new(control::find_in(found.pool.as_ref()?, file).ok()??))
}

/// Counts that change with every action on the file. The first says whether the open epoch has writes.
fn activity(control: &Control) -> Option<[u64; 8]> {
    let arena = DeadArena::open(control.open_arena().ok()??).ok()??;
    let shared = arena.shared();
    let load = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
    Some([
        shared.dirty.load(Ordering::Relaxed).into(),
        load(&shared.committed),
        load(&shared.generation),
        shared.counts.sums().writes,
        load(&shared.physical),
        load(&shared.size),
        load(&shared.totals.write_backs),
        shared.totals.file_bytes(),
    ])
}
