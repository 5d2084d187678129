//! The possible states of a file after a kill, recorded outside in plain files, which a kill does not change.
//!
//! `log` has a line for each relevant moment: `D` (a SYNC has returned), `M` (one begins), `B` (from here on, all
//! writes are one process's, and are rolled back with it). Each names a file beside it with all bytes of that moment.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A SYNC has returned: earlier states must not appear.
    Done,
    /// A SYNC is about to begin: this state may appear.
    May,
    /// What is written from here on is rolled back if its writer dies.
    Base,
}

/// Writes the log.
pub struct Writer {
    folder: PathBuf,
    log: File,
    trace: File,
}

impl Writer {
    /// Continues the log in a folder, or begins it.
    pub fn new(folder: &Path) -> Result<Self, String> {
        let open = |name: &str| {
            let path = folder.join(name);
            let file = File::options().append(true).create(true).open(&path);
            file.map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self { folder: folder.into(), log: open("log")?, trace: open("trace")? })
    }

    /// Records what is being done, for debugging: `trace` has it for all processes.
    pub fn trace(&mut self, text: &str) {
        let _ = self.trace.write_all(format!("{} {text}\n", std::process::id()).as_bytes());
    }

    /// Keeps a state; returns its name.
    pub fn keep(&mut self, bytes: &[u8]) -> Result<String, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("state-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        std::fs::write(self.folder.join(&name), bytes).map_err(|error| format!("{name}: {error}"))?;
        Ok(name)
    }

    /// Records the meaning of a kept state.
    pub fn say(&mut self, moment: Moment, name: &str) -> Result<(), String> {
        let letter = match moment {
            Moment::Done => 'D',
            Moment::May => 'M',
            Moment::Base => 'B',
        };
        // One call, so that a kill leaves a whole line or nothing.
        self.log.write_all(format!("{letter} {name}\n").as_bytes()).map_err(|error| format!("log: {error}"))
    }
}

/// The content of the log.
#[derive(Debug, Default)]
pub struct Past {
    folder: PathBuf,
    /// Names of states that may be there when all processes have died.
    pub committed: Vec<String>,
    /// The same if living processes have the file open.
    pub lived: Vec<String>,
}

impl Past {
    /// Reads the log in a folder.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join("log");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut past = Self { folder: folder.into(), ..Self::default() };
        for line in text.lines() {
            let (letter, name) = line.split_once(' ').ok_or_else(|| format!("{}: {line:?}", path.display()))?;
            let name = name.to_owned();
            match letter {
                "D" => {
                    past.committed = vec![name.clone()];
                    past.lived = vec![name];
                }
                "B" => past.lived = vec![name],
                _ => {
                    past.committed.push(name.clone());
                    past.lived.push(name);
                }
            }
        }
        Ok(past)
    }

    /// All bytes of a state.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        std::fs::read(self.folder.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    /// Checks that the contents are one of these states; `Err`: how they differ from each.
    pub fn is_one_of(&self, states: &[String], there: &[u8]) -> Result<(), String> {
        let mut differs = Vec::new();
        for name in states {
            let state = self.bytes(name)?;
            if state == there {
                return Ok(());
            }
            differs.push(format!("{name}: {}", difference(there, &state)));
        }
        Err(format!("it is none of the {} states that it may be:\n  {}", states.len(), differs.join("\n  ")))
    }
}

/// Describes where two files differ: sizes, the first byte, and how many bytes do.
pub fn difference(there: &[u8], expected: &[u8]) -> String {
    let pairs = || there.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b);
    let first = match pairs().next() {
        None => "none below the shorter one's end".into(),
        Some((at, (a, b))) => {
            let last = pairs().next_back().map_or(at, |(last, _)| last);
            format!("byte {at} first, {a:#04x} for {b:#04x}, {last} last, {} in all", pairs().count())
        }
    };
    format!("{} bytes for {}; differing bytes: {first}", there.len(), expected.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_after_a_kill() {
        let folder = famio_test_support::place::Place::new(&std::env::temp_dir(), "famio-posix-past").unwrap();
        let mut writer = Writer::new(folder.path()).unwrap();
        let mut say = |moment, text: &str| {
            let name = writer.keep(text.as_bytes()).unwrap();
            writer.say(moment, &name).unwrap();
        };
        say(Moment::Done, "one");
        say(Moment::Base, "two");
        say(Moment::May, "three");
        let past = Past::read(folder.path()).unwrap();
        let of = |states: &[String]| states.iter().map(|name| past.bytes(name).unwrap()).collect::<Vec<_>>();
        assert_eq!(of(&past.committed), [b"one".to_vec(), b"three".to_vec()]);
        assert_eq!(of(&past.lived), [b"two".to_vec(), b"three".to_vec()]);
        assert!(past.is_one_of(&past.lived, b"two").is_ok());
        let wrong = past.is_one_of(&past.committed, b"two").unwrap_err();
        assert!(wrong.contains("byte 1 first"), "{wrong}");
        say(Moment::Done, "four");
        let past = Past::read(folder.path()).unwrap();
        assert_eq!((past.committed.len(), past.lived.len()), (1, 1));
    }
}
