//! Begins a session of a file behind the page cache: makes its journal, or joins one.

use super::write_back::WriteBack;
use super::{EpochLog, Records};
use crate::error::Result;
use crate::file::engine::context::Engine;
use crate::file::{Descriptors, Home};
use crate::index::Shared;
use crate::journal::header::Kind;
use crate::journal::inplace::Key;
use crate::journal::inplace::mapped::Mapped;
use crate::journal::live::Live;
use crate::journal::records::{Geometry, Keeper, RecordLog};
use crate::journal::tiered::TieredLog;
use crate::pmem::{Detected, Domain, Medium, medium};
use crate::settings::Settings;
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The home and the engine of a session that another process began.
///
/// # Errors
/// Those of finding its journal.
pub(in crate::file) fn join(fds: &Descriptors, live: Live) -> Result<(Home, Box<dyn Engine>)> {
    let medium = medium(Domain::PageCache, false);
    let home = Home::new(fds, Domain::PageCache, false, medium)?;
    let live = Arc::new(live);
    let (geometry, _) = Geometry::get(&live.header().geometry)?;
    let log = EpochLog::Pages(RecordLog::attach(live.clone(), geometry, live.limit(), medium));
    Ok((home, Box::new(Records::new(log, None, live, 0, medium))))
}

/// As [`join`], with a tiered journal.
///
/// # Errors
/// Those of mapping it.
pub(in crate::file) fn join_tiered(
    fds: &Descriptors,
    live: Live,
    settings: &Settings,
) -> Result<(Home, Box<dyn Engine>)> {
    let header = live.header();
    let (of_file, of_journal) = (medium(header.file_domain, false), medium(header.domain, false));
    let home = Home::new(fds, Domain::PageCache, false, of_file)?;
    let (geometry, _) = Geometry::get(&header.geometry)?;
    let (key, limit) = (Key::of(header.journal_id), live.limit());
    let mapped = live.file().run(|journal| Mapped::attach(journal.as_fd(), header.domain, of_journal, key, limit))?;
    let log = TieredLog::attach(mapped, geometry)?;
    let tier = WriteBack::new(settings, live.limit().clone().at_least(log.limit()));
    Ok((home, Box::new(Records::new(EpochLog::Memory(log), Some(tier), Arc::new(live), 0, of_file))))
}

/// Creates a tiered journal: slots and first segment, then mark and header, each durable before the next.
///
/// # Errors
/// `ENOSPC`, `EDQUOT`: no room for it. Those of making and mapping it.
pub(in crate::file) fn attach_tiered(
    fds: &Descriptors,
    shared: &Shared,
    (journal, file): (&Detected, &Detected),
    settings: &Settings,
) -> Result<(Home, Box<dyn Engine>)> {
    let (of_file, of_journal) = (medium(file.domain, false), medium(journal.domain, journal.eadr));
    let home = Home::new(fds, Domain::PageCache, false, of_file)?;
    // As in `attach`.
    shared.stale_end.store(0, Ordering::Release);
    fds.with(true, |fd| {
        let live = Live::create(fd, settings, Kind::Tiered, (journal.domain, file.domain), of_file, None)?;
        let geometry = Geometry::of_new_in_memory();
        let made = (|| {
            live.describe(|words| geometry.put(0, words));
            let (key, limit) = (Key::of(live.id()), live.limit());
            let mapped = Mapped::create(live.file().as_fd(), journal.domain, of_journal, key, limit)?;
            let log = TieredLog::create(mapped, shared.size(), geometry)?;
            live.activate(fd).map(|()| log)
        })();
        match made {
            Ok(log) => {
                let tier = WriteBack::new(settings, live.limit().clone().at_least(log.limit()));
                let log = EpochLog::Memory(log);
                tier.note(&log);
                let engine: Box<dyn Engine> = Box::new(Records::new(log, Some(tier), live, shared.size(), of_file));
                Ok((home, engine))
            }
            Err(e) => {
                let path = live.path().display().to_string();
                live.abandon(fd);
                Err(e.context(format_args!("journal {path}")))
            }
        }
    })
}

/// Creates the journal: first segment, then mark and header, each durable before the next; or, where the file system
/// keeps the order, with the next.
pub(in crate::file) fn attach(
    fds: &Descriptors,
    shared: &Shared,
    (journal, file): (&Detected, &Detected),
    settings: &Settings,
) -> Result<(Home, Box<dyn Engine>)> {
    let medium = medium(Domain::PageCache, false);
    let home = Home::new(fds, Domain::PageCache, false, medium)?;
    // Old bytes above a size are never seen: the file is cut before a checkpoint writes above it.
    shared.stale_end.store(0, Ordering::Release);
    fds.with(true, |fd| {
        let domains = (journal.domain, file.domain);
        let through_cache = (domains == (Domain::PageCache, Domain::PageCache)).then_some(file);
        let live = Live::create(fd, settings, Kind::Records, domains, medium, through_cache)?;
        match begin(&live, fd, shared.size(), medium) {
            Ok(engine) => Ok((home, engine)),
            Err(e) => {
                let path = live.path().display().to_string();
                live.abandon(fd);
                Err(e.context(format_args!("journal {path}")))
            }
        }
    })
}

/// Not inlined: `attach` needs the stack, which may be small, for other things before.
#[inline(never)]
fn begin(live: &Arc<Live>, fd: BorrowedFd<'_>, size: u64, medium: &'static dyn Medium) -> Result<Box<dyn Engine>> {
    let log = RecordLog::create(live.clone(), size, Geometry::of_new(), live.limit(), medium)?;
    live.activate(fd)?;
    Ok(Box::new(Records::new(EpochLog::Pages(log), None, live.clone(), size, medium)))
}
