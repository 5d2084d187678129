//! One process, or several that alternate step by step, with the same files. The seed decides which process makes
//! which step, so that a run can be repeated.

use super::agent::Agent;
use super::step::Kinds;
use crate::left;
use crate::setup::Setup;
use famio_test_support::random::Random;
use std::path::Path;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of the steps.
    pub seed: u64,
    /// Number of processes.
    pub processes: usize,
    /// The process and number of each step, in order.
    pub steps: Vec<(usize, u64)>,
}

impl Plan {
    /// This many steps; the processes alternate after a few.
    pub fn new(seed: u64, processes: usize, steps: u64) -> Self {
        let mut random = Random::new(seed);
        let (mut who, mut left) = (0, 0);
        let steps = (0..steps).map(|number| {
            if left == 0 {
                (who, left) = (random.below(processes as u64) as usize, 1 + random.below(8));
            }
            left -= 1;
            (who, number)
        });
        Self { seed, processes, steps: steps.collect() }
    }

    /// The kinds of steps.
    pub fn kinds(&self) -> Kinds {
        Kinds { maps: true, forks: true, stays: false, locks: true }
    }

    fn options(&self) -> Vec<&'static str> {
        let mut options = vec!["--forks", "--maps"];
        options.extend((self.processes == 1).then_some("--alone"));
        options
    }
}

/// Creates both files, with the same bytes.
pub fn prepare(folder: &Path, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed ^ 0x5eed);
    let len = [0, 1, 4096, 10_000, 70_000][random.below(5) as usize];
    let bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
    for name in ["atomic-a", "twin-a"] {
        std::fs::write(folder.join(name), &bytes).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// The current name of a file.
pub fn name(folder: &Path, which: &str) -> std::path::PathBuf {
    let first = folder.join(format!("{which}-a"));
    if first.exists() { first } else { folder.join(format!("{which}-b")) }
}

/// Carries out a plan. `Err`: the finding.
pub fn run(setup: &Setup, plan: &Plan) -> Result<(), String> {
    let place = setup.place()?;
    let folder = place.path();
    prepare(folder, plan.seed)?;
    // A single process sometimes exits, and another one starts: the file is opened again.
    let lives = if plan.processes == 1 { 2 } else { 1 };
    let half = plan.steps.len().div_ceil(lives).max(1);
    for steps in plan.steps.chunks(half) {
        let start = |_| Agent::start(setup, folder, plan.seed, &plan.options());
        let mut agents = (0..plan.processes).map(start).collect::<Result<Vec<_>, _>>()?;
        for turn in steps.chunk_by(|a, b| a.0 == b.0) {
            for few in turn.chunks(64) {
                let numbers: Vec<String> = few.iter().map(|(_, number)| number.to_string()).collect();
                let who = few[0].0;
                agents[who]
                    .ask(&format!("steps {}", numbers.join(" ")))
                    .map_err(|why| if plan.processes > 1 { format!("process {who}: {why}") } else { why })?;
            }
        }
        for agent in &mut agents {
            agent.ask("compare")?;
        }
        agents.into_iter().try_for_each(Agent::end)?;
        let (atomic, twin) = (name(folder, "atomic"), name(folder, "twin"));
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let (there, expected) = (read(&atomic)?, read(&twin)?);
        if there != expected {
            return Err(format!("after the end: {}", super::past::difference(&there, &expected)));
        }
        left::of(folder, &[&atomic])?;
    }
    Ok(())
}
