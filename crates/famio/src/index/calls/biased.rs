//! A bias of a mutex: the thread in exclusive mode (`exclusive`) takes it by ordinary stores. A locked instruction
//! waits until everything that was stored before has its cache line: in a SYNC, for the bytes of the whole epoch.

use super::exclusive::{own_id, rest};
use super::gate::Gate;
use crate::sync::{AtomicU32, Ordering, compiler_fence, fence};

/// The words of the two sides. Only the thread in exclusive mode changes `busy`, and only the mutex's holder `others`.
#[derive(Debug, Default)]
pub(crate) struct Bias {
    /// 1: the thread in exclusive mode is in the critical section, without the mutex.
    busy: AtomicU32,
    /// 1: a thread has the mutex.
    others: AtomicU32,
    /// The kernel's id of a thread that had exclusive mode when it came to wait for the mutex; 0: none.
    waiting: AtomicU32,
}

impl Bias {
    pub const fn new() -> Self {
        Self { busy: AtomicU32::new(0), others: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// By the thread in exclusive mode, inside the gate: whether it is in the critical section, until
    /// [`end`](Self::end). Otherwise it has to take the mutex.
    #[inline]
    pub fn begin(&self) -> bool {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return false; // it is there already
        }
        self.busy.store(1, Ordering::Relaxed);
        // The hardware's side of this fence is the membarrier of the thread with the mutex.
        compiler_fence(Ordering::SeqCst);
        if self.others.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.busy.store(0, Ordering::Release);
        false
    }

    /// Gets the mutex by `lock`, for the thread in exclusive mode, inside the gate or not: the mutex's holder may not get
    /// a barrier otherwise, if `membarrier` is refused, and would wait for this thread, too.
    #[cold]
    pub fn wait<T>(&self, lock: impl FnOnce() -> T) -> T {
        let me = own_id();
        fence(Ordering::SeqCst);
        self.waiting.store(me, Ordering::Release);
        let locked = lock();
        let _ = self.waiting.compare_exchange(me, 0, Ordering::Relaxed, Ordering::Relaxed); // or another's by now
        locked
    }

    #[inline]
    pub fn end(&self) {
        self.busy.store(0, Ordering::Release);
    }

    /// By a thread of the process in slot `me` that has the mutex: keeps the thread in exclusive mode out until
    /// [`admit`](Self::admit), and waits until it is out.
    #[inline]
    pub fn exclude(&self, gate: &Gate, me: u32) {
        self.ask(gate, me);
        for round in 0.. {
            if self.busy.load(Ordering::Acquire) == 0 {
                break;
            }
            rest(round);
        }
    }

    /// As [`exclude`](Self::exclude), if it need not wait. Returns whether it has.
    pub fn try_exclude(&self, gate: &Gate, me: u32) -> bool {
        self.ask(gate, me);
        let is_out = self.busy.load(Ordering::Acquire) == 0;
        if !is_out {
            self.admit();
        }
        is_out
    }

    #[inline]
    fn ask(&self, gate: &Gate, me: u32) {
        self.others.store(1, Ordering::Relaxed);
        // A thread that gets exclusive mode later passes a fence after it is named: it sees the word.
        fence(Ordering::SeqCst);
        // One that waits for the mutex is not in the critical section, nor comes there before this thread leaves.
        gate.fence_exclusive_thread(me, |owner| self.waiting.load(Ordering::Acquire) == owner);
    }

    #[inline]
    pub fn admit(&self) {
        self.others.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::entered::Entered;
    use super::super::exclusive::prepare_process;
    use super::super::gate::LONG;
    use super::super::gate::tests::{forbid_membarrier_and, gate, have_it_alone};
    use super::*;
    use std::sync::Mutex;

    /// A thread that gets no barrier, and is told nothing about other threads, once waited for the one in exclusive mode
    /// with the mutex held, for which that one waited.
    #[test]
    fn without_membarrier_two_do_not_wait_for_each_other() {
        if !prepare_process() {
            return;
        }
        const ROUNDS: u32 = 20;
        let (gate, entered, bias, mutex) = (gate(), Entered::default(), Bias::new(), Mutex::new(()));
        let done = AtomicU32::new(0);
        have_it_alone(&gate, &entered);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                forbid_membarrier_and(libc::SYS_openat);
                for _ in 0..ROUNDS {
                    let _held = mutex.lock().unwrap();
                    bias.exclude(&gate, 0);
                    done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    bias.admit();
                }
            });
            while done.load(Ordering::Relaxed) < ROUNDS {
                let inside = gate.enter(0, &entered, &LONG).unwrap();
                assert!(inside.exclusive);
                if bias.begin() {
                    bias.end();
                } else {
                    let _held = bias.wait(|| mutex.lock().unwrap());
                    bias.exclude(&gate, 0);
                    bias.admit();
                }
            }
        });
    }
}
