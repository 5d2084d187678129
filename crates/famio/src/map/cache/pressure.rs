//! The kernel's notices that memory runs short: at the cgroup's limit, and by stalls of tasks that wait for memory.

use crate::sys::memory::in_cgroup;
use crate::sys::{InternalFd, openat};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::write;

/// Tasks waited 150 ms of 2 s for memory. Unprivileged processes may only ask for multiples of 2 s.
const STALL: &[u8] = b"some 150000 2000000\0";
/// Those 2 s, in nanoseconds.
pub(super) const WINDOW: u64 = 2_000_000_000;

/// The file that changes when this process's cgroup reaches one of its limits. Version 2 only; a cgroup without
/// limits has none.
pub(super) fn limit_events() -> Option<String> {
    in_cgroup("memory.events")
}

/// A descriptor that becomes ready when memory is short in the cgroup or, without one, on the machine.
pub(super) fn stalls() -> Option<InternalFd> {
    let own = in_cgroup("memory.pressure");
    own.iter().map(String::as_str).chain(["/proc/pressure/memory"]).find_map(|path| {
        let file = openat(CWD, path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
        write(&file, STALL).ok()?;
        Some(file)
    })
}
