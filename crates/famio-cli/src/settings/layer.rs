//! The settings of one source, or of several above each other.

use super::by_glob::ByGlob;
use super::log::{LogLevelName, LogTarget};
use super::names::{
    AsyncIoName, DeferCloseName, DomainName, DurabilityName, JournalName, LocksName, OnCloseName, PolicyName, TierName,
};
use super::size::Size;
use super::weight::Weight;
use super::write_back::WriteBack;
use famio::{
    Atomicity, DeferClose, Durability, JournalChoice, LocksChoice, OnClose, OnKill, PolicyChoice, Settings, TierChoice,
};
use std::ffi::OsString;
use std::path::PathBuf;

/// The settings of one source; `None` where it has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// Globs of atomic files: names, or absolute paths.
    pub atomic: Vec<OsString>,
    /// The same as the user wrote them.
    pub given: Vec<String>,
    /// Globs of the files of each group; `atomic` has them, too.
    pub groups: Vec<Vec<OsString>>,
    /// The pool, absolute.
    pub pool: Option<PathBuf>,
    /// The folder of shared memory, absolute.
    pub shm: Option<PathBuf>,
    /// What a SYNC must survive.
    pub durability: Option<DurabilityName>,
    /// A domain that was asked for.
    pub domain: Option<DomainName>,
    /// The policy.
    pub policy: Option<PolicyName>,
    /// Where locks are kept.
    pub locks: Option<LocksName>,
    /// Which files have a journal.
    pub journal: Option<JournalName>,
    /// What the last close of a file does.
    pub on_close: Option<OnCloseName>,
    /// Whether a close may be deferred.
    pub defer_close: Option<DeferCloseName>,
    /// The size to which a journal may grow.
    pub journal_limit: Option<Size>,
    /// Whether a pool on persistent memory is a tier.
    pub tier: Option<TierName>,
    /// How much of the tier is a write cache.
    pub write_back: Option<WriteBack>,
    /// The application, in a pool with a size.
    pub application: Option<String>,
    /// The weight of its share.
    pub pool_weight: Option<Weight>,
    /// The size up to which a mapped file is copied to memory.
    pub map_memory: Option<Size>,
    /// Whether io_uring and kernel AIO may be set up.
    pub async_io: Option<AsyncIoName>,
    /// Whether a file that can't be protected is an error.
    pub require: Option<bool>,
    /// What happens to writes that no SYNC covers if their process is killed.
    pub on_kill: Option<ByGlob<OnKill>>,
    /// What is atomic by itself.
    pub atomicity: Option<ByGlob<Atomicity>>,
    /// Where the library's messages go.
    pub log: Option<LogTarget>,
    /// Which messages there are.
    pub log_level: Option<LogLevelName>,
}

impl Layer {
    /// This layer, with another one below that fills in what it leaves open.
    pub fn over(mut self, below: Layer) -> Layer {
        for (glob, given) in below.atomic.into_iter().zip(below.given) {
            if !self.atomic.contains(&glob) {
                self.atomic.push(glob);
                self.given.push(given);
            }
        }
        for group in below.groups {
            // A run within a run reads the same famio.toml, and has its groups in the environment, too.
            if !self.groups.contains(&group) {
                self.groups.push(group);
            }
        }
        Layer {
            atomic: self.atomic,
            given: self.given,
            groups: self.groups,
            pool: self.pool.or(below.pool),
            shm: self.shm.or(below.shm),
            durability: self.durability.or(below.durability),
            domain: self.domain.or(below.domain),
            policy: self.policy.or(below.policy),
            locks: self.locks.or(below.locks),
            journal: self.journal.or(below.journal),
            on_close: self.on_close.or(below.on_close),
            defer_close: self.defer_close.or(below.defer_close),
            journal_limit: self.journal_limit.or(below.journal_limit),
            tier: self.tier.or(below.tier),
            write_back: self.write_back.or(below.write_back),
            application: self.application.or(below.application),
            pool_weight: self.pool_weight.or(below.pool_weight),
            map_memory: self.map_memory.or(below.map_memory),
            async_io: self.async_io.or(below.async_io),
            require: self.require.or(below.require),
            on_kill: self.on_kill.or(below.on_kill),
            atomicity: self.atomicity.or(below.atomicity),
            log: self.log.or(below.log),
            log_level: self.log_level.or(below.log_level),
        }
    }

    /// The library's settings.
    pub fn settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            pool: self.pool.clone(),
            shm: self.shm.clone(),
            durability: match self.durability {
                Some(DurabilityName::Process) => Durability::Process,
                Some(DurabilityName::Power) | None => Durability::Power,
            },
            emulated: self.domain == Some(DomainName::Emulated),
            policy: match self.policy {
                Some(PolicyName::Undo) => PolicyChoice::Undo,
                Some(PolicyName::Redo) => PolicyChoice::Redo,
                Some(PolicyName::Alternate) => PolicyChoice::Alternate,
                Some(PolicyName::Auto) | None => PolicyChoice::Auto,
            },
            locks: match self.locks {
                Some(LocksName::Kernel) => LocksChoice::Kernel,
                Some(LocksName::Auto) | None => LocksChoice::Auto,
            },
            journal: match self.journal {
                Some(JournalName::Always) => JournalChoice::Always,
                Some(JournalName::Auto) | None => JournalChoice::Auto,
            },
            on_close: match self.on_close {
                Some(OnCloseName::Leave) => OnClose::Leave,
                Some(OnCloseName::Commit) | None => OnClose::Commit,
            },
            defer_close: match self.defer_close {
                Some(DeferCloseName::Auto) => DeferClose::Auto,
                Some(DeferCloseName::Never) | None => DeferClose::Never,
            },
            journal_limit: self.journal_limit.map_or(default.journal_limit, |Size(bytes)| bytes),
            tier: match self.tier {
                Some(TierName::Auto) | None => TierChoice::Auto,
                Some(TierName::Off) => TierChoice::Off,
            },
            write_back: self.write_back.map_or(default.write_back, |WriteBack(range)| range),
            map_memory: self.map_memory.map(|Size(bytes)| bytes),
            require: self.require.unwrap_or(default.require),
            on_kill: self.on_kill.as_ref().map_or(default.on_kill, ByGlob::of_all),
            atomicity: self.atomicity.as_ref().map_or(default.atomicity, ByGlob::of_all),
            application: self.application.clone(),
            pool_weight: self.pool_weight.map_or(default.pool_weight, |Weight(weight)| weight),
            group: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_layers_win_and_globs_add_up() {
        let group = |glob: &str| vec![std::ffi::OsString::from(glob)];
        let top = Layer {
            atomic: vec!["/a".into()],
            given: vec!["a".into()],
            groups: vec![group("/a")],
            policy: Some(PolicyName::Undo),
            ..Layer::default()
        };
        let below = Layer {
            atomic: vec!["/b".into(), "/a".into()],
            given: vec!["b".into(), "a".into()],
            groups: vec![group("/b"), group("/a")],
            policy: Some(PolicyName::Redo),
            journal_limit: Some(Size(1 << 20)),
            ..Layer::default()
        };
        let both = top.over(below);
        assert_eq!(
            (both.atomic.clone(), both.given.clone()),
            (vec!["/a".into(), "/b".into()], vec!["a".into(), "b".into()])
        );
        assert_eq!(both.groups, [group("/a"), group("/b")]);
        assert_eq!(both.settings().policy, PolicyChoice::Undo);
        assert_eq!(both.settings().journal_limit, 1 << 20);
    }
}
