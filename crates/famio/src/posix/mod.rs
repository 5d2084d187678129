//! What the POSIX hooks call: descriptors, open descriptions, positions, path selection.
//!
//! Nearly every function here has the arguments and the result of its system call: `-4095..=-1` is a negated errno;
//! errno itself is never touched. A call on any other descriptor costs two loads before it goes to the kernel
//! unchanged.

mod call;
mod copies;
mod data;
mod descriptors;
mod life;
pub mod nv;
mod paths;
mod route;
mod run;
mod runtime;
mod selection;

pub use descriptors::table;
pub use life::{exec, passing, process, unpreloaded};
pub use run::{run_notes, run_record};
pub use runtime::handlers;
pub use selection::{config, keywords, patterns};

pub use crate::file::locks::all_calls_are_seen;
pub use copies::copy::{copy_file_range, sendfile};
pub use copies::splice::splice;
pub use data::aio::{Done, Event, Request, aio};
pub use data::io::{pread, pwrite, read, write};
pub(crate) use data::mapping::map_region;
pub use data::mapping::{
    fadvise, madvise, mmap, mprotect, mremap, msync, munmap, pkey_mprotect, posix_madvise, process_madvise,
};
pub use data::rings::{io_submit, io_uring};
pub use data::seek::lseek;
pub use data::size::{fallocate, ftruncate};
pub use data::sync::{fdatasync, fsync, sync, sync_file_range, syncfs};
pub use data::vector::{preadv, preadv2, pwritev, pwritev2, readv, writev};
pub use descriptors::attach::{O_ATOMIC, allow_twins};
pub use descriptors::close::{close, close_each_from, close_range, is_hidden as is_internal};
pub use descriptors::control::{fcntl, ioctl, lockf};
pub use descriptors::demote::{demote_descriptor, demote_for_stream};
pub use descriptors::dup::{dup, dup2, dup3};
pub use descriptors::locks::flock;
pub use descriptors::rights::{before_change as before_change_of_rights, change as change_of_rights};
pub use life::limits::{begin as begin_limits, getrlimit, prlimit, setrlimit};
pub(crate) use nv::is_elsewhere as is_interposed_elsewhere;
pub use paths::names::{linkat, remove, renameat2, truncate, unlinkat};
pub use paths::open::{adopt, may_be_atomic, open_selected, openat};
pub use paths::open_plain::{Tried, try_open};
pub use paths::stat::{fstat, fstatat, statx};
pub use paths::streams::{stream_closing, stream_opened, stream_opening, streams_matter};
pub use paths::times::{mode_was_set, owner_was_set, set_by_descriptor, set_by_path};
pub use route::{ROUTED, syscall};
pub use selection::config::Config;
pub use selection::globs::{Globs, MOST_TOLD_APART, Marks, NearMiss};

use call::look::look;
pub use call::result::Ret;
use call::result::fail;
pub(crate) use call::result::raw;
use descriptors::verify::steadily;
use runtime::numbers::{passing, with_lowest, with_number};
