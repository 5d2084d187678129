//! One atomic file in several processes. One process at a time owns the file, and with it the session; the others
//! read along in that session, or read the file if there is none. A process that wants to write requests ownership,
//! and the owner's background thread hands it over, with the session or after its end. Uncommitted bytes pass from
//! owner to owner, each part with its writer, so that the part of a process that dies can be rolled back.
//!
//! Without other processes there are no requests, and nothing of this costs anything.

mod acquire;
mod attach;
mod hand_over;
mod hand_over_or_end;
mod left_for_copy;
mod leftover;
mod monitor;
mod moved_control_file;
mod open_changes;
mod put_in_order;
mod read_along;
mod read_without_ownership;
mod tenure;
mod test_hooks;
mod unattached;
mod unowned_session;
mod unsent;
mod view;
mod visit;
mod waiting;

pub(crate) use left_for_copy::steps_to_keep;
pub(crate) use leftover::commit_leftover;
pub(crate) use moved_control_file::replace_nameless_control_files;
pub use tenure::LockOf;

#[cfg(test)]
mod tests;
