//! One commit for changes of several files, with the gates of all of them closed. Earlier writes to each file are
//! committed separately. Then room is made for everything, and the changes are written durably to a record in the
//! pool: the commit point. Then each file gets its part and commits it as an epoch. After a crash, recovery completes
//! each file from the record if that was durable.

use super::{Seen, WriteSet};
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::file::atomic::ATTACHED;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::base::waiting::waiting_for_room;
use crate::file::lifetime::life::InUse;
use crate::file::parts::joint_records::{Records, Written};
use crate::file::session::Session;
use crate::journal::joint::Builder;
use crate::journal::records::Keeper;
use crate::pmem::TestHooks;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// Sessions that may be handed over just as they are to be used.
const ENDINGS: u32 = 10_000;

/// A transaction's changes of one file.
pub(crate) struct Share<'a> {
    pub file: &'a Arc<AtomicFile>,
    pub set: &'a WriteSet,
    pub seen: Option<&'a Seen>,
}

/// A share with its file's session.
type Attached<'a> = (&'a Share<'a>, &'a Session);

/// Commits all shares, or nothing.
///
/// # Errors
/// As [`AtomicFile::commit_transaction`]. `EXDEV`: the journals are not in one pool, or the users who may read or
/// write the files differ. `E2BIG`: more than 1 GiB.
pub(crate) fn commit_joint(mut shares: Vec<Share<'_>>) -> Result<()> {
    AtomicFile::may_lock()?;
    shares.sort_by_key(|share| share.file.key()); // the same order for all threads
    waiting_for_room(|| commit_all(&shares))
}

fn commit_all(shares: &[Share<'_>]) -> Result<()> {
    let _under_way = shares.iter().map(|share| share.file.commits.begin()).collect::<Result<Vec<_>>>()?;
    for _ in 0..ENDINGS {
        match shares.iter().try_for_each(take_session).and_then(|()| commit_beside(shares)) {
            Err(refusal) if refusal.is_session_ended() => {
                for Share { file, .. } in shares {
                    file.begin_without_images()?; // if they leave no room
                }
                rustix::thread::sched_yield();
            }
            committed => {
                shares.iter().for_each(|share| share.file.after_commit());
                return Ok(committed?);
            }
        }
    }
    Err(Error::with(libc::EIO, "the sessions of its files end and begin too often for a transaction"))
}

/// Acquires the file's session. It may wait for another process, so it holds no lock that the other one needs to hand
/// over.
fn take_session(share: &Share<'_>) -> Answer<()> {
    let Share { file, .. } = share;
    file.leave_dead_behind()?;
    file.drop_privileges()?;
    if file.shadow().is_some() || file.ownership.has_foreign() {
        file.sync_all(|| false)?; // takes stores through maps, and what others wrote
    }
    file.session_for_write()?.map(drop).ok_or_else(|| file.without_transactions().into())
}

/// With the locks for the follow-ups of changes of the files' bytes.
fn commit_beside(shares: &[Share<'_>]) -> Answer<()> {
    let _changing: Vec<_> = shares.iter().map(|share| share.file.shadow.lock()).collect();
    let mut is_decided = false;
    let committed = commit_attached(shares, &mut is_decided);
    if committed.is_err() && !is_decided {
        return committed;
    }
    // For each of them, even if one fails.
    let follow = |share: &Share<'_>| share.file.follow_change(share.set.ranges()).map_err(Refusal::from);
    shares.iter().fold(committed, |result, share| result.and(follow(share)))
}

fn commit_attached(shares: &[Share<'_>], is_decided: &mut bool) -> Answer<()> {
    let attached = |share: &Share<'_>| share.file.state.load(Ordering::Acquire) == ATTACHED;
    if !shares.iter().all(attached) {
        return Err(Refusal::session_ended());
    }
    let sessions: Vec<InUse<'_>> =
        shares.iter().map(|share| share.file.session().ok_or(Refusal::session_ended())).collect::<Answer<_>>()?;
    let all: Vec<Attached<'_>> = shares.iter().zip(sessions.iter().map(|session| &**session)).collect();
    for (share, session) in &all {
        if share.file.ownership.membership.is_read_along() {
            session.may_be_exclusive.store(false, Ordering::Relaxed);
        }
        session.show_before_close(&share.file.fds)?;
    }
    let _closed =
        all.iter().map(|(share, session)| session.close_shown(&share.file.fds)).collect::<Answer<Vec<_>>>()?;
    for (share, session) in &all {
        if share.file.has_dead_within() {
            return Err(Refusal::session_ended());
        }
        session
            .check_still_holds(session.context(&share.file.fds), share.seen)
            .map_err(|refusal| refusal.map_failure(|e| share.file.named(e)))?;
    }
    let changed: Vec<Attached<'_>> = all.into_iter().filter(|(share, _)| !share.set.is_empty()).collect();
    commit_changed(&changed, is_decided)
}

/// No other thread is inside the gates.
fn commit_changed(changed: &[Attached<'_>], is_decided: &mut bool) -> Answer<()> {
    for (share, session) in changed {
        // So that its part is a whole epoch.
        commit_one(share, session).map_err(|refusal| refusal.map_failure(|e| share.file.named(e)))?;
        session.keep_journal(session.context(&share.file.fds), false).map_err(|e| share.file.named(e))?;
    }
    let record = if changed.len() > 1 { Some(record_of(changed)?) } else { None };
    for (share, session) in changed {
        let prepared = session.prepare(session.context(&share.file.fds), share.set);
        prepared.map_err(|refusal| refusal.map_failure(|e| share.file.named(e)))?;
    }
    let epochs: Vec<u64> = changed.iter().map(epoch_of).collect();
    let written = record.map(|(records, bytes)| write(changed, &records, &bytes)).transpose()?;
    *is_decided = true;
    let mut result = Ok(());
    for (share, session) in changed {
        let copied = session.copy_prepared(session.context(&share.file.fds), share.set);
        result = result.and(copied.and_then(|()| Ok(commit_one(share, session)?)).map_err(|e| {
            session.arena.shared().poisoned.store(1, Ordering::Release);
            let what = "the transaction is committed, and could not be brought to this file, which gets it when it is opened again";
            share.file.named(Error::with(libc::EIO, format!("{what} ({e})"))).into()
        }));
    }
    if let Some(written) = written.filter(|_| result.is_ok()) {
        let has_moved = changed.iter().map(epoch_of).zip(&epochs).all(|(now, before)| now != *before);
        if has_moved { written.end() } else { written.end_for_good() }
    }
    result
}

/// Commits what is open in one file, whose gate is closed.
fn commit_one(share: &Share<'_>, session: &Session) -> Answer<()> {
    session.commit(&share.file.fds)?;
    share.file.ownership.committed(session.arena.shared());
    Ok(())
}

fn epoch_of((share, session): &Attached<'_>) -> u64 {
    session.engine.epoch_of_journal(session.context(&share.file.fds))
}

/// The record, and where it goes.
fn record_of(changed: &[Attached<'_>]) -> Result<(Arc<Records>, Vec<u8>)> {
    let mut records: Option<Arc<Records>> = None;
    let mut builder = Builder::new(changed.iter().map(|(share, _)| share.set.len_of_record()).sum())?;
    for attached @ (share, session) in changed {
        let journal = session.engine.journal();
        let found =
            share.file.fds.with(true, |fd| share.file.joint.records(fd, journal)).map_err(|e| share.file.named(e))?;
        if records.as_ref().is_some_and(|records| !Arc::ptr_eq(records, &found)) {
            let what = "the files of one transaction have their journals in one pool (by default one folder), one owner, one group, and the same permissions";
            return Err(share.file.named(Error::with(libc::EXDEV, what)));
        }
        let header = journal.header();
        builder.begin_part(&header.identity, header.journal_id, epoch_of(attached));
        share.set.put_into(&mut builder);
        records = Some(found);
    }
    let records = records.ok_or(Error::new(libc::EINVAL))?;
    Ok((records, builder.finish()?))
}

/// The commit point.
fn write(changed: &[Attached<'_>], records: &Arc<Records>, bytes: &[u8]) -> Answer<Written> {
    // If the process is killed from here on, only committed changes are kept: its arena does not know of the record.
    let moving = |is_moving: u32| {
        let keeping = changed.iter().filter(|(_, session)| session.keeps);
        keeping.for_each(|(_, session)| session.arena.shared().moving.store(is_moving, Ordering::Release));
    };
    moving(1);
    let (share, session) = &changed[0];
    let written = share.file.fds.with(true, |fd| Ok(records.write(bytes, fd, session.engine.journal())))?;
    if let (Ok(_), Some(told)) = (&written, TestHooks::current().joint) {
        told(bytes);
    }
    written.map_err(|failed| {
        moving(0);
        if failed.is_undecided {
            // It may be on the disk or not, which recovery will see. Until then no process goes on.
            changed.iter().for_each(|(_, session)| session.arena.shared().poisoned.store(1, Ordering::Release));
        }
        failed.refusal
    })
}
