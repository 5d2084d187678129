//! Why a program has no library.

/// Why a program has no library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(in crate::posix) enum Why {
    Environment,
    Static,
    Foreign,
    OtherLibc,
    Privileged,
}

pub(in crate::posix) const ALL: [Why; 5] =
    [Why::Environment, Why::Static, Why::Foreign, Why::OtherLibc, Why::Privileged];

/// The reason, for the user.
pub(in crate::posix) fn reason(number: u32) -> &'static str {
    match ALL.iter().find(|why| **why as u32 == number) {
        Some(Why::Environment) => "its environment has no LD_PRELOAD or FAMIO_ATOMIC",
        Some(Why::Static) => "statically linked",
        Some(Why::Foreign) => "of another architecture",
        Some(Why::OtherLibc) => "for another C library",
        Some(Why::Privileged) => "set-user-id, or with capabilities",
        None => "unknown",
    }
}
