//! Which files are atomic, and how: the configuration from the environment, globs and their patterns, and files that
//! are ordinary all the same.

pub mod config;
pub(super) mod current;
pub(super) mod environment;
pub(super) mod globs;
pub mod keywords;
pub(super) mod ordinary;
pub(super) mod path_text;
pub mod patterns;
pub(super) mod traces;
