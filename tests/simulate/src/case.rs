//! One history on one machine, as text: printed for a failure, and used to repeat it.

use crate::machine::Machine;
use crate::workload::{Step, letter, policy_of};
use famio::PolicyChoice;
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

/// How large a tiered journal may become, and with it what is written back when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cache {
    /// As large as it likes: no pass but in quiet moments.
    #[default]
    Large,
    /// Four segments: passes are partial ones from the second on, and writers help from the third on.
    Small,
    /// Two segments: an epoch may need both.
    Tiny,
}

impl Cache {
    const ALL: [(Cache, &'static str); 3] = [(Cache::Large, ""), (Cache::Small, "+small"), (Cache::Tiny, "+tiny")];

    /// The segments that the journal may have; `None`: it is not limited.
    pub fn segments(self) -> Option<u64> {
        match self {
            Cache::Large => None,
            Cache::Small => Some(4),
            Cache::Tiny => Some(2),
        }
    }
}

/// The initial state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The file was just created, and neither its name nor its bytes were synced.
    pub unsynced: bool,
    /// The journal lies in a named pool, not in `.famio/`.
    pub pool: bool,
    /// The write cache of a tiered journal.
    pub cache: Cache,
    /// There is another file, of the same group.
    pub group: bool,
}

/// A history, its machine, its initial state, and its initial policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub machine: Machine,
    pub policy: PolicyChoice,
    pub found: Found,
    pub steps: Vec<Step>,
}

impl Case {
    /// The seed of random choices for this history.
    pub fn seed(&self) -> u64 {
        xxh3_64(self.to_string().as_bytes())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = [(self.found.unsynced, "+unsynced"), (self.found.pool, "+pool"), (self.found.group, "+group")];
        let found: String = found.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        let cache = Cache::ALL.iter().find(|(cache, _)| *cache == self.found.cache).map_or("", |(_, name)| name);
        write!(f, "{}/{}{found}{cache}:", self.machine, letter(self.policy))?;
        self.steps.iter().try_for_each(|step| write!(f, " {step}"))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: not a history (machine/policy: operations)");
        let (place, steps) = text.split_once(':').ok_or_else(wrong)?;
        let (machine, rest) = place.trim().split_once('/').ok_or_else(wrong)?;
        let (policy, found) = rest.split_once('+').unwrap_or((rest, ""));
        let mut names = found.split('+').filter(|name| !name.is_empty());
        if names.any(|name| !["unsynced", "pool", "group", "small", "tiny"].contains(&name)) {
            return Err(wrong());
        }
        let finds = |what: &str| found.split('+').any(|name| name == what);
        let named = |(_, name): &&(Cache, &str)| !name.is_empty() && finds(&name[1..]);
        let cache = Cache::ALL.iter().find(named).map_or(Cache::Large, |(cache, _)| *cache);
        Ok(Case {
            machine: machine.parse()?,
            policy: policy_of(policy).ok_or_else(wrong)?,
            found: Found { unsynced: finds("unsynced"), pool: finds("pool"), cache, group: finds("group") },
            steps: steps.split_whitespace().map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::random;

    #[test]
    fn a_case_reads_back() {
        for machine in Machine::ALL {
            for (unsynced, pool) in [(false, false), (true, false), (false, true), (true, true)] {
                for (cache, _) in Cache::ALL {
                    let found = Found { unsynced, pool, cache, group: unsynced && pool };
                    let case = Case { machine, policy: PolicyChoice::Redo, found, steps: random(3, 30) };
                    assert_eq!(case.to_string().parse(), Ok(case));
                }
            }
        }
        assert!("pmem/u+what: s".parse::<Case>().is_err());
    }
}
