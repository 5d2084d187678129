//! The sides that several figures compare.

use crate::bench::io::bare::Bare;
use crate::bench::io::side::Side;
use crate::settings::PolicyName;

/// The usual pair.
pub fn plain_and_famio() -> Vec<Side> {
    vec![Side::plain(), Side::famio(None)]
}

/// Beside the limits of a store through a map, and the ways that came before.
pub fn with_baselines() -> Vec<Side> {
    let before = [Bare::PageCopy, Bare::FineLog].map(Side::without_calls);
    every_policy().into_iter().chain(before).collect()
}

/// Beside a copy into a map.
pub fn with_the_limit() -> Vec<Side> {
    plain_and_famio().into_iter().chain([Bare::Copy, Bare::Durable].map(Side::without_calls)).collect()
}

/// The comparison of the papers: one way of logging for everything, and the choice between them.
pub fn every_policy() -> Vec<Side> {
    let policies = [PolicyName::Undo, PolicyName::Redo, PolicyName::Alternate].map(Some);
    [Side::plain()].into_iter().chain(policies.into_iter().chain([None]).map(Side::famio)).collect()
}
