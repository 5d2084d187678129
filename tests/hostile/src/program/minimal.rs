//! Reduces the steps that show a finding.

use super::case::Case;
use crate::findings::Found;
use crate::space::Space;
use std::time::{Duration, Instant};

/// Leaves out steps as long as a finding of the same kind remains, and there is time.
pub fn minimal(space: &Space, case: &Case, found: &Found, time: Duration) -> Result<(Vec<u32>, Found), String> {
    let (mut steps, mut found) = (case.all(), found.clone());
    if found.kind.starts_with("hung") {
        return Ok((steps, found));
    }
    let started = Instant::now();
    let mut piece = steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() {
            if started.elapsed() > time {
                return Ok((steps, found));
            }
            let mut less = steps.clone();
            less.drain(at..(at + piece).min(steps.len()));
            match if less.is_empty() { None } else { case.run(space, &less)? } {
                Some(same) if same.kind == found.kind => (steps, found) = (less, same),
                _ => at += piece,
            }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    // The last run that showed it, for the evidence.
    let _ = case.run(space, &steps)?;
    Ok((steps, found))
}
