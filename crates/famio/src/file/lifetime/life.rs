//! The sessions of a file: attached at a write, closed clean, or demoted.

use super::unprotectable::LOST;
use crate::error::{Error, Result};
use crate::file::atomic::disowned;
use crate::file::atomic::{ATTACHED, AtomicFile, DEMOTED, DISOWNED, Inner, PLAIN};
use crate::file::base::calls::Call;
use crate::file::base::refusal::{Answer, Refusal};
use crate::file::descriptors::set_id::keeping_bits;
use crate::file::growing::Tail;
use crate::file::session::attach;
use crate::file::session::close::{Left, PassStep};
use crate::file::session::{OldSession, Session};
use crate::index::MOVED;
use crate::journal::pools::shares::promised;
use crate::journal::{has_lost_its_name, keeping_folders};
use crate::pmem::TestHooks;
use crate::sys::internal::{Undisturbed, undisturbed};
use crate::sys::owner_and_mode;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use rustix::time::Timespec;

const LARGE: &[u8] =
    b": demoted to an ordinary file because it is mapped, and larger than what map-memory allows (by default a quarter of this machine's memory)";

/// Attempts to leave a file to the kernel that others change alternately with this process.
const TRIES_TO_LEAVE: u32 = 1000;
/// Owners that leave the file just when they have refused, one after the other, before the last refusal counts.
const OWNERS_THAT_LEAVE: u32 = 3;
/// Looks whether an owner that has refused leaves the file, and the time between two: in all 20 ms.
const LOOKS_AT_OWNER: u32 = 10;
const BETWEEN_LOOKS: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// A session that a call uses, and that stays meanwhile.
pub(in crate::file) struct InUse<'a> {
    session: &'a Session,
    _call: Call,
}

impl Deref for InUse<'_> {
    type Target = Session;

    #[inline]
    fn deref(&self) -> &Session {
        self.session
    }
}

impl AtomicFile {
    /// Improves the error of a file that was made immutable meanwhile, which nobody may write, including the library.
    #[cold]
    fn immutable(&self, error: Error) -> Error {
        const WHAT: &str = "it may not be written any more (is it immutable? chattr -i, and open it again or run famio recover); its journal stays, and has what was committed";
        match error.errno() {
            libc::EPERM => error.context(WHAT),
            // For a mapped page the kernel raises SIGBUS.
            libc::EIO if self.fds.with(false, |fd| Ok(crate::recovery::is_immutable(fd))).unwrap_or(false) => {
                Error::new(libc::EPERM).context(WHAT)
            }
            _ => error,
        }
    }

    /// The session, if there is one.
    #[inline]
    pub(in crate::file) fn session(&self) -> Option<InUse<'_>> {
        let call = Call::begin();
        // SAFETY: points to a box in `inner.session`. It moves to `inner.old` only after the pointer was cleared, and
        // is freed only when no earlier call is inside any more.
        let session = unsafe { self.session.load(Ordering::Acquire).as_ref() }?;
        Some(InUse { session, _call: call })
    }

    /// Calls `work` with the session, if the file is attached.
    pub(in crate::file) fn with_session<T>(&self, work: impl FnOnce(&Session) -> T) -> Option<T> {
        (self.state.load(Ordering::Acquire) == ATTACHED).then(|| self.session()).flatten().map(|session| work(&session))
    }

    /// Whether this is a forked child, and the file the parent's.
    pub(in crate::file) fn is_disowned(&self) -> bool {
        self.state.load(Ordering::Acquire) == DISOWNED
    }

    /// The session for a write; made at the first.
    #[inline(always)]
    pub(in crate::file) fn session_for_write(&self) -> Answer<Option<InUse<'_>>> {
        match self.state.load(Ordering::Acquire) {
            DEMOTED => Ok(None),
            DISOWNED => Err(disowned().into()),
            ATTACHED if let Some(session) = self.session() => Ok(Some(session)),
            _ => self.attach(),
        }
    }

    #[cold]
    fn attach(&self) -> Answer<Option<InUse<'_>>> {
        self.check_locks_are_kept()?;
        if self.demote_instead_of_cut()? {
            return Ok(None);
        }
        let mut inner = self.inner();
        let undisturbed = Undisturbed::begin();
        let begun = keeping_folders(|| {
            let _announced = self.announce_end_of_growth();
            let mut tail = self.stop_growing(&mut inner)?;
            let begun = self.begin_session(&mut inner, &mut tail);
            let put_back = self.tail_is_taken(tail);
            put_back.map_err(Refusal::from).and(begun)
        });
        drop(undisturbed);
        drop(inner);
        begun?;
        match self.session() {
            None if !self.is_demoted() => Err(Refusal::session_ended()),
            session => Ok(session),
        }
    }

    /// Checks what can be known before anything is changed: limits of the process, and the settings, unless this
    /// process has used them.
    pub(in crate::file) fn check_session_can_begin(&self) -> Result<()> {
        self.check_limit(crate::sys::file_size_limit())?;
        self.check_numbers()?;
        if self.ownership.membership.is_attached() { Ok(()) } else { attach::check(&self.fds, &self.settings) }
    }

    /// Whether the refusal was that of an owner which has left the file since, or does so now, as at its end. Until then
    /// it may have been one that had demoted the file, as this process would do now.
    #[cold]
    fn has_owner_left(&self, refusal: &Refusal) -> bool {
        if !refusal.is_error(libc::EBUSY) || self.is_demoted_elsewhere() {
            return false;
        }
        let Some(control) = self.ownership.membership.control() else { return false };
        for _ in 0..LOOKS_AT_OWNER {
            if !control.is_owned() {
                return true;
            }
            let _ = rustix::thread::nanosleep(&BETWEEN_LOOKS);
            undisturbed::renew();
        }
        false
    }

    /// Begins a session or demotes the file, which has no session. `tail`: of a file that grew.
    fn begin_session(&self, inner: &mut Inner, tail: &mut Option<Tail<'_>>) -> Answer<()> {
        if self.state.load(Ordering::Acquire) == PLAIN && !self.take_unowned(inner)? {
            if self.fds.with(true, |fd| Ok(owner_and_mode(fd)?.st_nlink == 0))? {
                self.refuse_replaced()?;
                // A file without a name does not survive a crash: there is nothing to protect.
                self.maps_to_kernel()?;
                if self.ownership.is_disturbed() {
                    self.acquire_ownership(inner)?;
                    self.put_in_kernels_file(inner)?;
                    self.release_owner_lock(inner); // other members do the same
                }
                self.demote_with_tail(tail)?;
                self.late_copies_to_kernel();
                return Ok(());
            }
            let come = |inner: &mut Inner| -> Answer<bool> {
                self.check_session_can_begin()?;
                self.follow_control_file(inner)?;
                let has_session = self.acquire_ownership_or_session(inner)?;
                if self.ownership.membership.state() & MOVED != 0 && !has_session {
                    self.release_owner_lock(inner); // the owner has moved to another control file meanwhile
                    return Err(Refusal::session_ended());
                }
                Ok(has_session)
            };
            let mut owners = 0;
            let has_session = loop {
                let refusal = match come(inner) {
                    Ok(has_session) => break has_session,
                    Err(refusal) if refusal.is_session_ended() && !self.is_unreachable() => return Err(refusal),
                    Err(refusal) => refusal,
                };
                // Not asked before: the owner may leave meanwhile.
                match self.leave_to_kernel(inner, tail, refusal.into()) {
                    Err(refusal) if owners < OWNERS_THAT_LEAVE && self.has_owner_left(&refusal) => owners += 1,
                    left => return left,
                }
            };
            if has_session {
                return Ok(());
            }
            let begun = crate::sys::monotonic_now();
            self.prepare_unsent(inner)?;
            self.join_shadow()?;
            match self.shadow_for_maps() {
                Err(e) if e.errno() == libc::ENOMEM && self.settings.group.is_none() => {
                    crate::sys::notice_parts(&[self.path.to_bytes(), LARGE]);
                    self.note_demotion();
                    self.put_in_kernels_file(inner)?;
                    self.demote_with_tail(tail)?;
                    crate::sys::events::count_demotion();
                    return Ok(());
                }
                made => made?,
            }
            let Some(owner_lock) = &inner.owner_lock else { return Err(Error::new(libc::EBADF).into()) };
            // A map that was kept of it as an ordinary file counts as an open, and would prevent the lease.
            crate::map::cache::forget(self.device, self.inode);
            // Other members must notice if the process ends with the session.
            self.register_for_death_notice();
            self.ownership.membership.begin_session();
            let has_hand_over_image = self.ownership.is_handed_over();
            let has_earlier_writes = has_hand_over_image || tail.is_some();
            let _promised = (has_hand_over_image || inner.unsent.is_some()).then(promised);
            let membership = (&self.ownership.membership, &self.ownership.others);
            let saves_images = !self.ownership.no_images.swap(false, Ordering::AcqRel);
            let attached = self.fds.by_a_name(|| {
                let arena = inner.arena.clone();
                attach::attach(
                    &self.fds,
                    owner_lock,
                    &self.settings,
                    arena,
                    has_earlier_writes,
                    membership,
                    saves_images,
                )
            });
            if attached.is_err() {
                self.ownership.membership.set_session(false);
            }
            let session = match attached {
                Err(e) if e.is_nameless() && self.fds.with(true, |fd| Ok(has_lost_its_name(fd)))? => {
                    if let Err(e) = self.refuse_replaced() {
                        self.release_owner_lock(inner);
                        return Err(e.into());
                    }
                    // Its other names are not known, so a journal could not be found after a crash.
                    // Without any other it does not survive a crash: there is nothing to commit with its group.
                    let has_other_names = self.fds.stat()?.st_nlink > 0;
                    if self.settings.group.is_some() && has_other_names {
                        let what = "the name by which it was opened is gone, so that it can't be protected; open it by its other name";
                        return Err(self.named(Error::with(libc::ESTALE, what)).into());
                    }
                    if self.is_mapped_by_others() {
                        self.release_owner_lock(inner);
                        return Err(self.mapped_by_others().into());
                    }
                    self.maps_to_kernel()?;
                    if has_other_names {
                        crate::sys::notice_parts(&[self.path.to_bytes(), LOST]);
                        crate::sys::events::count_demotion();
                    }
                    self.note_demotion();
                    self.put_in_kernels_file(inner)?;
                    self.demote_with_tail(tail)?;
                    self.late_copies_to_kernel();
                    return Ok(());
                }
                Err(e) => return self.leave_to_kernel(inner, tail, e),
                Ok(session) => session,
            };
            let session = Box::new(session);
            inner.arena = Some(session.arena.clone());
            self.ownership.membership.set_attached(session.arena_number);
            if has_earlier_writes {
                self.keep_bits_until_write(&session);
            }
            let taken = keeping_bits(&self.fds, || {
                self.take_up(&session, inner.unsent.as_ref())?;
                self.take_up_tail(tail, &session)
            });
            if let Err(e) = taken {
                return Err(self.put_down(inner, session, e).into());
            }
            if let Err(e) = self.take_size_left(&session).and_then(|()| self.share_with_maps(&session)) {
                return Err(self.put_down(inner, session, e).into());
            }
            // From here on the arena has everything uncommitted.
            inner.unsent = None;
            session.has_taken_up();
            session.arena.shared().keeps.store(session.keeps.into(), Ordering::Release);
            self.enable_shadow_follow_up(&session);
            self.session.store(core::ptr::from_ref(&*session).cast_mut(), Ordering::Release);
            inner.session = Some(session);
            inner.old.retain_mut(|old| !old.is_unused());
            self.state.store(ATTACHED, Ordering::Release);
            self.with_session(Session::open_to_others);
            self.ownership.membership.announce_change(); // readers may wait for it
            self.ownership.began(begun);
            crate::file::base::background_wakeup::start();
            crate::index::sweep_once();
            self.with_session(|session| self.lease.begin(session));
        }
        Ok(())
    }

    /// Commits, makes a checkpoint, closes the journal clean, and leaves the file to the kernel as an ordinary file.
    ///
    /// # Errors
    /// Those of the commit or of the journal's end; the file then stays atomic, and may take no more writes. `EBUSY`:
    /// it is mapped, or belongs to a group.
    pub fn demote(&self) -> Result<()> {
        if self.settings.group.is_some() && !self.is_demoted() {
            let what = "it belongs to a group, and can't be demoted to an ordinary file";
            return Err(self.named(Error::with(libc::EBUSY, what)));
        }
        if crate::file::shadow::is_mapped(self.key()) {
            return Err(Error::with(
                libc::EBUSY,
                format!("{}: it is mapped, and can't be demoted to an ordinary file", self.path.to_string_lossy()),
            ));
        }
        if !self.is_demoted() && !self.is_disowned() {
            self.look()?;
            if self.state.load(Ordering::Acquire) == PLAIN {
                self.join_shadow()?; // others may have stored there
            }
        }
        self.take_stores()?;
        if !self.is_demoted() && !self.is_disowned() && self.is_mapped_by_others() {
            return Err(self.mapped_by_others());
        }
        if !self.is_demoted() && !self.is_disowned() {
            self.note_demotion();
        }
        let left = self.leave_what_others_have();
        if left.is_err() && !self.is_demoted() {
            self.remove_demotion_note();
        }
        left
    }

    /// Ends the session, wherever it is, as [`demote`](Self::demote) does.
    fn leave_what_others_have(&self) -> Result<()> {
        for _ in 0..TRIES_TO_LEAVE {
            if self.state.load(Ordering::Acquire) == PLAIN
                && self.fds.has_writable()
                && (self.ownership.is_disturbed() || !self.is_unmarked())
            {
                // The kernel's file has to get the contents of the hand-over image, or of a session that began before
                // its process could see that this one demotes the file.
                self.session_for_write().map(drop)?;
            }
            match self.end_session_as(DEMOTED) {
                Err(refusal) if refusal.is_session_ended() => {}
                left => return Ok(left?),
            }
        }
        let path = self.path.to_string_lossy();
        Err(Error::with(
            libc::EBUSY,
            format!("{path}: other processes use it, and it can't be demoted to an ordinary file"),
        ))
    }

    /// Whether other processes have the file open while one has mapped it, so that they share its memory.
    pub(crate) fn is_mapped_by_others(&self) -> bool {
        self.ownership.membership.shadow().is_some() && self.ownership.membership.has_others()
    }

    /// They would go on with memory that no longer follows the kernel's file.
    fn mapped_by_others(&self) -> Error {
        let path = self.path.to_string_lossy();
        let what = format!("{path}: other processes have it mapped, and it can't be demoted to an ordinary file");
        Error::with(libc::EBUSY, what)
    }

    /// Whether the file was demoted.
    pub fn is_demoted(&self) -> bool {
        self.state.load(Ordering::Acquire) == DEMOTED
    }

    /// Commits, makes a checkpoint and closes the journal clean; the next write attaches again.
    pub(in crate::file) fn close_session(&self) -> Result<()> {
        self.take_stores()?;
        Ok(self.end_session_as(PLAIN)?)
    }

    /// Ends the session; the file's state is `to` afterwards. Refused if the session was handed over meanwhile. A file
    /// of a group is committed with the others first.
    pub(in crate::file) fn end_session_as(&self, to: u8) -> Answer<()> {
        for _ in 0..TRIES_TO_LEAVE {
            if !self.is_disowned() {
                self.sync_group_if_open()?;
            }
            match self.try_end_session_as(to) {
                Err(refusal) if refusal.is_needs_group() => {}
                left => return left,
            }
        }
        Err(self.named(Error::with(libc::EBUSY, "it is written again and again, and can't be closed")).into())
    }

    /// As [`end_session_as`](Self::end_session_as). Refused, too, if a file of a group has something to commit.
    fn try_end_session_as(&self, to: u8) -> Answer<()> {
        let mut inner = self.inner();
        let _undisturbed = (self.state.load(Ordering::Acquire) == ATTACHED).then(Undisturbed::begin);
        self.end_growing().map_err(|e| self.named(e))?;
        let state = self.state.load(Ordering::Acquire);
        if to == DEMOTED && state == PLAIN && self.ownership.is_disturbed() && self.fds.has_writable() {
            return Err(Refusal::session_ended());
        }
        let mut ended = None;
        if state == ATTACHED
            && let Some(session) = &inner.session
        {
            Self::may_lock()?;
            self.lease.rest();
            session.close_to_others();
            let closed = self.close_journal(session, false).inspect_err(|refusal| {
                if refusal.is_needs_group() {
                    session.open_to_others();
                } else {
                    session.stays_closed_to_others();
                }
            });
            self.lease_ends(closed.is_ok());
            closed.map_err(|refusal| refusal.map_failure(|e| self.named(self.immutable(e))))?;
            self.plain.forget_size();
            self.session.store(core::ptr::null_mut(), Ordering::SeqCst);
            ended = inner.session.take();
            self.ownership.membership.set_session(false);
        }
        // A demoted file stays the kernel's as long as it is open: its descriptors are written through past the
        // library.
        if ![DISOWNED, DEMOTED].contains(&state) {
            self.state.store(to, Ordering::Release);
        }
        inner.old.extend(ended.map(OldSession::new));
        inner.old.retain_mut(|old| !old.is_unused());
        drop(inner);
        Ok(())
    }

    /// For tests: one checkpoint round, as in the background. Returns whether there is more to do.
    #[doc(hidden)]
    pub fn checkpoint_round(&self) -> Result<bool> {
        Ok(self.checkpoint_some()? == Left::More)
    }

    /// For tests: writes some blocks of a pass, or ends a pass that has written all of them (`ends`), as if other
    /// threads were writing.
    #[doc(hidden)]
    pub fn checkpoint_part(&self, ends: bool) -> Result<()> {
        let step = if ends { PassStep::End } else { PassStep::Blocks };
        let Some(session) = self.session() else { return Ok(()) };
        let test_hooks = TestHooks::current();
        // Only a write cache has passes beside writers with so few blocks as tests have.
        TestHooks { busy: session.engine.commits_in_memory(), ..test_hooks }.enter();
        let checkpointed = session.checkpoint_step(&self.fds, step);
        test_hooks.enter();
        checkpointed.map(drop)
    }

    /// One checkpoint round, by the background.
    pub(in crate::file) fn checkpoint_some(&self) -> Result<Left> {
        match self.session() {
            Some(session) if self.state.load(Ordering::Acquire) == ATTACHED => session.checkpoint_some(&self.fds),
            _ => Ok(Left::Nothing),
        }
    }
}
