//! One commit for the changes of several files. With the gates of all of them closed: what was written to them before is committed by
//! itself; room is made for all; the changes are written to a record in the pool, durably, and with that they are committed; then each file gets its
//! own and commits them as an epoch. A crash before the record is durable leaves nothing of them. After one that comes later, recovery
//! gives each file what it lacks, from the record.

use super::{Records, Seen, WriteSet};
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::file::life::InUse;
use crate::file::session::Session;
use crate::journal::joint::Builder;
use crate::journal::records::Keeper;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// Sessions that may end just as they are to be used.
const ENDINGS: u32 = 10_000;

/// What a transaction has of one file.
pub(crate) struct Share<'a> {
    pub file: &'a Arc<AtomicFile>,
    pub set: &'a WriteSet,
    pub seen: Option<&'a Seen>,
}

/// Commits all of them, or nothing.
///
/// # Errors
/// As [`AtomicFile::commit_transaction`]. `EXDEV`: their journals are not in one pool, or other users may read or write the one than the other.
/// `E2BIG`: more than 1 GiB.
pub(crate) fn commit_joint(mut shares: Vec<Share<'_>>) -> Result<()> {
    AtomicFile::may_lock()?;
    shares.sort_by_key(|share| share.file.key()); // everybody closes gates in this order
    let _under_way = shares.iter().map(|share| share.file.commits.begin()).collect::<Result<Vec<_>>>()?;
    for Share { file, .. } in &shares {
        if file.shadow().is_some() || file.turns.has_foreign() {
            file.sync()?; // stores through maps, and what others wrote
        }
    }
    beside(&shares, &mut || commit_attached(&shares))?;
    shares.iter().for_each(|share| share.file.after_commit());
    Ok(())
}

/// Runs `work`, with what is to be done beside a change of each of the files.
fn beside(shares: &[Share<'_>], work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let Some((first, others)) = shares.split_first() else { return work() };
    first.file.change_and_also(|| beside(others, work), |()| first.set.ranges())
}

fn commit_attached(shares: &[Share<'_>]) -> Result<()> {
    for _ in 0..ENDINGS {
        let sessions = shares.iter().map(|share| share.file.session_for_write()).collect::<Result<Vec<_>>>();
        let committed = sessions.and_then(|sessions| commit_in(shares, &sessions));
        match committed {
            Err(e) if e.errno() == libc::ESTALE && e.detail().is_none() => {
                for Share { file, .. } in shares {
                    file.begin_without_images()?; // where they leave no room
                }
                rustix::thread::sched_yield();
            }
            done => return done,
        }
    }
    Err(Error::with(libc::EIO, "the journals of its files end and begin too often for a transaction"))
}

fn commit_in(shares: &[Share<'_>], sessions: &[Option<InUse<'_>>]) -> Result<()> {
    let each = || {
        shares.iter().zip(sessions).map(|(share, session)| {
            let session: &Session = session.as_deref().ok_or_else(|| share.file.without_transactions())?;
            Ok((share, session))
        })
    };
    let all = each().collect::<Result<Vec<_>>>()?;
    for (share, session) in &all {
        if share.file.turns.door.is_read_along() {
            session.may_be_alone.store(false, Ordering::Relaxed);
        }
    }
    let _closed = all.iter().map(|(share, session)| session.close_gate(&share.file.fds)).collect::<Result<Vec<_>>>()?;
    for (share, session) in &all {
        session.check_still_holds(session.context(&share.file.fds), share.seen).map_err(|e| share.file.named(e))?;
    }
    let changed: Vec<_> = all.iter().filter(|(share, _)| !share.set.is_empty()).collect();
    for (share, session) in &changed {
        // So that a part is all that its epoch has.
        commit_one(share, session).map_err(|e| share.file.named(e))?;
        session.keep_journal(session.context(&share.file.fds), false).map_err(|e| share.file.named(e))?;
    }
    let record = if changed.len() > 1 { Some(record_of(&changed)?) } else { None };
    for (share, session) in &changed {
        session.prepare(session.context(&share.file.fds), share.set).map_err(|e| share.file.named(e))?;
    }
    // Of a process that is killed from here on nothing is kept but what is committed: its arena knows nothing of the record.
    let moving = |is_moving: u32| {
        let keeping = changed.iter().filter(|(_, session)| session.keeps);
        keeping.for_each(|(_, session)| session.arena.shared().moving.store(is_moving, Ordering::Release));
    };
    moving(1);
    let written = record.map(|(records, bytes)| records.write(&bytes)).transpose().map_err(|failed| {
        moving(0);
        if failed.is_undecided {
            // It may be on the disk or not, which recovery will see. Until then nobody goes on.
            changed.iter().for_each(|(_, session)| session.arena.shared().poisoned.store(1, Ordering::Release));
        }
        failed.error
    })?;
    let mut result = Ok(());
    for (share, session) in &changed {
        let copied = session.copy_prepared(session.context(&share.file.fds), share.set);
        result = result.and(copied.and_then(|()| commit_one(share, session)).map_err(|e| {
            session.arena.shared().poisoned.store(1, Ordering::Release);
            let what = "the transaction is committed, and could not be brought to this file, which gets it when it is opened again";
            share.file.named(Error::with(libc::EIO, format!("{what} ({e})")))
        }));
    }
    if let Some(written) = written
        && result.is_ok()
    {
        written.is_done();
    }
    result
}

/// Commits what is open in one file, whose gate is closed.
fn commit_one(share: &Share<'_>, session: &Session) -> Result<()> {
    session.commit(&share.file.fds)?;
    share.file.turns.committed(session.arena.shared());
    Ok(())
}

/// Where the record goes, and what is in it.
fn record_of(changed: &[&(&Share<'_>, &Session)]) -> Result<(Arc<Records>, Vec<u8>)> {
    let mut records: Option<Arc<Records>> = None;
    let mut builder = Builder::new(changed.iter().map(|(share, _)| share.set.len_of_record()).sum())?;
    for (share, session) in changed {
        let journal = session.engine.journal();
        let found =
            share.file.fds.with(true, |fd| share.file.joint.records(fd, journal)).map_err(|e| share.file.named(e))?;
        if records.as_ref().is_some_and(|records| !Arc::ptr_eq(records, &found)) {
            let what = "the files of one transaction have their journals in one pool (by default one folder), one owner, one group, and the same permissions";
            return Err(share.file.named(Error::with(libc::EXDEV, what)));
        }
        let header = journal.header();
        builder.begin_part(
            &header.identity,
            header.journal_id,
            session.engine.epoch_of_journal(session.context(&share.file.fds)),
        );
        share.set.put_into(&mut builder);
        records = Some(found);
    }
    let records = records.ok_or(Error::new(libc::EINVAL))?;
    Ok((records, builder.finish()?))
}
