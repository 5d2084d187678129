//! Programs: where they are, what their files say, and whether the library can be loaded into them.

pub mod elf;
mod loading;
pub mod preload;
pub mod search;

pub use loading::check;
