//! The exported functions.
#![allow(missing_docs, clippy::missing_safety_doc)] // Made by build.rs, one like the other.

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
