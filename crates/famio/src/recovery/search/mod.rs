//! Finds journals and files: by path, by folder, by pool, and those in use.
// Cycle: forget, in_use, survey: reports of one folder each show some of what the others find

pub(super) mod find;
pub(super) mod forget;
pub(super) mod in_use;
pub(super) mod leases;
pub(super) mod openers;
pub(super) mod paths;
pub(super) mod seen;
pub(super) mod survey;
pub(super) mod walk;
#[cfg(test)]
pub(super) mod walk_tests;
