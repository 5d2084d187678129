//! A hostile host program, compared with a plain twin.

pub mod board;
mod case;
mod compare;
mod end;
mod kill;
mod minimal;
mod side;
mod trial;

use crate::classes::Classes;
use crate::findings::Findings;
use crate::options::Options;
use crate::space::Space;
use case::Case;
use famio_test_support::random::Random;
use std::time::{Duration, Instant};

/// Time for reducing a failure's steps.
const MINIMISING: Duration = Duration::from_secs(8);

/// Runs cases until the time is over.
pub fn campaign(
    space: &Space,
    options: &Options,
    classes: Classes,
    seed: u64,
    time: Duration,
    findings: &mut Findings,
) -> Result<(), String> {
    side::compile(space)?;
    let started = Instant::now();
    let mut random = Random::new(seed);
    for number in 0.. {
        let over = options.cases.map_or(started.elapsed() >= time, |cases| number >= cases);
        if over || findings.enough() {
            break;
        }
        let own = if number == 0 { seed } else { random.below(1 << 40) };
        let case = Case::new(own, options, classes);
        let Some(found) = case.run(space, &case.all())? else {
            findings.pass();
            continue;
        };
        if findings.is_new(&found) {
            let (steps, found) = minimal::minimal(space, &case, &found, MINIMISING)?;
            println!("FOUND: {}\n  {}\n  {}", found.kind, found.detail.replace('\n', "\n  "), case.name());
            println!("  again: famio-hostile program --seed {own} --cases 1 --on {}{}", case.on, case.same(options));
            println!("  steps that are enough: {}", case.describe(space, &steps)?);
            println!("  kept: {}", case.keep(space, &format!("program-{}", findings.number()))?.display());
        }
        findings.fail(&found);
    }
    println!("program: {} cases so far, {} s", findings.cases(), started.elapsed().as_secs());
    Ok(())
}
