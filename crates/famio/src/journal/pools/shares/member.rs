//! This process as a user of a pool: its slot, and what it knows of the others.

use super::arithmetic::{Shares, Verdict};
use super::format::{SLOTS_MAX, Slot, WEIGHTS};
use super::ledger::{Ledger, State};
use crate::error::{Error, Lent, Result};
use crate::journal::bytes::hex;
use crate::journal::pools::pool::Pool;
use crate::settings::Settings;
use crate::sys::{monotonic_now, namespaces, read_at};
use crate::thread::Mutex;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::nanosleep;
use rustix::time::Timespec;
use std::sync::{Arc, Weak};
use xxhash_rust::xxh3::xxh3_128;

/// Between two looks at what others want.
const LOOK: u64 = 1_000_000;
/// Between two counts of all journals in the pool.
const COUNT: u64 = 20_000_000;

/// How long a writer waits for what others have borrowed of its share.
const PATIENCE: u64 = 10_000_000_000;
/// The same if it was in vain before, and nobody has given anything back since: a program that goes on in spite of
/// errors must not wait at each write.
const IMPATIENCE: u64 = 100_000_000;
/// Between two looks meanwhile.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

type List = Mutex<Vec<Weak<Member>>>;

/// The pools that this process uses. Null: none yet; a forked child begins anew.
static MEMBERS: AtomicPtr<List> = AtomicPtr::new(null_mut());
/// How often this process, or one above it, was forked.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// A number for the application if nobody has named it; it stays after a fork. 0: none yet.
static NAMELESS: AtomicU64 = AtomicU64::new(0);

fn members() -> &'static List {
    let list = MEMBERS.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    if let Some(list) = unsafe { list.as_ref() } {
        return list;
    }
    let new: *mut List = Box::leak(Box::new(Mutex::new(Vec::new())));
    let made = MEMBERS.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: as above. One that lost the race stays leaked.
    unsafe { &*made.map_or_else(|there| there, |_| new) }
}

/// In a forked child: the parent's slots are not touched. The child takes one with its first journal.
pub(crate) fn forget_parents() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    MEMBERS.store(null_mut(), Ordering::Release);
}

/// See the module.
pub(super) struct Member {
    ledger: Ledger,
    forks: u32,
    mine: Mutex<Mine>,
    /// As of the last look: its application's share, what this process may have in all, what is free, what the process
    /// has to give back, what it has, in how many journals, and the time of the look.
    share: AtomicU64,
    allowance: AtomicU64,
    free: AtomicU64,
    owes: AtomicU64,
    used: AtomicU64,
    journals: AtomicU32,
    looked: AtomicU64,
    /// What was free when it was waited for in vain, plus one; 0: it was not.
    in_vain: AtomicU64,
}

/// Bytes for a journal, which has `length` with them.
struct Borrowed {
    member: Arc<Member>,
    bytes: u64,
    length: u64,
}

impl Lent for Borrowed {
    fn wait(&self) -> bool {
        self.member.wait_for(self.bytes, self.length)
    }
}

struct Mine {
    /// Its number. `None`: all are taken, or none yet.
    number: Option<usize>,
    says: Slot,
    /// When all journals were counted.
    counted: u64,
}

/// The number of a process without a slot: it counts for itself, and not for others.
const NOWHERE: usize = usize::MAX;

impl Mine {
    fn place(&self) -> Option<usize> {
        self.number.or(Some(NOWHERE))
    }
}

impl Member {
    /// This process as a user of `pool`; `None`: the pool has no size, or none for this process.
    ///
    /// # Errors
    /// Those of looking at the pool.
    pub fn of(pool: &Pool, settings: &Settings) -> Result<Option<Arc<Self>>> {
        let Some(ledger) = Ledger::open_to_use(pool)? else { return Ok(None) };
        let mut list = members().lock();
        list.retain(|member| member.strong_count() > 0);
        let known =
            list.iter().filter_map(Weak::upgrade).find(|known| known.ledger.file.identity() == ledger.file.identity());
        if known.is_some() {
            return Ok(known);
        }
        let name = settings.application.clone().map_or_else(nameless, Ok)?;
        let member = Arc::new(Self::new(ledger, name, settings.pool_weight));
        list.push(Arc::downgrade(&member));
        Ok(Some(member))
    }

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
            forks: FORKS.load(Ordering::Relaxed),
            mine: Mutex::new(Mine { number: None, says, counted: 0 }),
            share: AtomicU64::new(u64::MAX),
            allowance: AtomicU64::new(u64::MAX),
            free: AtomicU64::new(0),
            owes: AtomicU64::new(0),
            used: AtomicU64::new(0),
            journals: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            in_vain: AtomicU64::new(0),
        }
    }

    /// Whether it is the parent's.
    pub fn is_inherited(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Asks for `bytes` more, for a journal that has `length` then.
    pub fn grow(&self, bytes: u64, length: u64) -> Verdict {
        self.decide(|mine, state| {
            let granted = self.asks(mine, state, (bytes, length));
            if granted == Verdict::Granted {
                mine.says.used = mine.says.used.saturating_add(bytes);
            }
            granted
        })
        .unwrap_or(Verdict::Granted)
    }

    /// Whether [`grow`](Self::grow) would be granted now.
    pub fn would_grow(&self, bytes: u64, length: u64) -> Verdict {
        self.decide(|mine, state| self.asks(mine, state, (bytes, length))).unwrap_or(Verdict::Granted)
    }

    fn asks(&self, mine: &mut Mine, state: &mut State, (bytes, length): (u64, u64)) -> Verdict {
        let (id, number) = (mine.says.application, mine.place());
        let ask = |state: &State| state.shares(number, |shares| shares.verdict(id, bytes, length));
        match ask(state) {
            Verdict::Granted => Verdict::Granted,
            _ => {
                self.tidy(mine.number, state, &mut mine.counted, false);
                ask(state)
            }
        }
    }

    /// Changes what this process has by so many bytes and journals, which needs nobody's consent.
    pub fn change(&self, bytes: i64, journals: i32) {
        let change = |says: &mut Slot| {
            says.used = says.used.saturating_add_signed(bytes);
            says.journals = says.journals.saturating_add_signed(journals);
        };
        let needs_slot = bytes > 0 && self.mine.lock().number.is_none();
        if !needs_slot || self.decide(|mine, _| change(&mut mine.says)).is_none() {
            self.say(change);
        }
    }

    /// This process begins, or ceases, to wait for so many bytes. Its threads may wait for several journals.
    pub fn want(&self, bytes: i64) {
        self.say(|says| says.wants = says.wants.saturating_add_signed(bytes));
    }

    /// Waits until others have given back what they have borrowed of `bytes`, for a while. Returns whether they have.
    /// The caller holds nothing that others wait for.
    pub fn wait_for(&self, bytes: u64, length: u64) -> bool {
        let begun = monotonic_now();
        self.want(bytes as i64);
        let verdict = loop {
            match self.would_grow(bytes, length) {
                Verdict::Borrowed => {}
                verdict => break verdict,
            }
            let is_hopeless = self.free() < self.in_vain.load(Ordering::Relaxed);
            if monotonic_now() > begun + if is_hopeless { IMPATIENCE } else { PATIENCE } {
                break Verdict::Borrowed;
            }
            let _ = nanosleep(&PAUSE);
        };
        self.want(-(bytes as i64));
        let in_vain = if verdict == Verdict::Borrowed { self.free() + 1 } else { 0 };
        self.in_vain.store(in_vain, Ordering::Relaxed);
        verdict == Verdict::Granted
    }

    fn say(&self, change: impl FnOnce(&mut Slot)) {
        if self.is_inherited() {
            return;
        }
        let mut mine = self.mine.lock();
        change(&mut mine.says);
        self.used.store(mine.says.used, Ordering::Relaxed);
        self.journals.store(mine.says.journals, Ordering::Relaxed);
        // The program may have closed the descriptor with the lock, and another process have the slot.
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
            self.hold_a_slot(mine, &mut state);
            let done = work(mine, &mut state);
            if let Some(number) = mine.number {
                self.ledger.put(number, Some(&mine.says));
            }
            state.slots.retain(|&(number, _)| Some(number) != mine.place());
            self.leave_out_the_dead(&mut state);
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
            let is_free = |number: &usize| state.slots.iter().all(|(other, _)| other != number);
            mine.number = (0..SLOTS_MAX).filter(is_free).find(|&number| self.ledger.hold(number));
            if mine.number.is_none() {
                // There are this many dead ones, if any is to be had.
                self.tidy(None, state, &mut mine.counted, false);
                let is_free = |number: &usize| state.slots.iter().all(|(other, _)| other != number);
                mine.number = (0..SLOTS_MAX).filter(is_free).find(|&number| self.ledger.hold(number));
            }
        }
        state.slots.retain(|&(number, _)| Some(number) != mine.number);
        state.slots.push((mine.number.unwrap_or(NOWHERE), mine.says.clone()));
        if is_new {
            self.tidy(mine.number, state, &mut mine.counted, true);
        }
    }

    /// Takes back the slots of the dead, and counts what they have left, if that is to be known. `thorough`: whatever
    /// journals nobody accounts for.
    fn tidy(&self, mine: Option<usize>, state: &mut State, counted: &mut u64, thorough: bool) {
        let before = state.head.left;
        state.slots.retain(|(number, slot)| {
            let lives = Some(*number) == mine || *number == NOWHERE || self.ledger.is_held(*number);
            if !lives {
                state.head.left = state.head.left.saturating_add(slot.used);
                self.ledger.put(*number, None);
            }
            lives
        });
        let now = monotonic_now();
        if (thorough || state.head.left > 0) && (*counted == 0 || now > *counted + COUNT) {
            *counted = now;
            if let Ok(total) = self.ledger.total() {
                let living = state.slots.iter().fold(0u64, |sum, (_, slot)| sum.saturating_add(slot.used));
                state.head.left = total.saturating_sub(living);
            }
        }
        if state.head.left != before {
            self.ledger.put_left(state.head.left);
        }
    }

    /// What the dead have counts as nobody's from their end on. Their slots stay until the next decision.
    fn leave_out_the_dead(&self, state: &mut State) {
        let left = &mut state.head.left;
        state.slots.retain(|&(number, ref slot)| {
            let lives = number == NOWHERE || self.ledger.is_held(number);
            if !lives {
                *left = left.saturating_add(slot.used);
            }
            lives
        });
    }

    /// Keeps what follows for this process; `state` is without its slot.
    fn note(&self, mine: &Mine, state: &mut State) {
        state.slots.push((mine.number.unwrap_or(NOWHERE), mine.says.clone()));
        let (id, used) = (mine.says.application, mine.says.used);
        let of = |shares: &Shares<'_>| (shares.allowance(id), shares.owes(id), shares.used(id), shares.free());
        let (allowance, owes, all, free) = state.shares(mine.place(), of);
        // This process's part of what its application owes.
        let owes = (u128::from(owes) * u128::from(used)).div_ceil(u128::from(all.max(1))) as u64;
        self.allowance.store(allowance.saturating_sub(all - used.min(all)), Ordering::Relaxed);
        self.share.store(state.shares(mine.place(), |shares| shares.share(id)), Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
        self.owes.store(owes, Ordering::Relaxed);
        self.used.store(used, Ordering::Relaxed);
        self.looked.store(monotonic_now(), Ordering::Relaxed);
    }

    /// Looks at what others want, unless the last look was just now.
    pub fn look(&self) {
        if monotonic_now() < self.looked.load(Ordering::Relaxed) + LOOK || self.is_inherited() {
            return;
        }
        let Some(mine) = self.mine.try_lock() else { return };
        match self.ledger.read() {
            Some(mut state) => {
                state.slots.retain(|&(number, _)| Some(number) != mine.number);
                self.leave_out_the_dead(&mut state);
                self.note(&mine, &mut state);
            }
            None => {
                self.share.store(u64::MAX, Ordering::Relaxed);
                self.allowance.store(u64::MAX, Ordering::Relaxed);
                self.owes.store(0, Ordering::Relaxed);
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
    pub fn owes(&self) -> u64 {
        self.owes.load(Ordering::Relaxed)
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

    /// Whether it has waited in vain.
    #[cfg(test)]
    pub fn has_waited(&self) -> bool {
        self.in_vain.load(Ordering::Relaxed) != 0
    }

    /// Why a journal may not grow by `bytes` to `length`.
    pub fn refusal(self: &Arc<Self>, verdict: Verdict, bytes: u64, length: u64) -> Error {
        let path = self.ledger.path.display();
        let (id, name, number) = {
            let mine = self.mine.lock();
            (mine.says.application, mine.says.name.clone(), mine.number)
        };
        let Some(state) = self.ledger.read() else { return Error::new(libc::ENOSPC) };
        let (share, used) = state.shares(number, |shares| (shares.share(id), shares.used(id)));
        let (size, left) = (state.head.size, state.head.left);
        let have = format!(
            "pool {path}: application {name} has {used} bytes of a share of {share} (the pool has {size}), and needs {bytes} more"
        );
        let left = match left {
            0 => String::new(),
            left => format!("; {left} bytes are left by programs that were killed: famio recover {path}"),
        };
        let what = match verdict {
            Verdict::Borrowed => "; other applications have borrowed them, and not given them back in time",
            _ => "; a SYNC in between makes room",
        };
        let why = format!("{have}{what}{left}; famio pool set {path} --size makes the pool larger");
        match verdict {
            Verdict::Borrowed => {
                let member = self.clone();
                Error::of_lent(libc::ENOSPC, why, Arc::new(Borrowed { member, bytes, length }))
            }
            _ => Error::with(libc::ENOSPC, why),
        }
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

/// A name for an application that has none: its program's, and a random number, which forked children have, too.
fn nameless() -> Result<String> {
    if NAMELESS.load(Ordering::Relaxed) == 0 {
        let mut id = [0; 8];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
        let id = u64::from_le_bytes(id).max(1);
        let _ = NAMELESS.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed);
    }
    let mut name = [0; 16];
    let read = crate::sys::openat(CWD, c"/proc/self/comm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let length = read.map_err(Error::from).and_then(|file| read_at(&file, 0, &mut name)).unwrap_or(0);
    let name = String::from_utf8_lossy(&name[..length]);
    let number = NAMELESS.load(Ordering::Relaxed).to_le_bytes();
    Ok(format!("{}-{}", name.trim_end(), hex(&number[..4])))
}
