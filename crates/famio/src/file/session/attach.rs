//! The first write of a session: makes journal, mark, arena and engine.

use super::Session;
use super::sync::next_epoch;
use crate::error::{Error, Result};
use crate::file::Descriptors;
use crate::file::engine::home::Home;
use crate::file::images::{Imaging, Others};
use crate::file::inplace::InPlace;
use crate::index::{Arena, Calls, Images, Membership, OwnerLock, Shared, follow_up, images};
use crate::journal::header::Kind;
use crate::journal::inplace::mapped::Mapped;
use crate::journal::inplace::{Commit, Key, Log};
use crate::journal::live::{Live, durability_of};
use crate::journal::records::Keeper;
use crate::journal::{Identity, beside_path, folder_of, journal_name, path_of};
use crate::pmem::{Detected, Domain, Medium, TestHooks, detect, is_tiered, medium};
use crate::rule::{Rule, in_order};
use crate::settings::{Durability, OnKill, Settings};
use crate::sys::internal::undisturbed::Answer;
use crate::sys::{monotonic_now, namespaces, owner_and_mode};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fs::OFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The domains of file and journal, and the resulting format.
#[derive(Clone)]
struct Plan {
    file: Detected,
    journal: Detected,
    kind: Kind,
}

/// An in-place journal must be mapped in the same way as the file. A file on a disk with its journal in memory that
/// persists by itself has a tiered journal; all others use the page cache for both. A journal that survives less than
/// its file would silently weaken the guarantee.
fn plan(fd: BorrowedFd<'_>, settings: &Settings) -> Result<Plan> {
    static KNOWN: Answer<Plan> = Answer::new();
    KNOWN.of_file(fd, || make_plan(fd, settings))
}

#[inline(never)] // the stack may be small
fn make_plan(fd: BorrowedFd<'_>, settings: &Settings) -> Result<Plan> {
    let file = detect(fd, settings)?;
    let mut journal = match &settings.pool {
        None => detect(folder_of(fd)?.0.as_fd(), settings),
        Some(pool) => crate::journal::Pool::at(pool, Some(fd)).and_then(|pool| detect(pool.folder(), settings)),
    }?;
    if let Some(domain) = TestHooks::current().journals {
        (journal.domain, journal.natural) = (domain, domain);
    }
    let volatile = |domain| matches!(domain, Domain::Process | Domain::Emulated);
    if volatile(journal.domain) && !volatile(file.domain) {
        return Err(Error::with(
            libc::EINVAL,
            format!(
                "its journal would lie on {} and not survive a power loss as the file does: choose a pool on a disk, or --durability process",
                journal.file_system
            ),
        ));
    }
    let kind = if is_tiered(&file, &journal, settings) {
        Kind::Tiered
    } else if volatile(file.domain) || (file.domain, journal.domain) == (Domain::Pmem, Domain::Pmem) {
        Kind::InPlace
    } else {
        Kind::Records
    };
    Ok(Plan { file, journal, kind })
}

/// Checks whether a file can be attached with these settings, before anything is made for it.
///
/// # Errors
/// `EOPNOTSUPP`: its file system is not supported. `EINVAL`: the settings would weaken durability without saying so.
pub(in crate::file) fn check(fds: &Descriptors, settings: &Settings) -> Result<()> {
    fds.with(true, |fd| plan(fd, settings)).map(drop)
}

/// Attaches a file that has no journal. `arena`: of an earlier session of this process. `has_earlier_writes`: a
/// hand-over image, or what a growing file had open, is taken up, perhaps only to be committed; otherwise the program
/// is about to write. `membership`: the file's control page. `others`: what other processes have changed.
/// `saves_images`: of changes while there are other processes.
pub(in crate::file) fn attach(
    fds: &Descriptors,
    owner_lock: &OwnerLock,
    settings: &Settings,
    arena: Option<Arc<Arena>>,
    has_earlier_writes: bool,
    (membership, others): (&Arc<Membership>, &Others),
    saves_images: bool,
) -> Result<Session> {
    if !fds.has_writable() {
        return Err(Error::new(libc::EBADF));
    }
    let plan = fds.with(true, |fd| plan(fd, settings))?;
    // Another process that has demoted it may just have set the flag on a description that this one shares.
    if fds.with(true, |fd| Ok(rustix::fs::fcntl_getfl(fd)?))?.contains(OFlags::APPEND) {
        return Err(Error::with(libc::EBUSY, "another process has demoted a descriptor of it that appends"));
    }
    if !has_earlier_writes {
        fds.with(true, crate::file::descriptors::set_id::drop_before_session)?;
    }
    let arena = match arena {
        Some(arena) => arena,
        None => Arc::new(Arena::create(owner_lock.make_arena()?, &fds.with(true, |fd| spills_to(fd, settings))?)?),
    };
    let generation = prepare(arena.shared(), fds, settings)?;
    Images::of(&arena).forget();
    let is_alone = !membership.has_others();
    let of_group = settings.group.is_some();
    if !is_alone && saves_images && !of_group {
        arena.shared().images.store(images::BEGUN, Ordering::Release);
    }
    super::deferred::prepare(&arena)?;
    if settings.on_kill == OnKill::Keep {
        Calls::prepare(&arena)?;
    }
    let durability = durability_of(plan.file.domain);
    fds.with(true, |fd| {
        leave_hints(fd, arena.shared(), settings)?;
        // The process that made the file may not have synced its name. A `.famio/` is in the same folder, which is
        // synced as the journal is created; the file itself is synced when it is marked.
        if durability == Durability::Power && settings.pool.is_some() {
            medium(plan.file.domain, plan.file.eadr).fsync(folder_of(fd)?.0.as_fd())?;
        }
        Ok(())
    })?;
    let (home, engine): (_, Box<dyn crate::file::engine::context::Engine>) = match plan.kind {
        Kind::InPlace => {
            let medium = medium(plan.file.domain, plan.file.eadr);
            let home = Home::new(fds, plan.file.domain, true, medium)?;
            (home, in_place(fds, arena.shared(), &plan, settings, medium)?)
        }
        Kind::Records => crate::file::records::attach(fds, arena.shared(), (&plan.journal, &plan.file), settings)?,
        Kind::Tiered => {
            crate::file::records::attach_tiered(fds, arena.shared(), (&plan.journal, &plan.file), settings)?
        }
    };
    Ok(Session {
        arena,
        home,
        engine,
        me: membership.place(),
        may_be_exclusive: AtomicBool::new(is_alone && !of_group && crate::index::calls::exclusive::prepare_process()),
        generation: AtomicU64::new(generation),
        arena_number: membership.arena(),
        opened: AtomicU64::new(0),
        imaging: Imaging::new(membership.clone(), others.clone()),
        choice: settings.policy,
        keeps: settings.on_kill == OnKill::Keep,
        of_group: AtomicBool::new(of_group),
        gathered: Default::default(),
        pairs: Default::default(),
        was_lost: Default::default(),
        syncs_each_write: Default::default(),
    })
}

/// Attaches to an unowned session that another process began; its journal is the file `journal`.
///
/// # Errors
/// `EIO`: this is not that session's journal. `EACCES`, `ENOENT`: this process cannot use it, or does not find it.
pub(in crate::file) fn join(
    fds: &Descriptors,
    settings: &Settings,
    arena: Arc<Arena>,
    arena_number: u64,
    opened: AtomicU64,
    journal: u64,
    (membership, others): (&Arc<Membership>, &Others),
) -> Result<Session> {
    let file = fds.with(true, |fd| detect(fd, settings))?;
    let medium = medium(file.domain, file.eadr);
    let live = fds.with(true, |fd| Live::attach(fd, settings, medium))?;
    let header = live.header();
    if live.file().identity().1 != journal || header.file_domain != file.domain {
        return Err(Error::new(libc::EIO));
    }
    let (home, engine): (_, Box<dyn crate::file::engine::context::Engine>) = match header.kind {
        Kind::InPlace => {
            let home = Home::new(fds, file.domain, true, medium)?;
            let key = Key::of(header.journal_id);
            let limit = live.limit();
            let log = live.file().run(|journal| Mapped::attach(journal.as_fd(), file.domain, medium, key, limit))?;
            (home, Box::new(InPlace::new(Log::new(log), live, medium)))
        }
        Kind::Records => crate::file::records::join(fds, live)?,
        Kind::Tiered => crate::file::records::join_tiered(fds, live, settings)?,
    };
    Ok(Session {
        arena,
        home,
        engine,
        me: membership.place(),
        may_be_exclusive: AtomicBool::new(false),
        generation: AtomicU64::new(0),
        arena_number,
        opened,
        imaging: Imaging::new(membership.clone(), others.clone()),
        choice: settings.policy,
        keeps: false,
        of_group: AtomicBool::new(false), // it is another process's, and ends
        gathered: Default::default(),
        pairs: Default::default(),
        was_lost: Default::default(),
        syncs_each_write: Default::default(),
    })
}

/// The folder for the part of an arena that has no room in memory: the journal's, or the one of a `.famio/` that is
/// not made yet.
#[inline(never)] // the stack may be small
pub(in crate::file) fn spills_to(fd: BorrowedFd<'_>, settings: &Settings) -> Result<PathBuf> {
    match &settings.pool {
        Some(pool) => Ok(pool.clone()),
        None => Ok(path_of(fd)?.parent().map_or_else(|| "/".into(), Path::to_path_buf)),
    }
}

/// Records in the arena where the file is and its journal will be.
#[inline(never)] // the stack may be small
fn leave_hints(fd: BorrowedFd<'_>, shared: &Shared, settings: &Settings) -> Result<()> {
    let (file, name) = (path_of(fd)?, journal_name(&Identity::of_fd(fd)?));
    let journal = match &settings.pool {
        Some(pool) => pool.join(name),
        None => beside_path(&file).join(name),
    };
    let inode = owner_and_mode(fd)?.st_ino;
    let view = namespaces::of_paths();
    shared.set_hints(inode, file.as_os_str().as_bytes(), journal.as_os_str().as_bytes(), view.as_bytes());
    Ok(())
}

/// Prepares the shared state of a file without a journal. Returns the session's generation.
#[inline(never)] // the stack may be small
fn prepare(shared: &Shared, fds: &Descriptors, settings: &Settings) -> Result<u64> {
    let size = fds.stat()?.st_size as u64;
    shared.forget_exact_file();
    let generation = shared.generation.fetch_add(1, Ordering::AcqRel) + 1;
    shared.begun.store(monotonic_now(), Ordering::Release);
    for word in [
        &shared.size,
        &shared.committed_size,
        &shared.epoch_low,
        &shared.lowest_since_acquired,
        &shared.physical,
        &shared.physical_next,
        &shared.stale_end,
    ] {
        word.store(size, Ordering::Release);
    }
    for word in
        [&shared.recorded, &shared.free, &shared.used, &shared.modified[0], &shared.modified[1], &shared.set_after[1]]
    {
        word.store(0, Ordering::Release);
    }
    // What others changed since this process's last session must not count as an outsider's change if it is killed in
    // its first write.
    shared.leave_now();
    shared.begin_entries(0);
    shared.pending.iter().for_each(|line| line.0.store(0, Ordering::Release));
    shared.file_end.store(u64::MAX, Ordering::Release);
    for word in [&shared.dirty, &shared.poisoned, &shared.keeps, &shared.moving, &shared.images, &shared.has_left] {
        word.store(0, Ordering::Release);
    }
    shared.lease.store(crate::index::lease::NONE, Ordering::Release);
    shared.follow_up.fetch_and(!follow_up::PRIVILEGES, Ordering::AcqRel);
    shared.gate.reset();
    // The first slot holds the size: the file may grow before the first SYNC.
    shared.committed.store(1, Ordering::Release);
    next_epoch(shared, &shared.counts.take(), settings.policy);
    shared.open.store(0, Ordering::Release);
    shared.released.store(0, Ordering::Release);
    shared.closed.store(0, Ordering::Release);
    Ok(generation)
}

/// Creates an in-place journal: segments and slots, then mark and header, each durable before the next.
fn in_place(
    fds: &Descriptors,
    shared: &Shared,
    plan: &Plan,
    settings: &Settings,
    medium: &'static dyn Medium,
) -> Result<Box<InPlace>> {
    fds.with(true, |fd| {
        let domains = (plan.journal.domain, plan.file.domain);
        let live = Live::create(fd, settings, Kind::InPlace, domains, medium, None)?;
        let made = (|| {
            let key = Key::of(live.id());
            let limit = live.limit();
            let log = Log::create(Mapped::create(live.file().as_fd(), plan.file.domain, medium, key, limit)?);
            in_order(
                Rule::SlotBeforeActive,
                || {
                    log.slots().store(Commit { epoch: 1, size: shared.size() });
                    medium.fence();
                    Ok(())
                },
                || live.activate(fd),
            )?;
            Ok(log)
        })();
        match made {
            Ok(log) => in_place_engine(log, live, medium),
            Err(e) => {
                let e: Error = e;
                let path = live.path().display().to_string();
                live.abandon(fd);
                Err(e.context(format_args!("journal {path}")))
            }
        }
    })
}

/// Not inlined: it is made on the stack, which may be small.
#[inline(never)]
fn in_place_engine(log: Log, live: Arc<Live>, medium: &'static dyn Medium) -> Result<Box<InPlace>> {
    let live = Arc::into_inner(live).ok_or(Error::new(libc::EBUSY))?; // nothing else has it yet
    Ok(Box::new(InPlace::new(log, live, medium)))
}

/// The errors of a process that may not make the journal or mark the file, because of permissions, a limit or the
/// file system; or that has no descriptor left for the journal, or no address for a map.
pub(in crate::file) fn is_out_of_reach(errno: i32) -> bool {
    const DENIED: [i32; 6] = [libc::EACCES, libc::EPERM, libc::EROFS, libc::EOPNOTSUPP, libc::EEXIST, libc::EFBIG];
    const TOO_LONG: i32 = libc::ENAMETOOLONG; // the kernel tells no path of more than a page
    const SCARCE: [i32; 3] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    DENIED.contains(&errno) || SCARCE.contains(&errno) || errno == TOO_LONG
}
