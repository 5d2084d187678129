//! The figures of papers, and our own: what each shows, and how it is measured. A figure is a declaration of a few
//! lines in the file of its paper; add new ones there.

mod catalog;
mod command;
mod declared;
mod extent;
mod famio;
mod lawn;
mod libnvmmio;
mod map_ahead;
mod run;
mod sides;
mod vnvml;

pub use command::{AllArgs, FigArgs, ListArgs, PaperArgs, all, fig, list, paper};
