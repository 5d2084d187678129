//! Reduces a plan that shows a failure.

use super::together::{Plan, run};
use crate::setup::Setup;
use std::time::{Duration, Instant};

/// Leaves out steps as long as something is found, for at most this time. Returns the plan and its finding.
pub fn minimal(setup: &Setup, plan: &Plan, why: String, longest: Duration) -> (Plan, String) {
    let (mut plan, mut why) = (plan.clone(), why);
    let end = Instant::now() + longest;
    let mut piece = plan.steps.len().div_ceil(2);
    while piece > 0 && Instant::now() < end {
        let (mut at, mut shorter) = (0, false);
        while at < plan.steps.len() && Instant::now() < end {
            let mut less = plan.clone();
            less.steps.drain(at..(at + piece).min(plan.steps.len()));
            match run(setup, &less) {
                Err(found) if !found.contains("hung") => (plan, why, shorter) = (less, found, true),
                _ => at += piece,
            }
        }
        if !shorter || piece > 1 {
            piece /= 2;
        }
    }
    (plan, why)
}
