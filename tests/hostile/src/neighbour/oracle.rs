//! The expected contents of all files.

use crate::findings::Found;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// What the victim has reported about a file.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Hash of the last synced contents.
    pub done: String,
    /// Hashes of contents that may have been synced since.
    pub may: Vec<String>,
}

/// All of the victim's files.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// By name.
    pub files: BTreeMap<String, Past>,
    /// Files that Famio has reported as demoted while the victim runs.
    demoted: BTreeSet<String>,
}

impl Oracle {
    /// Processes a line of the victim's output.
    pub fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["M", file, hash] => self.files.entry(file.into()).or_default().may.push(hash.into()),
            ["D", file, hash] => {
                self.files.insert(file.into(), Past { done: hash.into(), may: Vec::new() });
            }
            _ => {}
        }
    }

    /// Processes a message of Famio's.
    pub fn hear_famio(&mut self, message: &str) {
        if let Some((path, _)) = message.strip_prefix("famio: ").and_then(|text| text.split_once(": demoted")) {
            let name = Path::new(path).file_name().unwrap_or_default();
            self.demoted.insert(name.to_string_lossy().into_owned());
        }
    }

    /// The victim has ended. If it was killed, a plain file is as it was written last, which it has not reported.
    pub fn end(&mut self, killed: bool) {
        for name in std::mem::take(&mut self.demoted) {
            if killed {
                self.files.remove(&name);
            }
        }
    }

    /// The state as input for the victim's next start.
    pub fn lines(&self) -> String {
        let empty = format!("{:x}", xxh3_64(&[]));
        let mut text = String::new();
        for (name, past) in &self.files {
            let done = if past.done.is_empty() { &empty } else { &past.done };
            text += &format!("{name} {done} {}\n", past.may.join(" "));
        }
        text + "\n"
    }

    /// Checks the files without Famio; returns what is wrong.
    pub fn look(&self, paths: &[PathBuf], when: &str) -> Vec<Found> {
        let mut found = Vec::new();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(past) = self.files.get(&name) else { continue };
            let empty = format!("{:x}", xxh3_64(&[]));
            let is_regular = path.symlink_metadata().is_ok_and(|stat| stat.is_file());
            let hash = match std::fs::read(path) {
                Ok(bytes) if is_regular => format!("{:x}", xxh3_64(&bytes)),
                // Removed by the victim, and not created again.
                _ => empty.clone(),
            };
            let done = if past.done.is_empty() { &empty } else { &past.done };
            if *done != hash && !past.may.contains(&hash) {
                let detail = format!("{}: {hash}, synced {done}, perhaps {:?}", path.display(), past.may);
                found.push(Found::new(format!("{when}: {name} is not as the victim synced it"), detail));
            }
        }
        found
    }
}

/// Files that no other user may change, with mode, owner, links, size, time and bytes.
pub fn picture(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut paths = vec![folder.to_path_buf()];
    while let Some(path) = paths.pop() {
        let Ok(stat) = path.symlink_metadata() else { continue };
        if stat.is_dir() {
            paths.extend(super::files::entries(&path));
        }
        let hash = if stat.is_file() { std::fs::read(&path).map_or(0, |bytes| xxh3_64(&bytes)) } else { 0 };
        let time = if stat.is_dir() { 0 } else { stat.mtime_nsec() };
        all.insert(path, format!("mode {:o}, owner {}, time {time}, bytes {hash:x}", stat.mode(), stat.uid()));
    }
    all
}
