//! The crash simulator: histories run with a recorder as the medium; every state that a crash can leave is restored
//! to a file, recovered, and compared with what was promised. `docs/crash-consistency.md` describes its coverage.

#![allow(missing_docs, reason = "a test program; what is not said by a name is said")]

pub mod again;
pub mod away;
pub mod campaign;
pub mod case;
pub mod damage;
pub mod explore;
pub mod explorer;
pub mod failure;
pub mod joint;
pub mod kinds;
pub mod machine;
pub mod minimal;
pub mod mutants;
pub mod oracle;
pub mod sites;
pub mod survivors;
pub mod targets;
pub mod workload;
pub mod world;
