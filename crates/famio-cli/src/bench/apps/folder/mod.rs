//! Servers that work with many files: Filebench's personalities, and a mix of FFSB's operations. Files are made, read,
//! appended to, overwritten, synced and removed; each process has a folder of its own.

mod files;
mod personality;
mod plan;

use crate::bench::window::{Call, work};
use files::Files;
pub use personality::Personality;
use plan::{Model, Planner};
use std::path::{Path, PathBuf};
use std::time::Instant;

impl Personality {
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
    use super::personality::PIECE;
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
