//! Private maps, which take memory only for pages with stores, for files larger than a quarter of the machine's
//! memory. The program maps private copy-on-write pages of the file itself. A page that is only read belongs to the
//! page cache; the kernel copies a page at its first store, and the next SYNC finds the copy. So no store reaches the
//! file before its epoch is committed. When the file has the same bytes, the copy is dropped (`trim.rs`).
//!
//! **Invariant.** A page that is not a copy shows the bytes of the file on the medium. So a page has to be a copy if
//! those bytes are not what the program should see, or may change: writes by calls are copied into the maps
//! (`update_maps.rs`), and a block with anything in the journal stays a copy until its checkpoint.
//!
//! The *ground* is the part of the file that no checkpoint can cut. Beyond it the program maps zeros instead of the
//! file, since the kernel drops copies where a file is cut; beyond the end of the file an empty file, for the SIGBUS.
//! Both bounds are the same for all maps of the file (`layout.rs`).
//!
//! Private pages belong to one process. So ownership stays with the process while such maps exist, a forked child
//! does not get them, and bytes that one map may store to have no second map.

mod collect_stores;
mod layout;
mod map;
mod outgrow;
mod read;
mod trim;
mod update_maps;

use crate::file::state::cow_maps::{CowMaps, PAGE, page_end, second_map};

pub(super) use map::remap;
pub(super) use trim::{is_alone, trim_threshold};
