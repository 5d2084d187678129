//! The process's limit on file sizes.

use super::internal::undisturbed;
use rustix::process::{Resource, getrlimit};

/// The process's limit on file sizes. The library makes no file longer, so that its own work raises no SIGXFSZ.
pub(crate) fn file_size_limit() -> u64 {
    static KNOWN: undisturbed::Number = undisturbed::Number::new();
    KNOWN.get(|| getrlimit(Resource::Fsize).current.unwrap_or(i64::MAX as u64))
}
