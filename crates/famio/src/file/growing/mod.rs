//! Growing files: a file that is new, or only grows, needs no journal. What lies beyond its committed size is uncommitted by itself;
//! the committed size is in the file's mark ([`GrowingMark`]), and the bytes go straight to the kernel's file. A crash, or the end of the
//! process, leaves a mark, and recovery cuts the file to what it says.
//!
//! With `on-close = leave` a new file has no mark, and is the kernel's in all respects, until its first SYNC.
//!
//! It is so only while this process holds the write lease, so that nobody else has the file open; and until the program changes what
//! is committed, or maps the file, or shares it with a child. Then a session begins, and the open epoch goes on in it.

mod before_cut;
mod begin;
mod change;
mod end;
mod session;
mod sync;

pub(super) use session::Tail;

#[cfg(test)]
mod tests;
