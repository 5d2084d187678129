//! The sides of a comparison: different ways to start the same program.

use super::bare::Bare;
use crate::bench::launch::{Under, me, name};
use crate::bench::session::pool;
use crate::settings::{DomainName, DurabilityName, Options, PolicyName, TierName};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// One side.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Plain,
    /// `None`: the policy that Famio chooses.
    Famio(Option<PolicyName>),
    /// A pool in memory before files on a disk, with a cache of so many percent of the files; `None`: as it comes.
    Tiered(Option<u64>),
    /// The close of a new file that was never synced waits for no disk.
    Leave,
    /// Without calls.
    Bare(Bare),
    /// Another library that takes file calls over.
    Preload(PathBuf),
}

impl Side {
    pub fn plain() -> Self {
        Self { name: "plain".into(), kind: Kind::Plain }
    }

    /// The plain side again, to see the noise.
    pub fn plain_again() -> Self {
        Self { name: "plain again".into(), kind: Kind::Plain }
    }

    pub fn famio(policy: Option<PolicyName>) -> Self {
        let name = policy.map_or("Famio".into(), |policy| format!("Famio, {}", name(policy)));
        Self { name, kind: Kind::Famio(policy) }
    }

    /// With the pool that the options name, or one in memory that goes with the bench.
    pub fn tiered() -> Self {
        Self { name: "Famio, tiered".into(), kind: Kind::Tiered(None) }
    }

    /// As [`tiered`](Self::tiered), with a cache of so many percent of each file, but at least 8 MiB.
    pub fn tiered_by(percent: u64) -> Self {
        Self { name: format!("Famio, cache of {percent} %"), kind: Kind::Tiered(Some(percent)) }
    }

    /// With `--on-close leave`.
    pub fn leave() -> Self {
        Self { name: "Famio, --on-close leave".into(), kind: Kind::Leave }
    }

    pub fn without_calls(bare: Bare) -> Self {
        Self { name: bare.title().into(), kind: Kind::Bare(bare) }
    }

    /// How it works without calls.
    pub fn bare(&self) -> Option<Bare> {
        match self.kind {
            Kind::Bare(bare) => Some(bare),
            _ => None,
        }
    }

    /// Whether the library counts what it does.
    pub fn is_famio(&self) -> bool {
        matches!(self.kind, Kind::Famio(_) | Kind::Tiered(_) | Kind::Leave)
    }

    /// The library that this side must have loaded, where the loader alone sees to that.
    pub fn library(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Preload(library) => Some(library),
            _ => None,
        }
    }

    /// The command to run this program in that way, for files in a folder where no other files have their suffix.
    pub fn command(&self, options: &Options, files: &[PathBuf]) -> Result<Command, String> {
        let me = me()?;
        let atomic = match files {
            [file] => file.clone(),
            _ => files.first().and_then(|file| file.parent()).unwrap_or(Path::new("")).join("*.bench"),
        };
        let under = |options: &Options, policy, more: &[&str]| {
            let under = Under { options, policy, more };
            under.famio(&[&atomic], me.as_os_str())
        };
        match &self.kind {
            Kind::Plain | Kind::Bare(_) => Ok(Command::new(&me)),
            Kind::Famio(policy) => under(options, *policy, &[]),
            Kind::Tiered(None) => under(&tiered(options)?, None, &[]),
            Kind::Tiered(Some(percent)) => {
                let limit = cache(files, *percent)?.to_string();
                under(&tiered(options)?, None, &["--journal-limit", &limit])
            }
            Kind::Leave => under(options, None, &["--on-close", "leave"]),
            Kind::Preload(library) => {
                let mut command = Command::new(me);
                command.env("LD_PRELOAD", library);
                Ok(command)
            }
        }
    }
}

/// Room for an epoch of the warm-up, which has 4 MB.
const CACHE_MIN: u64 = 8 << 20;

/// The limit of each file's journal for a cache of so many percent.
fn cache(files: &[PathBuf], percent: u64) -> Result<u64, String> {
    let size = |file: &PathBuf| {
        let size = std::fs::metadata(file).map(|metadata| metadata.len());
        size.map_err(|error| format!("{}: {error}", file.display()))
    };
    let largest = files.iter().map(size).try_fold(0, |most, size| size.map(|size| most.max(size)))?;
    Ok((largest * percent / 100).max(CACHE_MIN))
}

/// With a pool in memory, if they name none. What lies there does not survive a power cut.
fn tiered(options: &Options) -> Result<Options, String> {
    let mut options = Options { tier: Some(TierName::Auto), ..options.clone() };
    if options.pool.is_none() {
        options.pool = Some(pool()?);
        options.durability = Some(DurabilityName::Process);
        options.domain = Some(DomainName::Emulated);
    }
    Ok(options)
}

/// `NAME=PATH` of `--preload`.
impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once('=').ok_or("not NAME=PATH")?;
        if name.is_empty() || ["plain", "Famio"].contains(&name) {
            return Err(format!("'{name}' can't be the name of another library"));
        }
        // If the loader does not find the library, it only reports that on stderr, and runs the program without it.
        let path = Path::new(path).canonicalize().map_err(|error| format!("{path}: {error}"))?;
        Ok(Self { name: name.into(), kind: Kind::Preload(path) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_named_and_must_be_there() {
        assert_eq!("zero=/dev/zero".parse::<Side>().unwrap().name, "zero");
        for bad in ["/dev/zero", "=/dev/zero", "Famio=/dev/zero", "x=/nonexistent"] {
            assert!(bad.parse::<Side>().is_err(), "{bad}");
        }
    }
}
