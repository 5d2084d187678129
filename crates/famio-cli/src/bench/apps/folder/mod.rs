//! Servers that work with many files: Filebench's personalities, and a mix of FFSB's operations. Files are made, read, appended to,
//! overwritten, synced and removed; each process has a folder of its own.

mod files;
mod plan;

use crate::bench::window::{Call, work};
use files::Files;
use plan::{Model, Planner};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What the server does, with Filebench's numbers of files, its mean sizes, and appends of 16 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Personality {
    /// Files of 128 KiB: one is made, one appended to, one read, one removed, one looked at.
    FileServer,
    /// Files of 16 KiB: ten are read, and a log is appended to.
    WebServer,
    /// Files of 16 KiB: one is removed, one made; five are read, and a log is appended to.
    WebProxy,
    /// Mails of 16 KiB: one is removed, one made and synced, one read, appended to and synced, one read.
    VarMail,
    /// Files of 64 KiB, and FFSB's operations, each as often as any other: read, read at random, append, overwrite at random, make and
    /// sync, remove.
    Ffsb,
}

/// Bytes of a piece of a file: of an append, and of an overwrite.
const PIECE: u64 = 16 << 10;
/// Of Filebench's threads, what two processors can use.
const WORKERS: u32 = 2;

impl Personality {
    pub const FILEBENCH: [Personality; 4] =
        [Personality::FileServer, Personality::WebServer, Personality::WebProxy, Personality::VarMail];

    pub fn title(self) -> &'static str {
        match self {
            Personality::FileServer => "fileserver",
            Personality::WebServer => "webserver",
            Personality::WebProxy => "webproxy",
            Personality::VarMail => "varmail",
            Personality::Ffsb => "FFSB's operations",
        }
    }

    pub fn data(self) -> String {
        format!("folder-{}", self.title().replace([' ', '\''], "-"))
    }

    pub fn workers(self) -> u32 {
        WORKERS
    }

    /// Files of each process at first. A tenth of Filebench's: each process has its own, and a measurement is short.
    fn files(self) -> u64 {
        match self {
            Personality::FileServer | Personality::WebProxy => 500,
            _ => 100,
        }
    }

    /// Pieces of a new file.
    fn pieces(self) -> u64 {
        match self {
            Personality::FileServer => 8,
            Personality::Ffsb => 4,
            _ => 1,
        }
    }

    pub fn prepare(self, folder: &Path) -> Result<(), String> {
        for worker in 0..self.workers() {
            let folder = of_worker(folder, worker);
            std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            Files::new(&folder, worker).make(&Model::new(self))?;
        }
        Ok(())
    }

    pub fn work(self, folder: &Path, worker: u32) -> Result<(), String> {
        let folder = of_worker(folder, worker);
        let (mut planner, mut files) = (Planner::new(self, worker), Files::new(&folder, worker));
        work(None, |_| {
            let step = planner.next();
            let began = Instant::now();
            files.run(&step, &planner.model).map_err(|error| format!("{step:?}: {error}"))?;
            Ok(Some(Call::of(began.elapsed())))
        })
    }

    pub fn check(self, folder: &Path, calls: &[u64]) -> Result<(), String> {
        for (worker, &calls) in (0..).zip(calls) {
            let mut planner = Planner::new(self, worker);
            for _ in 0..calls {
                planner.next();
            }
            Files::new(&of_worker(folder, worker), worker).check(&planner.model)?;
        }
        Ok(())
    }
}

fn of_worker(folder: &Path, worker: u32) -> PathBuf {
    folder.join(format!("worker-{worker}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Personality; 5] = [
        Personality::FileServer,
        Personality::WebServer,
        Personality::WebProxy,
        Personality::VarMail,
        Personality::Ffsb,
    ];

    fn run(personality: Personality, folder: &Path, steps: u64) {
        let folder = of_worker(folder, 0);
        let (mut planner, mut files) = (Planner::new(personality, 0), Files::new(&folder, 0));
        for _ in 0..steps {
            let step = planner.next();
            files.run(&step, &planner.model).unwrap_or_else(|error| panic!("{personality:?}, {step:?}: {error}"));
        }
    }

    #[test]
    fn every_server_leaves_the_files_that_it_should() {
        for personality in ALL {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            personality.prepare(folder.path()).unwrap();
            personality.check(folder.path(), &[0, 0]).unwrap();
            run(personality, folder.path(), 1000);
            personality.check(folder.path(), &[1000, 0]).unwrap_or_else(|error| panic!("{personality:?}: {error}"));
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_found() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        Personality::Ffsb.prepare(folder.path()).unwrap();
        let check = || Personality::Ffsb.check(folder.path(), &[0]).unwrap_err();
        let of = |number: u64| of_worker(folder.path(), 0).join(files::name(number));
        let whole = std::fs::read(of(7)).unwrap();
        std::fs::write(of(7), &whole[..whole.len() - 1]).unwrap();
        assert!(check().contains("bytes, and should have"));
        let mut wrong = whole.clone();
        wrong[PIECE as usize + 500] ^= 1;
        std::fs::write(of(7), wrong).unwrap();
        assert!(check().contains("piece 1 is not"));
        std::fs::write(of(7), whole).unwrap();
        std::fs::write(of(1_000_000), "").unwrap();
        assert!(check().contains("is there, and should not be"));
        std::fs::rename(of(1_000_000), of_worker(folder.path(), 0).join("log")).unwrap();
        std::fs::remove_file(of(8)).unwrap();
        assert!(check().contains("No such file"));
    }
}
