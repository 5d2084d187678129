//! What a case is.

use super::script::Script;

/// A case. Files whose names begin with `atomic` are atomic.
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Script),
    pub differs: &'static [Differs],
}

/// A line that may differ.
pub struct Differs {
    /// Its beginning.
    pub line: &'static str,
    /// Only on this file system, or only with a `pool`, or with `no pool`.
    pub on: Option<&'static str>,
    /// The reason; `docs/posix.md` and `docs/guarantees.md` tell users.
    pub why: &'static str,
}
