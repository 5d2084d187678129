//! What all of them have in common.

use super::folder::Personality;
use super::tpcc::Tpcc;
use super::ycsb::Ycsb;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A program with its load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum App {
    Ycsb(Ycsb),
    Tpcc(Tpcc),
    Folder(Personality),
}

impl App {
    /// The version of what is measured, as far as it is somebody else's. The error says what has to be installed.
    pub fn version(&self) -> Result<Option<String>, String> {
        match self {
            App::Ycsb(app) => app.version().map(Some),
            App::Tpcc(app) => app.version().map(Some),
            App::Folder(_) => Ok(None),
        }
    }

    /// A name that is the same for all that begin with the same data.
    pub fn data(&self) -> String {
        match self {
            App::Ycsb(app) => app.data(),
            App::Tpcc(app) => app.data(),
            App::Folder(app) => app.data(),
        }
    }

    /// Processes that do it at the same time.
    pub fn workers(&self) -> u32 {
        match self {
            App::Folder(app) => app.workers(),
            _ => 1,
        }
    }

    /// Makes the data in an empty folder, without Famio.
    pub fn prepare(&self, folder: &Path) -> Result<(), String> {
        match self {
            App::Ycsb(app) => app.prepare(folder),
            App::Tpcc(app) => app.prepare(folder),
            App::Folder(app) => app.prepare(folder),
        }
    }

    /// Does the work of one process, until the bench's time is over.
    pub fn work(&self, folder: &Path, me: u32) -> Result<(), String> {
        match self {
            App::Ycsb(app) => app.work(folder),
            App::Tpcc(app) => app.work(folder),
            App::Folder(app) => app.work(folder, me),
        }
    }

    /// Whether all is there, and nothing else, after each process has made this many calls. Without Famio.
    pub fn check(&self, folder: &Path, calls: &[u64]) -> Result<(), String> {
        match (self, calls) {
            (App::Ycsb(app), &[calls]) => app.check(folder, calls),
            (App::Tpcc(app), &[calls]) => app.check(folder, calls),
            (App::Folder(app), calls) => app.check(folder, calls),
            _ => Err("a store and a database have one process each".into()),
        }
    }
}
