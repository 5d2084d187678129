//! The first write of a page-cache file.

use super::Records;
use crate::error::Result;
use crate::file::context::Engine;
use crate::file::{Descriptors, Home};
use crate::index::Shared;
use crate::journal::header::Kind;
use crate::journal::live::Live;
use crate::journal::records::{Geometry, Keeper, RecordLog};
use crate::pmem::{Domain, medium};
use crate::settings::Settings;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// The home and the engine of a session that another process began.
///
/// # Errors
/// Those of finding its journal.
pub(in crate::file) fn join(fds: &Descriptors, live: Live, settings: &Settings) -> Result<(Home, Box<dyn Engine>)> {
    let medium = medium(Domain::PageCache, false);
    let home = Home::new(fds, Domain::PageCache, false, medium)?;
    let live = Arc::new(live);
    let (geometry, _) = Geometry::get(&live.header().geometry)?;
    let log = RecordLog::attach(live.clone(), geometry, settings.journal_limit, medium);
    Ok((home, Box::new(Records::new(log, live, 0, medium))))
}

/// Creates the journal: first segment, then mark and header, each durable before the next.
pub(in crate::file) fn attach(
    fds: &Descriptors,
    shared: &Shared,
    domains: (Domain, Domain),
    settings: &Settings,
) -> Result<(Home, Box<dyn Engine>)> {
    let medium = medium(Domain::PageCache, false);
    let home = Home::new(fds, Domain::PageCache, false, medium)?;
    // Old bytes above a size are never seen: the file is cut before anything is settled above it.
    shared.stale_end.store(0, Ordering::Release);
    fds.with(true, |fd| {
        let live = Arc::new(Live::create(fd, settings, Kind::Records, domains, medium)?);
        let made = RecordLog::create(live.clone(), shared.size(), Geometry::of_new(), settings.journal_limit, medium)
            .and_then(|log| live.activate(fd).map(|()| log));
        match made {
            Ok(log) => {
                let engine: Box<dyn Engine> = Box::new(Records::new(log, live, shared.size(), medium));
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
