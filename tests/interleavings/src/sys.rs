//! The only system call that the gate makes.

pub(crate) mod membarrier {
    pub(crate) fn register() -> bool {
        true
    }

    pub(crate) fn on_all_threads() -> bool {
        crate::sync::membarrier();
        true
    }
}

/// There are no forks here.
pub(crate) fn keep_from_children(_at: *mut u8, _len: usize) {}

/// Descriptors are not closed by the program here.
pub(crate) type InternalFd = std::os::fd::OwnedFd;

/// There are no limits here.
pub(crate) fn file_size_limit() -> u64 {
    i64::MAX as u64
}

/// Users do not change here.
pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
pub(crate) fn high_duplicate(fd: std::os::fd::BorrowedFd<'_>) -> crate::error::Result<InternalFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

/// There are no times here.
pub(crate) fn monotonic_now() -> u64 {
    0
}

pub(crate) use rustix::fs::openat;

pub(crate) mod address_space {
    pub(crate) fn take(_bytes: usize) {}
    pub(crate) fn give(_bytes: usize) {}
}

/// No limit.
pub(crate) fn memory() -> u64 {
    u64::MAX
}

pub(crate) use famio::sys::shm;

/// For revocations without `membarrier`, which are not tested here: shuttle's threads are not kernel threads.
pub(crate) struct Quiescence;

impl Quiescence {
    pub fn of(_thread: u32) -> Self {
        Self
    }

    pub fn has_passed(&self) -> bool {
        false
    }
}
