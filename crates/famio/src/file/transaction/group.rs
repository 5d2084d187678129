//! SYNC of a file of a group: commits together everything open that this process has changed in the files of the group.
//! A single open epoch is committed as usual; several go through a [record](super::by_record).
//!
//! What this process has changed is in its sessions, or stored in maps of files that it owns: such a file is not handed
//! over before it is committed (`ownership/hand_over_or_end.rs`). So a SYNC waits for no other process, except for that
//! of the file itself.
//!
//! The gates of files with an open epoch are closed in key order. Then the other files, with those that have joined the
//! group meanwhile, must have nothing open, so that a thread's earlier write is never committed later than its later
//! one.

use super::by_record::{Complete, Draft, Participant, commit_by_record};
use crate::error::{Error, Result};
use crate::file::atomic::{ATTACHED, AtomicFile, DEMOTED, DISOWNED, PLAIN, disowned};
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::groups;
use crate::file::lifetime::life::InUse;
use crate::file::session::Session;
use crate::file::state::burst::Ended;
use crate::index::BLOCK;
use crate::journal::joint::MOST;
use crate::rule::{Rule, holds};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Attempts while files are opened, or sessions end, just as all are to be committed.
const ATTEMPTS: u32 = 10_000;
/// Attempts that leave the gates of files open that have nothing to commit.
const ATTEMPTS_BESIDE_WRITERS: u32 = 3;
/// Bytes of a record for each block, and for each part, besides what it has of the file.
const HEAD: usize = 128;

/// Journals of files with nothing to commit that a SYNC looks for, in turn: in a large group, it would take long to
/// look for all.
const LOOKS: usize = 4;
/// How many were looked for, in all groups.
static LOOKED_FOR: AtomicUsize = AtomicUsize::new(0);

impl AtomicFile {
    /// SYNC of this file, which belongs to that group, with all others of the group. `is_done`: as in
    /// [`sync_unless`](Self::sync_unless).
    ///
    /// # Errors
    /// As [`sync`](Self::sync), of any of the files. `EXDEV`: their journals are not in one pool, or the users who
    /// may read or write them differ. `E2BIG`: more than 1 GiB. `ENOSPC`, `EDQUOT`: no room for the record. `EBUSY`:
    /// another process has changed the file and not committed that, or files are opened all the time. Nothing was
    /// committed then, and the SYNC may be repeated.
    pub(in crate::file) fn sync_group(&self, group: u32, is_done: impl Fn() -> bool + Copy) -> Result<()> {
        if self.is_disowned() {
            return Err(disowned());
        }
        Self::may_lock()?;
        if !groups::has(self) {
            return Err(self.named(Error::with(libc::EBADF, "it is closed, and was committed with its group then")));
        }
        for attempt in 0..ATTEMPTS {
            let files = groups::files_of(group);
            let closes_all = attempt >= ATTEMPTS_BESIDE_WRITERS;
            let prepared = files.iter().try_for_each(|file| file.prepare_for_group(core::ptr::eq(&**file, self)));
            match prepared.and_then(|()| self.commit_group(group, &files, closes_all, is_done)) {
                Err(refusal) if refusal.is_session_ended() => rustix::thread::sched_yield(),
                committed => {
                    files.iter().for_each(|file| file.after_group(committed.is_ok()));
                    committed?;
                    return self.sync_kernels_file();
                }
            }
        }
        let what = "the files of its group are opened and closed too often to be committed together; try again";
        Err(self.named(Error::with(libc::EBUSY, what)))
    }

    /// If the file belongs to a group and has an open epoch, commits it with the group.
    pub(in crate::file) fn sync_group_if_open(&self) -> Result<()> {
        let Some(group) = self.settings.group else { return Ok(()) };
        if self.has_open_epoch()? { self.sync_group(group, || false) } else { Ok(()) }
    }

    /// Whether this process has changed the file since its last commit.
    ///
    /// # Errors
    /// What was stored in maps cannot be taken.
    fn has_open_epoch(&self) -> Result<bool> {
        if self.is_owned_here() {
            self.take_stores()?;
        }
        let is_open = |session: &Session| session.arena.shared().dirty.load(Ordering::Acquire) != 0;
        Ok(self.with_session(is_open) == Some(true))
    }

    /// The file is being closed, which has failed. If that loses changes, what is open in the other files of its group
    /// is not committed either: none of them takes more writes or a SYNC. Called by the owner, while the file still
    /// belongs to the group.
    #[cold]
    pub(in crate::file) fn poison_group_if_lost(&self) {
        let Some(group) = self.settings.group.filter(|_| self.has_open_epoch().unwrap_or(true)) else { return };
        let poison = |session: &Session| session.arena.shared().poisoned.store(1, Ordering::Release);
        self.with_session(|session| {
            // A SYNC of another thread is over, or finds it.
            let _closed = session.close_gate(&self.fds);
            poison(session);
        });
        for other in groups::files_of(group) {
            if other.has_open_epoch().unwrap_or(true) {
                other.with_session(poison);
            }
        }
    }

    /// Whether this process owns the file. If not, it has changed nothing that is not committed.
    fn is_owned_here(&self) -> bool {
        self.ownership.is_owner.load(Ordering::Acquire)
    }

    /// Takes what was stored in maps. If the file `is_synced`, and another process has its session, acquires that, for
    /// which it may wait, with no lock of another file.
    fn prepare_for_group(&self, is_synced: bool) -> Answer<()> {
        match self.state.load(Ordering::Acquire) {
            DISOWNED => return Ok(()),
            DEMOTED => return self.check_has_gone(),
            PLAIN if is_synced => {
                self.look()?;
                self.join_shadow()?; // others may have stored there
            }
            PLAIN if !self.is_owned_here() => return Ok(()),
            _ => {}
        }
        if holds(Rule::StoresBeforeCommit) {
            self.take_stores()?;
        }
        self.roll_back_dead()?;
        if is_synced && self.state.load(Ordering::Acquire) == PLAIN && self.is_open_elsewhere() {
            return self.session_for_write().map(drop);
        }
        Ok(())
    }

    /// Whether there is a hand-over image, or a session of another process, that this one would commit.
    fn is_open_elsewhere(&self) -> bool {
        self.ownership.is_disturbed() && self.fds.has_writable()
    }

    /// A demoted file must have lost its name: otherwise it would lack the group's changes after a crash.
    fn check_has_gone(&self) -> Answer<()> {
        if self.fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_nlink == 0)).unwrap_or(true) {
            return Ok(());
        }
        let what = "it was demoted to an ordinary file, and can't be committed with the files of its group: close it";
        Err(self.named(Error::with(libc::EIO, what)).into())
    }

    /// What follows a SYNC, for each file of the group.
    fn after_group(&self, is_committed: bool) {
        if is_committed {
            self.after_commit();
            self.trim_maps();
        }
        if self.is_wanted.load(Ordering::Relaxed) {
            self.leave_if_wanted(Ended::Sync);
        }
    }

    /// Whether this process certainly has nothing to commit in it, though its gate is open.
    fn has_nothing_open(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            ATTACHED => self.session().is_some_and(|session| {
                let shared = session.arena.shared();
                shared.dirty.load(Ordering::Acquire) == 0 && shared.poisoned.load(Ordering::Acquire) == 0
            }),
            PLAIN | DEMOTED | DISOWNED => true,
            _ => false,
        }
    }

    /// Refused if a session has ended, or there is more to commit than there was a moment ago. `closes_all`: also the
    /// gates of files that have nothing to commit.
    fn commit_group(
        &self,
        group: u32,
        files: &[Arc<AtomicFile>],
        closes_all: bool,
        is_done: impl Fn() -> bool,
    ) -> Answer<()> {
        if self.state.load(Ordering::Acquire) == PLAIN && self.is_open_elsewhere() {
            return Err(Refusal::session_ended()); // another process has just taken it
        }
        let mut sessions: Vec<(&AtomicFile, InUse<'_>)> = Vec::new();
        let mut lost: Vec<&AtomicFile> = Vec::new();
        let first = LOOKED_FOR.fetch_add(LOOKS, Ordering::Relaxed);
        let is_in_turn = |number: usize| number.wrapping_sub(first) % files.len() < LOOKS;
        let attached = files.iter().enumerate().filter(|(_, file)| file.state.load(Ordering::Acquire) == ATTACHED);
        for (number, file) in attached {
            if file.has_nothing_open() {
                let may_restore = core::ptr::eq(&**file, self) || is_in_turn(number) && file.is_owned_here();
                if may_restore && file.is_journal_lost() {
                    lost.push(file);
                } else if !closes_all {
                    continue;
                }
            }
            if file.has_dead_changes() {
                return Err(Refusal::session_ended());
            }
            sessions.push((file, file.session().ok_or(Refusal::session_ended())?));
        }
        let all: Vec<Participant<'_>> = sessions.iter().map(|(file, session)| Participant { file, session }).collect();
        for participant in &all {
            participant.bar_exclusive_mode_if_read();
            participant.session.show_before_close(&participant.file.fds)?;
        }
        let _closed = all
            .iter()
            .map(|participant| participant.session.close_shown(&participant.file.fds))
            .collect::<Answer<Vec<_>>>()?;
        if is_done() {
            return Ok(());
        }
        for Participant { file, session } in &all {
            if file.has_dead_within() {
                return Err(Refusal::session_ended());
            }
            session
                .check(session.context(&file.fds))
                .map_err(|refusal| refusal.map_failure(|e| file.named(file.refused(e))))?;
        }
        let is_closed = |file: &AtomicFile| all.iter().any(|participant| core::ptr::eq(participant.file, file));
        let is_complete =
            |files: &[Arc<AtomicFile>]| files.iter().all(|file| is_closed(file) || file.has_nothing_open());
        // Those that were listed, and those that have joined since.
        if !is_complete(files) || !is_complete(&groups::files_of(group)) {
            return Err(Refusal::session_ended());
        }
        let is_open =
            |participant: &Participant<'_>| participant.session.arena.shared().dirty.load(Ordering::Acquire) != 0;
        for participant @ Participant { file, session } in &all {
            if lost.iter().any(|lost| core::ptr::eq(*lost, *file)) {
                session.ensure_journal_named(participant.context(), true).map_err(|e| file.named(e))?;
            }
        }
        let open: Vec<Participant<'_>> = all.iter().copied().filter(is_open).collect();
        commit_open(&open)?;
        all.iter().for_each(Participant::wait_for_thaw);
        Ok(())
    }

    /// Whether a recovery would not find its journal, if it is time to look for it.
    fn is_journal_lost(&self) -> bool {
        self.with_session(|session| !session.engine.finds_journal(session.context(&self.fds))) == Some(true)
    }

    /// The SYNC of a file that has no session: it may be new, or have another mode.
    fn sync_kernels_file(&self) -> Result<()> {
        if [PLAIN, DEMOTED].contains(&self.state.load(Ordering::Acquire)) {
            self.fds.with(false, |fd| Ok(rustix::fs::fdatasync(fd)?))?;
        }
        Ok(())
    }
}

/// Commits open epochs. No other thread is inside the gates.
fn commit_open(open: &[Participant<'_>]) -> Answer<()> {
    match open {
        [] => return Ok(()),
        [only] => return only.commit().map_err(|refusal| refusal.map_failure(|e| only.file.named(e))),
        _ => {}
    }
    for participant @ Participant { file, session } in open {
        session.ensure_journal_named(participant.context(), false).map_err(|e| file.named(e))?;
    }
    let record = if holds(Rule::GroupHasRecord) { Some(record_of(open)?) } else { None };
    commit_by_record(open, record, &mut false, |_| Ok(()))
}

fn record_of(open: &[Participant<'_>]) -> Result<Complete> {
    let mut parts = Vec::new();
    for participant @ Participant { file, session } in open {
        parts.push(session.open_blocks(participant.context()).map_err(|e| file.named(e))?);
    }
    let room = |parts: &[Vec<u64>]| parts.iter().map(Vec::len).sum::<usize>() * (BLOCK + 16) + open.len() * HEAD;
    if room(&parts) as u64 > MOST {
        for (Participant { file, session }, blocks) in open.iter().zip(&mut parts) {
            session.retain_put(&file.fds, blocks).map_err(|e| file.named(e))?;
        }
    }
    let mut draft = Draft::new(room(&parts), "a group")?;
    for (participant @ Participant { file, session }, blocks) in open.iter().zip(&parts) {
        session.put_open(&file.fds, blocks, draft.begin_part(participant)?).map_err(|e| file.named(e))?;
    }
    draft.finish()
}
