//! Shortens a history that fails.

use crate::explorer::{Effort, Explorer, Failure};
use crate::workload::{Op, Step};
use std::time::{Duration, Instant};

/// Leaves out steps, and shortens writes, as long as it still fails; for at most this time.
pub fn minimal(mut failure: Box<Failure>, effort: Effort, most: Duration) -> Box<Failure> {
    let begin = Instant::now();
    'again: loop {
        for steps in smaller(&failure.case.steps) {
            if begin.elapsed() > most {
                return failure;
            }
            let mut case = failure.case.clone();
            case.steps = steps;
            if let Err(found) = Explorer::new(effort).explore(&case, failure.fail) {
                failure = found;
                continue 'again;
            }
        }
        return failure;
    }
}

/// All but one of the steps; the same steps with one of them smaller.
fn smaller(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    for at in 0..steps.len() {
        let mut fewer = steps.to_vec();
        fewer.remove(at);
        all.push(fewer);
    }
    for (at, step) in steps.iter().enumerate() {
        let less = match step.op {
            Op::Write { at, len } if len > 8 => Some(Op::Write { at, len: len / 2 }),
            Op::Map { at, len, by } if len > 8 => Some(Op::Map { at, len: len / 2, by }),
            Op::Append { len } if len > 8 => Some(Op::Append { len: len / 2 }),
            Op::Transaction { at, len, syncs } if len > 8 => Some(Op::Transaction { at, len: len / 2, syncs }),
            Op::Whole { at, len } if len > 8 => Some(Op::Whole { at, len: len / 2 }),
            Op::Joint { at, len, size } if len > 8 => Some(Op::Joint { at, len: len / 2, size }),
            Op::Both { first, .. } => Some(Op::Write { at: first.0, len: first.1 }),
            Op::Die => Some(Op::HandOver),
            Op::Checkpoint | Op::Flush => Some(Op::Blocks),
            _ => None,
        };
        if let Some(op) = less {
            let mut other = steps.to_vec();
            other[at].op = op;
            all.push(other);
        }
        if step.other {
            let mut other = steps.to_vec();
            other[at].other = false;
            all.push(other);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_smaller_gets_smaller() {
        let steps: Vec<Step> = ["w0+64", "2:s", "a3"].map(|step| step.parse().unwrap()).to_vec();
        let text = |steps: &Vec<Step>| steps.iter().map(Step::to_string).collect::<Vec<_>>().join(" ");
        let all: Vec<String> = smaller(&steps).iter().map(text).collect();
        assert_eq!(all, ["2:s a3", "w0+64 a3", "w0+64 2:s", "w0+32 2:s a3", "w0+64 s a3"]);
    }
}
