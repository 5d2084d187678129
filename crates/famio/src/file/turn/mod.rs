//! Several processes with one atomic file: they take turns. One at a time has the file's claim, and with it the session;
//! everybody else reads the file itself, which has what is committed. Who wants more rings, and the background of who has the
//! turn ends the session and gives the turn. What is not committed yet travels from turn to turn, each part with its writer, so
//! that the part of one who dies can be left behind.
//!
//! A process that is alone never notices: nobody rings.

mod draft;
mod travel;

use super::atomic::{ATTACHED, AtomicFile, Inner, PLAIN};
use super::session::{OldSession, Session};
use super::shadow;
use super::{Access, UserBuf};
use crate::error::{Error, Result};
use crate::index::{Claim, Door, SESSION, Standing, TRAVELS, Writer, owner};
use crate::recovery;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::os::fd::{AsRawFd, BorrowedFd};
pub(super) use travel::Draft;
use travel::{Travelling, What};

/// How long one who waits for the turn sleeps before it looks again: nobody is told of a death.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Looks before a wait is given up: about a minute.
const LOOKS: u32 = 6000;
/// A turn lasts so long, in nanoseconds, though somebody rings: a few calls are to come of it. And as long as it took to begin
/// and to end the last one, up to the longest: on a disk that is a few syncs.
const SHORTEST: u64 = 1_000_000;
const LONGEST: u64 = 50_000_000;

/// What a process keeps of its turns.
pub(super) struct Turns {
    pub door: Door,
    /// The bell's count when the turn was taken, or answered.
    heard: AtomicU32,
    /// When the turn was taken, or its session begun, and how long that and the last end took.
    since: AtomicU64,
    began_in: AtomicU64,
    ended_in: AtomicU64,
    /// The epoch has travelled here: once it is committed, it does not any more.
    travelled: AtomicBool,
    /// Some of what travelled here is of others, who may still die.
    foreign: AtomicBool,
    has_turn: AtomicBool,
    /// Maps that are being made.
    kept: AtomicU32,
    others: crate::thread::Mutex<Vec<(Range<u64>, Writer)>>,
}

impl Turns {
    pub fn new(door: Door) -> Self {
        Self {
            door,
            heard: AtomicU32::new(0),
            since: AtomicU64::new(0),
            began_in: AtomicU64::new(0),
            ended_in: AtomicU64::new(0),
            travelled: AtomicBool::new(false),
            foreign: AtomicBool::new(false),
            has_turn: AtomicBool::new(false),
            kept: AtomicU32::new(0),
            others: crate::thread::Mutex::default(),
        }
    }

    /// Whether the file is as it was committed last, and nobody's turn changes it.
    #[inline]
    pub fn is_quiet(&self) -> Option<u64> {
        let state = self.door.state();
        (state & (SESSION | TRAVELS) == 0).then_some(state)
    }

    /// Whether nothing has changed since [`is_quiet`](Self::is_quiet).
    #[inline]
    pub fn still(&self, quiet: u64) -> bool {
        core::sync::atomic::fence(Ordering::Acquire);
        self.door.state() == quiet
    }

    /// The turn is not given while a map is made.
    pub fn keep(&self) -> Kept<'_> {
        self.kept.fetch_add(1, Ordering::SeqCst);
        Kept(&self.kept)
    }

    /// Whether what others wrote and may take back is in this process's session.
    #[inline]
    pub fn has_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// The session that was begun at `begun` is there.
    pub fn began(&self, begun: u64) {
        let now = now();
        self.began_in.store(now - begun, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    fn travelling(&self) -> Result<Travelling> {
        self.door.epoch().map_or(Ok(Travelling::default()), |path| Travelling::load(&path))
    }

    /// The epoch travels from here, or there is nothing of it. By who has the turn.
    fn send(&self, epoch: &Travelling) -> Result<()> {
        if epoch.changes.is_empty() {
            self.door.forget_epoch();
            return Ok(());
        }
        let number = self.door.begin_epoch();
        epoch.store(&self.door.epoch_path(number))?;
        self.door.set_epoch(number);
        Ok(())
    }

    /// What travelled here is committed, and durable.
    pub fn committed(&self) {
        if self.travelled.swap(false, Ordering::AcqRel) {
            self.door.forget_epoch();
            self.others.lock().clear();
            self.foreign.store(false, Ordering::Release);
        }
    }
}

/// See [`Turns::keep`].
pub(super) struct Kept<'a>(&'a AtomicU32);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl AtomicFile {
    /// Takes the file's turn, if this process does not have it: waits for who has it. The file is as it was committed last
    /// then; what a process left that died meanwhile is recovered.
    ///
    /// # Errors
    /// `EBUSY`: the process that has it does not give it. Those of a recovery.
    pub(super) fn take_turn(&self, inner: &mut Inner) -> Result<()> {
        if inner.claim.is_some() {
            return Ok(());
        }
        let door = &self.turns.door;
        self.fds.with(false, |fd| door.come(fd, || Ok(!recovery::is_ordinary(fd, &self.settings)?)))?;
        for look in 0.. {
            let given = door.given();
            let try_take = |fd: BorrowedFd<'_>| Claim::try_take(fd, self.device, self.inode);
            inner.claim = self.fds.with(false, try_take)?;
            if inner.claim.is_some() {
                break;
            }
            if look == LOOKS || look > 2 && door.stuck() != 0 {
                return Err(self.in_use());
            }
            door.ring();
            door.wait(given, PATIENCE);
        }
        inner.arena = None;
        self.turns.heard.store(door.bell().load(Ordering::SeqCst), Ordering::Relaxed);
        self.turns.since.store(now(), Ordering::Relaxed);
        self.turns.has_turn.store(true, Ordering::Release);
        super::background::start();
        self.catch_up(inner)
    }

    /// Of a file that is being opened: what one who died has left, unless somebody is at it.
    pub(super) fn recover_if_left(&self) -> Result<()> {
        if self.turns.door.state() & SESSION == 0 {
            return Ok(());
        }
        let mut inner = self.inner();
        let try_take = |fd: BorrowedFd<'_>| Claim::try_take(fd, self.device, self.inode);
        inner.claim = self.fds.with(false, try_take)?;
        if inner.claim.is_some() {
            self.catch_up(&mut inner)?;
            self.release_claim(&mut inner);
        }
        Ok(())
    }

    fn in_use(&self) -> Error {
        let who = owner(self.device, self.inode).map_or("another process".into(), |pid| format!("process {pid}"));
        let path = self.path.to_string_lossy();
        let what =
            format!("{path}: in use as an atomic file by {who}, which has it mapped, handed back, or does not run");
        Error::with(libc::EBUSY, what)
    }

    /// With the turn: what one who died with it has left. After an error it is given up, with what the next to try has to know.
    fn catch_up(&self, inner: &mut Inner) -> Result<()> {
        let caught_up = self.recover_and_roll_back(inner);
        if caught_up.is_err() {
            self.give_up(inner, Claim::leave);
        }
        caught_up
    }

    fn recover_and_roll_back(&self, inner: &mut Inner) -> Result<()> {
        let door = &self.turns.door;
        let Some(claim) = inner.claim.as_mut() else { return Ok(()) };
        if door.state() & SESSION != 0 {
            let writable = self.fds.has_writable();
            self.fds.with(writable, |fd| {
                if recovery::commits_since_attach(fd, claim, &self.settings)? > 0 {
                    door.forget_epoch(); // before the journal is gone, which says so
                }
                recovery::at_open(fd, writable, claim, &self.settings)
            })?;
            self.plain.forget_size();
            door.set_session(false);
        }
        if door.state() & TRAVELS != 0 {
            let dead = door.dead();
            let mut epoch = self.turns.travelling()?;
            if epoch.roll_back(|writer| door.standing(writer)) {
                self.turns.send(&epoch)?;
            }
            door.bury(&dead);
        }
        Ok(())
    }

    /// A new session takes up the epoch that travels. Nobody else is in it yet.
    pub(super) fn take_up(&self, session: &Session) -> Result<()> {
        let turns = &self.turns;
        if turns.door.state() & TRAVELS == 0 {
            return Ok(());
        }
        let epoch = turns.travelling()?;
        let told = shadow::told();
        let taken = epoch.changes.iter().try_for_each(|change| match &change.what {
            What::Size { low, size } => {
                session.set_size(&self.fds, (*low).min(session.arena.shared().size()))?;
                session.set_size(&self.fds, *size)
            }
            What::Bytes { offset, data } => self.put_all(session, *offset, data),
        });
        drop(told);
        taken?;
        session.arena.shared().turn_low.store(session.arena.shared().size(), Ordering::Release);
        let open = |writer: Writer| writer.id != turns.door.me().id && turns.door.standing(writer) != Standing::Over;
        let others: Vec<_> =
            epoch.changes.iter().filter(|change| open(change.writer)).map(|c| (c.what.range(), c.writer)).collect();
        turns.travelled.store(true, Ordering::Release);
        turns.foreign.store(!others.is_empty(), Ordering::Release);
        if !others.is_empty() {
            session.arena.shared().mapped.fetch_or(2, Ordering::Release);
        }
        *turns.others.lock() = others;
        if shadow::is_mapped(self.key()) {
            self.rely_on(0..u64::MAX);
        }
        self.show_in_shadow(session)
    }

    /// The file is handed back: what travels becomes the kernel's, too. With the turn.
    pub(super) fn put_in_kernels_file(&self) -> Result<()> {
        let epoch = self.turns.travelling()?;
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
        self.turns.door.forget_epoch();
        Ok(())
    }

    /// What travels could not be taken up: the file goes back to what is committed, and the epoch goes on travelling.
    pub(super) fn put_down(&self, inner: &mut Inner, session: Box<Session>, why: Error) -> Error {
        session.arena.shared().closed.store(1, Ordering::Release);
        drop(session);
        if inner.kept.is_some() {
            return why; // the turn stays, and it is tried again
        }
        let caught_up = self.catch_up(inner);
        self.release_claim(inner);
        let what = "what another process wrote since the last SYNC could not be taken over";
        caught_up.err().unwrap_or(why).context(format_args!("{}: {what}", self.path.to_string_lossy()))
    }

    /// Closes the session's journal clean. What travelled here is committed, and travels no more, before the journal is gone.
    pub(super) fn close_journal(&self, session: &Session) -> Result<()> {
        if self.turns.travelled.load(Ordering::Acquire) {
            session.sync(&self.fds, || ())?;
            self.turns.committed();
        }
        session.close(&self.fds)
    }

    fn put_all(&self, session: &Session, mut offset: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let buf = UserBuf { base: data.as_ptr().cast_mut(), len: data.len() };
            // SAFETY: memory of ours, which is only read.
            let done = unsafe { session.write(&self.fds, offset, &[buf]) }?;
            (offset, data) = (offset + done as u64, &data[done..]);
        }
        Ok(())
    }

    /// This process relies on what the file has in `range`, of whomever it is: that is not rolled back any more.
    pub(super) fn rely_on(&self, range: Range<u64>) {
        if self.turns.has_foreign() {
            let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
            let others = self.turns.others.lock();
            others.iter().filter(|(there, _)| touches(there)).for_each(|&(_, writer)| self.turns.door.rely_on(writer));
        }
    }

    /// What is of those who have died is rolled back: before a SYNC, and before this process relies on it.
    pub(super) fn leave_dead_behind(&self) -> Result<()> {
        if !self.turns.has_foreign() {
            return Ok(());
        }
        let dead = |&(_, writer): &(Range<u64>, Writer)| self.turns.door.standing(writer) == Standing::Dead;
        let any = self.turns.others.lock().iter().any(dead);
        if any { self.anew() } else { Ok(()) }
    }

    /// Ends the session: who takes the turn next, leaves what is of the dead behind.
    fn anew(&self) -> Result<()> {
        Self::may_lock()?;
        let mut inner = self.inner();
        self.end_session(&mut inner)?;
        self.release_claim(&mut inner); // an arena is for one such session
        Ok(())
    }

    /// By the background: gives the turn, if somebody wants it and it was long enough. Whether it is to be looked at again soon.
    pub(super) fn answer_bell(&self) -> bool {
        let rung = self.turns.door.bell().load(Ordering::SeqCst) != self.turns.heard.load(Ordering::Relaxed);
        if !rung || !self.turns.has_turn.load(Ordering::Acquire) {
            return false;
        }
        let spent = self.turns.began_in.load(Ordering::Relaxed) + self.turns.ended_in.load(Ordering::Relaxed);
        let until = self.turns.since.load(Ordering::Relaxed) + spent.clamp(SHORTEST, LONGEST);
        if now() < until {
            return true;
        }
        // Somebody begins or ends a session: that comes first.
        let Some(mut inner) = self.inner.try_lock() else { return true };
        let _ = self.give(&mut inner);
        false
    }

    /// What the background waits for: the bell, and its count. `None`: this process does not have the turn.
    pub(super) fn bell(&self) -> Option<(&AtomicU32, u32)> {
        let has_turn = self.turns.has_turn.load(Ordering::Acquire);
        has_turn.then(|| (self.turns.door.bell(), self.turns.heard.load(Ordering::Relaxed)))
    }

    /// What this process wrote until now stays, though it dies before a SYNC, as long as others have the file open who can
    /// commit it: they are let at what it did. For the end of a lock.
    ///
    /// # Errors
    /// Those of a session's end.
    pub fn end_tenure(&self) -> Result<()> {
        let dirty = |session: &Session| session.arena.shared().dirty.load(Ordering::Acquire) != 0;
        if self.with_session(dirty) == Some(true) && self.turns.door.has_others() {
            match self.give_turn() {
                // It goes on here: an unlock that failed would keep everybody out.
                Err(e) if ![libc::EBUSY, libc::EFBIG, libc::ENOSPC].contains(&e.errno()) => return Err(e),
                _ => {}
            }
        }
        if !self.is_disowned() {
            self.turns.door.end_tenure();
        }
        Ok(())
    }

    /// Gives the turn to whoever wants it; what is not committed goes along.
    ///
    /// # Errors
    /// The file stays with this process: it is mapped or handed back, its open epoch is too large, or its journal can't be
    /// ended.
    pub(super) fn give_turn(&self) -> Result<()> {
        Self::may_lock()?;
        self.give(&mut self.inner())
    }

    fn give(&self, inner: &mut Inner) -> Result<()> {
        let door = &self.turns.door;
        let heard = door.bell().load(Ordering::SeqCst);
        self.turns.heard.store(heard, Ordering::Relaxed);
        if inner.claim.is_none() {
            return Ok(());
        }
        let state = self.state.load(Ordering::Acquire);
        if self.turns.kept.load(Ordering::SeqCst) > 0 {
            return Ok(()); // a map is being made; who waits rings again
        }
        door.set_stuck(0); // it may have been mapped when it was asked for last
        let ended = if ![PLAIN, ATTACHED].contains(&state) || inner.kept.is_some() || shadow::is_mapped(self.key()) {
            Err(Error::new(libc::EBUSY))
        } else {
            self.end_session(inner)
        };
        match ended {
            Ok(()) => self.release_claim(inner),
            Err(_) => {
                door.set_stuck(rustix::process::getpid().as_raw_nonzero().get() as u32);
                door.give(); // who waits is to see that
            }
        }
        ended
    }

    pub(super) fn release_claim(&self, inner: &mut Inner) {
        self.give_up(inner, Claim::release);
    }

    fn give_up(&self, inner: &mut Inner, how: impl FnOnce(Claim)) {
        if let Some(claim) = inner.claim.take() {
            inner.arena = None;
            self.shadow_is_stale();
            self.turns.has_turn.store(false, Ordering::Release);
            self.turns.door.set_stuck(0);
            how(claim);
            self.turns.door.give();
        }
    }

    /// Ends the session without a commit.
    fn end_session(&self, inner: &mut Inner) -> Result<()> {
        if self.state.load(Ordering::Acquire) != ATTACHED {
            return Ok(());
        }
        let Some(session) = &inner.session else { return Ok(()) };
        let begun = now();
        self.lease.rest();
        let ended = session.end(&self.fds, || self.turns.committed());
        self.lease_ends(ended.is_ok());
        let draft = ended?;
        self.plain.forget_size();
        self.session.store(core::ptr::null_mut(), Ordering::SeqCst);
        let session = inner.session.take();
        self.state.store(PLAIN, Ordering::Release);
        inner.old.extend(session.map(OldSession::new));
        match draft {
            None => {
                inner.old.retain_mut(|old| !old.is_left());
                self.turns.door.set_session(false);
            }
            Some(draft) => {
                let sent = self.send_off(inner, &draft);
                if sent.is_err() {
                    inner.kept = Some(draft);
                }
                sent?;
            }
        }
        self.turns.ended_in.store(now() - begun, Ordering::Relaxed);
        Ok(())
    }

    /// Before a session begins: the file is as it was committed, if what it had besides could not be sent off.
    pub(super) fn prepare_kept(&self, inner: &mut Inner) -> Result<()> {
        if inner.kept.is_none() {
            return Ok(());
        }
        self.recover_and_roll_back(inner)?;
        // The new arena would lie where the old one does, in which calls may still be.
        inner.arena = None;
        let Some(claim) = inner.claim.as_mut() else { return Err(Error::new(libc::EIO)) };
        self.fds.with(false, |fd| claim.renew(fd))
    }

    /// What could not be sent off goes on in the new session.
    pub(super) fn take_up_kept(&self, inner: &mut Inner, session: &Session) -> Result<()> {
        let Some(draft) = inner.kept.take() else { return Ok(()) };
        let told = shadow::told();
        let taken = (|| {
            session.set_size(&self.fds, draft.low.min(session.arena.shared().size()))?;
            session.set_size(&self.fds, draft.size)?;
            draft.pieces.iter().try_for_each(|(offset, data)| self.put_all(session, *offset, data))
        })();
        drop(told);
        if taken.is_err() {
            inner.kept = Some(draft);
        }
        taken?;
        self.show_in_shadow(session)
    }

    /// The file goes back to what is committed, and the rest on its way.
    fn send_off(&self, inner: &mut Inner, draft: &Draft) -> Result<()> {
        let Some(claim) = inner.claim.as_mut() else { return Err(Error::new(libc::EIO)) };
        let turns = &self.turns;
        let mut epoch = turns.travelling()?;
        self.fds.with(true, |fd| {
            recovery::at_open(fd, true, claim, &self.settings)?;
            let committed = rustix::fs::fstat(fd)?.st_size as u64;
            epoch.add(turns.door.me(), draft, committed, |offset, piece| read_at(fd, offset, piece))
        })?;
        turns.send(&epoch)?;
        turns.travelled.store(false, Ordering::Release);
        turns.foreign.store(false, Ordering::Release);
        turns.others.lock().clear();
        turns.door.set_session(false);
        Ok(())
    }

    /// For who reads without the turn: waits until nobody changes the file, and calls `work` with what is not committed. Again,
    /// if that changes meanwhile. `None`: this process has taken the turn itself.
    #[cold]
    fn beside<T>(&self, mut work: impl FnMut(&Travelling, u64) -> Result<T>) -> Result<Option<T>> {
        Self::may_lock()?;
        let door = &self.turns.door;
        for look in 0..LOOKS {
            if self.state.load(Ordering::Acquire) != PLAIN {
                return Ok(None);
            }
            let (state, given) = (door.state(), door.given());
            if state & SESSION == 0 {
                let mut epoch = match self.turns.travelling() {
                    Err(e) if door.state() == state => return Err(e),
                    Err(_) => continue, // it went on while we read it
                    Ok(epoch) => epoch,
                };
                epoch.roll_back(|writer| door.standing(writer));
                let committed = self.fds.with(false, |fd| Ok(rustix::fs::fstat(fd)?.st_size as u64))?;
                let done = work(&epoch, committed)?;
                if self.turns.still(state) {
                    return Ok(Some(done));
                }
                continue;
            }
            let mut inner = self.inner();
            if inner.claim.is_none() {
                let try_take = |fd: BorrowedFd<'_>| Claim::try_take(fd, self.device, self.inode);
                inner.claim = self.fds.with(false, try_take)?;
                if inner.claim.is_some() {
                    // Nobody is there: it died.
                    inner.arena = None;
                    self.catch_up(&mut inner)?;
                    self.release_claim(&mut inner);
                    continue;
                }
            } else {
                // It was this process, which has just begun, or could not end.
                if inner.kept.is_some() {
                    drop(inner);
                    self.session_for_write()?;
                }
                continue;
            }
            drop(inner);
            door.ring();
            door.wait(given, PATIENCE);
            if look > 2 && door.stuck() != 0 {
                break;
            }
        }
        Err(self.in_use())
    }

    /// Reads what all processes have written, without a turn. `None`: this process has one now.
    ///
    /// # Safety
    /// The buffers may be overwritten; bad ones are an error, not a crash.
    #[cold]
    pub(super) unsafe fn read_beside(&self, offset: u64, bufs: &[UserBuf]) -> Result<Option<usize>> {
        let door = &self.turns.door;
        self.beside(|epoch, committed| {
            let (mut at, mut done) = (offset, 0);
            for buf in bufs {
                let mut used = 0;
                while used < buf.len {
                    let mut piece = vec![0; (buf.len - used).min(64 << 10)];
                    self.fds.with(false, |fd| read_at(fd, at, &mut piece))?;
                    let n = epoch.show(at, &mut piece, committed);
                    // SAFETY: the caller's promise; the source is ours.
                    unsafe { super::home::copy_out(buf.base.wrapping_add(used), piece.as_ptr().cast_mut(), n) }?;
                    (used, at, done) = (used + n, at + n as u64, done + n);
                    if n < piece.len() {
                        break;
                    }
                }
                if used < buf.len {
                    break;
                }
            }
            let seen = offset..at;
            let touched = |range: Range<u64>| range.start < seen.end && seen.start < range.end;
            let writers =
                epoch.changes.iter().filter(|change| touched(change.what.range())).map(|change| change.writer);
            writers.filter(|writer| writer.id != door.me().id).for_each(|writer| door.rely_on(writer));
            Ok(done)
        })
    }

    /// Reads in a session that has what others wrote and may take back.
    ///
    /// # Safety
    /// As [`read_beside`](Self::read_beside).
    #[cold]
    pub(super) unsafe fn read_foreign(&self, offset: u64, bufs: &[UserBuf]) -> Result<usize> {
        self.leave_dead_behind()?;
        // SAFETY: the caller's promise.
        let read = match self.shadow() {
            Some(shadow) => unsafe { self.read_shadow(shadow, offset, bufs) },
            None => unsafe { self.read_file(offset, bufs) },
        }?;
        self.rely_on(offset..offset + read as u64);
        Ok(read)
    }

    /// The size that all processes have given the file, without a turn. `None`: this process has one now.
    #[cold]
    pub(super) fn size_beside(&self) -> Result<Option<u64>> {
        self.beside(|epoch, committed| Ok(epoch.size(committed)))
    }

    /// The process ends, or goes on as another program: what is not committed is the others' who have the file open to commit,
    /// or is committed.
    pub(super) fn part(&self) -> Result<()> {
        if self.turns.door.has_other_writers() && self.give_turn().is_ok() {
            self.turns.door.end_tenure();
            return Ok(());
        }
        self.commit_all()
    }

    /// Nobody else will: what travels is committed, too.
    fn commit_all(&self) -> Result<()> {
        if self.turns.is_quiet().is_none() && self.fds.has_writable() && !self.is_demoted() {
            self.sync()?;
        }
        self.close_session()
    }

    /// The program has closed its last descriptor. As the last process: all is committed.
    pub(super) fn leave_door(&self) -> Result<()> {
        let mut result = Ok(());
        let mut own = None;
        loop {
            // What it wrote is for the others to commit.
            let others = self.turns.door.has_other_writers() && self.give_turn().is_ok();
            self.turns.door.end_tenure();
            if !others {
                let closed = self.commit_all();
                result = result.and(closed);
                self.release_claim(&mut self.inner());
            }
            if self.turns.door.leave() {
                own.into_iter().for_each(|own| self.fds.leave(own));
                return result;
            }
            // Nobody else is there to commit what travels. A reader does it as it would recover the file.
            if own.is_none() && !self.fds.has_writable() {
                own = self.fds.with(false, recovery::writable).ok();
                own.iter().for_each(|own| self.fds.add(own.as_raw_fd(), Access::Write));
                if own.is_some() {
                    continue;
                }
                result = result.and(Err(Error::new(libc::EBADF)));
            }
            if (result.is_err() || self.is_demoted()) && !self.turns.door.has_others() {
                self.turns.door.forget_epoch();
            }
        }
    }
}

/// Reads a piece of the file; what is beyond its end stays as it is.
fn read_at(fd: BorrowedFd<'_>, offset: u64, piece: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < piece.len() {
        match rustix::io::pread(fd, &mut piece[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
