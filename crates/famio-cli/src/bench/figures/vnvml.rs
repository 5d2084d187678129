//! vNVML (CCF THPC 2020): a disk behind persistent memory.

use super::{Declared, Paper::Vnvml, Work::NotBuilt};

pub fn figures() -> Vec<Declared> {
    let figure = |name, title| Declared {
        name,
        paper: Vnvml,
        title,
        work: NotBuilt("a pool with tiers (persistent memory before a disk)"),
    };
    vec![
        figure("vnvml-12", "The paper's figure 12"),
        figure("vnvml-13", "The paper's figure 13"),
        figure("vnvml-14", "The paper's figure 14"),
        figure("vnvml-15", "The paper's figure 15"),
        figure("vnvml-16", "The paper's figure 16"),
    ]
}
