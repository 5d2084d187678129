//! The evidence of a failure: copies of files and journals as the kill left them, outputs, and a report.

use super::places::Places;
use famio::Settings;
use famio::recovery::{Found, survey};
use std::fs;
use std::path::{Path, PathBuf};

/// More than this is not copied after every kill.
const MOST: u64 = 64 << 20;
const MARK: &str = "user.famio";

/// A folder that is kept only if something fails.
pub struct Evidence {
    folder: PathBuf,
    /// Originals of the copies.
    files: Vec<PathBuf>,
}

impl Evidence {
    /// Creates a new folder in the current one.
    pub fn new(seed: u64) -> Result<Self, String> {
        let here = std::env::current_dir().map_err(|error| format!("current folder: {error}"))?;
        let mut number = 1;
        loop {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let folder = here.join(format!("famio-torture-{seed}{suffix}"));
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(Self { folder, files: Vec::new() }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => return Err(format!("{}: {error}", folder.display())),
            }
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Copies what the kill left, if it is not too much: each journal, its file, and the file's mark.
    pub fn take(&mut self, places: &Places, settings: &Settings) -> Result<(), String> {
        let folder = self.folder.join("killed");
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => fs::create_dir(&folder).map_err(failed)?,
        }
        self.files.clear();
        let mut room = MOST;
        for place in places.all() {
            for found in survey(place, settings).map_err(|error| format!("{}: {error}", place.display()))? {
                if found.state == Found::UNEXAMINED {
                    continue; // another user's: the program cannot read it
                }
                let number = self.files.len();
                let size = found.size + fs::metadata(&found.file).map_or(0, |stat| stat.len());
                let note = format!("file {}\njournal {}\n", found.file.display(), found.journal.display());
                fs::write(folder.join(format!("{number}.names")), note).map_err(failed)?;
                if let Some(left) = room.checked_sub(size) {
                    room = left;
                    // Without a journal's suffix, so that `famio recover` does not take it for a journal.
                    copy(&found.journal, &folder.join(format!("{number}.journal-copy")))?;
                    copy(&found.file, &folder.join(format!("{number}.file")))?;
                    copy_mark(&found.file, &folder.join(format!("{number}.mark")))?;
                }
                self.files.push(found.file);
            }
        }
        Ok(())
    }

    /// Adds the files as they are now, and the report.
    pub fn keep(&mut self, places: &Places, report: &str) -> Result<(), String> {
        let mut text = report.to_string();
        for place in places.all() {
            text += &format!("recovered: {}\n", place.display());
        }
        text += "killed/N.file, N.journal-copy, N.mark: as the kill left them (none if too large); N.names: which they are\n\
                 recovered/N.file: after recovery and check\n";
        let folder = self.folder.join("recovered");
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for (number, file) in self.files.iter().enumerate() {
            if fs::metadata(file).is_ok_and(|stat| stat.len() <= MOST) {
                copy(file, &folder.join(format!("{number}.file")))?;
            }
        }
        let path = self.folder.join("report.txt");
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Removes the folder: nothing to keep.
    pub fn discard(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A file that does not exist is skipped.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    match fs::copy(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("copying {}: {error}", from.display()))
        }
        _ => Ok(()),
    }
}

fn copy_mark(file: &Path, to: &Path) -> Result<(), String> {
    let mut bytes = vec![0; 4096];
    match rustix::fs::getxattr(file, MARK, &mut bytes[..]) {
        Ok(length) => fs::write(to, &bytes[..length]).map_err(|error| format!("{}: {error}", to.display())),
        Err(_) => Ok(()),
    }
}
