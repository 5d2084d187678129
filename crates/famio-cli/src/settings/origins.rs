//! The origins of globs and settings, to be shown to the user.

use super::layer::Layer;
use super::log::LogTarget;
use super::names::name_of;
use super::size::Size;
use crate::text::quoted;
use std::ffi::OsString;
use std::path::PathBuf;

/// A source of settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    CommandLine,
    Environment,
    File(PathBuf),
}

impl Source {
    /// The name of a setting in this source.
    pub fn names(&self, setting: &str) -> String {
        match self {
            Source::CommandLine => format!("--{setting}"),
            Source::Environment => format!("FAMIO_{}", setting.to_uppercase().replace('-', "_")),
            Source::File(path) => format!("{setting} of {}", path.display()),
        }
    }
}

/// A glob, with its name for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Glob {
    /// The user's text, and its origin.
    pub label: String,
    /// The pattern for the library.
    pub pattern: OsString,
}

/// A setting that is in force.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// `None`: the default.
    pub source: Option<String>,
}

/// Everything in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origins {
    /// In the library's order.
    pub globs: Vec<Glob>,
    /// The globs of each group.
    pub groups: Vec<Vec<OsString>>,
    pub settings: Vec<Setting>,
}

impl Origins {
    /// The origins in these sources, the strongest first.
    pub fn of(layers: &[(Source, Layer)]) -> Self {
        let mut globs: Vec<Glob> = Vec::new();
        for (source, layer) in layers {
            for (pattern, given) in layer.atomic.iter().zip(&layer.given) {
                let given = quoted(given);
                let label = match source {
                    Source::CommandLine => format!("--atomic {given}"),
                    Source::Environment => format!("FAMIO_ATOMIC {given}"),
                    Source::File(path) => format!("atomic {given} of {}", path.display()),
                };
                if !globs.iter().any(|glob| glob.pattern == *pattern) {
                    globs.push(Glob { label, pattern: pattern.clone() });
                }
            }
        }
        let setting = |name: &'static str, default: &str, get: &dyn Fn(&Layer) -> Option<OsString>| {
            let found = layers.iter().find_map(|(source, layer)| Some((source, get(layer)?)));
            let (value, source) = match found {
                None => (default.to_string(), None),
                Some((source, value)) => (value.to_string_lossy().into_owned(), Some(source.names(name))),
            };
            Setting { name, value, source }
        };
        let config = layers.iter().find_map(|(source, _)| match source {
            Source::File(path) => Some(path.display().to_string()),
            _ => None,
        });
        let config = Setting {
            name: "config",
            source: config.is_some().then(|| "read; --no-config leaves it out".into()),
            value: config.unwrap_or_else(|| "no famio.toml".into()),
        };
        let size = |size: Option<Size>| size.map(|Size(bytes)| crate::text::bytes(bytes).into());
        let settings = vec![
            config,
            setting("pool", ".famio/ beside each file", &|layer| layer.pool.clone().map(Into::into)),
            setting("shm", "/dev/shm", &|layer| layer.shm.clone().map(Into::into)),
            setting("durability", "power", &|layer| layer.durability.map(name_of)),
            setting("domain", "of the file system", &|layer| layer.domain.map(name_of)),
            setting("policy", "auto", &|layer| layer.policy.map(name_of)),
            setting("locks", "auto", &|layer| layer.locks.map(name_of)),
            setting("journal", "auto", &|layer| layer.journal.map(name_of)),
            setting("on-close", "commit", &|layer| layer.on_close.map(name_of)),
            setting("defer-close", "never", &|layer| layer.defer_close.map(name_of)),
            setting("journal-limit", "4.0 GiB", &|layer| size(layer.journal_limit)),
            setting("map-memory", "a quarter of this machine's", &|layer| size(layer.map_memory)),
            setting("tier", "auto", &|layer| layer.tier.map(name_of)),
            setting("write-back", "30:10", &|layer| layer.write_back.map(|range| range.to_string().into())),
            setting("application", "each run by itself", &|layer| layer.application.clone().map(Into::into)),
            setting("pool-weight", "100", &|layer| layer.pool_weight.map(|weight| weight.to_string().into())),
            setting("async-io", "refuse", &|layer| layer.async_io.map(name_of)),
            setting("on-kill", "rollback", &|layer| layer.on_kill.as_ref().map(|rule| rule.shown().into())),
            setting("atomicity", "epoch", &|layer| layer.atomicity.as_ref().map(|rule| rule.shown().into())),
            setting("group", "none", &|layer| groups(&layer.groups)),
            setting("log", "stderr", &|layer| layer.log.as_ref().map(LogTarget::text)),
            setting("log-level", "warning", &|layer| layer.log_level.map(name_of)),
            setting("require", "false", &|layer| layer.require.map(|value| value.to_string().into())),
        ];
        let mut groups = Vec::new();
        for (_, layer) in layers {
            groups.extend(layer.groups.iter().filter(|group| !groups.contains(*group)).cloned().collect::<Vec<_>>());
        }
        Self { globs, groups, settings }
    }
}

/// The globs of groups, for the user.
fn groups(groups: &[Vec<OsString>]) -> Option<OsString> {
    let texts: Vec<OsString> = groups.iter().map(|group| group.join(" ".as_ref())).collect();
    (!texts.is_empty()).then(|| texts.join("; ".as_ref()))
}

impl Setting {
    /// Its value and origin.
    pub fn text(&self) -> String {
        format!("{} ({})", self.value, self.source.as_deref().unwrap_or("default"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PolicyName;

    #[test]
    fn the_strongest_source_is_named() {
        let layer = |glob: &str, policy| Layer {
            atomic: vec![glob.into()],
            given: vec![glob.into()],
            policy,
            ..Layer::default()
        };
        let origins = Origins::of(&[
            (Source::CommandLine, layer("*.db", None)),
            (Source::Environment, layer("b.db", Some(PolicyName::Redo))),
            (
                Source::File("/x/famio.toml".into()),
                Layer { require: Some(true), ..layer("*.db", Some(PolicyName::Undo)) },
            ),
        ]);
        let labels: Vec<_> = origins.globs.iter().map(|glob| glob.label.as_str()).collect();
        assert_eq!(labels, ["--atomic '*.db'", "FAMIO_ATOMIC b.db"]);
        let text = |name: &str| origins.settings.iter().find(|setting| setting.name == name).unwrap().text();
        assert_eq!(text("policy"), "redo (FAMIO_POLICY)");
        assert_eq!(text("require"), "true (require of /x/famio.toml)");
        assert_eq!(text("durability"), "power (default)");
    }
}
