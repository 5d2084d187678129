//! What an engine is (`context`: the trait `Engine`), the file as home of bytes, and the policy of an epoch. The two
//! engines are `inplace` and `records`.

pub(super) mod context;
pub(super) mod home;
pub(super) mod journal_name;
pub(super) mod policy;
pub(super) mod room;
