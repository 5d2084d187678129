//! SIGKILL at a random moment, of one process alone or beside others that go on; and the file's state afterwards.

use super::agent::{Agent, Said};
use super::past::{Moment, Past, Writer, difference};
use super::together::{name, prepare};
use crate::left;
use crate::setup::Setup;
use famio_test_support::place::{self, Place};
use famio_test_support::random::Random;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Counts of kills that hit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Killed workers.
    pub kills: u64,
    /// Killed recoveries.
    pub recoveries: u64,
}

/// A file and its possible states.
struct Run<'a> {
    setup: &'a Setup,
    folder: &'a Path,
    log: Place,
    random: Random,
    options: Vec<&'static str>,
    seed: u64,
    done: Kills,
}

/// One process at a time, killed `rounds` times.
pub fn alone(setup: &Setup, seed: u64, maps: bool, rounds: u64) -> (Kills, Result<(), String>) {
    within(setup, seed, |run| {
        run.options = vec!["--alone"];
        run.options.extend(maps.then_some("--maps"));
        for _ in 0..rounds {
            let mut agent = run.agent()?;
            run.until_killed(&mut agent)?;
            drop(agent);
            run.all_are_dead()?;
        }
        Ok(())
    })
}

/// `processes` processes with one file. In each round one is killed and restarted; sometimes all are.
pub fn together(setup: &Setup, seed: u64, maps: bool, processes: usize, rounds: u64) -> (Kills, Result<(), String>) {
    within(setup, seed, |run| {
        run.options = vec!["--stays", "--no-locks"];
        run.options.extend(maps.then_some("--maps"));
        let mut agents = run.agents(processes)?;
        for _ in 0..rounds {
            for _ in 0..run.random.below(6) {
                let (who, steps) = (run.random.below(processes as u64) as usize, 1 + run.random.below(6));
                let steps = run.steps(steps);
                agents[who].ask(&steps).map_err(|why| format!("process {who}: {why}"))?;
            }
            let victim = run.random.below(processes as u64) as usize;
            let other = (victim + 1) % processes;
            // A process that gives up a lock makes its writes permanent: what the victim writes from here on is
            // rolled back.
            run.hand_over(&mut agents, victim, other)?;
            agents[other].ask("base")?;
            run.until_killed(&mut agents[victim]).map_err(|why| format!("process {victim}: {why}"))?;
            if run.random.below(4) == 0 {
                agents
                    .into_iter()
                    .enumerate()
                    .filter(|(who, _)| *who != victim)
                    .try_for_each(|(_, agent)| agent.kill())?;
                run.done.kills += processes as u64 - 1;
                run.all_are_dead()?;
                agents = run.agents(processes)?;
                continue;
            }
            let said = |why: String| format!("process {victim} died, {other} lives: {why}");
            let there = if maps {
                run.checkpointed(&mut agents, victim).map_err(said)?
            } else {
                let there = run.take(&mut agents[other])?;
                let past = Past::read(run.log.path())?;
                past.is_one_of(&past.lived, &there).map_err(said)?;
                there
            };
            run.goes_on_from(&there, Moment::Base)?;
            agents[victim] = run.agent()?;
            agents[victim].ask("steps ")?; // it has the file open before others rename it
        }
        for agent in &mut agents {
            agent.ask("compare")?;
        }
        agents.into_iter().try_for_each(Agent::end)?;
        run.nothing_is_left()
    })
}

fn within(setup: &Setup, seed: u64, body: impl FnOnce(&mut Run) -> Result<(), String>) -> (Kills, Result<(), String>) {
    let made = setup.place().and_then(|place| Ok((place, Place::new(place::memory(), "famio-posix-log")?)));
    let (mut place, log) = match made {
        Ok(made) => made,
        Err(error) => return (Kills::default(), Err(error)),
    };
    let folder = place.path().to_path_buf();
    let mut run = Run {
        setup,
        folder: &folder,
        log,
        random: Random::new(seed),
        options: Vec::new(),
        seed,
        done: Kills::default(),
    };
    let started = prepare(&folder, seed)
        .and_then(|()| run.read("atomic"))
        .and_then(|bytes| run.goes_on_from(&bytes, Moment::Done));
    let outcome = started.and_then(|()| body(&mut run));
    let done = run.done;
    let outcome = outcome.map_err(|why| {
        place.keep();
        run.log.keep();
        format!("{why}\n  left for a look: {} and {}", folder.display(), run.log.path().display())
    });
    (done, outcome)
}

impl Run<'_> {
    fn agent(&self) -> Result<Agent, String> {
        let log = self.log.path().to_string_lossy().into_owned();
        let options = [&["--log", &log][..], &self.options].concat();
        Agent::start(self.setup, self.folder, self.seed, &options)
    }

    /// Starts all of them, with the file open.
    fn agents(&self, processes: usize) -> Result<Vec<Agent>, String> {
        let mut agents = (0..processes).map(|_| self.agent()).collect::<Result<Vec<_>, _>>()?;
        agents.iter_mut().try_for_each(|agent| agent.ask("compare"))?;
        Ok(agents)
    }

    fn steps(&mut self, count: u64) -> String {
        let numbers: Vec<String> = (0..count).map(|_| self.random.below(1 << 40).to_string()).collect();
        format!("steps {}", numbers.join(" "))
    }

    /// The victim writes before and after the other process looks; then it gives up a lock.
    fn hand_over(&mut self, agents: &mut [Agent], victim: usize, other: usize) -> Result<(), String> {
        let [before, after] = [(); 2].map(|()| self.steps(3));
        for (who, what) in
            [(victim, &*before), (victim, "touch"), (other, "compare"), (victim, &*after), (victim, "lock")]
        {
            agents[who].ask(what).map_err(|why| format!("process {who}: {why}"))?;
        }
        Ok(())
    }

    /// Some steps, then more, during which the kernel kills it.
    fn until_killed(&mut self, agent: &mut Agent) -> Result<(), String> {
        let before = self.random.below(40);
        let steps = self.steps(before);
        agent.ask(&steps)?;
        let longest = [300, 3000, 20_000][self.random.below(3) as usize];
        let micros = self.random.below(longest);
        agent.ask(&format!("arm {micros}"))?;
        loop {
            let steps = self.steps(200);
            match agent.tell(&steps) {
                Said::Ok => {}
                Said::Differs(why) => return Err(why),
                Said::Killed => break,
            }
        }
        self.done.kills += 1;
        Ok(())
    }

    fn take(&self, agent: &mut Agent) -> Result<Vec<u8>, String> {
        let path = self.log.path().join("taken");
        agent.ask(&format!("take {}", path.display()))?;
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// What the living processes see. If the file is mapped, it may be unknown which process wrote a byte: the dead
    /// process's writes may be there or not, but all must see the same.
    fn checkpointed(&self, agents: &mut [Agent], victim: usize) -> Result<Vec<u8>, String> {
        let mut first: Option<(usize, Vec<u8>)> = None;
        for (who, agent) in agents.iter_mut().enumerate().filter(|(who, _)| *who != victim) {
            agent.ask("lock").map_err(|why| format!("process {who}: {why}"))?;
            let there = self.take(agent)?;
            match &first {
                None => first = Some((who, there)),
                Some((_, seen)) if *seen == there => {}
                Some((before, seen)) => {
                    return Err(format!("{before} and {who} see different bytes: {}", difference(&there, seen)));
                }
            }
        }
        first.map(|(_, there)| there).ok_or_else(|| "no process is alive".into())
    }

    fn read(&self, which: &str) -> Result<Vec<u8>, String> {
        let path = name(self.folder, which);
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Recovers in one of several ways; then the file must have one of its committed states, and nothing be left.
    fn all_are_dead(&mut self) -> Result<(), String> {
        let path = name(self.folder, "atomic");
        let there = match self.random.below(3) {
            0 => {
                let mut agent = Agent::start(self.setup, self.folder, self.seed, &["--alone"])?;
                let there = self.take(&mut agent)?;
                agent.end()?;
                there
            }
            way => {
                if way == 2 {
                    self.recover(&path, Some(self.random.clone().below(3000)))?;
                }
                self.recover(&path, None)?;
                self.read("atomic")?
            }
        };
        self.done.recoveries += 1;
        let past = Past::read(self.log.path())?;
        past.is_one_of(&past.committed, &there).map_err(|why| format!("all are dead, and recovered: {why}"))?;
        if self.read("atomic")? != there {
            return Err("recovered, the file on disk is not what was read under Famio".into());
        }
        self.nothing_is_left()?;
        self.goes_on_from(&there, Moment::Done)
    }

    /// If a kill left only an empty folder, or a file in `/dev/shm`, the next process that writes the file removes
    /// it.
    fn nothing_is_left(&mut self) -> Result<(), String> {
        let path = name(self.folder, "atomic");
        if left::now(self.folder, &[&path]).is_ok() {
            return Ok(());
        }
        let mut agent = Agent::start(self.setup, self.folder, self.seed, &["--alone"])?;
        agent.ask("touch")?;
        agent.end()?;
        left::of(self.folder, &[&path]).map_err(|why| format!("after another write and close: {why}"))
    }

    /// Runs `famio recover`; with a time, kills it that long after its start.
    fn recover(&self, path: &Path, micros: Option<u64>) -> Result<(), String> {
        let mut command = Command::new(self.setup.famio()?.binary);
        command.arg("recover").arg(path);
        let Some(micros) = micros else {
            let done = command.output().map_err(|error| format!("famio recover: {error}"))?;
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            return if done.status.success() { Ok(()) } else { Err(format!("famio recover: {}: {said}", done.status)) };
        };
        command.stdout(std::process::Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("famio recover: {error}"))?;
        std::thread::sleep(Duration::from_micros(micros));
        let _ = child.kill();
        child.wait().map(|_| ()).map_err(|error| format!("famio recover: {error}"))
    }

    /// Gives the twin these bytes, and restarts the log with them.
    fn goes_on_from(&mut self, bytes: &[u8], moment: Moment) -> Result<(), String> {
        let twin = name(self.folder, "twin");
        std::fs::write(&twin, bytes).map_err(|error| format!("{}: {error}", twin.display()))?;
        // Its name follows the atomic file, which may have been renamed alone.
        let end = if self.folder.join("atomic-a").exists() { "a" } else { "b" };
        let same = self.folder.join(format!("twin-{end}"));
        std::fs::rename(&twin, &same).map_err(|error| format!("{}: {error}", same.display()))?;
        for which in ["atomic", "twin"] {
            let _ = std::fs::remove_file(self.folder.join(format!("{which}-link")));
        }
        if moment == Moment::Done {
            for entry in std::fs::read_dir(self.log.path()).map_err(|error| format!("log: {error}"))?.flatten() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let mut writer = Writer::new(self.log.path())?;
        let kept = writer.keep(bytes)?;
        writer.say(moment, &kept)
    }
}
