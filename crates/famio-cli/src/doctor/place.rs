//! What the file system of a path offers: domain, attributes, file handles, room for journals.

use super::finding::Finding;
use crate::look;
use famio::journal::Identity;
use famio::pmem::{self, Detected, Domain};
use famio::sys::shm;
use famio::{Settings, TierChoice};
use rustix::fs::{Mode, OFlags, XattrFlags};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// All findings about one path.
pub fn look(path: &Path, settings: &Settings) -> Vec<Finding> {
    let (opened, folder) = match open(path) {
        Ok(opened) => opened,
        Err(error) => return vec![Finding::problem("path", format!("{}: {error}", path.display()))],
    };
    let (mut findings, detected) = domain(&opened, settings);
    if let (Some(detected), Some(pool)) = (detected, &settings.pool) {
        findings.extend(tier(&detected, pool, settings));
    }
    findings.push(attributes(&folder));
    findings.push(handles(&opened));
    findings.push(journals(&folder, settings));
    findings.push(shared_memory(settings.shm.as_deref()));
    findings
}

/// Up to this many bytes of shared memory count as little: a container's default.
const LITTLE: u64 = 64 << 20;

/// The folder in which processes share memory.
fn shared_memory(setting: Option<&Path>) -> Finding {
    const TOPIC: &str = "shared memory";
    let folder = setting.unwrap_or(Path::new(shm::DEFAULT));
    let checked = match setting {
        Some(_) => shm::check(folder).map(drop).map_err(|error| error.to_string()),
        None => crate::pool::writable(folder),
    };
    let found =
        checked.and_then(|()| rustix::fs::statvfs(folder).map_err(|errno| format!("{}: {errno}", folder.display())));
    let found = match found {
        Ok(found) => found,
        Err(error) => return Finding::problem(TOPIC, error),
    };
    let [all, free] = [found.f_blocks, found.f_bavail].map(|blocks| blocks.saturating_mul(found.f_frsize));
    let room = format!("{}: {} free of {}", folder.display(), crate::text::bytes(free), crate::text::bytes(all));
    if all == 0 {
        return Finding::fine(TOPIC, format!("{}: without a limit", folder.display())); // tmpfs with size=0
    }
    if all > LITTLE {
        return Finding::fine(TOPIC, room);
    }
    let follows = "little: when three quarters are in use, unsynced data goes to a file beside the journal, and \
                   other processes may get EBUSY until the next SYNC then; a file that is mapped can't be shared by processes at all. \
                   Make it larger (docker run --shm-size=1g), or name another tmpfs with --shm DIR";
    Finding::note(TOPIC, format!("{room}, which is {follows}"))
}

/// Opens the file or folder, and finds its folder. A path that does not exist is an error: a mistyped name looks like
/// a file yet to be created.
fn open(path: &Path) -> std::io::Result<(File, PathBuf)> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let not_there = "not there; for a new file, ask for its folder";
    let stat = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => std::io::Error::new(error.kind(), not_there),
        _ => error,
    })?;
    match (stat.is_dir(), stat.is_file()) {
        (true, _) => Ok((look::open(path)?, path.to_path_buf())),
        (_, true) => Ok((look::open(path)?, parent(path))),
        _ => Err(std::io::Error::other("neither a regular file nor a folder")),
    }
}

fn domain(file: &File, settings: &Settings) -> (Vec<Finding>, Option<Detected>) {
    let detected = match pmem::detect(file.as_fd(), settings) {
        Ok(detected) => detected,
        Err(error) => return (vec![Finding::problem("domain", error.to_string())], None),
    };
    let name = detected.domain.name();
    let survives = format!("a SYNC survives {} ({})", detected.domain.survives(), detected.domain.mechanism());
    let durability = match detected.domain {
        Domain::Pmem | Domain::PageCache => Finding::fine("durability", survives),
        Domain::Process | Domain::Emulated => Finding::note("durability", survives),
    };
    let mut findings = vec![
        Finding::fine("file system", detected.file_system),
        Finding::fine("domain", format!("{name}: {}", detected.reason())),
        durability,
    ];
    if detected.eadr {
        findings.push(Finding::fine("eADR", "the platform flushes its caches at power loss: no write-backs needed"));
    }
    (findings, Some(detected))
}

/// Whether the pool is used for SYNCs of a file on a disk; `None` if it lies on the same kind of storage as the file.
fn tier(file: &Detected, pool: &Path, settings: &Settings) -> Option<Finding> {
    const TOPIC: &str = "tier";
    let journal = pmem::detect(look::open(pool).ok()?.as_fd(), settings).ok()?;
    let (disk, memory) = (file.natural == Domain::PageCache, journal.natural.is_byte_addressable());
    let (on, domain) = (journal.file_system, journal.domain);
    match (disk && memory, famio::pmem::is_tiered(file, &journal, settings)) {
        (true, true) => Some(Finding::fine(
            TOPIC,
            format!(
                "a SYNC goes to the pool on {on} ({domain}: {}), the file on the disk is written later",
                domain.mechanism()
            ),
        )),
        (true, false) if settings.tier == TierChoice::Off => {
            Some(Finding::note(TOPIC, format!("off: the pool on {on} is used as one on a disk (--tier off)")))
        }
        (true, false) => Some(Finding::problem(
            TOPIC,
            format!(
                "the pool on {on} survives no power loss as the file does: --durability process, or a pool on a disk"
            ),
        )),
        _ => None,
    }
}

/// An unnamed file in the folder, for trials; closing it removes it.
fn trial_file(folder: &Path) -> Result<OwnedFd, String> {
    rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| format!("a file can't be made in {}: {errno}", folder.display()))
}

fn attributes(folder: &Path) -> Finding {
    const TOPIC: &str = "user attributes";
    let tried = trial_file(folder).and_then(|file| {
        rustix::fs::fsetxattr(&file, "user.famio.trial", b"1", XattrFlags::CREATE)
            .map_err(|errno| format!("refused ({errno}): a file with a pending journal could not be marked"))
    });
    match tried {
        Ok(()) => Finding::fine(TOPIC, "work: a file with a pending journal can be marked"),
        Err(error) => Finding::problem(TOPIC, error),
    }
}

fn handles(file: &File) -> Finding {
    const TOPIC: &str = "file handles";
    match Identity::of_fd(file.as_fd()) {
        Ok(_) => Finding::fine(TOPIC, "work: a copied or replaced file is told from the original"),
        Err(error) => Finding::problem(TOPIC, error.to_string()),
    }
}

fn journals(folder: &Path, settings: &Settings) -> Finding {
    const TOPIC: &str = "journals";
    let limit = crate::text::bytes(settings.journal_limit);
    let (checked, what) = match &settings.pool {
        Some(pool) => (crate::pool::check(pool), format!("in the pool {}", pool.display())),
        // The mode alone says little: root may write to /proc, too.
        None => {
            let tried = crate::pool::writable(folder).and_then(|()| trial_file(folder).map(drop));
            (tried, "in .famio/ beside each file".to_string())
        }
    };
    match checked {
        Ok(()) => Finding::fine(TOPIC, format!("{what}, up to {limit} per file")),
        Err(error) => Finding::problem(TOPIC, error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_folder_that_is_not_there() {
        let findings = look(Path::new("/no/such/file"), &Settings::default());
        assert_eq!(findings[0].verdict, Verdict::Problem);
    }

    #[test]
    fn a_file_system_without_guarantees() {
        let findings = look(Path::new("/proc/self/status"), &Settings::default());
        assert!(findings.iter().any(|finding| finding.topic == "domain" && finding.verdict == Verdict::Problem));
    }

    #[test]
    fn where_no_file_can_be_made_is_no_room_for_journals() {
        let finding = journals(Path::new("/proc"), &Settings::default());
        assert!(finding.verdict == Verdict::Problem && finding.text.contains("/proc"), "{finding:?}");
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        assert_eq!(journals(folder.path(), &Settings::default()).verdict, Verdict::Fine);
    }

    #[test]
    fn a_mistyped_name_is_no_file_to_come() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let findings = look(&folder.path().join("new.db"), &Settings::default());
        assert!(findings.len() == 1 && findings[0].verdict == Verdict::Problem, "{findings:?}");
        assert!(findings[0].text.contains("new.db: not there"), "{}", findings[0].text);
        let findings = look(folder.path(), &Settings::default());
        let domain = findings.iter().find(|finding| finding.topic == "domain").unwrap();
        assert!(domain.text.starts_with("process"), "{}", domain.text);
    }

    #[test]
    fn shared_memory_that_can_not_be_used() {
        for (folder, word) in [("/no/such/folder", "made first"), ("/proc", "not on tmpfs")] {
            let finding = shared_memory(Some(Path::new(folder)));
            assert!(finding.verdict == Verdict::Problem && finding.text.contains(word), "{finding:?}");
        }
        let finding = shared_memory(None);
        assert!(finding.verdict != Verdict::Problem && finding.text.starts_with("/dev/shm: "), "{finding:?}");
    }

    #[test]
    fn a_pool_that_is_not_there() {
        let settings = Settings { pool: Some("/no/such/pool".into()), ..Settings::default() };
        assert_eq!(journals(Path::new("/tmp"), &settings).verdict, Verdict::Problem);
    }
}
