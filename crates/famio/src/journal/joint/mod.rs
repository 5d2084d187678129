//! The record of a joint commit: one transaction of several files. It lies in a folder of the pool, and is written as a whole before any
//! of the files is changed: once it is durable the transaction is committed. Then each file commits its part as any epoch; a recovery of a
//! file that has not come to that finds the part here ([`recovery::joint`](crate::recovery)).
//!
//! A part counts only for the journal that it names, and only if that has committed no more than the part says: so a record that is left
//! behind does no harm.

mod folder;
mod record;

pub(crate) use folder::{Folder, find, find_all, may_have_records};
pub(crate) use record::{Builder, Part, Record, Step};
