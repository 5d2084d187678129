//! What one journal has of its pool.

use super::arithmetic::Verdict;
use super::member::Member;
use super::members::member_of;
use super::promise::is_promised;
use crate::error::Result;
use crate::journal::pools::pool::Pool;
use crate::settings::Settings;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// See the module.
pub struct Charge {
    member: Arc<Member>,
    /// The bytes that this process accounts for, locked while they change; `None`: the journal has ended here.
    pub(super) changing: Mutex<Option<u64>>,
    /// The same, to be looked at.
    bytes: AtomicU64,
    /// A journal of this length has nothing to give back.
    floor: AtomicU64,
}

impl Charge {
    /// For a journal in `pool`; `None`: the pool has no size, or none for this process.
    ///
    /// # Errors
    /// Those of looking at the pool.
    pub fn of(pool: &Pool, settings: &Settings) -> Result<Option<Arc<Self>>> {
        // The folder beside a file has no size.
        if pool.is_beside() {
            return Ok(None);
        }
        Ok(member_of(pool, settings)?.map(|member| Arc::new(Self::new(member))))
    }

    pub(super) fn new(member: Arc<Member>) -> Self {
        let [bytes, floor] = [const { AtomicU64::new(0) }; 2];
        Self { member, changing: Mutex::new(Some(0)), bytes, floor }
    }

    /// The journal is about to end at `end`. Does not wait for what others have borrowed: the caller holds locks. The
    /// error says what there is to wait for.
    ///
    /// # Errors
    /// `ENOSPC`: it may not.
    pub fn grow(&self, end: u64) -> Result<()> {
        if self.member.is_inherited() {
            return Ok(()); // a thread of the parent may have held the lock
        }
        let mut changing = self.changing.lock();
        let Some(have) = *changing else { return Ok(()) };
        let more = end.saturating_sub(have);
        if more == 0 {
            return Ok(());
        }
        if is_promised() {
            self.put(&mut changing, have, end);
            return Ok(());
        }
        let verdict = self.member.grow(more, end);
        if verdict != Verdict::Granted {
            return Err(self.member.refusal(verdict, more, end));
        }
        if have == 0 {
            self.member.change(0, 1);
        }
        self.note(&mut changing, end);
        Ok(())
    }

    /// The journal ends at `end` now: it was cut, did not grow after all, or has come from another process. 0: it is
    /// another process's.
    pub fn set(&self, end: u64) {
        if self.member.is_inherited() {
            return; // as in `grow`
        }
        let mut changing = self.changing.lock();
        if let Some(have) = *changing {
            self.put(&mut changing, have, end);
        }
    }

    /// The journal has ended, or is left to a recovery: nothing is accounted for any more, whatever the background
    /// still does with it.
    pub fn end(&self) {
        if self.member.is_inherited() {
            return; // as in `grow`
        }
        let mut changing = self.changing.lock();
        if let Some(have) = *changing {
            self.put(&mut changing, have, 0);
            *changing = None;
        }
    }

    fn put(&self, changing: &mut Option<u64>, have: u64, end: u64) {
        if end != have {
            let journals = i32::from(end > 0) - i32::from(have > 0);
            self.member.change(end.wrapping_sub(have) as i64, journals);
            self.note(changing, end);
        }
    }

    fn note(&self, changing: &mut Option<u64>, end: u64) {
        *changing = Some(end);
        self.bytes.store(end, Ordering::Relaxed);
    }

    /// The length below which the journal has nothing to give back.
    pub fn set_floor(&self, floor: u64) {
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// To how many bytes the journal may grow, as of the last look: if this process's others stay as they are, or its
    /// part of what all of them may have.
    pub fn allowance(&self) -> u64 {
        let (used, journals) = self.member.has();
        let (all, mine) = (self.member.allowance(), self.bytes.load(Ordering::Relaxed));
        all.saturating_sub(used.saturating_sub(mine)).max(all / journals.max(1))
    }

    /// The bytes that the journal can have whatever others do: its part of the application's share.
    pub fn guaranteed(&self) -> u64 {
        let (_, journals) = self.member.has();
        self.member.share() / journals.max(1)
    }

    /// Looks at what others want, from time to time. Returns what the journal has to give back.
    pub fn look(&self) -> u64 {
        self.member.look();
        self.must_return()
    }

    /// What the journal has to give back, as of the last look: its part of what this process owes.
    #[inline]
    pub fn must_return(&self) -> u64 {
        match self.member.must_return() {
            0 => 0,
            must_return => self.part_of(must_return),
        }
    }

    #[cold]
    fn part_of(&self, must_return: u64) -> u64 {
        let (used, _) = self.member.has();
        let mine = self.bytes.load(Ordering::Relaxed);
        let part = (u128::from(must_return) * u128::from(mine)).div_ceil(u128::from(used.max(1))) as u64;
        part.min(mine.saturating_sub(self.floor.load(Ordering::Relaxed)))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.end();
    }
}

/// To how many bytes a journal may grow.
#[derive(Clone)]
pub struct Limit {
    bytes: u64,
    charge: Option<Arc<Charge>>,
}

impl From<u64> for Limit {
    fn from(bytes: u64) -> Self {
        Self { bytes, charge: None }
    }
}

impl From<&Limit> for Limit {
    fn from(limit: &Limit) -> Self {
        limit.clone()
    }
}

impl Limit {
    /// A limit of the journal's own, and of its pool, if that has a size.
    pub fn new(bytes: u64, charge: Option<Arc<Charge>>) -> Self {
        Self { bytes, charge }
    }

    /// At least this many bytes.
    pub fn at_least(self, bytes: u64) -> Self {
        Self { bytes: self.bytes.max(bytes), ..self }
    }

    /// The journal's own limit.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The journal's own limit, or what its pool has for it now.
    #[inline]
    pub fn now(&self) -> u64 {
        self.charge.as_ref().map_or(self.bytes, |charge| self.bytes.min(charge.allowance()))
    }

    /// The same, but in its pool what it can have whatever others do.
    #[inline]
    pub fn guaranteed(&self) -> u64 {
        self.charge.as_ref().map_or(self.bytes, |charge| self.bytes.min(charge.guaranteed()))
    }

    /// Whether the pool has a size.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.charge.is_some()
    }

    /// See [`Charge::grow`].
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn grow(&self, end: u64) -> Result<()> {
        self.charge.as_ref().map_or(Ok(()), |charge| charge.grow(end))
    }

    /// See [`Charge::set`].
    pub fn set(&self, end: u64) {
        if let Some(charge) = &self.charge {
            charge.set(end);
        }
    }

    /// See [`Charge::end`].
    pub fn end(&self) {
        if let Some(charge) = &self.charge {
            charge.end();
        }
    }

    /// See [`Charge::set_floor`].
    pub fn set_floor(&self, floor: u64) {
        if let Some(charge) = &self.charge {
            charge.set_floor(floor);
        }
    }

    /// See [`Charge::look`].
    pub fn look(&self) -> u64 {
        self.charge.as_ref().map_or(0, |charge| charge.look())
    }

    /// See [`Charge::must_return`].
    #[inline]
    pub fn must_return(&self) -> u64 {
        self.charge.as_ref().map_or(0, |charge| charge.must_return())
    }
}
