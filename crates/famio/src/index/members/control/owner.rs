//! The process that owns a file, as messages name it.

use crate::sys::namespaces;

/// The process that may change a file: its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its process id, in its own PID namespace.
    pub pid: u32,
    /// That namespace is another one than this process's, as in a container: the number means nothing here.
    pub is_contained: bool,
}

impl Owner {
    /// Its process id, if it means something to this process.
    pub fn pid_here(self) -> Option<u32> {
        (!self.is_contained).then_some(self.pid)
    }

    pub(in crate::index) fn me() -> Self {
        Self { pid: crate::sys::process_id(), is_contained: false }
    }

    /// As the control page stores it.
    pub(in crate::index) fn word(self) -> u64 {
        u64::from(namespaces::of_process(self.pid)) << 32 | u64::from(self.pid)
    }

    pub(super) fn of_word(word: u64) -> Option<Self> {
        let (pid, namespace) = (word as u32, (word >> 32) as u32);
        let is_contained = ![0, namespaces::of_process(Self::me().pid)].contains(&namespace);
        (pid != 0).then_some(Self { pid, is_contained })
    }
}

impl core::fmt::Display for Owner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let of = if self.is_contained { " of another PID namespace (a container)" } else { "" };
        write!(f, "process {}{of}", self.pid)
    }
}
