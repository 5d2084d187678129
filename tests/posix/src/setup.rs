//! Where a run takes place, and the options with which Famio keeps its file.

use famio_test_support::launch::Famio;
use famio_test_support::place::{self, Place};
use std::path::{Path, PathBuf};

/// The journals of tiered files.
const POOL: &str = "/dev/shm/famio-posix-pool";

/// A file system and options of `famio run`.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The parent of its folder.
    pub parent: PathBuf,
    /// `tmpfs` or `disk`.
    pub on: &'static str,
    /// Options of `famio run`.
    pub options: Vec<&'static str>,
}

impl Setup {
    /// Whether a difference listed for `only` applies here: for a file system, or for files with or without a pool.
    pub fn is(&self, only: &str) -> bool {
        let has_pool = self.options.contains(&"--pool");
        match only {
            "pool" => has_pool,
            "no pool" => !has_pool,
            file_system => file_system == self.on,
        }
    }

    /// All setups: each domain that this machine has or can emulate, with each of its policies.
    pub fn all(disk: Option<&Path>) -> Result<Vec<Self>, String> {
        const POLICIES: [&str; 4] = ["auto", "undo", "redo", "alternate"];
        let disk = disk.map_or_else(place::disk, |disk| Ok(disk.to_path_buf()))?;
        let mut all = vec![Self { parent: disk.clone(), on: "disk", options: Vec::new() }];
        for policy in POLICIES {
            let memory = place::memory().to_path_buf();
            let with = |parent: &PathBuf, on, before: &[&'static str]| {
                let options = before.iter().copied().chain(["--policy", policy]).collect();
                Self { parent: parent.clone(), on, options }
            };
            all.push(with(&memory, "tmpfs", &[]));
            all.push(with(&memory, "tmpfs", &["--domain", "emulated"]));
            all.push(with(&disk, "disk", &["--durability", "process"]));
        }
        // Tiered: with space, and with blocks written back all the time.
        std::fs::create_dir_all(POOL).map_err(|error| format!("{POOL}: {error}"))?;
        let before = ["--durability", "process", "--pool", POOL, "--tier", "auto"];
        let tight = ["--journal-limit", "4MiB", "--write-back", "10:1"];
        for options in [before.to_vec(), [&before[..], &tight].concat()] {
            all.push(Self { parent: disk.clone(), on: "disk", options });
        }
        Ok(all)
    }

    /// One setup for each domain, with its default policy.
    pub fn few() -> Result<Vec<Self>, String> {
        let mut all = Self::all(None)?;
        all.retain(|setup| !["undo", "redo", "alternate"].iter().any(|policy| setup.options.contains(policy)));
        Ok(all)
    }

    /// A temporary folder there.
    pub fn place(&self) -> Result<Place, String> {
        Place::new(&self.parent, "famio-posix")
    }

    /// The command, with these options.
    pub fn famio(&self) -> Result<Famio, String> {
        Famio::beside_me(&self.options)
    }

    /// As options of this program.
    pub fn name(&self) -> String {
        [&[self.on][..], &self.options].concat().join(" ")
    }
}
