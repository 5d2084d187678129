//! Several processes with one atomic file: they take turns to write. One at a time has the file's claim, and with it the session;
//! everybody else reads along in that session, or the file itself where there is none. Who wants to write rings, and the background
//! of who has the turn ends the session and gives the turn. What is not committed yet travels from turn to turn, each part with its writer, so
//! that the part of one who dies can be left behind.
//!
//! A process that is alone never notices: nobody rings.

mod beside;
mod draft;
mod give;
mod hand_over;
mod joined;
mod lab;
mod leftover;
mod mind;
mod place;
mod take;
mod tenure;
mod unattached;
mod view;

pub(crate) use leftover::commit_leftover;
pub(crate) use place::regain_places;
pub use tenure::LockOf;

#[cfg(test)]
mod tests;
