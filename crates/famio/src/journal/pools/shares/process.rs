//! This process: how often it was forked, and its name as an application if nobody has named it.

use crate::error::{Error, Result};
use crate::journal::bytes::hex;
use crate::sys::read_at;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags};

/// How often this process, or one above it, was forked.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// A number for the application if nobody has named it; it stays after a fork. 0: none yet.
static NAMELESS: AtomicU64 = AtomicU64::new(0);

pub(super) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// This is a child now.
pub(super) fn was_forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A name for an application that has none: its program's, and a random number, which forked children have, too.
pub(super) fn nameless() -> Result<String> {
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
