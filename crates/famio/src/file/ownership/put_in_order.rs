//! What a dead process left is put in order, and what a living one left is taken up: the hand-over image, or changes
//! that could not be handed over.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, Inner};
use crate::file::base::doing::doing;
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::session::Session;
use crate::file::state::hand_over_image::{OpenChanges, What};
use crate::file::{UserBuf, shadow};
use crate::index::{HAS_IMAGE, OwnerLock, RELEASED, SESSION, Writer, WriterState, follow_up};
use crate::recovery;
use crate::settings::OnKill;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;

impl AtomicFile {
    /// Puts in order what a dead owner left; this process has the owner lock. On an error the lock is released, and
    /// what the next attempt needs stays.
    pub(super) fn catch_up(&self, inner: &mut Inner) -> Result<()> {
        let caught_up = self.recover_and_roll_back(inner);
        if caught_up.is_err() {
            self.give_up(inner, OwnerLock::leave);
        }
        caught_up
    }

    pub(in crate::file) fn recover_and_roll_back(&self, inner: &mut Inner) -> Result<()> {
        let membership = &self.ownership.membership;
        let is_unsent = inner.unsent.is_some();
        let Some(owner_lock) = inner.owner_lock.as_mut() else { return Ok(()) };
        let dead = membership.dead();
        let mut lost = membership.state() & SESSION != 0 || !dead.is_empty();
        let mut keeps = self.settings.on_kill == OnKill::Keep;
        if membership.state() & SESSION != 0 {
            let writable = self.fds.has_writable();
            let commits = |fd: BorrowedFd<'_>| recovery::commits_since_attach(fd, owner_lock, &self.settings);
            let commits = self.fds.with(writable, commits)?;
            let is_whole = membership.has_whole_epoch();
            if commits > 0 && !is_whole {
                membership.forget_epoch(); // before the journal goes, which says so
            }
            if !is_unsent {
                keeps |= self.keep_leftover(owner_lock)?; // before the file goes back
                if !keeps && !is_whole && !membership.were_all_killed() {
                    self.keep_of_living(owner_lock, commits)?;
                }
            }
            self.recover(owner_lock, writable)?;
            self.plain.forget_size();
            membership.set_session(false);
        }
        if membership.state() & HAS_IMAGE != 0 {
            let mut epoch = self.ownership.hand_over_image(&self.fds)?;
            if epoch.roll_back(|writer| membership.writer_state(writer)) {
                self.ownership.send(&self.fds, &epoch, false)?;
                lost = true;
            }
        }
        if let Some(changes) = inner.unsent.as_mut().and_then(|unsent| unsent.by_writer.as_mut()) {
            changes.retain(|change| membership.writer_state(change.writer) != WriterState::Dead);
        }
        if lost && !is_unsent && !(keeps && membership.has_dead_stores()) {
            self.mend_shadow()?;
        } else if lost && membership.shadow().is_some() && membership.has_dead_stores() {
            membership.leave_unknown_stores(); // the unsent bytes are in the shadow already, next to their stores
        }
        membership.reap(&dead);
        membership.forget_lost_stores();
        Ok(())
    }

    /// A new session takes up the hand-over image, or what could not become one. No other thread is inside yet.
    pub(in crate::file) fn take_up(&self, session: &Session, unsent: Option<&OpenChanges>) -> Result<()> {
        let ownership = &self.ownership;
        let has_image = ownership.membership.state() & HAS_IMAGE != 0;
        let image;
        let changes = match unsent.and_then(|unsent| unsent.by_writer.as_ref()) {
            Some(changes) => changes,
            None if !has_image => return Ok(()),
            None => {
                image = ownership.hand_over_image(&self.fds)?;
                &image.changes
            }
        };
        let doing = doing();
        let taken = changes.iter().try_for_each(|change| {
            session.imaging.set_writer(Some(change.writer));
            match &change.what {
                What::Size { low, size } => self.set_sizes(session, *low, *size),
                What::Bytes { offset, data } => self.put_all(session, *offset, data),
            }
        });
        session.imaging.set_writer(None);
        drop(doing);
        taken?;
        if self.settings.group.is_some() {
            // They are committed with this process's own changes, which an end of the session for a death would leave
            // to others.
            changes.iter().for_each(|change| ownership.membership.end_tenure_of(change.writer));
        }
        session.arena.shared().lowest_since_acquired.store(session.arena.shared().size(), Ordering::Release);
        let open = |writer: Writer| {
            writer.id != ownership.membership.me().id && ownership.membership.writer_state(writer) != WriterState::Over
        };
        let others: Vec<_> =
            changes.iter().filter(|change| open(change.writer)).map(|c| (c.what.range(), c.writer)).collect();
        ownership.has_taken_image.store(has_image, Ordering::Release);
        ownership.foreign.store(!others.is_empty(), Ordering::Release);
        if !others.is_empty() {
            session.arena.shared().follow_up.fetch_or(follow_up::OTHERS, Ordering::Release);
        }
        *ownership.others.lock() = others;
        if shadow::is_mapped(self.key()) {
            self.end_tenures_if_stored_to();
        }
        if unsent.is_some_and(|unsent| unsent.is_released) {
            session.arena.shared().dirty.store(RELEASED, Ordering::Release);
        }
        self.show_in_shadow(session)
    }

    /// The file is demoted: the hand-over image is written to the kernel's file, too. Called by the owner.
    pub(in crate::file) fn put_in_kernels_file(&self, inner: &mut Inner) -> Result<()> {
        let epoch = self.open_image(inner)?;
        for change in &epoch.changes {
            match &change.what {
                What::Size { low, size } => self.fds.with(true, |fd| {
                    let now = rustix::fs::fstat(fd)?.st_size as u64;
                    rustix::fs::ftruncate(fd, (*low).min(now))?;
                    Ok(rustix::fs::ftruncate(fd, *size)?)
                })?,
                What::Bytes { offset, data } => {
                    let mut done = 0;
                    while done < data.len() {
                        let rest = UserBuf { base: data[done..].as_ptr().cast_mut(), len: data.len() - done };
                        done += self.kernel_write(offset + done as u64, &[rest])?;
                    }
                }
            }
        }
        inner.unsent = None;
        self.ownership.membership.forget_epoch();
        Ok(())
    }

    /// The hand-over image could not be taken up: the file goes back to the last commit, and the image stays.
    pub(in crate::file) fn put_down(&self, inner: &mut Inner, session: Box<Session>, why: Error) -> Error {
        session.arena.shared().closed.store(1, Ordering::Release);
        drop(session);
        if inner.unsent.is_some() {
            return why; // ownership stays, and it is tried again
        }
        self.share_shadow(); // maps may use it already; it is put in order with the file
        let caught_up = self.catch_up(inner);
        self.release_owner_lock(inner);
        let what = "what another process wrote since the last SYNC could not be taken over";
        caught_up.err().unwrap_or(why).context(format_args!("{}: {what}", self.path.to_string_lossy()))
    }

    /// Cuts the file to `low`, then makes it `size` bytes long.
    fn set_sizes(&self, session: &Session, low: u64, size: u64) -> Result<()> {
        session.set_size(&self.fds, low.min(session.arena.shared().size()))?;
        Ok(session.set_size(&self.fds, size)?)
    }

    pub(in crate::file) fn put_all(&self, session: &Session, mut offset: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let buf = UserBuf { base: data.as_ptr().cast_mut(), len: data.len() };
            // SAFETY: our memory, which is only read.
            let done = unsafe { session.write(&self.fds, offset, &[buf]) }?;
            (offset, data) = (offset + done as u64, &data[done..]);
        }
        Ok(())
    }

    /// The file goes back to the last commit; set-user-id bits that the program has set since stay.
    pub(in crate::file) fn recover(&self, owner_lock: &mut OwnerLock, writable: bool) -> Result<()> {
        let recovered = || self.fds.with(writable, |fd| recovery::at_open(fd, writable, owner_lock, &self.settings));
        match keeping_bits(&self.fds, recovered) {
            Err(e) if e.errno() == libc::EPERM => {
                self.ownership.make_view(&self.fds, owner_lock, &self.settings)?;
                Err(e)
            }
            done => done.map(drop),
        }
    }
}
