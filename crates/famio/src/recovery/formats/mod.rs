//! Recovery from each kind of journal.

pub(super) mod growing;
pub(super) mod in_place;
pub(super) mod joint;
pub(super) mod records;
mod source;
pub(super) mod tiered;

pub(super) use source::Source;
