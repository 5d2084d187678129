//! What a store needs to survive.

use crate::error::Error;
use core::fmt;
use core::str::FromStr;

/// The persistence domain of a mapping. A journal and its file can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Mapped with `MAP_SYNC`: a flushed and fenced line is persistent.
    Pmem,
    /// Any other local file system: `fdatasync` makes data persistent.
    PageCache,
    /// Memory that outlives the process, but not the boot: nothing is flushed.
    Process,
    /// A plain mapping treated as [`Domain::Pmem`]: flushes and fences are executed, but data survives only what it
    /// does with [`Domain::Process`]. For measurements and tests.
    Emulated,
}

impl Domain {
    /// Every domain.
    pub const ALL: [Domain; 4] = [Domain::Pmem, Domain::PageCache, Domain::Process, Domain::Emulated];

    /// Its name in settings, documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Domain::Pmem => "pmem",
            Domain::PageCache => "page-cache",
            Domain::Process => "process",
            Domain::Emulated => "emulated",
        }
    }

    /// What a SYNC survives, as text for the user.
    pub const fn survives(self) -> &'static str {
        match self {
            Domain::Pmem | Domain::PageCache => "power loss",
            Domain::Process | Domain::Emulated => "the end of the process, not the end of the boot",
        }
    }

    /// How a store is made persistent, as text for the user.
    pub const fn mechanism(self) -> &'static str {
        match self {
            Domain::Pmem => "cache-line write-backs and a fence",
            Domain::PageCache => "fdatasync",
            Domain::Process => "nothing to do",
            Domain::Emulated => "cache-line write-backs and a fence, which here survive nothing more",
        }
    }

    /// Whether stores to a mapping persist by themselves or by flush and fence, as a journal in place requires.
    pub const fn is_byte_addressable(self) -> bool {
        !matches!(self, Domain::PageCache)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Domain {
    type Err = Error;

    /// From a [`name`](Domain::name).
    ///
    /// # Errors
    /// `EINVAL`: no domain has this name.
    fn from_str(name: &str) -> Result<Self, Error> {
        Domain::ALL.into_iter().find(|domain| domain.name() == name).ok_or_else(|| {
            Error::with(libc::EINVAL, format!("no domain '{name}'; there are pmem, page-cache, process and emulated"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for domain in Domain::ALL {
            assert_eq!(domain.to_string().parse::<Domain>().unwrap(), domain);
        }
        assert_eq!("dax".parse::<Domain>().unwrap_err().errno(), libc::EINVAL);
    }
}
