//! Settings from environment variables: the same names that `famio run` passes on to the preload library.

use super::by_glob::{ByGlob, Value};
use super::globs::absolute;
use super::layer::Layer;
use super::log::{LogLevelName, LogTarget};
use super::names::{
    AsyncIoName, DeferCloseName, DomainName, DurabilityName, JournalName, LocksName, OnCloseName, PolicyName, TierName,
    name_of,
};
use super::size::Size;
use clap::ValueEnum;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Globs, one per line.
pub const ATOMIC: &str = "FAMIO_ATOMIC";
/// The pool's folder.
pub const POOL: &str = "FAMIO_POOL";
/// The folder of shared memory.
pub const SHM: &str = "FAMIO_SHM";
/// `power` or `process`.
pub const DURABILITY: &str = "FAMIO_DURABILITY";
/// `emulated`.
pub const DOMAIN: &str = "FAMIO_DOMAIN";
/// `auto`, `undo`, `redo` or `alternate`.
pub const POLICY: &str = "FAMIO_POLICY";
/// `auto` or `kernel`.
pub const LOCKS: &str = "FAMIO_LOCKS";
pub const JOURNAL: &str = "FAMIO_JOURNAL";
/// `commit` or `leave`.
pub const ON_CLOSE: &str = "FAMIO_ON_CLOSE";
/// `never` or `auto`.
pub const DEFER_CLOSE: &str = "FAMIO_DEFER_CLOSE";
/// Bytes.
pub const JOURNAL_LIMIT: &str = "FAMIO_JOURNAL_LIMIT";
/// `auto` or `off`.
pub const TIER: &str = "FAMIO_TIER";
/// Percentages, as `30:10`.
pub const WRITE_BACK: &str = "FAMIO_WRITE_BACK";
/// A name.
pub const APPLICATION: &str = "FAMIO_APPLICATION";
/// From 1 to 10000.
pub const POOL_WEIGHT: &str = "FAMIO_POOL_WEIGHT";
/// Bytes.
pub const MAP_MEMORY: &str = "FAMIO_MAP_MEMORY";
/// `refuse` or `allow`.
pub const ASYNC_IO: &str = "FAMIO_ASYNC_IO";
/// `1` or `0`.
pub const REQUIRE: &str = "FAMIO_REQUIRE";

/// `rollback`, `keep`, or globs, one per line.
pub const ON_KILL: &str = "FAMIO_ON_KILL";
/// `epoch`, `write`, or globs, one per line.
pub const ATOMICITY: &str = "FAMIO_ATOMICITY";

/// Globs of the files of each group, one per line; an empty line begins the next group.
pub const GROUPS: &str = "FAMIO_GROUPS";

/// `stderr`, `syslog`, `journald` or a path.
pub const LOG: &str = "FAMIO_LOG";
/// `off`, `error`, `warning` or `info`.
pub const LOG_LEVEL: &str = "FAMIO_LOG_LEVEL";

/// Reads the variables; an empty one counts as not set.
pub fn read(variable: impl Fn(&str) -> Option<OsString>, here: &Path) -> Result<Layer, String> {
    let get = |name: &str| variable(name).filter(|value| !value.is_empty());
    let (mut atomic, mut given) = (Vec::new(), Vec::new());
    for line in get(ATOMIC).unwrap_or_default().as_bytes().split(|&byte| byte == b'\n') {
        if !line.is_empty() {
            atomic.push(absolute(OsStr::from_bytes(line), here).map_err(|error| format!("{ATOMIC}: {error}"))?);
            given.push(String::from_utf8_lossy(line).into_owned());
        }
    }
    let mut groups: Vec<Vec<OsString>> = vec![Vec::new()];
    for line in get(GROUPS).unwrap_or_default().as_bytes().split(|&byte| byte == b'\n') {
        match groups.last_mut() {
            Some(group) if !line.is_empty() => {
                group.push(absolute(OsStr::from_bytes(line), here).map_err(|error| format!("{GROUPS}: {error}"))?);
            }
            _ => groups.push(Vec::new()),
        }
    }
    groups.retain(|group| !group.is_empty());
    let size = |name: &str| {
        let parse = |value: OsString| value.to_string_lossy().parse().map_err(|error| format!("{name}: {error}"));
        get(name).map(parse).transpose()
    };
    Ok(Layer {
        atomic,
        given,
        groups,
        pool: get(POOL).map(|pool| here.join(pool)),
        shm: get(SHM).map(|shm| here.join(shm)),
        durability: word::<DurabilityName>(DURABILITY, get(DURABILITY))?,
        domain: word::<DomainName>(DOMAIN, get(DOMAIN))?,
        policy: word::<PolicyName>(POLICY, get(POLICY))?,
        locks: word::<LocksName>(LOCKS, get(LOCKS))?,
        journal: word::<JournalName>(JOURNAL, get(JOURNAL))?,
        on_close: word::<OnCloseName>(ON_CLOSE, get(ON_CLOSE))?,
        defer_close: word::<DeferCloseName>(DEFER_CLOSE, get(DEFER_CLOSE))?,
        journal_limit: size(JOURNAL_LIMIT)?,
        map_memory: size(MAP_MEMORY)?,
        tier: word::<TierName>(TIER, get(TIER))?,
        write_back: match get(WRITE_BACK) {
            Some(value) => Some(value.to_string_lossy().parse().map_err(|error| format!("{WRITE_BACK}: {error}"))?),
            None => None,
        },
        application: get(APPLICATION).map(|name| name.to_string_lossy().into_owned()),
        pool_weight: match get(POOL_WEIGHT) {
            Some(value) => Some(value.to_string_lossy().parse().map_err(|error| format!("{POOL_WEIGHT}: {error}"))?),
            None => None,
        },
        async_io: word::<AsyncIoName>(ASYNC_IO, get(ASYNC_IO))?,
        require: truth(REQUIRE, get(REQUIRE))?,
        on_kill: by_glob(ON_KILL, get(ON_KILL), here)?,
        atomicity: by_glob(ATOMICITY, get(ATOMICITY), here)?,
        log: log(get(LOG), here)?,
        log_level: word::<LogLevelName>(LOG_LEVEL, get(LOG_LEVEL))?,
    })
}

fn by_glob<V: Value>(name: &str, value: Option<OsString>, here: &Path) -> Result<Option<ByGlob<V>>, String> {
    let Some(value) = value else { return Ok(None) };
    let lines = value.as_bytes().split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(OsStr::from_bytes);
    ByGlob::read(lines, here).map(Some).map_err(|error| format!("{name}: {error}"))
}

fn log(value: Option<OsString>, here: &Path) -> Result<Option<LogTarget>, String> {
    let target = value.map(|value| LogTarget::of(&value, here));
    target.transpose().map_err(|error| format!("{LOG}: {error}"))
}

/// `1` or `0`.
fn truth(name: &str, value: Option<OsString>) -> Result<Option<bool>, String> {
    match value.as_ref().map(|value| value.as_bytes()) {
        None => Ok(None),
        Some(b"1") => Ok(Some(true)),
        Some(b"0") => Ok(Some(false)),
        Some(other) => Err(format!("{name}: '{}' is not one of: 1, 0", String::from_utf8_lossy(other))),
    }
}

/// One of a set of words.
fn word<T: ValueEnum>(name: &str, value: Option<OsString>) -> Result<Option<T>, String> {
    let Some(value) = value else { return Ok(None) };
    let value = value.to_string_lossy();
    T::from_str(&value, false).map(Some).map_err(|_| {
        let known: Vec<_> = T::value_variants().iter().filter_map(|variant| variant.to_possible_value()).collect();
        let known: Vec<_> = known.iter().map(|value| value.get_name()).collect();
        format!("{name}: '{value}' is not one of: {}", known.join(", "))
    })
}

impl Layer {
    /// The environment variables for the preload library.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut list = vec![(ATOMIC, self.atomic.join("\n".as_ref()))];
        let mut add = |name, value: Option<OsString>| list.extend(value.map(|value| (name, value)));
        add(POOL, self.pool.clone().map(Into::into));
        add(SHM, self.shm.clone().map(Into::into));
        add(DURABILITY, self.durability.map(name_of));
        add(DOMAIN, self.domain.map(name_of));
        add(POLICY, self.policy.map(name_of));
        add(LOCKS, self.locks.map(name_of));
        add(JOURNAL, self.journal.map(name_of));
        add(ON_CLOSE, self.on_close.map(name_of));
        add(DEFER_CLOSE, self.defer_close.map(name_of));
        add(JOURNAL_LIMIT, self.journal_limit.map(|Size(bytes)| bytes.to_string().into()));
        add(TIER, self.tier.map(name_of));
        add(WRITE_BACK, self.write_back.map(|range| range.to_string().into()));
        add(APPLICATION, self.application.clone().map(Into::into));
        add(POOL_WEIGHT, self.pool_weight.map(|weight| weight.to_string().into()));
        add(MAP_MEMORY, self.map_memory.map(|Size(bytes)| bytes.to_string().into()));
        add(ASYNC_IO, self.async_io.map(name_of));
        add(REQUIRE, self.require.map(|require| if require { "1" } else { "0" }.into()));
        add(ON_KILL, self.on_kill.as_ref().map(ByGlob::variable));
        add(ATOMICITY, self.atomicity.as_ref().map(ByGlob::variable));
        let groups: Vec<OsString> = self.groups.iter().map(|group| group.join("\n".as_ref())).collect();
        add(GROUPS, (!groups.is_empty()).then(|| groups.join("\n\n".as_ref())));
        add(LOG, self.log.as_ref().map(LogTarget::text));
        add(LOG_LEVEL, self.log_level.map(name_of));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Weight;
    use famio::{Atomicity, OnKill};

    fn with(name: &'static str, value: &'static str) -> Result<Layer, String> {
        read(|asked| (asked == name).then(|| value.into()), Path::new("/tmp"))
    }

    #[test]
    fn words_and_paths() {
        assert_eq!(with(POLICY, "redo").unwrap().policy, Some(PolicyName::Redo));
        assert_eq!(with(POOL, "pool").unwrap().pool.unwrap(), Path::new("/tmp/pool"));
        assert_eq!(with(SHM, "shm").unwrap().shm.unwrap(), Path::new("/tmp/shm"));
        assert_eq!(with(ATOMIC, "a.db\n\nx/*.db").unwrap().atomic, ["a.db", "/tmp/x/*.db"]);
        assert_eq!(with(LOCKS, "kernel").unwrap().locks, Some(LocksName::Kernel));
        assert_eq!(with(JOURNAL, "always").unwrap().journal, Some(JournalName::Always));
        assert_eq!(with(ON_CLOSE, "leave").unwrap().on_close, Some(OnCloseName::Leave));
        assert_eq!(with(DEFER_CLOSE, "auto").unwrap().defer_close, Some(DeferCloseName::Auto));
        assert_eq!(with(REQUIRE, "1").unwrap().require, Some(true));
        assert_eq!(with(LOG_LEVEL, "info").unwrap().log_level, Some(LogLevelName::Info));
        assert_eq!(with(LOG, "a.log").unwrap().log.unwrap().text(), "/tmp/a.log");
        assert_eq!(with(REQUIRE, "0").unwrap().require, Some(false));
        assert_eq!(with(ON_KILL, "keep").unwrap().on_kill, Some(ByGlob::All(OnKill::Keep)));
        assert_eq!(with(ATOMICITY, "write").unwrap().atomicity, Some(ByGlob::All(Atomicity::Write)));
        let globs = ByGlob::Globs(vec!["*.ibd".into(), "/tmp/x/log".into()]);
        assert_eq!(with(ON_KILL, "*.ibd\nx/log").unwrap().on_kill, Some(globs));
        let groups = with(GROUPS, "a\nx/b\n\nc").unwrap();
        assert_eq!(groups.groups, [vec!["a", "/tmp/x/b"], vec!["c"]]);
        assert!(groups.variables().contains(&(GROUPS, "a\n/tmp/x/b\n\nc".into())));
        assert_eq!(with(POLICY, "").unwrap(), Layer::default());
    }

    #[test]
    fn a_bad_value_is_named() {
        assert_eq!(
            with(POLICY, "maybe").unwrap_err(),
            "FAMIO_POLICY: 'maybe' is not one of: auto, undo, redo, alternate"
        );
        assert_eq!(with(LOCKS, "memory").unwrap_err(), "FAMIO_LOCKS: 'memory' is not one of: auto, kernel");
        assert!(with(REQUIRE, "yes").unwrap_err().starts_with("FAMIO_REQUIRE: "));
        assert!(with(JOURNAL_LIMIT, "lots").unwrap_err().starts_with("FAMIO_JOURNAL_LIMIT: "));
        assert!(
            with(ATOMICITY, "wrte").unwrap_err().starts_with("FAMIO_ATOMICITY: 'wrte' looks like the word 'write'")
        );
        assert!(with(ATOMIC, "/a[").unwrap_err().starts_with("FAMIO_ATOMIC: "));
    }

    #[test]
    fn the_preload_library_is_told_everything_that_was_said() {
        let layer = Layer {
            atomic: vec!["/a".into(), "/b*".into()],
            given: vec!["a".into(), "b*".into()],
            groups: vec![vec!["/a".into(), "/b*".into()], vec!["/c".into()]],
            pool: Some("/pool".into()),
            shm: Some("/shm".into()),
            durability: Some(DurabilityName::Process),
            domain: Some(DomainName::Emulated),
            policy: Some(PolicyName::Alternate),
            locks: Some(LocksName::Kernel),
            journal: Some(JournalName::Always),
            on_close: Some(OnCloseName::Leave),
            defer_close: Some(DeferCloseName::Auto),
            journal_limit: Some(Size(5)),
            tier: Some(TierName::Off),
            write_back: Some("50:20".parse().unwrap()),
            application: Some("web".into()),
            pool_weight: Some(Weight(300)),
            map_memory: Some(Size(6)),
            async_io: Some(AsyncIoName::Allow),
            require: Some(true),
            on_kill: Some(ByGlob::Globs(vec!["/b*".into(), "*.ibd".into()])),
            atomicity: Some(ByGlob::All(Atomicity::Write)),
            log: Some(LogTarget::of("a.log".as_ref(), Path::new("/x")).unwrap()),
            log_level: Some(LogLevelName::Info),
        };
        let expected = [
            ("FAMIO_ATOMIC", "/a\n/b*"),
            ("FAMIO_POOL", "/pool"),
            ("FAMIO_SHM", "/shm"),
            ("FAMIO_DURABILITY", "process"),
            ("FAMIO_DOMAIN", "emulated"),
            ("FAMIO_POLICY", "alternate"),
            ("FAMIO_LOCKS", "kernel"),
            ("FAMIO_JOURNAL", "always"),
            ("FAMIO_ON_CLOSE", "leave"),
            ("FAMIO_DEFER_CLOSE", "auto"),
            ("FAMIO_JOURNAL_LIMIT", "5"),
            ("FAMIO_TIER", "off"),
            ("FAMIO_WRITE_BACK", "50:20"),
            ("FAMIO_APPLICATION", "web"),
            ("FAMIO_POOL_WEIGHT", "300"),
            ("FAMIO_MAP_MEMORY", "6"),
            ("FAMIO_ASYNC_IO", "allow"),
            ("FAMIO_REQUIRE", "1"),
            ("FAMIO_ON_KILL", "/b*\n*.ibd"),
            ("FAMIO_ATOMICITY", "write"),
            ("FAMIO_GROUPS", "/a\n/b*\n\n/c"),
            ("FAMIO_LOG", "/x/a.log"),
            ("FAMIO_LOG_LEVEL", "info"),
        ];
        assert_eq!(layer.variables(), expected.map(|(name, value)| (name, OsString::from(value))));
    }
}
