//! Tracks which threads are inside a call on an atomic file: what calls may still use (an old session, with its
//! descriptors and maps) is freed when none of them is inside any more.
//!
//! A call records itself in a word of its thread, by two plain stores. The missing fence is the `membarrier` of the
//! thread that frees: that comes once per session, calls come all the time.

use crate::sys::{membarrier, monotonic_now, thread_is_gone};
use crate::thread::{self, handlers};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

/// Threads with a slot of their own. Further threads share one, at a cost.
const PLACES: usize = 512;
/// In a slot's word: the depth to which its thread is inside (a signal handler may call within a call). Above it a
/// number that changes with every call that is not within another.
const DEPTH: u64 = 0xffff;
const ONE_CALL: u64 = DEPTH + 1;

/// Where one thread records that it is inside.
#[repr(align(64))]
struct Place {
    /// The kernel's id of the thread; 0: free.
    owner: AtomicU32,
    /// See [`DEPTH`]. Changed only by the owner.
    word: AtomicU64,
}

static ALL: [Place; PLACES] = [const { Place { owner: AtomicU32::new(0), word: AtomicU64::new(0) } }; PLACES];
/// No slot from here on was ever taken. Raised before the first call in a new slot: a thread that does not see that
/// yet is also not seen by that call, as with the slots' words.
static END: AtomicUsize = AtomicUsize::new(0);
/// Calls of threads without a slot.
static CROWD: AtomicU64 = AtomicU64::new(0);
/// Instead of a slot's number: the thread belongs to the crowd.
const IN_CROWD: u64 = u64::MAX;

/// Whether `membarrier` worked at the first call: `UNKNOWN`, or for good `YES` or `NO`. Without it every call makes
/// its own fence.
static BARRIER: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// This thread is inside a call, until it is dropped.
pub(crate) struct Call {
    /// `None`: counted in the crowd.
    place: Option<&'static Place>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Call {
    /// What is loaded after this, and could be found then, stays until the call ends.
    #[inline]
    pub fn begin() -> Self {
        let thread = thread::current();
        let number = thread.calls.get();
        let place = match ALL.get((number as usize).wrapping_sub(1)) {
            Some(place) => Some(place),
            None => take_slot(number),
        };
        match place {
            Some(place) => {
                // A handler that comes between the two leaves the depth as it was. A call within a call keeps the
                // number: a thread that waits for the outer one must not take the inner one's end for it.
                let mut word = place.word.load(Ordering::Relaxed);
                if word & DEPTH != 0 && thread.handler.get() != 0 && handlers::forget_those_that_were_left(thread) {
                    word &= !DEPTH; // with the handlers, the calls that they interrupted were left
                }
                let step = if word & DEPTH == 0 { ONE_CALL + 1 } else { 1 };
                place.word.store(word.wrapping_add(step), Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                if BARRIER.load(Ordering::Relaxed) != YES {
                    fence(Ordering::SeqCst);
                }
            }
            None => {
                CROWD.fetch_add(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
            }
        }
        Self { place, _of_this_thread: PhantomData }
    }

    /// Whether this thread is inside a call. Unknown for threads of the crowd: false.
    fn is_inside() -> bool {
        let place = ALL.get((thread::current().calls.get() as usize).wrapping_sub(1));
        place.is_some_and(|place| place.word.load(Ordering::Relaxed) & DEPTH != 0)
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        match self.place {
            Some(place) => {
                let word = place.word.load(Ordering::Relaxed);
                // Zero in a child that was forked inside the call: it began anew.
                if word & DEPTH != 0 {
                    place.word.store(word - 1, Ordering::Release);
                }
            }
            None => {
                let _ = CROWD.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |inside| inside.checked_sub(1));
            }
        }
    }
}

/// The thread's first call: takes a slot.
#[cold]
fn take_slot(number: u64) -> Option<&'static Place> {
    if number == IN_CROWD {
        return None;
    }
    if BARRIER.load(Ordering::Relaxed) == UNKNOWN {
        let answer = if membarrier::register() { YES } else { NO };
        let _ = BARRIER.compare_exchange(UNKNOWN, answer, Ordering::SeqCst, Ordering::SeqCst);
    }
    thread::faults::let_through(thread::current());
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let taken =
        |place: &Place, from: u32| place.owner.compare_exchange(from, me, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let free = ALL.iter().position(|place| place.owner.load(Ordering::Relaxed) == 0 && taken(place, 0));
    let at = free.or_else(|| {
        ALL.iter().position(|place| {
            let owner = place.owner.load(Ordering::Relaxed);
            (owner == me || thread_is_gone(owner)) && taken(place, owner)
        })
    });
    thread::current().calls.set(at.map_or(IN_CROWD, |at| at as u64 + 1));
    let at = at?;
    END.fetch_max(at + 1, Ordering::SeqCst);
    fence(Ordering::SeqCst); // with that of `Inside::now`, which sends no barrier to threads that were never inside
    let place = &ALL[at];
    // A thread that ended inside a call is not inside any more.
    let word = place.word.load(Ordering::Relaxed);
    place.word.store((word & !DEPTH).wrapping_add(ONE_CALL), Ordering::Release);
    Some(place)
}

/// Whether no other thread has had a slot so far. One that takes its first slot from now on sees what was stored before.
fn is_only_one() -> bool {
    let end = END.load(Ordering::SeqCst) as u64;
    end <= 1 && end == thread::current().calls.get()
}

/// Calls that were inside at some moment, and have not been seen outside since.
struct Inside {
    places: Vec<(usize, u64)>,
    crowd: bool,
}

impl Inside {
    /// The calls inside now. Later calls do not find what was made unreachable before. `None`: unknown now; try again
    /// later.
    fn now() -> Option<Self> {
        fence(Ordering::SeqCst);
        if !is_only_one() && BARRIER.load(Ordering::SeqCst) == YES && !membarrier::on_all_threads() {
            return None;
        }
        let taken = &ALL[..END.load(Ordering::SeqCst)];
        let words = taken.iter().map(|place| place.word.load(Ordering::Acquire)).enumerate();
        let places = words.filter(|(_, word)| word & DEPTH != 0).collect();
        Some(Self { places, crowd: CROWD.load(Ordering::SeqCst) != 0 })
    }

    /// Whether all of them have left.
    fn have_left(&mut self) -> bool {
        self.places.retain(|&(at, word)| {
            let now = ALL[at].word.load(Ordering::Acquire);
            now & DEPTH != 0 && now & !DEPTH == word & !DEPTH
        });
        self.crowd &= CROWD.load(Ordering::SeqCst) != 0;
        self.places.is_empty() && !self.crowd
    }
}

/// Waits for all calls that may use something, after it was made unreachable.
pub(crate) struct Grace {
    /// The calls that were inside then; `None`: not known yet.
    inside: Option<Inside>,
}

/// Yields to other threads until `has_come`, but not for long: calls are short, and if more threads want to run than
/// there are processors, each yield costs all of their time slices. Returns whether it has come.
pub(crate) fn give_way(mut has_come: impl FnMut() -> bool) -> bool {
    const MAX_YIELDS: usize = 64;
    const MAX_NANOSECONDS: u64 = 2_000_000;
    let begun = monotonic_now();
    for _ in 0..MAX_YIELDS {
        if has_come() {
            return true;
        }
        // Within a call that a signal handler has interrupted, this thread would wait for itself.
        if Call::is_inside() || monotonic_now() - begun > MAX_NANOSECONDS {
            return false;
        }
        rustix::thread::sched_yield();
    }
    false
}

impl Grace {
    /// The first look begins it.
    pub const fn new() -> Self {
        Self { inside: None }
    }

    /// Whether none of the calls is inside any more.
    pub fn is_over(&mut self) -> bool {
        self.inside = self.inside.take().or_else(Inside::now);
        self.inside.as_mut().is_some_and(Inside::have_left)
    }

    /// As [`is_over`](Self::is_over), after a short wait: calls are short.
    pub fn wait(&mut self) -> bool {
        give_way(|| self.is_over())
    }
}

/// In a forked child: the parent's threads are not here.
pub(in crate::file) fn forget_all() {
    for place in &ALL {
        place.word.store(0, Ordering::Relaxed);
        place.owner.store(0, Ordering::Release);
    }
    CROWD.store(0, Ordering::Relaxed);
    thread::current().calls.set(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn here(inside: &Inside) -> bool {
        let number = thread::current().calls.get() as usize;
        inside.places.iter().any(|&(at, _)| at + 1 == number)
    }

    #[test]
    fn a_call_within_a_call_keeps_the_thread_inside() {
        let outer = Call::begin();
        drop(Call::begin());
        assert!(here(&Inside::now().unwrap()));
        drop(outer);
        assert!(!here(&Inside::now().unwrap()));
    }

    /// It was once taken for the end of the outer one, and what that used was freed.
    #[test]
    fn the_end_of_a_call_within_a_call_is_not_the_outer_ones() {
        let outer = Call::begin();
        let mut inside = Inside::now().unwrap();
        inside.places.retain(|&(at, _)| at as u64 + 1 == thread::current().calls.get()); // other tests come and go
        let inner = Call::begin();
        assert!(!inside.have_left());
        drop(inner);
        assert!(!inside.have_left());
        drop(outer);
        inside.have_left();
        assert!(inside.places.is_empty());
    }

    #[test]
    fn who_would_wait_for_itself_does_not() {
        let looks = core::cell::Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            looks.get() > 3
        };
        let call = Call::begin();
        assert!(!give_way(look));
        assert_eq!(looks.get(), 1);
        drop(call);
        looks.set(3);
        assert!(give_way(look), "it is looked at least once");
    }

    #[test]
    fn who_was_inside_has_left_though_the_thread_came_back() {
        let (to_thread, commands) = channel::<()>();
        let (to_test, answers) = channel();
        let thread = std::thread::spawn(move || {
            let mut call = None;
            for () in commands {
                drop(call.take()); // first out, then in again
                call = Some(Call::begin());
                to_test.send(thread::current().calls.get() as usize - 1).unwrap();
            }
        });
        to_thread.send(()).unwrap();
        let at = answers.recv().unwrap();
        let mut inside = Inside::now().unwrap();
        inside.places.retain(|&(place, _)| place == at); // other tests come and go
        inside.crowd = false;
        assert_eq!(inside.places.len(), 1);
        assert!(!inside.have_left());
        to_thread.send(()).unwrap();
        answers.recv().unwrap();
        assert!(inside.have_left());
        drop(to_thread);
        thread.join().unwrap();
    }

    /// The kernel knows a thread for a moment after it was joined: more threads than slots, until one reuses a slot.
    #[test]
    fn places_of_threads_that_ended_are_used_again() {
        let number = || {
            std::thread::spawn(|| {
                drop(Call::begin());
                thread::current().calls.get()
            })
        };
        let numbers: Vec<u64> = (0..4 * PLACES).map(|_| number().join().unwrap()).collect();
        assert!(numbers[2 * PLACES..].iter().any(|&number| number != IN_CROWD), "all in the crowd");
    }

    #[test]
    fn threads_without_a_place_count_too() {
        std::thread::spawn(|| {
            thread::current().calls.set(IN_CROWD);
            let call = Call::begin();
            let mut inside = Inside::now().unwrap();
            inside.places.clear();
            assert!(!inside.have_left());
            drop(call);
            while !inside.have_left() {
                std::thread::yield_now(); // others may be in the crowd for a moment
            }
        })
        .join()
        .unwrap();
    }
}
