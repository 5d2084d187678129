//! The sides of a comparison: different ways to start the same program.

use crate::bench::launch::{Under, me, name};
use crate::settings::{Options, PolicyName};
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
    /// Another library that intercepts file calls.
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

    /// The library that this side must have loaded, if only the loader ensures that.
    pub fn library(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Preload(library) => Some(library),
            _ => None,
        }
    }

    /// The command to run this program in that way, for files in a folder where no other files have their suffix.
    pub fn command(&self, options: &Options, files: &[PathBuf]) -> Result<Command, String> {
        let me = me()?;
        match &self.kind {
            Kind::Plain => Ok(Command::new(me)),
            Kind::Famio(policy) => {
                let atomic = match files {
                    [file] => file.clone(),
                    _ => files.first().and_then(|file| file.parent()).unwrap_or(Path::new("")).join("*.bench"),
                };
                Under { options, policy: *policy }.famio(&[&atomic], me.as_os_str())
            }
            Kind::Preload(library) => {
                let mut command = Command::new(me);
                command.env("LD_PRELOAD", library);
                Ok(command)
            }
        }
    }
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
