//! The process's limit on file sizes.

/// The process's limit on file sizes: nothing of ours is made longer than it, so that no SIGXFSZ comes from work of ours.
pub(crate) fn file_size_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(i64::MAX as u64)
}
