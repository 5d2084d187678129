//! The simulated machines: each domain, with the crashes that it has to survive.

use famio::pmem::record::Behaviour;
use famio::pmem::{Domain, TestHooks};
use std::fmt;
use std::str::FromStr;

/// Bytes of the first segments of a journal of epochs.
pub const SEGMENT: u64 = 32 << 10;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// Persistent memory: power cuts, and kills followed by a power cut.
    Pmem,
    /// The same, with a platform that flushes its caches: power cuts.
    Eadr,
    /// A disk: power cuts, and kills followed by a power cut.
    PageCache,
    /// The same, with a file system that keeps the order of names and marks.
    Ordered,
    /// A disk, with the journals on persistent memory: power cuts, and kills followed by a power cut.
    Tiered,
    /// Memory that outlives the process: kills.
    Process,
    /// The same, using the code for persistent memory.
    Emulated,
}

impl Machine {
    /// All of them.
    pub const ALL: [Machine; 7] = [
        Machine::Pmem,
        Machine::Eadr,
        Machine::PageCache,
        Machine::Ordered,
        Machine::Tiered,
        Machine::Process,
        Machine::Emulated,
    ];

    /// Its name in a trace.
    pub fn name(self) -> &'static str {
        match self {
            Machine::Pmem => "pmem",
            Machine::Eadr => "eadr",
            Machine::PageCache => "page-cache",
            Machine::Ordered => "ordered",
            Machine::Tiered => "tiered",
            Machine::Process => "process",
            Machine::Emulated => "emulated",
        }
    }

    /// The domain that the library assumes for its files.
    pub fn domain(self) -> Domain {
        match self {
            Machine::Pmem | Machine::Eadr => Domain::Pmem,
            Machine::PageCache | Machine::Ordered | Machine::Tiered => Domain::PageCache,
            Machine::Process => Domain::Process,
            Machine::Emulated => Domain::Emulated,
        }
    }

    /// What makes stores certain on it.
    pub fn behaviour(self) -> Behaviour {
        match self {
            Machine::Eadr => Behaviour::Eadr,
            Machine::Ordered => Behaviour::Ordered,
            // Whatever was stored survives a kill, flushed or not.
            Machine::Emulated => Behaviour::Domain(Domain::Process),
            // Only the journal is mapped; the file is written.
            Machine::Tiered => Behaviour::Domain(Domain::Pmem),
            other => Behaviour::Domain(other.domain()),
        }
    }

    /// Whether its crashes are power cuts, followed by another boot.
    pub fn loses_power(self) -> bool {
        !matches!(self, Machine::Process | Machine::Emulated)
    }

    /// Whether a journal is in place, so that there are policies.
    pub fn has_policies(self) -> bool {
        self.domain() != Domain::PageCache
    }

    /// Whether what is visible after a kill may be lost with the power.
    pub fn forgets(self) -> bool {
        self.loses_power()
    }

    /// Whether that also applies to stores in memory, not only to what the kernel was told.
    pub fn forgets_stores(self) -> bool {
        self.forgets() && self != Machine::Eadr
    }

    /// The test hooks of the machine, in boot number `boot`.
    pub fn test_hooks(self, boot: u8) -> TestHooks {
        TestHooks {
            domain: Some(self.domain()),
            journals: (self == Machine::Tiered).then_some(Domain::Pmem),
            boot: Some([boot; 16]),
            ids: Some(0),
            // As small as they may be: three operations get to the end of one.
            segments: Some([SEGMENT, SEGMENT, 2 * SEGMENT]),
            keeps_order: self == Machine::Ordered,
            still: true,
            // A hand-over is one to another process.
            reads_again: true,
            // Shared on the others.
            own_shadow: matches!(self, Machine::Eadr | Machine::Process),
            ..TestHooks::default()
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Machine::ALL.into_iter().find(|machine| machine.name() == text);
        named.ok_or_else(|| format!("{text}: not a machine"))
    }
}
