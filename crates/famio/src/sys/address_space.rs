//! The program's limit on its address space (`RLIMIT_AS`), and what the library takes of that: its maps are far longer than the
//! files, and would be in the program's way. So the kernel's limit is as much higher than what the program has set as the library
//! has taken, bounded by the hard limit; who asks gets the program's.
//!
//! A soft limit that the program began with is treated like one that it sets: a program that goes on by `exec` has what the one
//! before it had asked for. A hard limit that it began with can't be raised: under it, the library takes less.

use crate::error::Result;
use crate::sys::{check, syscall};
use crate::thread::Held;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use libc::{RLIM64_INFINITY, RLIMIT_AS, rlimit64};

/// Bytes that the library has mapped. A forked child counts its parent's: its limit is that much higher.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Beside those: the library itself, its threads' stacks, and libc's arenas for them, of 64 MiB each.
const BESIDE: u64 = 256 << 20;
/// Where the program lowers the hard limit: what the library may take later, for two or three files.
const HEAD_ROOM: u64 = 8 << 30;

/// Whether the kernel's limit is another than the program's, which is in `ASKED`: soft and hard.
static IS_RAISED: AtomicBool = AtomicBool::new(false);
static ASKED: [AtomicU64; 2] = [const { AtomicU64::new(RLIM64_INFINITY) }; 2];
/// The kernel's soft limit as it was set here last: another one was set by somebody else, and is not changed.
static SET: AtomicU64 = AtomicU64::new(RLIM64_INFINITY);
/// Held by who changes the limit. Words, since a forked child has to free them.
static CHANGING: AtomicBool = AtomicBool::new(false);
/// It is to be changed (again).
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// The library is about to map so many bytes.
pub(crate) fn take(bytes: usize) {
    TAKEN.fetch_add(bytes as u64, AcqRel);
    follow();
}

/// The library has unmapped so many bytes, or could not map them.
pub(crate) fn give(bytes: usize) {
    TAKEN.fetch_sub(bytes as u64, AcqRel);
    follow();
}

/// The limit follows what is taken. Waits for nobody: who changes it meanwhile looks again.
#[inline]
fn follow() {
    if IS_RAISED.load(Acquire) {
        change();
    }
}

#[cold]
fn change() {
    let _held = Held::of_process();
    IS_DUE.store(true, SeqCst);
    while IS_DUE.load(SeqCst) && !CHANGING.swap(true, SeqCst) {
        if IS_DUE.swap(false, SeqCst) && IS_RAISED.load(Acquire) {
            let now = kernels();
            if now.rlim_cur == SET.load(Acquire) {
                let soft = raised(ASKED[0].load(Acquire)).min(now.rlim_max);
                SET.store(soft, Release);
                let _ = set(&rlimit64 { rlim_cur: soft, ..now });
            } else {
                IS_RAISED.store(false, Release);
            }
        }
        CHANGING.store(false, SeqCst);
    }
}

/// A soft limit of the program's, for the kernel.
fn raised(limit: u64) -> u64 {
    if limit == RLIM64_INFINITY { limit } else { limit.saturating_add(TAKEN.load(Acquire) + BESIDE) }
}

fn prlimit(new: *const rlimit64, old: *mut rlimit64) -> Result<()> {
    let args = [0, RLIMIT_AS as usize, new as usize, old as usize, 0, 0];
    // SAFETY: null, or limits of ours.
    check(unsafe { syscall(libc::SYS_prlimit64, args) }).map(|_| ())
}

fn kernels() -> rlimit64 {
    let mut limit = rlimit64 { rlim_cur: RLIM64_INFINITY, rlim_max: RLIM64_INFINITY };
    let _ = prlimit(core::ptr::null(), &mut limit);
    limit
}

fn set(limit: &rlimit64) -> Result<()> {
    prlimit(limit, core::ptr::null_mut())
}

/// What the program has set, where the kernel has `now`.
fn programs(now: &rlimit64) -> rlimit64 {
    if IS_RAISED.load(Acquire) && now.rlim_cur == SET.load(Acquire) {
        return rlimit64 { rlim_cur: ASKED[0].load(Acquire), rlim_max: ASKED[1].load(Acquire) };
    }
    *now
}

/// The program's limit; then `new` is, if there is one.
///
/// # Errors
/// Those of `setrlimit(2)`.
pub(crate) fn exchange(new: Option<rlimit64>) -> Result<rlimit64> {
    let _held = Held::of_process();
    while CHANGING.swap(true, SeqCst) {
        rustix::thread::sched_yield();
    }
    let now = kernels();
    let asked = programs(&now);
    let done = new.map_or(Ok(()), |new| {
        let limit = for_kernel(new, asked, now);
        set(&limit)?;
        ASKED[0].store(new.rlim_cur, Release);
        ASKED[1].store(new.rlim_max, Release);
        SET.store(limit.rlim_cur, Release);
        IS_RAISED.store((limit.rlim_cur, limit.rlim_max) != (new.rlim_cur, new.rlim_max), Release);
        Ok(())
    });
    CHANGING.store(false, SeqCst);
    follow(); // what was taken meanwhile
    done.map(|()| asked)
}

/// What the kernel is to have for `new`. A hard limit that was lowered can't be raised again: it gets its room at once.
fn for_kernel(new: rlimit64, asked: rlimit64, now: rlimit64) -> rlimit64 {
    if new.rlim_cur > new.rlim_max {
        return new; // EINVAL
    }
    let hard = match new.rlim_max {
        RLIM64_INFINITY => RLIM64_INFINITY,
        hard if hard <= asked.rlim_max => raised(hard).saturating_add(HEAD_ROOM).min(now.rlim_max),
        hard => raised(hard).saturating_add(HEAD_ROOM),
    };
    rlimit64 { rlim_cur: raised(new.rlim_cur).min(hard), rlim_max: hard }
}

/// The program begins: with a soft limit, say, that the one before `exec` had set.
pub(crate) fn begin() {
    let now = kernels();
    if now.rlim_cur < now.rlim_max {
        let _ = exchange(Some(now));
    }
}

/// Another program is about to take over: its soft limit is what this one has set. Until this is dropped, if that fails.
pub(crate) struct Lowered(bool);

impl Lowered {
    /// `in_vfork_child`: the words here are the parent's, the limit is not.
    pub fn new(in_vfork_child: bool) -> Self {
        if !IS_RAISED.load(Acquire) {
            return Self(false);
        }
        let now = kernels();
        let asked = programs(&now);
        if !in_vfork_child {
            SET.store(asked.rlim_cur, Release);
        }
        let _ = set(&rlimit64 { rlim_cur: asked.rlim_cur, ..now });
        Self(!in_vfork_child)
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if self.0 {
            follow();
        }
    }
}

/// In a forked child, whose other threads are gone.
pub(crate) fn begin_child() {
    CHANGING.store(false, SeqCst);
    follow();
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn limit(rlim_cur: u64, rlim_max: u64) -> rlimit64 {
        rlimit64 { rlim_cur, rlim_max }
    }

    fn kernel_gets(new: rlimit64, asked: rlimit64, now: rlimit64) -> (u64, u64) {
        let limit = for_kernel(new, asked, now);
        (limit.rlim_cur, limit.rlim_max)
    }

    #[test]
    fn a_soft_limit_leaves_room_below_the_hard_one() {
        const NONE: rlimit64 = limit(RLIM64_INFINITY, RLIM64_INFINITY);
        let soft = kernel_gets(limit(1 << 30, RLIM64_INFINITY), NONE, NONE);
        assert!(soft.0 >= (1 << 30) + BESIDE && soft.0 < RLIM64_INFINITY && soft.1 == RLIM64_INFINITY);
        assert_eq!(kernel_gets(NONE, NONE, NONE), (RLIM64_INFINITY, RLIM64_INFINITY));
        // One that the program began with is not raised.
        let bound = limit(1 << 30, 1 << 30);
        assert_eq!(kernel_gets(limit(1 << 30, 1 << 30), bound, bound), (1 << 30, 1 << 30));
        // One that it lowers gets its room, and can't be raised by that: the kernel refuses it to who may not.
        let lowered = kernel_gets(limit(1 << 30, 1 << 30), NONE, NONE);
        assert!(lowered.0 >= (1 << 30) + BESIDE && lowered.1 >= lowered.0 + HEAD_ROOM);
        let raised = kernel_gets(limit(1 << 30, 2 << 30), bound, limit(lowered.0, lowered.1));
        assert!(raised.1 > lowered.1);
        // The kernel's to refuse.
        assert_eq!(kernel_gets(limit(2, 1), NONE, NONE), (2, 1));
    }
}
