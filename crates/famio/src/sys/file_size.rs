//! The process's limit on file sizes.

/// The process's limit on file sizes. The library makes no file longer, so that its own work raises no SIGXFSZ.
pub(crate) fn file_size_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(i64::MAX as u64)
}
