//! The file lock: writers are inside, SYNC closes the gate and waits until all are out.

use super::shared::Slot;
use crate::error::{Error, Result};
use crate::thread;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;
use rustix::time::Timespec;

const SPINS: u32 = 1000;
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const ROUNDS: u32 = 60;

/// A readers-writer lock for many processes. Those inside are counted per process, in the process's own slot, so that
/// the count of a dead process can be struck; the word names the process that has closed it.
#[repr(C)]
pub(crate) struct Gate {
    /// 0 when open, else the closer's slot plus one.
    closed: AtomicU32,
}

/// A writer inside the gate; leaves when dropped.
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    slot: &'a Slot,
}

/// The gate is closed and nobody is inside; opens when dropped.
pub(crate) struct Closed<'a> {
    gate: &'a Gate,
}

impl Gate {
    /// Goes in, together with other writers. Waits while the gate is closed.
    #[inline]
    pub fn enter<'a>(&'a self, slot: &'a Slot) -> Result<Inside<'a>> {
        // Both sides store, then load the other's word: sequentially consistent, or both could pass.
        slot.inside.fetch_add(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) != 0 {
            self.enter_slow(slot)?;
        }
        let held = &thread::current().locks_held;
        held.set(held.get() + 1);
        Ok(Inside { gate: self, slot })
    }

    #[cold]
    fn enter_slow(&self, slot: &Slot) -> Result<()> {
        for _ in 0..ROUNDS {
            self.step_out(slot);
            for _ in 0..SPINS {
                if self.closed.load(Ordering::Relaxed) == 0 {
                    break;
                }
                core::hint::spin_loop();
            }
            let closer = self.closed.load(Ordering::Relaxed);
            if closer != 0 {
                let _ = futex::wait(&self.closed, futex::Flags::empty(), closer, Some(&PATIENCE));
            }
            slot.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
        }
        self.step_out(slot);
        Err(Error::new(libc::EDEADLK))
    }

    #[inline]
    fn step_out(&self, slot: &Slot) {
        if slot.inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&slot.inside, futex::Flags::empty(), 1);
        }
    }

    /// Closes the gate for the process in slot number `me`, and waits until nobody of `slots` is inside.
    pub fn close<'a>(&'a self, me: u32, slots: &[Slot]) -> Result<Closed<'a>> {
        let mut rounds = 0;
        while let Err(closer) = self.closed.compare_exchange(0, me + 1, Ordering::SeqCst, Ordering::SeqCst) {
            rounds += 1;
            if rounds > ROUNDS + SPINS {
                return Err(Error::new(libc::EDEADLK));
            }
            if rounds <= SPINS {
                core::hint::spin_loop();
            } else {
                let _ = futex::wait(&self.closed, futex::Flags::empty(), closer, Some(&PATIENCE));
            }
        }
        let held = &thread::current().locks_held;
        held.set(held.get() + 1);
        let closed = Closed { gate: self };
        for slot in slots {
            let mut rounds = 0;
            loop {
                let inside = slot.inside.load(Ordering::SeqCst);
                if inside == 0 {
                    break;
                }
                rounds += 1;
                if rounds > ROUNDS + SPINS {
                    return Err(Error::new(libc::EDEADLK));
                }
                if rounds <= SPINS {
                    core::hint::spin_loop();
                } else {
                    let _ = futex::wait(&slot.inside, futex::Flags::empty(), inside, Some(&PATIENCE));
                }
            }
        }
        Ok(closed)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.step_out(self.slot);
        let held = &thread::current().locks_held;
        held.set(held.get() - 1);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.closed.store(0, Ordering::SeqCst);
        let _ = futex::wake(&self.gate.closed, futex::Flags::empty(), i32::MAX as u32);
        let held = &thread::current().locks_held;
        held.set(held.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let gate = Gate { closed: AtomicU32::new(0) };
        let slots = [Slot::default(), Slot::default()];
        let (inside, closings) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for i in 0..2 {
                let (gate, slots, inside, closings) = (&gate, &slots, &inside, &closings);
                scope.spawn(move || {
                    while closings.load(Ordering::Relaxed) < 500 {
                        let _in = gate.enter(&slots[i]).unwrap();
                        inside.fetch_add(1, Ordering::Relaxed);
                        core::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..500 {
                let _closed = gate.close(0, &slots).unwrap();
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                closings.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(thread::current().locks_held.get(), 0);
    }
}
