//! One history on one machine, as text: what a failure prints, and what replays it.

use crate::machine::Machine;
use crate::workload::{Step, letter, policy_of};
use famio::PolicyChoice;
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

/// A history, where it runs, and which policy it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub machine: Machine,
    pub policy: PolicyChoice,
    pub steps: Vec<Step>,
}

impl Case {
    /// What random choices for this history begin with.
    pub fn seed(&self) -> u64 {
        xxh3_64(self.to_string().as_bytes())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:", self.machine, letter(self.policy))?;
        self.steps.iter().try_for_each(|step| write!(f, " {step}"))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: not a history (machine/policy: operations)");
        let (place, steps) = text.split_once(':').ok_or_else(wrong)?;
        let (machine, policy) = place.trim().split_once('/').ok_or_else(wrong)?;
        Ok(Case {
            machine: machine.parse()?,
            policy: policy_of(policy).ok_or_else(wrong)?,
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
            let case = Case { machine, policy: PolicyChoice::Redo, steps: random(3, 30) };
            assert_eq!(case.to_string().parse(), Ok(case));
        }
    }
}
