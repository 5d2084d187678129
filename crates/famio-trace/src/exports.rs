//! The exported functions.
#![allow(missing_docs, clippy::missing_safety_doc)] // Made by build.rs, one like the other.

/// The instruction that goes on to another function with everything left in place.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {}"
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
