//! vNVML (CCF THPC 2020): a disk behind persistent memory.

use super::{Declared, Paper::Vnvml, Work::NotBuilt};

pub fn figures() -> Vec<Declared> {
    let figure = |name, title| Declared {
        name,
        paper: Vnvml,
        title,
        work: NotBuilt("a pool with tiers (persistent memory before a disk), which Famio does not have yet"),
    };
    vec![
        figure("vnvml-12", "Reads and writes by the size of the pool"),
        figure("vnvml-13", "The read cache"),
        figure("vnvml-14", "Bytes written to the disk"),
        figure("vnvml-15", "Several processes with one pool"),
        figure("vnvml-16", "Applications on a pool"),
    ]
}
