//! One commit for changes of several files, with the gates of all of them closed. Earlier writes to each file are
//! committed separately. Then room is made for everything, and the files are committed [by a record](super::by_record)
//! of the changes, which each file gets when the record is durable.

use super::by_record::{Complete, Draft, Participant, commit_by_record};
use super::{Seen, WriteSet};
use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::file::atomic::ATTACHED;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::base::waiting::waiting_for_room;
use crate::file::lifetime::life::InUse;
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

/// Commits all shares, or nothing.
///
/// # Errors
/// As [`AtomicFile::commit_transaction`]. `EXDEV`: the journals are not in one pool, or the users who may read or
/// write the files differ. `E2BIG`: more than 1 GiB. Those of [`check_joint`].
pub(crate) fn commit_joint(mut shares: Vec<Share<'_>>) -> Result<()> {
    AtomicFile::may_lock()?;
    check_joint(&shares)?;
    shares.sort_by_key(|share| share.file.key()); // the same order for all threads
    waiting_for_room(|| commit_all(&shares))
}

/// Whether these files can be committed together, as far as that is known before.
///
/// # Errors
/// `EOPNOTSUPP`: a file belongs to a group, whose other files a commit of it would include.
pub(crate) fn check_joint(shares: &[Share<'_>]) -> Result<()> {
    if let Some(Share { file, .. }) = shares.iter().find(|share| share.file.settings.group.is_some()) {
        let what = "a file of a group takes part in no transaction of several files";
        return Err(file.named(Error::with(libc::EOPNOTSUPP, what)));
    }
    Ok(())
}

fn commit_all(shares: &[Share<'_>]) -> Result<()> {
    let _under_way = shares.iter().map(|share| Ok(share.file.commits.begin()?)).collect::<Result<Vec<_>>>()?;
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

/// Acquires the file's session. This may wait for another process, so the caller holds no lock that the other process
/// needs to hand over.
fn take_session(share: &Share<'_>) -> Answer<()> {
    let Share { file, .. } = share;
    file.roll_back_dead()?;
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
    let all = shares.iter().zip(&sessions).map(|(share, session)| Participant { file: share.file, session });
    let all: Vec<Participant<'_>> = all.collect();
    for participant in &all {
        participant.bar_exclusive_mode_if_read();
        participant.session.show_before_close(&participant.file.fds)?;
    }
    let _closed = all
        .iter()
        .map(|participant| participant.session.close_shown(&participant.file.fds))
        .collect::<Answer<Vec<_>>>()?;
    for (share, participant) in shares.iter().zip(&all) {
        if share.file.has_dead_within() {
            return Err(Refusal::session_ended());
        }
        participant
            .session
            .check_still_holds(participant.context(), share.seen)
            .map_err(|refusal| refusal.map_failure(|e| share.file.named(e)))?;
    }
    // What was written to the files before, also to those that the transaction has only read: on it depends what the
    // transaction writes. And so that its part in each is a whole epoch.
    for participant in &all {
        participant.commit().map_err(|refusal| refusal.map_failure(|e| participant.file.named(e)))?;
    }
    let changed = shares.iter().zip(all.iter().copied()).filter(|(share, _)| !share.set.is_empty());
    let (shares, changed): (Vec<_>, Vec<_>) = changed.unzip();
    commit_changed(&shares, &changed, is_decided)?;
    all.iter().for_each(Participant::wait_for_thaw);
    Ok(())
}

/// No other thread is inside the gates.
fn commit_changed(shares: &[&Share<'_>], changed: &[Participant<'_>], is_decided: &mut bool) -> Answer<()> {
    for participant @ Participant { file, session } in changed {
        session.ensure_journal_named(participant.context(), false).map_err(|e| file.named(e))?;
    }
    let record = if changed.len() > 1 { Some(record_of(shares, changed)?) } else { None };
    let prepare = |(share, participant): (&&Share<'_>, &Participant<'_>)| {
        let prepared = participant.session.prepare(participant.context(), share.set);
        prepared.map_err(|refusal| refusal.map_failure(|e| share.file.named(e)))
    };
    let stale = shares.iter().zip(changed).map(prepare).collect::<Answer<Vec<_>>>()?;
    let copy = |number: usize| {
        let participant = &changed[number];
        participant.session.copy_prepared(participant.context(), shares[number].set, &stale[number])
    };
    commit_by_record(changed, record, is_decided, copy)
}

fn record_of(shares: &[&Share<'_>], changed: &[Participant<'_>]) -> Result<Complete> {
    let mut draft = Draft::new(shares.iter().map(|share| share.set.len_of_record()).sum(), "one transaction")?;
    for (share, participant) in shares.iter().zip(changed) {
        share.set.put_into(draft.begin_part(participant)?);
    }
    draft.finish()
}
