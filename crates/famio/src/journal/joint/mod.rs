//! The record of a transaction of several files. It lies in a folder of the pool, and is written completely before
//! any of the files is changed: once it is durable, the transaction is committed. Then each file commits its part as
//! an ordinary epoch. If a file did not get to that, its recovery finds the part here
//! ([`recovery::joint`](crate::recovery)).
//!
//! A part counts only for the journal that it names, and only if that journal has committed no more than the part
//! says, so a leftover record does no harm.

mod folder;
mod record;

pub(crate) use folder::{Folder, find, find_all, may_have_records};
pub(crate) use record::{Builder, MOST, MOST_PARTS, Part, Record, Step};
