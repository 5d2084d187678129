//! Growing files: a file that is new, or only grows, needs no journal. The committed size is in the file's mark
//! ([`GrowingMark`](crate::journal::GrowingMark)), and everything beyond it is uncommitted; bytes go straight to the
//! kernel's file. A crash, or the end of the process, leaves the mark, and recovery cuts the file to the committed
//! size. Nor does a file need one of which a few committed bytes are overwritten: they fit into the mark.
//!
//! With `on-close = leave` a new file has no mark, and is the kernel's in all respects, until its first SYNC.
//!
//! A file grows only while this process holds the write lease, so that no other process has it open. When the program
//! changes many committed bytes, maps the file, or shares it with a child, a session begins and continues the open
//! epoch.

mod before_cut;
mod begin;
mod change;
mod end;
mod overwrite;
mod session;
mod sync;
mod tail;

pub(super) use tail::Tail;

#[cfg(test)]
mod tests;
