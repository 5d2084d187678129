//! Private maps, which take memory only for pages with stores. A file larger than a quarter of the machine's memory has no copy
//! of its bytes in memory. The program maps private copy-on-write pages of the kernel over the file itself. A page that is only
//! read belongs to the page cache; the kernel copies a page at its first store, and the next SYNC finds the copy. So no store
//! reaches the file before its epoch is committed. When the file holds the same bytes as a copy, the copy goes (`trim.rs`).
//!
//! **Invariant.** A page that is no copy shows the bytes of the file on the medium. So a page is a copy if those bytes are not
//! what the program is to see, or may become something else: writes by calls are copied into the maps (`show.rs`), and a block
//! that has anything in the journal stays a copy until its checkpoint.
//!
//! The *ground* is the part of the file that no checkpoint can cut. Beyond it the program maps zeros instead of the file, since
//! the kernel takes copies away where a file is cut. Beyond the end of the file it maps an empty file, for the SIGBUS. Both
//! bounds are the same for all maps of the file (`lay.rs`).
//!
//! Private pages belong to one process. While such maps exist, ownership stays with the process, as with a shadow without room in
//! `/dev/shm`; a forked child does not get the maps; and bytes that one map may store to have no second map.

mod lay;
mod map;
mod outgrow;
mod read;
mod show;
mod take;
mod trim;

use crate::file::parts::cow_maps::{CowMaps, PAGE, page_end, second_map};

pub(super) use map::remap;
