//! The background: one thread per process, for checkpoints, requests for ownership, and dead members. It sleeps until
//! there is work, and holds nothing meanwhile.

use super::registry::files;
use crate::file::base::background_wakeup::{ASLEEP, AWAKE, DEEP, EVENTS, EVERY_ROUND, TIMED, Watched};
use crate::file::base::quiet::IDLE;
use crate::file::session::close::Left;
use crate::index::LIVES;
use crate::sys::{Ended, WORDS_MAX, Word, wait_for_any};
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::{Arc, Weak};

/// Between two looks at a request that is to be answered soon.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Between two looks at requests, if the kernel cannot wait for all of them. With more words it is up to `LOOKS_MAX`
/// times as long, most of a second.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const LOOKS_MAX: usize = 80;
/// How long the thread sleeps lightly, with nothing to do, before it sleeps until the next event. A deep sleep costs a
/// barrier on all threads, and being woken by each event that can wait.
const LINGER: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Between two looks at all files, in nanoseconds, while some of them have work for a quiet moment.
const ALL: u64 = 3_000_000_000;
/// Between two looks while the close of a file is deferred.
const DEFERRED: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const SECOND: u64 = 1_000_000_000;

/// Between two looks for dead members, if they are too many to wait for.
const CROWDED: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How the thread slept.
#[derive(PartialEq)]
enum Slept {
    /// Until the end of the time, and certainly nothing else has happened.
    Idle,
    /// Until the end of the time. A word on a control page may have changed without waking it.
    Long,
    /// Until something happened.
    UntilEvent,
}

/// Sleeps until the next event, or a change on a file's control page.
fn sleep(seen: u32, limit: Option<&Timespec>) -> Slept {
    let Some(watched) = watch() else { return Slept::UntilEvent };
    let Watched { mut words, mut holders, mut others } = watched;
    if words.is_empty() && holders.is_empty() && others.is_empty() {
        let woken = futex::wait(&EVENTS, futex::Flags::PRIVATE, seen, limit);
        return if woken == Err(Errno::TIMEDOUT) { Slept::Idle } else { Slept::UntilEvent };
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
    // The kernel takes at most this many; it has the call since 5.16.
    let ended = if words.len() > WORDS_MAX { Ended::Unknown } else { wait_for_any(&words, limit) };
    match ended {
        // The kernel wakes one of those that watch a robust futex, which may have detached from that file: wake the
        // others, too.
        Ended::Woken(index) if index >= lives => words[index].wake(),
        Ended::Woken(_) | Ended::Otherwise => {}
        Ended::InTime => return Slept::Long,
        Ended::Unknown if look_at(&words, others.is_empty(), seen, limit) => return Slept::Idle,
        Ended::Unknown => {}
    }
    Slept::UntilEvent
}

/// The words to wait for; `None`: there is something to do first.
fn watch() -> Option<Watched> {
    let mut watched = Watched::default();
    files().values().all(|file| file.watch_membership(&mut watched)).then_some(watched)
}

/// Waits if the kernel cannot wait for all words: looks at them from time to time, less often the more there are. A
/// look at ten thousand unshared files takes a millisecond. Returns whether nothing was seen.
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
    // For sessions that began when it could not be started.
    let begun: Vec<_> = files().values().cloned().collect();
    for file in begun {
        if file.state.load(Ordering::Acquire) == super::atomic::ATTACHED {
            file.register_for_death_notice();
        }
    }
    let mut round = Round::default();
    let mut lingered = false;
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        let deep = lingered && !round.is_pending();
        ASLEEP.store(if deep { DEEP } else { TIMED }, Ordering::SeqCst);
        // An event after the last look may have seen this thread awake, and then has not woken it. Look again, now that
        // later events see it asleep.
        if deep {
            let _ = crate::sys::membarrier::on_all_threads();
            round.scan_files(false);
            if round.is_pending() {
                continue;
            }
        }
        let lingers = !deep && !round.is_pending();
        let slept = sleep(seen, if lingers { Some(&LINGER) } else { round.limit() });
        ASLEEP.store(AWAKE, Ordering::SeqCst);
        lingered = lingers && slept != Slept::UntilEvent;
        if lingered {
            continue; // the look before a deep sleep is next
        }
        round.scan_files(slept == Slept::Idle);
        crate::thread::main_thread::has_started(); // again, if it could not start another thread
        if LIVES.want_keeper() && LIVES.will_have_keeper() {
            crate::thread::start("famio-lives", keep_lives);
        }
    }
}

/// Looks at the files, and what is left of the last look.
#[derive(Default)]
struct Round {
    /// Files to look at again. Weak: a file that is closed meanwhile must free its maps at once, and not when this
    /// round is over.
    waiting: Vec<Weak<super::AtomicFile>>,
    /// A request is to be answered soon.
    has_request: bool,
    /// The close of a file is deferred.
    is_deferred: bool,
    /// There is something else to do again.
    remind: bool,
    looked_at_all: u64,
}

impl Round {
    /// Whether there is something to look at again later.
    fn is_pending(&self) -> bool {
        self.remind || !self.waiting.is_empty()
    }

    fn limit(&self) -> Option<&'static Timespec> {
        let pause = if self.is_deferred { &DEFERRED } else { &IDLE };
        if self.has_request { Some(&SOON) } else { self.is_pending().then_some(pause) }
    }

    /// A look at the waiting files if certainly only time has passed (`idle`), otherwise at all. Of thousands of
    /// files few are in use: the others are looked at only from time to time, and before a deep sleep.
    fn scan_files(&mut self, idle: bool) {
        let now = crate::sys::monotonic_now();
        let mut some = core::mem::take(&mut self.waiting);
        let mut all = !idle || some.is_empty() || now > self.looked_at_all + ALL;
        (self.has_request, self.is_deferred) = (false, false);
        loop {
            if all {
                some = files().values().map(Arc::downgrade).collect();
                self.looked_at_all = now;
            }
            for file in some.iter().filter_map(|known| Some((known, known.upgrade()?))) {
                let deferred = file.1.end_deferred_close(false);
                self.is_deferred |= deferred;
                look_at_file(file, deferred, &mut self.waiting, &mut self.has_request);
            }
            if all || !self.waiting.is_empty() {
                break;
            }
            all = true;
        }
        self.remind = EVERY_ROUND.get().is_some_and(|task| task());
        #[cfg(test)]
        tests::pause_after_look();
    }
}

/// Starts another thread that keeps robust futexes until the end of the process.
fn keep_lives() {
    LIVES.keep_more();
    let all: Vec<_> = files().values().map(Arc::downgrade).collect();
    all.iter().filter_map(Weak::upgrade).for_each(|file| file.retry_death_notice());
    drop(all);
    let forever = AtomicU32::new(0);
    loop {
        let _ = futex::wait(&forever, futex::Flags::PRIVATE, 0, None);
    }
}

/// One file's part of a round: whether to look at it again soon, or later.
fn look_at_file(
    (known, file): (&Weak<super::AtomicFile>, Arc<super::AtomicFile>),
    deferred: bool,
    waiting: &mut Vec<Weak<super::AtomicFile>>,
    has_request: &mut bool,
) {
    let requested = file.monitor_members();
    let flushes = file.answer_flush();
    *has_request |= requested || flushes;
    let left = loop {
        match file.checkpoint_some() {
            // What cannot be written to the file now stays in the journal, where it is safe.
            Err(_) => break Left::Nothing,
            // The flush does the same, alternating with other files, and reports its progress.
            Ok(Left::More) if flushes || file.is_flush_unseen() => break Left::ForLater,
            Ok(Left::More) => {}
            Ok(left) => break left,
        }
    };
    let is_unowned = file.look_after_unowned();
    if requested || flushes || is_unowned || deferred || left == Left::ForLater {
        waiting.push(known.clone());
    }
}

#[cfg(test)]
mod tests;
