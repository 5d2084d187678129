//! PLACEHOLDER until `famio::recovery` is merged: its agreed types, and functions that answer with an error.
#![allow(dead_code)]

use famio::{Error, Result, Settings};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Refuse,
    Journal,
    File,
}
pub struct Options {
    pub dry_run: bool,
    pub on_conflict: Use,
    pub threads: usize,
}
pub trait Progress: Sync {
    fn begin(&self, bytes: u64);
    fn advance(&self, bytes: u64);
    fn end(&self);
}
#[allow(dead_code)]
pub enum Outcome {
    NothingToDo,
    Clean,
    Recovered,
    Discarded,
    Conflict(String),
    InUse(Option<u32>),
    Failed(Error),
}
pub struct Report {
    pub journal: PathBuf,
    pub file: Option<PathBuf>,
    pub outcome: Outcome,
    pub epoch: u64,
    pub bytes: u64,
}
pub struct Found {
    pub journal: PathBuf,
    pub file: PathBuf,
    pub kind: String,
    pub state: &'static str,
    pub epoch: u64,
    pub size: u64,
    pub owner: Option<u32>,
}
pub fn recover_path(_: &Path, _: &Settings, _: &Options, _: &dyn Progress) -> Result<Vec<Report>> {
    Err(Error::with(libc::ENOSYS, "recovery is not merged yet"))
}
pub fn survey(_: &Path, _: &Settings) -> Result<Vec<Found>> {
    Err(Error::with(libc::ENOSYS, "recovery is not merged yet"))
}
