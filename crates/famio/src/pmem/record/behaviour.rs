//! What makes stores certain.

use crate::pmem::Domain;

/// What makes stores certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// As in this domain.
    Domain(Domain),
    /// As on pmem with a platform that flushes its caches itself: a line is durable as soon as it is stored.
    Eadr,
    /// As in the domain `PageCache`, on a file system that keeps the order (`pmem::keeps_order`) of changes of
    /// names and marks.
    Ordered,
}
