//! Journals: what lies on the medium, and where.
//!
//! A journal is a file in a [pool](Pool), named by its file's [`Identity`]: a [`Header`], then one of three formats.
//! While it is pending, its file has a [`Mark`]. Nothing in a journal is trusted: lengths and offsets are checked
//! before use.
//!
//! # The states of a journal
//! ```text
//! create journal (creating), sync it and its folder
//! -> mark the file, persist -> active -> commits ... -> checkpoint, sync the file -> clean -> unmark, persist ->
//! remove
//! ```
//! The header says *active* before anything is committed, and before anything is stored in the file. A failed flush
//! makes it *suspect*. So at open (`verdict`):
//!
//! | mark | journal | verdict |
//! |---|---|---|
//! | no | none | an ordinary file |
//! | no | without a whole header, creating, clean | leftover: remove it |
//! | yes | creating: no commit happened; clean: all is in the file | leftover: drop the mark, then remove it |
//! | yes | active or suspect, and everything agrees | recover |
//! | no | active or suspect | conflict: the mark was lost |
//! | yes | none, unreadable, of another id | conflict |
//! | of another file | any | conflict: the file is a copy |
//! | yes | of another boot, in a domain that does not survive one | conflict |
//! | yes | an outsider has changed the file since | conflict |
//!
//! `docs/format.md` describes every byte, `docs/crash-consistency.md` the reason for each step.

mod boot;
mod bytes;
pub(crate) mod control;
pub(crate) mod demotion_note;
mod file_system_id;
mod growing_mark;
pub mod header;
mod identity;
pub(crate) mod inplace;
pub(crate) mod joint;
pub(crate) mod known_control;
pub(crate) mod live;
pub(crate) mod lock;
pub mod mark;
mod overwrites;
pub(crate) mod pools;
pub mod records;
pub(crate) mod replaced_note;
mod stamp;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod tiered;
mod verdict;

pub(crate) use self::pools::access::{give_to_owner_of, give_to_writers_of};
pub(crate) use self::pools::beside::{Beside, beside_path, has_no_pool, is_not_beside, look_beside, name_to_make};
pub(crate) use self::pools::kept::keeping_folders;
pub use self::pools::place::{folder_of, has_lost_its_name, path_of};
pub use self::pools::pool::{Pool, SUFFIX, journal_name, sync_dir};
pub use self::pools::shares::{PoolShare, PoolUse, SIZE_MIN, WEIGHT, WEIGHTS, pool_use, set_pool_size};
pub(crate) use self::pools::trust::check_shared;
pub use boot::{BootClock, BootId};
pub(crate) use growing_mark::OVERWRITES_MAX;
pub use growing_mark::{GrowingMark, RangeHash};
pub use header::{Header, Kind, State};
pub use identity::{HANDLE_MAX, Identity};
pub use mark::{JournalId, Mark, Marked};
pub use overwrites::Overwrites;
pub use stamp::Stamp;
pub use verdict::{Facts, Journal, Verdict, verdict};
