//! The background: one thread for the whole process that settles. It sleeps until there is work, and holds nothing while
//! it does.

use super::registry::files;
use crate::file::base::background_bell::{ALSO, ASLEEP, AWAKE, DEEP, EVENTS, TIMED, Watched};
use crate::file::base::quiet::IDLE;
use crate::file::session::close::Left;
use crate::index::LIVES;
use crate::sys::{Ended, WORDS_MAX, Word, wait_for_any};
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::{Arc, Weak};

/// Between two looks at a bell that is to be answered soon.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Between two looks at bells where the kernel can't wait for them; with so many that it could not so many times, up to most of a
/// second.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const LOOKS_MAX: usize = 80;
/// Between two looks at all files, in nanoseconds, while some of them have something for a quiet moment.
const ALL: u64 = 3_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// Between two looks at who has died, where there are too many to wait for.
const CROWDED: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Until the next event, or until something happens at the door of a file. Whether surely only time has gone by.
fn sleep(seen: u32, limit: Option<&Timespec>) -> bool {
    let Some(watched) = watch() else { return false };
    let Watched { mut words, mut holders, mut others } = watched;
    if words.is_empty() && holders.is_empty() && others.is_empty() {
        return futex::wait(&EVENTS, futex::Flags::PRIVATE, seen, limit) == Err(Errno::TIMEDOUT);
    }
    words.insert(0, Word::private(&EVENTS, seen));
    let lives = words.len();
    words.append(&mut holders);
    let mut limit = limit;
    if words.len() + others.len() <= WORDS_MAX {
        words.append(&mut others);
    } else {
        limit = Some(limit.map_or(&CROWDED, |limit| limit.min(&CROWDED)));
    }
    // The kernel takes so many; it knows the call since 5.16.
    let ended = if words.len() > WORDS_MAX { Ended::Unknown } else { wait_for_any(&words, limit) };
    match ended {
        // Of those who watch a life the kernel wakes one, which may have left that door by now.
        Ended::Woken(index) if index >= lives => words[index].wake(),
        Ended::Woken(_) | Ended::Otherwise => {}
        Ended::Unknown => return look_at(&words, others.is_empty(), seen, limit),
    }
    false
}

/// What there is to be waited for; `None`: there is something to be done first.
fn watch() -> Option<Watched> {
    let mut watched = Watched::default();
    files().values().all(|file| file.watch_door(&mut watched)).then_some(watched)
}

/// Waits where the kernel can't wait for all: looks at them now and then, the less often the more there are. A look at ten thousand
/// files that nobody else has open takes a millisecond. Whether nothing was seen.
fn look_at(words: &[Word], complete: bool, seen: u32, limit: Option<&Timespec>) -> bool {
    let times = (words.len() / WORDS_MAX).clamp(1, LOOKS_MAX) as i64;
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.tv_nsec * times };
    let end = limit.map(|limit| crate::sys::monotonic_now() + limit.tv_sec as u64 * SECOND + limit.tv_nsec as u64);
    loop {
        let left = end.map(|end| end.saturating_sub(crate::sys::monotonic_now()).min(SECOND - 1));
        let pause = left.map_or(look, |left| look.min(Timespec { tv_sec: 0, tv_nsec: left as i64 }));
        let _ = futex::wait(&EVENTS, futex::Flags::PRIVATE, seen, Some(&pause));
        if !complete || EVENTS.load(Ordering::SeqCst) != seen {
            return false;
        }
        match watch() {
            Some(now) if now.others.is_empty() && now.words.iter().chain(&now.holders).eq(&words[1..]) => {}
            _ => return false,
        }
        if left == Some(0) {
            return true;
        }
    }
}

/// The thread.
pub(super) fn work() {
    LIVES.keep();
    // Of sessions that had begun where it could not be started.
    let begun: Vec<_> = files().values().cloned().collect();
    for file in begun {
        if file.state.load(Ordering::Acquire) == super::atomic::ATTACHED {
            file.be_seen();
        }
    }
    let mut round = Round::default();
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        ASLEEP.store(if round.is_pending() { TIMED } else { DEEP }, Ordering::SeqCst);
        // What came since the last look, and saw that this thread was about, woke nobody: a look of which nobody sees that.
        if !round.is_pending() {
            let _ = crate::sys::membarrier::on_all_threads();
            round.look(false);
            if round.is_pending() {
                continue;
            }
        }
        let idle = sleep(seen, round.limit());
        ASLEEP.store(AWAKE, Ordering::SeqCst);
        round.look(idle);
        if LIVES.want_keeper() && LIVES.will_have_keeper() {
            crate::thread::start("famio-lives", keep_lives);
        }
    }
}

/// Looks at the files, and what is left of the last one.
#[derive(Default)]
struct Round {
    /// Files to be looked at again. Weak: one that is closed meanwhile is to give its maps back at once, and not when this round is over.
    waiting: Vec<Weak<super::AtomicFile>>,
    /// A bell is to be answered soon.
    rung: bool,
    /// There is something else to be done again.
    remind: bool,
    looked_at_all: u64,
}

impl Round {
    /// Whether there is something to be looked at again in a while.
    fn is_pending(&self) -> bool {
        self.remind || !self.waiting.is_empty()
    }

    fn limit(&self) -> Option<&'static Timespec> {
        if self.rung { Some(&SOON) } else { self.is_pending().then_some(&IDLE) }
    }

    /// One look at the files that wait, if surely only time has gone by (`idle`), else at all. Of thousands of files few are in use: the
    /// others are looked at only now and then, and before a deep sleep.
    fn look(&mut self, idle: bool) {
        let now = crate::sys::monotonic_now();
        let mut some = core::mem::take(&mut self.waiting);
        let mut all = !idle || some.is_empty() || now > self.looked_at_all + ALL;
        self.rung = false;
        loop {
            if all {
                some = files().values().map(Arc::downgrade).collect();
                self.looked_at_all = now;
            }
            for file in some.iter().filter_map(|known| Some((known, known.upgrade()?))) {
                look_at_file(file, &mut self.waiting, &mut self.rung);
            }
            if all || !self.waiting.is_empty() {
                break;
            }
            all = true;
        }
        self.remind = ALSO.get().is_some_and(|also| also());
        #[cfg(test)]
        tests::pause_after_look();
    }
}

/// One more thread that is there to end with the process.
fn keep_lives() {
    LIVES.keep_more();
    let all: Vec<_> = files().values().map(Arc::downgrade).collect();
    all.iter().filter_map(Weak::upgrade).for_each(|file| file.be_seen_now());
    drop(all);
    let forever = AtomicU32::new(0);
    loop {
        let _ = futex::wait(&forever, futex::Flags::PRIVATE, 0, None);
    }
}

/// One file's part of a round: whether it is to be looked at again soon, or in a while.
fn look_at_file(
    (known, file): (&Weak<super::AtomicFile>, Arc<super::AtomicFile>),
    waiting: &mut Vec<Weak<super::AtomicFile>>,
    rung: &mut bool,
) {
    let rings = file.mind_door();
    *rung |= rings;
    let left = loop {
        match file.settle_some() {
            // What can't be settled now stays in the journal, where it is safe.
            Err(_) => break Left::Nothing,
            Ok(Left::More) => {}
            Ok(left) => break left,
        }
    };
    let is_unowned = file.look_after_unowned();
    if rings || is_unowned || left == Left::ForLater {
        waiting.push(known.clone());
    }
}

#[cfg(test)]
mod tests;
