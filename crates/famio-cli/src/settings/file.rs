//! Settings from `famio.toml`. Paths in it are relative to its folder.

use super::by_glob::{ByGlob, Value};
use super::globs::absolute;
use super::layer::Layer;
use super::log::{LogLevelName, LogTarget};
use super::names::{
    AsyncIoName, DeferCloseName, DomainName, DurabilityName, JournalName, LocksName, OnCloseName, PolicyName, TierName,
};
use super::size::Size;
use super::trust::{self, Trust};
use super::weight::Weight;
use super::write_back::WriteBack;
use crate::look;
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file's name.
pub const NAME: &str = "famio.toml";
/// The largest that is read, in bytes.
const LARGEST: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Text {
    #[serde(default)]
    atomic: Vec<String>,
    pool: Option<PathBuf>,
    shm: Option<PathBuf>,
    durability: Option<DurabilityName>,
    domain: Option<DomainName>,
    policy: Option<PolicyName>,
    locks: Option<LocksName>,
    journal: Option<JournalName>,
    on_close: Option<OnCloseName>,
    defer_close: Option<DeferCloseName>,
    journal_limit: Option<Size>,
    tier: Option<TierName>,
    write_back: Option<WriteBack>,
    application: Option<String>,
    pool_weight: Option<Weight>,
    map_memory: Option<Size>,
    async_io: Option<AsyncIoName>,
    require: Option<bool>,
    on_kill: Option<ByGlobText>,
    atomicity: Option<ByGlobText>,
    log: Option<String>,
    log_level: Option<LogLevelName>,
    #[serde(default)]
    group: Vec<GroupText>,
}

/// Files that are committed together, `[[group]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    atomic: Vec<String>,
}

/// A word, or globs of files.
#[derive(Deserialize)]
#[serde(untagged)]
enum ByGlobText {
    Word(String),
    Globs(Vec<String>),
}

/// The nearest `famio.toml` that can be [trusted](trust), in `here` or above; up to `home` if that is above,
/// otherwise up to the root. Others are skipped, with a message.
pub fn search(here: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let mut is_told = false;
    for folder in here.ancestors() {
        let path = folder.join(NAME);
        if path.as_os_str().len() >= libc::PATH_MAX as usize {
            // Once, and without the path: each folder above would repeat all of it.
            if !std::mem::replace(&mut is_told, true) {
                eprintln!("famio: the current folder's path is too long to look for {NAME} in it; --config names one");
            }
        } else {
            match trust::look(&path) {
                Trust::Obeyed => return Some(path),
                Trust::Refused(why) => eprintln!("famio: {} is not obeyed: {why}", path.display()),
                Trust::Absent => {}
            }
        }
        if Some(folder) == home {
            return None;
        }
    }
    None
}

/// The text of a regular file that is no larger than a settings file may be: a device or a FIFO could be read forever.
pub fn text(path: &Path) -> io::Result<String> {
    let file = look::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file; name a text file like famio.toml"));
    }
    limited(file)
}

/// Whether it is what a shell passes by `<(COMMAND)` or `/dev/stdin`: a pipe that is open already.
fn is_passed(path: &Path) -> bool {
    path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd") || path == Path::new("/dev/stdin")
}

fn limited(file: impl Read) -> io::Result<String> {
    let mut text = String::new();
    // The size is no limit: a file of /proc has none.
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other("larger than 1 MiB, so not a famio.toml; name another file"));
    }
    Ok(text)
}

/// Reads and checks one file.
pub fn read(path: &Path) -> Result<Layer, String> {
    let name = path.display();
    let is_passed = is_passed(path);
    let text = if is_passed { std::fs::File::open(path).and_then(limited) } else { text(path) };
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    let text: Text = toml::from_str(&text).map_err(|error| format!("{name}: {}", error.to_string().trim_end()))?;
    let path = std::path::absolute(path).map_err(|error| format!("{name}: {error}"))?;
    // A pipe lies in no folder.
    let folder = match path.parent() {
        _ if is_passed => std::env::current_dir().map_err(|error| format!("{name}: the current folder: {error}"))?,
        parent => parent.unwrap_or(Path::new("/")).to_path_buf(),
    };
    let folder = &*folder;
    let read = |globs: &[String]| -> Result<Vec<OsString>, String> {
        globs
            .iter()
            .map(|glob| absolute(OsStr::new(glob), folder).map_err(|error| format!("{name}: {error}")))
            .collect()
    };
    let (mut atomic, mut given, mut groups) = (read(&text.atomic)?, text.atomic, Vec::new());
    for group in text.group {
        let globs = read(&group.atomic)?;
        if globs.is_empty() {
            return Err(format!("{name}: group: no glob in it"));
        }
        atomic.extend(globs.clone());
        given.extend(group.atomic);
        groups.push(globs);
    }
    let on_kill = by_glob(text.on_kill.as_ref(), folder).map_err(|error| format!("{name}: on-kill: {error}"))?;
    let atomicity = by_glob(text.atomicity.as_ref(), folder).map_err(|error| format!("{name}: atomicity: {error}"))?;
    let log = text.log.as_ref().map(|log| LogTarget::of(OsStr::new(log), folder));
    let log = log.transpose().map_err(|error| format!("{name}: log: {error}"))?;
    Ok(Layer {
        atomic,
        given,
        groups,
        pool: text.pool.map(|pool| folder.join(pool)),
        shm: text.shm.map(|shm| folder.join(shm)),
        durability: text.durability,
        domain: text.domain,
        policy: text.policy,
        locks: text.locks,
        journal: text.journal,
        on_close: text.on_close,
        defer_close: text.defer_close,
        journal_limit: text.journal_limit,
        tier: text.tier,
        write_back: text.write_back,
        application: text.application,
        pool_weight: text.pool_weight,
        map_memory: text.map_memory,
        async_io: text.async_io,
        require: text.require,
        on_kill,
        atomicity,
        log,
        log_level: text.log_level,
    })
}

fn by_glob<V: Value>(text: Option<&ByGlobText>, folder: &Path) -> Result<Option<ByGlob<V>>, String> {
    let rule = text.map(|text| match text {
        ByGlobText::Word(word) => ByGlob::word(word),
        ByGlobText::Globs(globs) => ByGlob::globs(globs.iter().map(OsStr::new), folder),
    });
    rule.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio::{Atomicity, OnKill};

    fn parse(text: &str) -> Result<Layer, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn every_key_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = root.join(NAME);
        let text = "atomic = ['./app.db', '/x/*.db']\npool = 'pool'\nshm = 'shm'\ndurability = 'process'\ndomain = 'emulated'\n\
                    policy = 'undo'\nlocks = 'kernel'\njournal = 'always'\njournal-limit = '1GiB'\nmap-memory = '2GiB'\ntier = 'off'\nwrite-back = '40:5'\napplication = 'web'\npool-weight = 300\nasync-io = 'allow'\nrequire = true\non-kill = ['x/*.db', 'b.db']\n\
                    atomicity = ['*.log']\n                    on-close = 'leave'\ndefer-close = 'auto'\nlog = 'a.log'\nlog-level = 'error'\n";
        std::fs::write(&path, text).unwrap();
        let layer = read(&path).unwrap();
        assert_eq!(layer.atomic, [root.join("app.db").as_os_str(), OsStr::new("/x/*.db")]);
        assert_eq!(layer.pool.unwrap(), root.join("pool"));
        assert_eq!(layer.shm.unwrap(), root.join("shm"));
        assert_eq!(layer.durability, Some(DurabilityName::Process));
        assert_eq!(layer.domain, Some(DomainName::Emulated));
        assert_eq!(layer.policy, Some(PolicyName::Undo));
        assert_eq!(layer.locks, Some(LocksName::Kernel));
        assert_eq!(layer.journal, Some(JournalName::Always));
        assert_eq!(layer.on_close, Some(OnCloseName::Leave));
        assert_eq!(layer.defer_close, Some(DeferCloseName::Auto));
        assert_eq!((layer.journal_limit, layer.map_memory), (Some(Size(1 << 30)), Some(Size(2 << 30))));
        assert_eq!((layer.tier, layer.write_back), (Some(TierName::Off), Some("40:5".parse().unwrap())));
        assert_eq!((layer.application.as_deref(), layer.pool_weight), (Some("web"), Some(Weight(300))));
        assert_eq!(layer.async_io, Some(AsyncIoName::Allow));
        assert_eq!(layer.require, Some(true));
        assert_eq!(layer.log.unwrap().text(), root.join("a.log"));
        assert_eq!(layer.log_level, Some(LogLevelName::Error));
        let globs = vec![root.join("x/*.db").into(), "b.db".into()];
        assert_eq!(layer.on_kill, Some(ByGlob::Globs(globs)));
        assert_eq!(parse("on-kill = 'keep'").unwrap().on_kill, Some(ByGlob::All(OnKill::Keep)));
        assert_eq!(layer.atomicity, Some(ByGlob::Globs(vec!["*.log".into()])));
        assert_eq!(parse("atomicity = 'write'").unwrap().atomicity, Some(ByGlob::All(Atomicity::Write)));
    }

    #[test]
    fn the_files_of_groups_are_atomic() {
        let layer =
            parse("atomic = ['/a']\n[[group]]\natomic = ['/b/*.ibd', '/c']\n[[group]]\natomic = ['/d']\n").unwrap();
        assert_eq!(layer.atomic, ["/a", "/b/*.ibd", "/c", "/d"]);
        assert_eq!(layer.given, ["/a", "/b/*.ibd", "/c", "/d"]);
        assert_eq!(layer.groups, [vec!["/b/*.ibd", "/c"], vec!["/d"]]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("atomik = ['a']", "atomik"),
            ("policy = 'never'", "never"),
            ("locks = 'memory'", "memory"),
            ("log-level = 'loud'", "loud"),
            ("log = ''", "log"),
            ("journal-limit = -1", "-1"),
            ("journal-limit = 'much'", "much"),
            ("write-back = '10:30'", "10:30"),
            ("pool-weight = 0", "10000"),
            ("tier = 'on'", "on"),
            ("atomic = 'a'", "sequence"),
            ("atomic = ['[']", "["),
            ("on-kill = 'kept'", "kept"),
            ("on-kill = ['[']", "["),
            ("on-kill = []", "on-kill"),
            ("on-kill = ['keep', 'b.db']", "./keep"),
            ("on-kill = ['KEEP']", "'keep'"),
            ("atomicity = ['wrte']", "'write'"),
            ("atomicity = 'call'", "call"),
            ("atomicity = []", "atomicity"),
            ("[[group]]", "atomic"),
            ("[[group]]\natomic = []", "group"),
            ("[[group]]\natomic = ['[']", "["),
            ("[[group]]\natomic = ['a']\npool = 'b'", "pool"),
            ("= 1", "famio.toml"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word) && error.contains(NAME), "{text}: {error}");
        }
    }

    #[test]
    fn only_a_regular_file_of_some_size_is_read() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), rustix::fs::Mode::RUSR).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zeros")).unwrap();
        for name in ["fifo", "zeros", "."] {
            let error = read(&path(name)).unwrap_err();
            assert!(error.contains("regular file"), "{name}: {error}");
        }
        let comment = |length: u64| std::fs::write(path(NAME), "#".repeat(length as usize)).unwrap();
        comment(LARGEST);
        assert_eq!(read(&path(NAME)), Ok(Layer::default()));
        comment(LARGEST + 1);
        assert!(read(&path(NAME)).unwrap_err().contains("larger than 1 MiB"));
        assert!(read(&path("none")).unwrap_err().contains("No such file"));
    }

    #[test]
    fn the_search_goes_up_and_stops_at_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let deep = home.join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let write = |path: &Path| {
            std::fs::write(path.join(NAME), "").unwrap();
            for (path, mode) in [(path.join(NAME), 0o644), (path.to_path_buf(), 0o755)] {
                std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            }
        };
        write(folder.path());
        assert_eq!(search(&deep, Some(&home)), None);
        assert_eq!(search(&deep, None), Some(folder.path().join(NAME)));
        write(&home);
        assert_eq!(search(&deep, Some(&home)), Some(home.join(NAME)));
    }
}
