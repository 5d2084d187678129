//! Four processes in two containers share a pool that is nearly full, and one of them is killed every second: nothing
//! may be lost, no share exceeded, and no commit may wait long.
//!
//! Each process has its own file on the disk. The containers have only the pool, a folder on tmpfs, in common; each is
//! one application, with its own `/dev/shm`. Of a file with a journal elsewhere, that is all that docs/pool.md asks for.

mod board;
mod contain;
mod epochs;
mod kernel;
mod lives;
mod machine;
pub mod member;
mod options;
mod report;
mod shares;

use contain::{Container, Memory};
use epochs::{CELL, Script};
use famio::journal::set_pool_size;
use famio_test_support::launch::Famio;
use famio_test_support::place::{self, Place};
use famio_test_support::random::Random;
use lives::Member;
use machine::Machine;
pub use options::Args;
use report::Outcome;
use shares::Shares;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The status of a test that could not be made.
pub const SKIPPED: u8 = 77;

/// Runs the mode. `None`: there can be no containers.
pub fn run(args: &Args) -> Result<Option<bool>, String> {
    if let Some(why) = contain::missing() {
        println!("SKIPPED: no containers here: {why}");
        return Ok(None);
    }
    contain::enter()?;
    let seed = args.seed.unwrap_or_else(Random::fresh_seed);
    println!("seed {seed} (repeat with --seed {seed})");
    let mut disk = Place::new(&place::disk()?, "famio-kill-containers")?;
    let outcome = in_place(args, seed, disk.path())?;
    let is_right = report::print(args, &outcome);
    if !is_right && !args.without_famio {
        disk.keep();
        println!("left for a look: {}", disk.path().display());
    }
    Ok(Some(is_right))
}

fn in_place(args: &Args, seed: u64, disk: &Path) -> Result<Outcome, String> {
    let memory = Memory::mount(disk.join("memory"), (args.size + 256) * MIB)?;
    let pool = memory.path().join("pool");
    std::fs::create_dir(&pool).map_err(|error| format!("{}: {error}", pool.display()))?;
    set_pool_size(&pool, Some(args.size * MIB)).map_err(|error| format!("{}: {error}", pool.display()))?;
    let pool_text = pool.to_string_lossy().into_owned();
    let mut options = vec!["--no-config", "--pool", &pool_text, "--durability", "process", "--require"];
    options.extend(["--write-back", &args.write_back]);
    options.extend(args.options.iter().map(String::as_str));
    let famio = if args.without_famio { None } else { Some(Famio::beside_me(&options)?) };

    let mut random = Random::new(seed);
    let containers = [Container::start()?, Container::start()?];
    let mut members = Vec::new();
    for (container, application) in containers.iter().zip(["a", "b"]) {
        for number in 1..=2 {
            let name = (format!("{application}{number}"), application, container);
            let script = Script { seed: random.next_u64(), cells: (args.file * MIB / CELL as u64) as u32 };
            let pause = Duration::from_micros(args.pause);
            members.push(Member::new(name, famio.as_ref(), (disk, memory.path()), script, pause)?);
        }
    }
    let mut outcome = work(args, &members, (disk, &pool), &mut random)?;
    if famio.is_some() {
        // The tmpfs ends with this program.
        let is_wrong = outcome.records.iter().any(|(_, record)| !record.findings.is_empty());
        match is_wrong {
            true => contain::run(std::process::Command::new("cp").arg("-a").arg(&pool).arg(disk))?,
            false => outcome.left = leftovers(&pool, &members)?,
        }
    }
    Ok(outcome)
}

/// Lets all live, and kills, until the time is over or something is wrong.
fn work(
    args: &Args,
    members: &[Member<'_>],
    (disk, pool): (&Path, &Path),
    random: &mut Random,
) -> Result<Outcome, String> {
    let (is_over, are_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let started = Instant::now();
    let crashed = |_| "a thread panicked".to_string();
    std::thread::scope(|scope| {
        let processor = scope.spawn(|| machine::processor(&are_ended));
        let plain = scope.spawn(|| machine::disk(disk, &are_ended));
        let shares = scope.spawn(|| Shares::watch(pool, &are_ended));
        let lives: Vec<_> = members
            .iter()
            .map(|member| {
                let (random, is_over) = (Random::new(random.next_u64()), &is_over);
                scope.spawn(move || member.live(random, is_over))
            })
            .collect();
        let is_living = || lives.iter().all(|life| !life.is_finished());
        kill_at_times(args, members, random, is_living);
        is_over.store(true, Ordering::Relaxed);
        let joined: Vec<_> = lives.into_iter().map(|life| life.join().map_err(crashed)).collect();
        are_ended.store(true, Ordering::Relaxed);
        let mut records = Vec::new();
        for (member, record) in members.iter().zip(joined) {
            let mut record = record??;
            if record.findings.is_empty() {
                member.check_plain(&mut record)?;
            }
            records.push((member.name.clone(), record));
        }
        let disk = plain.join().map_err(crashed)?.map_err(|error| format!("plain file: {error}"))?;
        Ok(Outcome {
            seconds: started.elapsed().as_secs_f64(),
            records,
            shares: shares.join().map_err(crashed)??,
            machine: Machine { processor: processor.join().map_err(crashed)?, disk },
            left: Vec::new(),
        })
    })
}

/// Once in each period, at any moment of it, SIGKILL to one of those that live; at times again, soon after its start.
fn kill_at_times(args: &Args, members: &[Member<'_>], random: &mut Random, is_living: impl Fn() -> bool) {
    let started = Instant::now();
    let period = Duration::from_secs(1) / args.kills.max(1);
    for number in 0.. {
        let at = period * number + random.time_up_to(period);
        if at > args.time || !is_living() {
            std::thread::sleep(args.time.saturating_sub(started.elapsed()).min(period));
            return;
        }
        std::thread::sleep(at.saturating_sub(started.elapsed()));
        // Another one, if this one is being recovered or checks its file.
        let first = random.below(members.len() as u64) as usize;
        let mut in_turn = members[first..].iter().chain(&members[..first]);
        let killed = in_turn.find(|member| member.kill(true));
        if let Some(again) = killed.filter(|_| random.below(8) == 0) {
            std::thread::sleep(random.time_up_to(period / 4));
            again.kill(false);
        }
    }
}

/// After a clean end nothing of Famio's is left.
fn leftovers(pool: &Path, members: &[Member<'_>]) -> Result<Vec<String>, String> {
    let mut left = Vec::new();
    let entries = std::fs::read_dir(pool).map_err(|error| format!("{}: {error}", pool.display()))?;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| !path.ends_with("famio.pool")) {
        left.push(format!("left in the pool after a clean end: {}", path.display()));
    }
    for member in members.iter().filter(|member| crate::harness::has_mark(&member.file)) {
        left.push(format!("{} is still marked after a clean end", member.file.display()));
    }
    Ok(left)
}
