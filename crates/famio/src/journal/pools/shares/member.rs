//! This process as a user of a pool: its slot, and what it knows of the others.

use super::arithmetic::{Shares, Verdict};
use super::format::{SLOTS_MAX, Slot, WEIGHTS};
use super::ledger::{Ledger, NOWHERE, State};
use super::process::forks;
use super::wants::Wants;
use crate::sys::{monotonic_now, namespaces};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_128;

/// Between two looks at what others want.
const LOOK: u64 = 1_000_000;
/// Between two counts of all journals in the pool.
const COUNT: u64 = 20_000_000;

/// See the module.
pub(super) struct Member {
    pub(super) ledger: Ledger,
    forks: u32,
    pub(super) mine: Mutex<Mine>,
    /// As of the last look: its application's share, what this process may have in all, what is free, what the process
    /// has to give back, what it has, in how many journals, and the time of the look.
    share: AtomicU64,
    allowance: AtomicU64,
    free: AtomicU64,
    must_return: AtomicU64,
    used: AtomicU64,
    journals: AtomicU32,
    looked: AtomicU64,
    /// What was free when it was waited for in vain, plus one; 0: it was not, or has got some since.
    pub(super) in_vain: AtomicU64,
}

/// This process in the file of shares.
pub(super) struct Mine {
    /// Its number. `None`: all are taken, or none yet.
    pub number: Option<usize>,
    pub says: Slot,
    wants: Wants,
    /// When all journals were counted.
    counted: u64,
}

impl Mine {
    fn place(&self) -> Option<usize> {
        self.number.or(Some(NOWHERE))
    }

    /// What it says of its waits holds now. Returns whether that is new.
    fn forget_old_wants(&mut self) -> bool {
        let wants = self.wants.bytes(monotonic_now());
        core::mem::replace(&mut self.says.wants, wants) != wants
    }
}

impl Member {
    pub(super) fn new(ledger: Ledger, name: String, weight: u32) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let says = Slot {
            application: xxh3_128(name.as_bytes()).max(1),
            weight: weight.clamp(*WEIGHTS.start(), *WEIGHTS.end()),
            pid,
            namespace: namespaces::of_process(pid),
            name,
            ..Slot::default()
        };
        Self {
            ledger,
            forks: forks(),
            mine: Mutex::new(Mine { number: None, says, wants: Wants::default(), counted: 0 }),
            share: AtomicU64::new(u64::MAX),
            allowance: AtomicU64::new(u64::MAX),
            free: AtomicU64::new(0),
            must_return: AtomicU64::new(0),
            used: AtomicU64::new(0),
            journals: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            in_vain: AtomicU64::new(0),
        }
    }

    /// Whether it uses the pool with this file of shares.
    pub fn is_of(&self, ledger: &Ledger) -> bool {
        self.ledger.file.identity() == ledger.file.identity()
    }

    /// Whether it is the parent's.
    pub fn is_inherited(&self) -> bool {
        self.forks != forks()
    }

    /// Asks for `bytes` more, for a journal that has `length` then.
    pub fn grow(&self, bytes: u64, length: u64) -> Verdict {
        self.decide(|mine, state| {
            let granted = self.asks(mine, state, (bytes, length));
            if granted == Verdict::Granted {
                mine.says.used = mine.says.used.saturating_add(bytes);
                self.in_vain.store(0, Ordering::Relaxed);
            }
            granted
        })
        .unwrap_or(Verdict::Granted)
    }

    /// Whether [`grow`](Self::grow) would succeed now, and whether any other process has to return something.
    pub fn would_grow(&self, bytes: u64, length: u64) -> (Verdict, bool) {
        self.decide(|mine, state| {
            let verdict = self.asks(mine, state, (bytes, length));
            let (id, used) = (mine.says.application, mine.says.used);
            (verdict, state.shares(mine.place(), |shares| shares.others_must_return(id, used)))
        })
        .unwrap_or((Verdict::Granted, false))
    }

    fn asks(&self, mine: &mut Mine, state: &mut State, (bytes, length): (u64, u64)) -> Verdict {
        let (id, place) = (mine.says.application, mine.place());
        let ask = |state: &State| state.shares(place, |shares| shares.verdict(id, bytes, length));
        if ask(state) == Verdict::Granted {
            return Verdict::Granted;
        }
        self.ledger.take_back_slots(mine.number, state);
        let is_counted = state.head.left > 0 && self.count_orphaned_at_times(mine, state);
        match ask(state) {
            // A caller with this verdict does not wait: orphaned journals may be recovered by now.
            Verdict::Full if state.head.left > 0 && !is_counted => {
                self.ledger.count_orphaned(state);
                ask(state)
            }
            verdict => verdict,
        }
    }

    /// Counts what is left, unless that was done just now. Returns whether it did.
    fn count_orphaned_at_times(&self, mine: &mut Mine, state: &mut State) -> bool {
        let now = monotonic_now();
        let is_due = mine.counted == 0 || now > mine.counted + COUNT;
        if is_due {
            mine.counted = now;
            self.ledger.count_orphaned(state);
        }
        is_due
    }

    /// Changes what this process has by this many bytes and journals, which needs nobody's consent.
    pub fn change(&self, bytes: i64, journals: i32) {
        let change = |says: &mut Slot| {
            says.used = says.used.saturating_add_signed(bytes);
            says.journals = says.journals.saturating_add_signed(journals);
        };
        let needs_slot = bytes > 0 && self.mine.lock().number.is_none();
        if !needs_slot || self.decide(|mine, _| change(&mut mine.says)).is_none() {
            self.say(|mine| change(&mut mine.says));
        }
    }

    /// A thread of this process begins, or ceases, to wait.
    pub fn want(&self, change: impl FnOnce(&mut Wants)) {
        self.say(|mine| change(&mut mine.wants));
    }

    fn say(&self, change: impl FnOnce(&mut Mine)) {
        if self.is_inherited() {
            return;
        }
        let mut mine = self.mine.lock();
        let mine = &mut *mine;
        change(mine);
        self.used.store(mine.says.used, Ordering::Relaxed);
        self.journals.store(mine.says.journals, Ordering::Relaxed);
        mine.forget_old_wants();
        self.put_down(mine);
    }

    /// Writes the slot, if there is one. The program may have closed the descriptor with the lock, and another process
    /// have the slot.
    fn put_down(&self, mine: &mut Mine) {
        mine.number = mine.number.filter(|&number| self.ledger.hold(number));
        if let Some(number) = mine.number {
            self.ledger.put(number, Some(&mine.says));
        }
    }

    /// Runs `work` on what the file says, with this process's slot in it, and puts that down. `None`: the pool has no
    /// size any more.
    fn decide<R>(&self, work: impl FnOnce(&mut Mine, &mut State) -> R) -> Option<R> {
        if self.is_inherited() {
            return None;
        }
        let mut mine = self.mine.lock();
        let mine = &mut *mine;
        self.ledger.decide(|| {
            let mut state = self.ledger.read()?;
            mine.forget_old_wants();
            self.hold_a_slot(mine, &mut state);
            let done = work(mine, &mut state);
            if let Some(number) = mine.number {
                self.ledger.put(number, Some(&mine.says));
            }
            state.slots.retain(|&(number, _)| Some(number) != mine.place());
            self.ledger.exclude_dead(&mut state);
            self.note(mine, &mut state);
            Some(done)
        })
    }

    /// Makes sure that this process has a slot, and puts it into `state`. The program may have closed the descriptor
    /// with the lock, and another process taken the slot.
    fn hold_a_slot(&self, mine: &mut Mine, state: &mut State) {
        mine.number = mine.number.filter(|&number| self.ledger.hold(number));
        let is_new = mine.number.is_none();
        if is_new {
            let find = |state: &State| {
                let is_free = |number: &usize| state.slots.iter().all(|(other, _)| other != number);
                (0..SLOTS_MAX).filter(is_free).find(|&number| self.ledger.hold(number))
            };
            mine.number = find(state);
            if mine.number.is_none() {
                // There are this many dead ones, if any is to be had.
                self.ledger.take_back_slots(None, state);
                mine.number = find(state);
            }
        }
        state.slots.retain(|&(number, _)| Some(number) != mine.number);
        state.slots.push((mine.number.unwrap_or(NOWHERE), mine.says.clone()));
        if is_new {
            self.ledger.take_back_slots(mine.number, state);
            self.count_orphaned_at_times(mine, state);
        }
    }

    /// Keeps what follows for this process; `state` is without its slot.
    fn note(&self, mine: &Mine, state: &mut State) {
        state.slots.push((mine.number.unwrap_or(NOWHERE), mine.says.clone()));
        let (id, used) = (mine.says.application, mine.says.used);
        let of = |shares: &Shares<'_>| (shares.allowance(id), shares.must_return(id), shares.used(id), shares.free());
        let (allowance, must_return, all, free) = state.shares(mine.place(), of);
        // This process's part of what its application owes.
        let must_return = (u128::from(must_return) * u128::from(used)).div_ceil(u128::from(all.max(1))) as u64;
        self.allowance.store(allowance.saturating_sub(all - used.min(all)), Ordering::Relaxed);
        self.share.store(state.shares(mine.place(), |shares| shares.share(id)), Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
        self.must_return.store(must_return, Ordering::Relaxed);
        self.used.store(used, Ordering::Relaxed);
        self.journals.store(mine.says.journals, Ordering::Relaxed);
        self.looked.store(monotonic_now(), Ordering::Relaxed);
    }

    /// Looks at what others want, unless the last look was just now.
    pub fn look(&self) {
        if monotonic_now() < self.looked.load(Ordering::Relaxed) + LOOK || self.is_inherited() {
            return;
        }
        let Some(mut mine) = self.mine.try_lock() else { return };
        if mine.forget_old_wants() {
            self.put_down(&mut mine);
        }
        match self.ledger.read() {
            Some(mut state) => {
                state.slots.retain(|&(number, _)| Some(number) != mine.number);
                self.ledger.exclude_dead(&mut state);
                self.note(&mine, &mut state);
            }
            None => {
                self.share.store(u64::MAX, Ordering::Relaxed);
                self.allowance.store(u64::MAX, Ordering::Relaxed);
                self.must_return.store(0, Ordering::Relaxed);
                self.looked.store(monotonic_now(), Ordering::Relaxed);
            }
        }
    }

    /// As of the last look: what its application may always have.
    pub fn share(&self) -> u64 {
        self.share.load(Ordering::Relaxed)
    }

    /// As of the last look: what this process may have in all.
    pub fn allowance(&self) -> u64 {
        self.allowance.load(Ordering::Relaxed)
    }

    /// As of the last look: what nobody uses.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// As of the last look: what it has to give back.
    pub fn must_return(&self) -> u64 {
        self.must_return.load(Ordering::Relaxed)
    }

    /// What it has, in how many journals.
    pub fn has(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.journals.load(Ordering::Relaxed).into())
    }

    /// As if the program had closed the descriptor with the lock.
    #[cfg(test)]
    pub fn lose_slot(&self) {
        if let Some(number) = self.mine.lock().number {
            self.ledger.let_go(number);
        }
    }

    /// Whether it has waited in vain, and got nothing since.
    #[cfg(test)]
    pub fn is_impatient(&self) -> bool {
        self.in_vain.load(Ordering::Relaxed) != 0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        // Unless another process has the slot by now, since the program has closed the descriptor with the lock.
        if let Some(number) = self.mine.lock().number.filter(|&number| self.ledger.hold(number)) {
            self.ledger.put(number, None);
            self.ledger.let_go(number);
        }
    }
}
