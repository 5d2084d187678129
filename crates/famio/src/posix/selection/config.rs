//! The user's settings, read from the environment.

use super::environment::variable;
use super::globs::Globs;
use super::keywords::check_glob;
use crate::error;
use crate::error::Error;
use crate::journal::WEIGHTS;
use crate::posix::raw;
use crate::settings::{
    Atomicity, DeferClose, Durability, JournalChoice, LocksChoice, OnClose, OnKill, PolicyChoice, Settings, TierChoice,
    check_journal_limit, parse_size,
};
use crate::sys::log;
use crate::sys::log::{Level, Target};
use crate::sys::shm;
use std::borrow::Cow;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Which files are atomic, and how.
pub struct Config {
    /// The files.
    pub globs: Globs,
    /// Their settings.
    pub settings: Settings,
    /// Files of these whose writes survive a kill, unless `settings` say so for all.
    pub kept: Option<Globs>,
    /// Files of these whose calls are committed one by one, unless `settings` say so for all.
    pub write_atomic: Option<Globs>,
    /// The files of each group.
    pub groups: Vec<Globs>,
    /// Whether the program may set up an io_uring, whose requests go past the library.
    pub async_io: bool,
}

impl Config {
    /// The settings of a selected file.
    pub(in crate::posix) fn settings_of(&self, path: &CStr) -> Cow<'_, Settings> {
        let is_in = |globs: &Option<Globs>| {
            globs.as_ref().is_some_and(|globs| globs.matches(libc::AT_FDCWD, path.to_bytes(), true))
        };
        let mut settings = Cow::Borrowed(&self.settings);
        if is_in(&self.kept) {
            settings.to_mut().on_kill = OnKill::Keep;
        }
        if is_in(&self.write_atomic) {
            settings.to_mut().atomicity = Atomicity::Write;
        }
        settings
    }

    /// The group that a selected file belongs to.
    ///
    /// # Errors
    /// `EINVAL`: to several.
    pub(in crate::posix) fn group_of(&self, path: &CStr) -> error::Result<Option<u32>> {
        let is_in = |globs: &Globs| globs.matches(libc::AT_FDCWD, path.to_bytes(), true);
        let mut groups = (0..).zip(&self.groups).filter(|(_, globs)| is_in(globs)).map(|(number, _)| number);
        let group = groups.next();
        if groups.next().is_some() {
            let what = "it belongs to two groups of famio.toml (or FAMIO_GROUPS)";
            return Err(Error::with(libc::EINVAL, what).context(path.to_string_lossy()));
        }
        Ok(group)
    }

    /// Whether a selected file that cannot be protected is left to the kernel.
    pub(in crate::posix) fn may_be_kernels(&self, path: &CStr) -> bool {
        !self.settings.require && matches!(self.group_of(path), Ok(None))
    }

    /// Settings that weaken durability: a warning to print once, when a process first opens an atomic file.
    pub(in crate::posix) fn warning(&self) -> Option<String> {
        if self.settings.emulated {
            Some("domain emulated: plain memory stands in for persistent memory; nothing survives a power cut".into())
        } else if self.settings.durability == Durability::Process {
            Some("durability process: a SYNC survives the end of the process, not a power cut".into())
        } else {
            None
        }
    }
}

/// The configuration in the environment; `None` without `FAMIO_ATOMIC`; `Err` names the variable and what is wrong
/// with it.
pub(in crate::posix) fn from_environment() -> Result<Option<Config>, String> {
    parse(variable)
}

/// For a program that itself says which files are atomic: the settings in the environment, without globs. `Err` as
/// above.
pub(in crate::posix) fn for_programs() -> Result<Config, String> {
    let (mut settings, async_io) = parse_settings(&variable)?;
    settings.require = true; // the program asked for an atomic file, so it must not get another kind
    let kept = kept(&variable, &mut settings)?;
    let write_atomic = write_atomic(&variable, &mut settings)?;
    let groups = groups(&variable, &settings)?;
    Ok(Config { globs: Globs::none(settings.pool.as_deref()), settings, kept, write_atomic, groups, async_io })
}

fn parse<'a>(variable: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Option<Config>, String> {
    let Some(atomic) = variable("FAMIO_ATOMIC").filter(|globs| !globs.is_empty()) else { return Ok(None) };
    let not_started = |what: String| format!("{what}; the program was not started");
    let (mut settings, async_io) = parse_settings(&variable).map_err(not_started)?;
    let kept = kept(&variable, &mut settings).map_err(not_started)?;
    let write_atomic = write_atomic(&variable, &mut settings).map_err(not_started)?;
    let groups = groups(&variable, &settings).map_err(not_started)?;
    let globs = Globs::new(atomic, &working_folder(), settings.pool.as_deref())
        .map_err(|why| not_started(format!("FAMIO_ATOMIC: {why}")))?;
    Ok(Some(Config { globs, settings, kept, write_atomic, groups, async_io }))
}

/// What happens to the writes of a killed process: a setting for all files, or globs of the files that keep them.
fn kept<'a>(variable: &impl Fn(&str) -> Option<&'a [u8]>, settings: &mut Settings) -> Result<Option<Globs>, String> {
    match variable("FAMIO_ON_KILL") {
        None | Some(b"" | b"rollback") => {}
        Some(b"keep") => settings.on_kill = OnKill::Keep,
        Some(globs) => return globs_or_mistake("FAMIO_ON_KILL", globs, ["rollback", "keep"], settings),
    }
    Ok(None)
}

/// What is atomic by itself: a setting for all files, or globs of the files in which each call is.
fn write_atomic<'a>(
    variable: &impl Fn(&str) -> Option<&'a [u8]>,
    settings: &mut Settings,
) -> Result<Option<Globs>, String> {
    match variable("FAMIO_ATOMICITY") {
        None | Some(b"" | b"epoch") => {}
        Some(b"write") => settings.atomicity = Atomicity::Write,
        Some(globs) => return globs_or_mistake("FAMIO_ATOMICITY", globs, ["epoch", "write"], settings),
    }
    Ok(None)
}

/// The files of each group: globs, one per line; an empty line begins the next group.
fn groups<'a>(variable: &impl Fn(&str) -> Option<&'a [u8]>, settings: &Settings) -> Result<Vec<Globs>, String> {
    const NAME: &str = "FAMIO_GROUPS";
    let lines = variable(NAME).unwrap_or_default().split(|&byte| byte == b'\n');
    let mut groups: Vec<Vec<&[u8]>> = vec![Vec::new()];
    for line in lines {
        match groups.last_mut() {
            Some(group) if !line.is_empty() => group.push(line),
            Some(group) if group.is_empty() => {}
            _ => groups.push(Vec::new()),
        }
    }
    let globs = groups.iter().filter(|group| !group.is_empty()).map(|group| group.join(&b'\n'));
    globs.map(|globs| Ok(globs_of(NAME, &globs, settings)?.unwrap_or_else(|| Globs::none(None)))).collect()
}

/// The globs of a setting that also takes words.
fn globs_or_mistake(name: &str, globs: &[u8], words: [&str; 2], settings: &Settings) -> Result<Option<Globs>, String> {
    for glob in globs.split(|&byte| byte == b'\n').filter(|glob| !glob.is_empty()) {
        check_glob(&String::from_utf8_lossy(glob), words).map_err(|why| format!("{name}: {why}"))?;
    }
    globs_of(name, globs, settings)
}

fn globs_of(name: &str, globs: &[u8], settings: &Settings) -> Result<Option<Globs>, String> {
    let globs = Globs::new(globs, &working_folder(), settings.pool.as_deref());
    globs.map(Some).map_err(|why| format!("{name}: {why}"))
}

fn parse_settings<'a>(variable: &impl Fn(&str) -> Option<&'a [u8]>) -> Result<(Settings, bool), String> {
    let mut settings = Settings::default();
    if let Some(pool) = variable("FAMIO_POOL").filter(|pool| !pool.is_empty()) {
        settings.pool = Some(absolute(pool));
    }
    if let Some(shm) = variable("FAMIO_SHM").filter(|shm| !shm.is_empty()) {
        let path = absolute(shm);
        // A program without access to the folder may have no atomic file; the first open of one reports this error.
        shm::check_kind(&path).or_else(|e| if e.errno() == libc::EACCES { Ok(()) } else { Err(e.to_string()) })?;
        settings.shm = Some(path);
    }
    let text = |name: &str| match variable(name).map(core::str::from_utf8) {
        None => Ok(None),
        Some(Ok("")) => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(format!("{name} is not UTF-8")),
    };
    let bad = |name: &str, value: &str, good: &str| Err(format!("{name}={value} is not understood; it takes {good}"));
    match text("FAMIO_DURABILITY")? {
        None | Some("power") => {}
        Some("process") => settings.durability = Durability::Process,
        Some(other) => return bad("FAMIO_DURABILITY", other, "power or process"),
    }
    match text("FAMIO_DOMAIN")? {
        None => {}
        Some("emulated") => settings.emulated = true,
        Some(other) => return bad("FAMIO_DOMAIN", other, "emulated, or is left out"),
    }
    settings.policy = match text("FAMIO_POLICY")? {
        None | Some("auto") => PolicyChoice::Auto,
        Some("undo") => PolicyChoice::Undo,
        Some("redo") => PolicyChoice::Redo,
        Some("alternate") => PolicyChoice::Alternate,
        Some(other) => return bad("FAMIO_POLICY", other, "auto, undo, redo or alternate"),
    };
    settings.locks = match text("FAMIO_LOCKS")? {
        None | Some("auto") => LocksChoice::Auto,
        Some("kernel") => LocksChoice::Kernel,
        Some(other) => return bad("FAMIO_LOCKS", other, "auto or kernel"),
    };
    settings.journal = match text("FAMIO_JOURNAL")? {
        None | Some("auto") => JournalChoice::Auto,
        Some("always") => JournalChoice::Always,
        Some(other) => return bad("FAMIO_JOURNAL", other, "auto or always"),
    };
    settings.on_close = match text("FAMIO_ON_CLOSE")? {
        None | Some("commit") => OnClose::Commit,
        Some("leave") => OnClose::Leave,
        Some(other) => return bad("FAMIO_ON_CLOSE", other, "commit or leave"),
    };
    settings.defer_close = match text("FAMIO_DEFER_CLOSE")? {
        None | Some("never") => DeferClose::Never,
        Some("auto") => DeferClose::Auto,
        Some(other) => return bad("FAMIO_DEFER_CLOSE", other, "never or auto"),
    };
    if let Some(value) = text("FAMIO_JOURNAL_LIMIT")? {
        let limit = parse_size(value).and_then(check_journal_limit);
        settings.journal_limit = limit.map_err(|why| format!("FAMIO_JOURNAL_LIMIT: {why}"))?;
    }
    settings.tier = match text("FAMIO_TIER")? {
        None | Some("auto") => TierChoice::Auto,
        Some("off") => TierChoice::Off,
        Some(other) => return bad("FAMIO_TIER", other, "auto or off"),
    };
    if let Some(value) = text("FAMIO_WRITE_BACK")? {
        match value.parse() {
            Ok(range) => settings.write_back = range,
            Err(good) => return bad("FAMIO_WRITE_BACK", value, good),
        }
    }
    settings.application = text("FAMIO_APPLICATION")?.map(str::to_owned);
    if let Some(value) = text("FAMIO_POOL_WEIGHT")? {
        match value.parse() {
            Ok(weight) if WEIGHTS.contains(&weight) => settings.pool_weight = weight,
            _ => return bad("FAMIO_POOL_WEIGHT", value, "a number from 1 to 10000"),
        }
    }
    if let Some(value) = text("FAMIO_MAP_MEMORY")? {
        settings.map_memory = Some(parse_size(value).map_err(|why| format!("FAMIO_MAP_MEMORY: {why}"))?);
    }
    settings.require = match text("FAMIO_REQUIRE")? {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => return bad("FAMIO_REQUIRE", other, "1 or 0"),
    };
    let level = match text("FAMIO_LOG_LEVEL")? {
        None => Level::Warning,
        Some(word) => match Level::of(word) {
            Some(level) => level,
            None => return bad("FAMIO_LOG_LEVEL", word, "off, error, warning or info"),
        },
    };
    match variable("FAMIO_LOG").filter(|target| !target.is_empty()) {
        None => log::choose(level, Target::Stderr),
        Some(target) => match Target::of(target) {
            Ok(target) => log::choose(level, target),
            Err(_) => {
                let target = String::from_utf8_lossy(target);
                return bad("FAMIO_LOG", &target, "stderr, syslog, journald, or an absolute path");
            }
        },
    }
    let async_io = match text("FAMIO_ASYNC_IO")? {
        None | Some("refuse") => false,
        Some("allow") => true,
        Some(other) => return bad("FAMIO_ASYNC_IO", other, "refuse or allow"),
    };
    Ok((settings, async_io))
}

/// A path that stays the same when the working folder changes.
pub(in crate::posix) fn absolute(path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    if path.is_absolute() { path.to_owned() } else { Path::new(OsStr::from_bytes(&working_folder())).join(path) }
}

/// The current folder; `/` if it is unknown.
fn working_folder() -> Vec<u8> {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    // SAFETY: the kernel writes at most the buffer's length.
    let length = unsafe { raw!(SYS_getcwd, buffer.as_mut_ptr(), buffer.len()) };
    match buffer.get(..usize::try_from(length).unwrap_or(0)) {
        Some([path @ .., 0]) if path.first() == Some(&b'/') => path.to_vec(),
        _ => b"/".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&str, &str)]) -> Result<Option<Config>, String> {
        parse(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_bytes()))
    }

    #[test]
    fn nothing_asked_nothing_done() {
        assert!(with(&[]).unwrap().is_none());
        assert!(with(&[("FAMIO_ATOMIC", "")]).unwrap().is_none());
    }

    #[test]
    fn values_are_read() {
        let config = with(&[
            ("FAMIO_ATOMIC", "*.db\nother"),
            ("FAMIO_POOL", "/pool"),
            ("FAMIO_DURABILITY", "process"),
            ("FAMIO_POLICY", "redo"),
            ("FAMIO_JOURNAL_LIMIT", "512MiB"),
            ("FAMIO_MAP_MEMORY", "3G"),
            ("FAMIO_LOCKS", "kernel"),
            ("FAMIO_TIER", "off"),
            ("FAMIO_WRITE_BACK", "20:5"),
            ("FAMIO_APPLICATION", "web"),
            ("FAMIO_POOL_WEIGHT", "300"),
            ("FAMIO_JOURNAL", "always"),
            ("FAMIO_ON_CLOSE", "leave"),
            ("FAMIO_ASYNC_IO", "allow"),
            ("FAMIO_REQUIRE", "1"),
            ("FAMIO_ON_KILL", "keep"),
            ("FAMIO_ATOMICITY", "write"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(config.settings.pool, Some("/pool".into()));
        assert_eq!(config.settings.durability, Durability::Process);
        assert_eq!(config.settings.policy, PolicyChoice::Redo);
        assert_eq!((config.settings.journal_limit, config.settings.map_memory), (512 << 20, Some(3 << 30)));
        assert_eq!(config.settings.locks, LocksChoice::Kernel);
        assert_eq!(config.settings.tier, TierChoice::Off);
        assert_eq!(config.settings.write_back, "20:5".parse().unwrap());
        assert_eq!((config.settings.application.as_deref(), config.settings.pool_weight), (Some("web"), 300));
        assert_eq!(config.settings.journal, JournalChoice::Always);
        assert_eq!(config.settings.on_close, OnClose::Leave);
        assert_eq!(with(&[("FAMIO_ATOMIC", "x")]).unwrap().unwrap().settings.locks, LocksChoice::Auto);
        assert!(config.async_io && !with(&[("FAMIO_ATOMIC", "x")]).unwrap().unwrap().async_io);
        assert!(config.settings.require && !with(&[("FAMIO_ATOMIC", "x")]).unwrap().unwrap().settings.require);
        assert!(config.warning().unwrap().contains("durability process"));
        assert_eq!((config.settings.on_kill, config.kept.is_none()), (OnKill::Keep, true));
        assert_eq!((config.settings.atomicity, config.write_atomic.is_none()), (Atomicity::Write, true));
    }

    #[test]
    fn some_files_keep_what_was_written() {
        let of = |value, path| {
            let pairs: &'static [(&str, &str)] = vec![("FAMIO_ATOMIC", "*"), ("FAMIO_ON_KILL", value)].leak();
            with(pairs).unwrap().unwrap().settings_of(path).on_kill
        };
        assert_eq!(of("rollback", c"/x/a.ibd"), OnKill::Rollback);
        assert_eq!(of("*.ibd\n/y/log", c"/x/a.ibd"), OnKill::Keep);
        assert_eq!(of("*.ibd\n/y/log", c"/y/log"), OnKill::Keep);
        assert_eq!(of("*.ibd\n/y/log", c"/x/log"), OnKill::Rollback);
    }

    #[test]
    fn some_files_have_atomic_writes() {
        let pairs: &'static [(&str, &str)] =
            &[("FAMIO_ATOMIC", "*"), ("FAMIO_ON_KILL", "*.ibd"), ("FAMIO_ATOMICITY", "*.log\n/y/wal")];
        let config = with(pairs).unwrap().unwrap();
        for (path, write, keep) in [(c"/x/a.log", true, false), (c"/y/wal", true, false), (c"/x/a.ibd", false, true)] {
            let settings = config.settings_of(path);
            assert_eq!((settings.atomicity == Atomicity::Write, settings.on_kill == OnKill::Keep), (write, keep));
        }
    }

    #[test]
    fn a_file_belongs_to_the_group_whose_globs_select_it() {
        let pairs: &'static [(&str, &str)] =
            &[("FAMIO_ATOMIC", "*"), ("FAMIO_GROUPS", "\n/d/*.ibd\n/d/redo*\n\n\n/e/*\n/d/redo1")];
        let config = with(pairs).unwrap().unwrap();
        let group = |path| config.group_of(path).map_err(|e| (e.errno(), e.to_string().contains("/d/redo1")));
        for (path, number) in [(c"/d/a.ibd", Some(0)), (c"/d/redo2", Some(0)), (c"/e/x", Some(1)), (c"/x", None)] {
            assert_eq!(group(path), Ok(number), "{path:?}");
        }
        assert_eq!(group(c"/d/redo1"), Err((libc::EINVAL, true)));
        assert!(with(&[("FAMIO_ATOMIC", "*"), ("FAMIO_GROUPS", "")]).unwrap().unwrap().groups.is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (name, value) in [
            ("FAMIO_DURABILITY", "none"),
            ("FAMIO_DOMAIN", "pmem"),
            ("FAMIO_POLICY", "Undo"),
            ("FAMIO_LOCKS", "memory"),
            ("FAMIO_ASYNC_IO", "yes"),
            ("FAMIO_REQUIRE", "yes"),
            ("FAMIO_JOURNAL_LIMIT", "-1"),
            ("FAMIO_MAP_MEMORY", "half"),
            ("FAMIO_JOURNAL_LIMIT", "0"),
            ("FAMIO_JOURNAL_LIMIT", "1023K"),
            ("FAMIO_MAP_MEMORY", "0"),
            ("FAMIO_TIER", "on"),
            ("FAMIO_WRITE_BACK", "10:30"),
            ("FAMIO_POOL_WEIGHT", "0"),
            ("FAMIO_POOL_WEIGHT", "heavy"),
            ("FAMIO_JOURNAL_LIMIT", "99999999999G"),
            ("FAMIO_ON_KILL", "a["),
            ("FAMIO_ATOMICITY", "a["),
            ("FAMIO_ON_KILL", "KEEP"),
            ("FAMIO_ON_KILL", "keep\nb.db"),
            ("FAMIO_ATOMICITY", "wrte"),
            ("FAMIO_GROUPS", "a\n\nb["),
            ("FAMIO_SHM", "/no/such/folder"),
            ("FAMIO_SHM", "/proc"),
            ("FAMIO_LOG", "relative"),
            ("FAMIO_LOG_LEVEL", "loud"),
        ] {
            let pairs: &'static [(&str, &str)] = vec![("FAMIO_ATOMIC", "x"), (name, value)].leak();
            assert!(with(pairs).err().unwrap().contains(name), "{name}={value}");
        }
        assert!(with(&[("FAMIO_ATOMIC", "a[")]).err().unwrap().contains("a["));
    }
}
