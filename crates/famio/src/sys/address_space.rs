//! The program's limit on its address space (`RLIMIT_AS`). The library's maps are far longer than the files, and
//! would use the program's limit up. So the kernel's limit is raised by what the library has taken, up to the hard
//! limit; `getrlimit` returns the program's.
//!
//! A soft limit from before the program began is treated like one that it sets, since the program before `exec` may
//! have set it. A hard limit from before cannot be raised: under it, the library takes less.

use crate::error::Result;
use crate::sys::{check, syscall};
use crate::thread::Held;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use libc::{RLIM64_INFINITY, RLIMIT_AS, rlimit64};

/// Bytes that the library has mapped. A forked child counts its parent's, too: its limit is that much higher.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Besides those: the library itself, the stacks of its threads, and libc's arenas for them of 64 MiB each.
const BESIDE: u64 = 256 << 20;
/// If the program lowers the hard limit: what the library may take later, enough for two or three files.
const HEAD_ROOM: u64 = 8 << 30;

/// Whether the kernel's limit differs from the program's, which `ASKED` has: soft and hard.
static IS_RAISED: AtomicBool = AtomicBool::new(false);
static ASKED: [AtomicU64; 2] = [const { AtomicU64::new(RLIM64_INFINITY) }; 2];
/// The kernel's soft limit as last set here. If it is another now, others have set it, and it is not changed.
static SET: AtomicU64 = AtomicU64::new(RLIM64_INFINITY);
/// Held by the thread that changes the limit. A word, since a forked child has to free it.
static CHANGING: AtomicBool = AtomicBool::new(false);
/// The limit has to be changed (again).
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// The library is about to map `bytes`.
pub(crate) fn take(bytes: usize) {
    TAKEN.fetch_add(bytes as u64, AcqRel);
    follow();
}

/// The library has unmapped `bytes`, or could not map them.
pub(crate) fn give(bytes: usize) {
    TAKEN.fetch_sub(bytes as u64, AcqRel);
    follow();
}

/// Adjusts the limit to what is taken. Does not wait: a thread that is changing it looks again.
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

/// The kernel's limit for a soft limit of the program.
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

/// The program's limit, if the kernel's is `now`.
fn programs(now: &rlimit64) -> rlimit64 {
    if IS_RAISED.load(Acquire) && now.rlim_cur == SET.load(Acquire) {
        return rlimit64 { rlim_cur: ASKED[0].load(Acquire), rlim_max: ASKED[1].load(Acquire) };
    }
    *now
}

/// Returns the program's limit, and sets it to `new` if that is given.
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

/// The kernel's limit for `new`. A lowered hard limit cannot be raised again, so it gets its room at once.
fn for_kernel(new: rlimit64, asked: rlimit64, now: rlimit64) -> rlimit64 {
    if new.rlim_cur > new.rlim_max {
        return new; // gets EINVAL
    }
    let hard = match new.rlim_max {
        RLIM64_INFINITY => RLIM64_INFINITY,
        hard if hard <= asked.rlim_max => raised(hard).saturating_add(HEAD_ROOM).min(now.rlim_max),
        hard => raised(hard).saturating_add(HEAD_ROOM),
    };
    rlimit64 { rlim_cur: raised(new.rlim_cur).min(hard), rlim_max: hard }
}

/// At the program's start: there may be a soft limit that the program before `exec` has set.
pub(crate) fn begin() {
    let now = kernels();
    if now.rlim_cur < now.rlim_max {
        let _ = exchange(Some(now));
    }
}

/// For an `exec`: the next program gets this one's soft limit. Dropped if the `exec` fails.
pub(crate) struct Lowered(bool);

impl Lowered {
    /// `in_vfork_child`: the words here are the parent's, the limit is the child's.
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
        // A hard limit from before the program began is not raised.
        let bound = limit(1 << 30, 1 << 30);
        assert_eq!(kernel_gets(limit(1 << 30, 1 << 30), bound, bound), (1 << 30, 1 << 30));
        // A limit that the program lowers gets its room, by which it cannot be raised again: the kernel refuses that.
        let lowered = kernel_gets(limit(1 << 30, 1 << 30), NONE, NONE);
        assert!(lowered.0 >= (1 << 30) + BESIDE && lowered.1 >= lowered.0 + HEAD_ROOM);
        let raised = kernel_gets(limit(1 << 30, 2 << 30), bound, limit(lowered.0, lowered.1));
        assert!(raised.1 > lowered.1);
        // For the kernel to refuse.
        assert_eq!(kernel_gets(limit(2, 1), NONE, NONE), (2, 1));
    }
}
