//! Acquiring ownership: what a dead member left is put in order, and a hand-over image is taken up.

use crate::error::{Error, Result};
use crate::file::atomic::{AtomicFile, GROWING, Inner};
use crate::file::base::doing::doing;
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::session::Session;
use crate::file::state::hand_over_image::What;
use crate::file::state::ownership::{LOOKS, PATIENCE};
use crate::file::{UserBuf, shadow};
use crate::index::{HAS_IMAGE, LIVES, MOVED, Membership, OwnerLock, RELEASED, SESSION, Writer, WriterState, follow_up};
use crate::journal::{control, path_of};
use crate::recovery::{self, Known};
use crate::settings::OnKill;
use crate::sys::internal::undisturbed;
use crate::sys::{monotonic_now, open_again, shm};
use core::sync::atomic::Ordering;
use rustix::fs::OFlags;
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};

/// Looks whether the owner leaves the session at the end of its call, before ownership is requested.
const MOMENTS: u32 = 10;
/// Looks, and the time between two, at a journal that is locked though no process is attached: half a second.
const LOOKS_AT_DYING: u32 = 250;
const DYING: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

const IMMUTABLE: &[u8] =
    b": it may not be written any more (chattr -i, then open it again or run famio recover): read with what its journal has";

/// A process that may wait for ownership; others see it while it does.
struct Waiting<'a> {
    membership: &'a Membership,
    waits: bool,
}

impl Waiting<'_> {
    fn goes_on(&mut self) {
        self.waits = true;
        self.membership.set_waits(true);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.membership.set_waits(false);
        }
    }
}

impl AtomicFile {
    /// Acquires ownership if this process does not have it, waiting for the owner. Then the file is as last
    /// committed; if a process has died meanwhile, the file is recovered.
    ///
    /// # Errors
    /// `EBUSY`: the owner does not hand over. Those of a recovery.
    pub(in crate::file) fn acquire_ownership(&self, inner: &mut Inner) -> Result<()> {
        self.wait_for_ownership(inner, false).map(drop)
    }

    /// As [`acquire_ownership`](Self::acquire_ownership), or together with a session that another process has left.
    /// Returns whether there is such a session.
    pub(in crate::file) fn acquire_ownership_or_session(&self, inner: &mut Inner) -> Result<bool> {
        // Another process's session in progress saves before-images, for which it may have to end midway.
        self.wait_for_ownership(inner, self.settings.on_kill != OnKill::Keep && self.settings.group.is_none())
    }

    /// Takes over an unowned session, if this process has owned it before. Returns whether it did.
    pub(in crate::file) fn take_unowned(&self, inner: &mut Inner) -> Result<bool> {
        let membership = &self.ownership.membership;
        if inner.left.is_none()
            || inner.owner_lock.is_some()
            || membership.is_without_hand_over()
            || !membership.is_attached()
        {
            return Ok(false);
        }
        if membership.state() & (SESSION | MOVED) != SESSION {
            return Ok(false);
        }
        self.acquire_ownership_or_session(inner)
    }

    fn has_acquired_ownership(&self) {
        let membership = &self.ownership.membership;
        let requests = membership.requests();
        // The last owner has woken one of the waiting processes. The requests of the others now wait for this owner.
        let seen = requests.wrapping_sub(membership.has_live_waiter().into());
        self.ownership.requests_seen.store(seen, Ordering::Relaxed);
        self.ownership.since.store(monotonic_now(), Ordering::Relaxed);
        self.ownership.is_owner.store(true, Ordering::Release);
        if !self.is_wanted.load(Ordering::Acquire) {
            crate::file::base::background_wakeup::start(); // it waits for requests only from now on
        }
    }

    fn wait_for_ownership(&self, inner: &mut Inner, may_take_session: bool) -> Result<bool> {
        if inner.owner_lock.is_some() {
            return Ok(false);
        }
        let membership = &self.ownership.membership;
        self.become_member()?;
        let asked = membership.change_count();
        let is_in_burst = self.ownership.burst.goes_on(monotonic_now());
        let (mut waited, mut moments) = (0, 0);
        let mut waiting = Waiting { membership, waits: false };
        let mut is_unheard = false;
        loop {
            let mut count = membership.release_count();
            if self.try_acquire_ownership(inner)? {
                if !membership.has_unowned() {
                    break;
                }
                let taken = if may_take_session { self.take_session_over(inner) } else { self.end_unowned(inner) };
                match taken {
                    Ok(true) if !may_take_session => continue, // the session has ended
                    // A dead member's changes are rolled back before the session is used.
                    Ok(true) if self.has_foreign_of(WriterState::Dead) => {
                        self.ownership.is_owner.store(true, Ordering::Release);
                        if let Err(e) = self.end_with_arena(inner) {
                            self.give_up_unless_held(inner);
                            return Err(e);
                        }
                        continue;
                    }
                    Ok(true) => {
                        self.has_acquired_ownership();
                        if is_in_burst && moments > 0 {
                            self.ownership.burst.resume(monotonic_now());
                        }
                        return Ok(true);
                    }
                    Ok(false) if self.is_unowned_session_lost() => break,
                    // A member that can attach to the session has to end it.
                    Ok(false) => {
                        is_unheard = true; // by whichever member that is
                        membership.ask_for_end();
                        self.give_up(inner, OwnerLock::leave);
                        count = membership.release_count(); // its own release does not end its wait
                    }
                    // It is left as by a killed process: recovery.
                    Err(_) if inner.session.is_none() && inner.kept.is_none() && !membership.has_unowned() => break,
                    Err(e) => {
                        self.give_up_unless_held(inner);
                        return Err(e);
                    }
                }
            }
            // An owner that changes the file alternately with this process leaves the session at the end of its call.
            if moments < MOMENTS && membership.state() & SESSION != 0 && inner.left.is_some() {
                moments += 1;
                rustix::thread::sched_yield();
                undisturbed::renew();
                continue;
            }
            let look = (waited / PATIENCE.tv_nsec as u64).min(u64::from(LOOKS)) as u32;
            if look == LOOKS || self.ownership.is_refused(asked, look) {
                return Err(self.in_use());
            }
            waiting.goes_on();
            if is_unheard {
                membership.request_ownership_of_any()
            } else {
                membership.request_ownership()
            }
            let begun = monotonic_now();
            is_unheard = membership.wait_for_ownership(count, PATIENCE);
            // One that was stopped has not waited meanwhile.
            waited += (monotonic_now() - begun).min(2 * PATIENCE.tv_nsec as u64);
            undisturbed::renew();
        }
        membership.note_end();
        self.has_acquired_ownership();
        self.catch_up(inner)?;
        Ok(false)
    }

    /// Attaches to the control file, and makes it if there is none: before this process changes anything, or maps the
    /// file.
    ///
    /// # Errors
    /// `EACCES`: it may not write the file, or not its folder. `EIO`: the control file was removed while others had
    /// written.
    pub(in crate::file) fn become_member(&self) -> Result<()> {
        let membership = &self.ownership.membership;
        let is_new = !membership.is_attached();
        if is_new {
            self.attach_to_control_file().map_err(|e| self.leave_unseen(e))?;
        }
        if membership.state() & SESSION != 0 && (is_new || !LIVES.are_kept()) {
            crate::file::base::background_wakeup::watch_members(); // to notice its end
        }
        Ok(())
    }

    /// As [`become_member`](Self::become_member), of a process that is none. After an error the file stays as it is.
    pub(in crate::file) fn attach_to_control_file(&self) -> Result<()> {
        self.check_limit_of_membership()?;
        self.fds.by_a_name(|| self.fds.with(false, |fd| self.attach_by(fd)))
    }

    fn attach_by(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let open = || control::find_or_make(fd, self.settings.pool.as_deref());
        self.ownership.membership.set_device(self.key().0);
        self.ownership.membership.attach(open, || self.is_journal_left(fd))
    }

    /// Whether this process is the only member, and a child of it could not attach: it has another root by now, or is
    /// another user.
    pub(crate) fn is_out_of_childs_reach(&self) -> bool {
        let Some(control) = self.ownership.membership.control() else { return false };
        let can_attach = || open_again(control.as_fd(), OFlags::RDWR).is_ok() && self.fds.with(false, path_of).is_ok();
        !can_attach() && !self.ownership.membership.has_others()
    }

    /// Whether there is a journal or a mark.
    fn has_journal(&self, fd: BorrowedFd<'_>, known: Known<'_>) -> Result<bool> {
        Ok(!recovery::is_ordinary(fd, known, &self.settings)?)
    }

    /// Whether a dead process has left a journal. Called by the first member.
    ///
    /// # Errors
    /// `EBUSY`: the process lives, and its control file was removed.
    fn is_journal_left(&self, fd: BorrowedFd<'_>) -> Result<bool> {
        if self.state.load(Ordering::Acquire) == GROWING {
            return Ok(false); // the mark is this process's
        }
        let mut look = 0;
        loop {
            if !self.has_journal(fd, Known::default())? {
                return Ok(false);
            }
            if !recovery::is_in_session(fd, &self.settings) {
                return Ok(true);
            }
            if look == LOOKS_AT_DYING {
                return Err(recovery::in_session());
            }
            // The kernel closes a killed process's control file before its journal.
            look += 1;
            let _ = rustix::thread::nanosleep(&DYING);
            undisturbed::renew();
        }
    }

    /// At an open: puts in order what a dead process left, unless another process is at it.
    pub(in crate::file) fn recover_if_left(&self, fd: BorrowedFd<'_>, known: Known<'_>) -> Result<()> {
        if self.is_unused_by_others(fd, known) || !self.has_journal(fd, known).unwrap_or(true) {
            return Ok(());
        }
        let attach = |fd: BorrowedFd<'_>| {
            self.attach_by(fd).map_err(|e| match recovery::look(fd, &self.settings) {
                Err(conflict) if conflict.errno() == libc::EIO => conflict, // for example: its pool is gone
                _ => e,
            })
        };
        if let Err(e) = self.check_limit_of_membership().and_then(|()| self.fds.with(false, attach)) {
            if self.ownership.membership.is_kept_out() || self.ownership.membership.is_full() {
                return Ok(()); // they live: writes fail, and reads of what they changed fail or visit them
            }
            if e.is_full() && recovery::has_nothing_to_recover(fd, &self.settings) {
                return Ok(()); // nothing to recover: a full disk had no room to remove the mark
            }
            if e.errno() == libc::EFBIG {
                recovery::await_end_of_session(fd, &self.settings); // of a parent, say, which is about to end
            }
            let error = self.leave_unseen(e);
            return if self.is_demoted() { Ok(()) } else { Err(error) };
        }
        if self.ownership.membership.state() & SESSION == 0 || self.ownership.membership.has_unowned() {
            return Ok(());
        }
        let recovered = self.recover_the_dead(&mut self.inner());
        match recovered {
            // The committed state can be read, and no more is possible.
            Err(_) if !self.fds.has_writable() && self.ownership.has_view(&self.fds) => {
                crate::sys::notice_parts(&[self.path.to_bytes(), IMMUTABLE]);
                Ok(())
            }
            recovered => recovered.map(|_| self.commit_kept()),
        }
    }

    /// Takes the owner lock if it is free. Returns whether it did.
    pub(in crate::file) fn try_acquire_ownership(&self, inner: &mut Inner) -> Result<bool> {
        let control = self.ownership.membership.control().ok_or(Error::new(libc::EBUSY))?;
        inner.owner_lock = OwnerLock::try_take(control)?;
        if inner.owner_lock.is_some() {
            self.ownership.membership.set_owner();
        }
        if inner.owner_lock.is_some() {
            inner.arena = None; // that of an earlier ownership
        }
        Ok(inner.owner_lock.is_some())
    }

    /// If the owner lock is free, its last holder may have died: puts in order what that left. Returns whether the
    /// lock was free. Not called by the owner.
    pub(in crate::file) fn recover_the_dead(&self, inner: &mut Inner) -> Result<bool> {
        let free = self.try_acquire_ownership(inner)?;
        if free && self.ownership.membership.has_unowned() {
            match self.end_unowned(inner) {
                Ok(true) => {}
                Ok(false) if self.is_unowned_session_lost() => self.catch_up(inner)?,
                // It could not end, and goes on here; or other members have to end it.
                _ if inner.session.is_some() || inner.kept.is_some() || self.ownership.membership.has_unowned() => {
                    self.give_up_unless_held(inner);
                    return Ok(false);
                }
                _ => self.catch_up(inner)?,
            }
            self.release_owner_lock(inner);
            return Ok(true);
        }
        if free {
            self.catch_up(inner)?;
            self.release_owner_lock(inner);
        }
        Ok(free)
    }

    pub(in crate::file) fn in_use(&self) -> Error {
        let owner = self.ownership.membership.control().and_then(|control| control.owner());
        let who = owner.map_or("another process".into(), |owner| owner.to_string());
        let path = self.path.to_string_lossy();
        let group = if self.settings.group.is_some() { "has changes of a group to commit, or " } else { "" };
        let what = "which has demoted or mapped it, or does not run, or";
        let room = format!("whose open epoch has no room in {}", shm::folder());
        Error::with(libc::EBUSY, format!("{path}: in use as an atomic file by {who}, {what} {group}{room}"))
    }

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
        let is_kept = inner.kept.is_some();
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
            if !is_kept {
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
        if lost && !is_kept && !(keeps && membership.has_dead_stores()) {
            self.mend_shadow()?;
        } else if lost && membership.shadow().is_some() && membership.has_dead_stores() {
            membership.leave_unknown_stores(); // the kept bytes are in the shadow already, next to their stores
        }
        membership.reap(&dead);
        membership.forget_lost_stores();
        Ok(())
    }

    /// A new session takes up the hand-over image. No other thread is inside yet.
    pub(in crate::file) fn take_up(&self, session: &Session) -> Result<()> {
        let ownership = &self.ownership;
        if ownership.membership.state() & HAS_IMAGE == 0 {
            return Ok(());
        }
        let epoch = ownership.hand_over_image(&self.fds)?;
        let doing = doing();
        let taken = epoch.changes.iter().try_for_each(|change| {
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
            epoch.changes.iter().for_each(|change| ownership.membership.end_tenure_of(change.writer));
        }
        session.arena.shared().lowest_since_acquired.store(session.arena.shared().size(), Ordering::Release);
        let open = |writer: Writer| {
            writer.id != ownership.membership.me().id && ownership.membership.writer_state(writer) != WriterState::Over
        };
        let others: Vec<_> =
            epoch.changes.iter().filter(|change| open(change.writer)).map(|c| (c.what.range(), c.writer)).collect();
        ownership.has_taken_image.store(true, Ordering::Release);
        ownership.foreign.store(!others.is_empty(), Ordering::Release);
        if !others.is_empty() {
            session.arena.shared().follow_up.fetch_or(follow_up::OTHERS, Ordering::Release);
        }
        *ownership.others.lock() = others;
        if shadow::is_mapped(self.key()) {
            self.end_tenures_if_stored_to();
        }
        self.show_in_shadow(session)
    }

    /// The file is demoted: the hand-over image is written to the kernel's file, too. Called by the owner.
    pub(in crate::file) fn put_in_kernels_file(&self) -> Result<()> {
        let epoch = self.ownership.hand_over_image(&self.fds)?;
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
        self.ownership.membership.forget_epoch();
        Ok(())
    }

    /// The hand-over image could not be taken up: the file goes back to the last commit, and the image stays.
    pub(in crate::file) fn put_down(&self, inner: &mut Inner, session: Box<Session>, why: Error) -> Error {
        session.arena.shared().closed.store(1, Ordering::Release);
        drop(session);
        if inner.kept.is_some() {
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

    /// Before a session begins: takes the file back to the last commit, if uncommitted changes could not be handed
    /// over.
    pub(in crate::file) fn prepare_kept(&self, inner: &mut Inner) -> Result<()> {
        if inner.kept.is_none() {
            return Ok(());
        }
        self.recover_and_roll_back(inner)?;
        // The new arena would take the place of the old one, which calls may still use.
        inner.arena = None;
        let Some(owner_lock) = &inner.owner_lock else { return Err(Error::new(libc::EIO)) };
        owner_lock.forget_arena();
        Ok(())
    }

    /// The new session takes up what could not be handed over.
    pub(in crate::file) fn take_up_kept(&self, inner: &mut Inner, session: &Session) -> Result<()> {
        let Some(open_changes) = inner.kept.take() else { return Ok(()) };
        let doing = doing();
        let taken = (|| {
            self.set_sizes(session, open_changes.low, open_changes.size)?;
            open_changes.pieces.iter().try_for_each(|(offset, data)| self.put_all(session, *offset, data))
        })();
        drop(doing);
        if taken.is_ok() && open_changes.is_released {
            session.arena.shared().dirty.store(RELEASED, Ordering::Release);
        }
        if taken.is_err() {
            inner.kept = Some(open_changes);
        }
        taken?;
        self.show_in_shadow(session)
    }
}
