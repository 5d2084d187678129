//! On the host: one boot after the other, each ended by a cut; keeps what was acknowledged in between.

use crate::names::{self, Names};
use crate::options::Options;
use crate::vm::{self, Boot};
use famio::pmem::Domain;
use famio_test_support::place::{self, Place};
use famio_test_support::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How far the clock of each boot is ahead of the previous one: longer than a boot takes.
const BOOT_SECONDS: u64 = 1000;

/// How many machines may fail to boot. On a busy host, the emulated clock sometimes stands still while Linux checks
/// it at its start, which causes a panic.
const UNBOOTED: u64 = 20;

/// Counts per file.
#[derive(Default)]
struct Count {
    checks: u64,
    recoveries: u64,
    acknowledged: u64,
    damaged: u64,
}

#[derive(Default)]
struct Tally {
    exact: u64,
    on_acknowledgement: u64,
    timed: u64,
    in_recovery: u64,
    /// Boots that ended otherwise.
    missed: u64,
    /// Machines that did not boot.
    unbooted: u64,
    boots: u64,
    files: BTreeMap<String, Count>,
    damage: Vec<String>,
}

impl Tally {
    fn cuts(&self) -> u64 {
        self.exact + self.on_acknowledgement + self.timed + self.in_recovery
    }
}

/// How a boot ends.
enum Cut {
    Exact(&'static str),
    Acknowledgement,
    Timed,
    Recovery(&'static str),
}

/// Returns whether everything is as expected.
pub fn main(args: &Options) -> Result<bool, String> {
    args.check()?;
    let Some(dax_vm) = vm::find() else {
        eprintln!(
            "famio-power: SKIPPED, no power was cut: dax-vm is not here (FAMIO_DAX_VM names it, or PATH, or it lies in \
             ../shared/dax-vm beside the repository)"
        );
        return Ok(true);
    };
    if let Err(why) = probe(&dax_vm) {
        eprintln!("famio-power: SKIPPED, no power was cut: {} gives no virtual machine here: {why}", dax_vm.display());
        return Ok(true);
    }
    place::clean_up_on_interrupt();
    let seed = args.seed.unwrap_or_else(Random::fresh_seed);
    println!("seed {seed} (repeat with --seed {seed})");
    let started = Instant::now();
    let mut place = Place::new(&std::env::temp_dir(), "famio-power")?;
    let state = args.state.clone().unwrap_or_else(|| place.path().join("state"));
    let mut tally = Tally::default();
    let mut acked = BTreeMap::new();
    let mut random = Random::new(seed);
    let mut last = false;
    while !last {
        // The last boot only checks.
        last = tally.cuts() >= args.cuts;
        if args.broken.is_none() {
            keep_as_it_was(&state)?;
        }
        let boot = one(args, &dax_vm, &state, &mut random, &acked, &mut tally, last)?;
        count(&boot, &mut acked, &mut tally);
        if boot.has_failed() && tally.unbooted < UNBOOTED {
            tally.unbooted += 1;
            println!("  a machine did not come up, or fell down by itself; the next one");
            last = false;
            continue;
        }
        let as_planned = boot.was_cut() || (last && boot.status.success());
        if !as_planned {
            tally.missed += 1;
            println!("  a boot ended with {}: {}", boot.status, boot.messages);
            if tally.missed > 5 {
                return Err("too many boots ended without a cut".into());
            }
            last = false;
        }
        if args.broken.is_none() && !tally.damage.is_empty() {
            place.keep();
            println!("  the disks are kept in {}, as the last cut left them in its folder 'before'", state.display());
            break;
        }
    }
    report(args, &tally, started);
    Ok(tally.damage.is_empty() != args.broken.is_some())
}

/// Keeps a copy of the disks as the last cut left them, for debugging failed checks: recovery changes them.
fn keep_as_it_was(state: &Path) -> Result<(), String> {
    let before = state.join("before");
    std::fs::create_dir_all(&before).map_err(|error| format!("{}: {error}", before.display()))?;
    for name in ["disk.img", "pmem.img", "geometry"] {
        if !state.join(name).exists() {
            continue;
        }
        // They consist mostly of holes.
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always").arg(state.join(name)).arg(before.join(name));
        match copy.status() {
            Ok(status) if status.success() => {}
            failed => return Err(format!("cp {name} to {}: {failed:?}", before.display())),
        }
    }
    Ok(())
}

/// Whether a machine boots at all; fails if QEMU or its packages are missing.
fn probe(dax_vm: &Path) -> Result<(), String> {
    let mut boot = vm::boot(dax_vm, &[], &["true".into()])?;
    for _ in 0..2 {
        if boot.has_failed() {
            boot = vm::boot(dax_vm, &[], &["true".into()])?;
        }
    }
    if boot.status.success() { Ok(()) } else { Err(format!("{}, {}", boot.status, boot.messages)) }
}

fn one(
    args: &Options,
    dax_vm: &Path,
    state: &Path,
    random: &mut Random,
    acked: &BTreeMap<String, u64>,
    tally: &mut Tally,
    last: bool,
) -> Result<Boot, String> {
    let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let mut options = vec!["--state".into(), state.display().to_string(), "--fs".into(), args.fs.clone()];
    let mut command = vec![me.display().to_string(), "guest".into(), "--seed".into(), random.next_u64().to_string()];
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() + tally.boots * BOOT_SECONDS;
    command.extend(["--clock".into(), clock.to_string()]);
    tally.boots += 1;
    if !acked.is_empty() {
        let list: Vec<String> = acked.iter().map(|(name, number)| format!("{name}={number}")).collect();
        command.extend(["--acked".into(), list.join(",")]);
    }
    if let Some(broken) = args.broken {
        command.extend(["--broken".into(), broken.word()]);
    }
    if args.tiered {
        command.push("--tiered".into());
    }
    if last {
        command.push("--check-only".into());
        return vm::boot(dax_vm, &options, &command);
    }
    let names = Names::of(args.tiered);
    let name = names.stamped[random.below(names.stamped.len() as u64) as usize];
    let broken = args.broken.map(|broken| {
        // With a broken Famio, soon after a commit.
        let names: Vec<_> = names.stamped.iter().copied().filter(|name| broken.concerns(name)).collect();
        Cut::Exact(names[random.below(names.len() as u64) as usize])
    });
    let cut = match random.below(10) {
        0..5 => Cut::Exact(name),
        5..7 => Cut::Acknowledgement,
        7 | 8 => Cut::Timed,
        _ => Cut::Recovery(name),
    };
    let cut = broken.unwrap_or(cut);
    let lose = ["all", "some", "some", "nothing"][random.below(4) as usize];
    let mut exact = |at: String, most: u64, random: &mut Random| {
        let after = 1 + random.below(most);
        command.extend(["--cut".into(), at, "--after".into(), after.to_string(), "--lose".into(), lose.into()]);
    };
    match cut {
        Cut::Exact(name) => {
            let most = match (args.broken, names::domain(name) == Domain::PageCache) {
                (Some(_), _) => 20, // commits
                (None, true) => 60,
                (None, false) => 2000,
            };
            exact(name.into(), most, random);
        }
        Cut::Recovery(name) => {
            exact(format!("recover:{name}"), 30, random);
            // In case it needs fewer operations.
            options.extend(["--kill-after".into(), "8".into()]);
        }
        Cut::Acknowledgement => {
            let all: Vec<_> = names.all().collect();
            let name = all[random.below(all.len() as u64) as usize];
            let known = acked.get(name).copied().unwrap_or(0);
            let wanted = known + 1 + random.below(if names.sqlite.contains(&name) { 4 } else { 25 });
            options.extend(["--kill-on".into(), format!("^ack {name} {wanted}$")]);
            options.extend(["--kill-after".into(), "30".into()]);
        }
        Cut::Timed => {
            let time = 1.0 + random.below(14_000) as f64 / 1000.0;
            options.extend(["--kill-after".into(), format!("{time:.3}")]);
        }
    }
    let boot = vm::boot(dax_vm, &options, &command)?;
    if boot.was_cut() {
        match cut {
            Cut::Exact(_) => tally.exact += 1,
            Cut::Acknowledgement => tally.on_acknowledgement += 1,
            Cut::Timed => tally.timed += 1,
            Cut::Recovery(name) if boot.lines.iter().any(|line| line.starts_with(&format!("found {name} "))) => {
                tally.timed += 1
            }
            Cut::Recovery(_) => tally.in_recovery += 1,
        }
    }
    Ok(boot)
}

/// Processes a boot's output in order: first what it found, then what it acknowledged.
fn count(boot: &Boot, acked: &mut BTreeMap<String, u64>, tally: &mut Tally) {
    for line in &boot.lines {
        let mut words = line.splitn(3, ' ');
        let (Some(word), Some(name), rest) = (words.next(), words.next(), words.next().unwrap_or("")) else { continue };
        let count = tally.files.entry(name.into()).or_default();
        let number = rest.parse::<u64>();
        match (word, number) {
            ("ack", Ok(number)) => {
                let before = acked.insert(name.into(), number);
                if before.is_some_and(|before| number <= before) {
                    count.damaged += 1;
                    tally.damage.push(format!("{name}: {number} was acknowledged twice"));
                }
                count.acknowledged += 1;
            }
            ("found", Ok(number)) => {
                count.checks += 1;
                // One more than acknowledged may be there.
                acked.insert(name.into(), number);
            }
            ("recovered", _) => count.recoveries += 1,
            ("anew", _) => {
                acked.insert(name.into(), 0);
            }
            ("damage", _) => {
                count.checks += 1;
                count.damaged += 1;
                tally.damage.push(format!("{name}: {rest}"));
            }
            _ => {}
        }
    }
}

fn report(args: &Options, tally: &Tally, started: Instant) {
    let Tally { exact, on_acknowledgement, timed, in_recovery, missed, .. } = tally;
    let is_written = |name: &str| Names::of(args.tiered).all().any(|written| written == name);
    for (name, count) in tally.files.iter().filter(|(name, _)| is_written(name)) {
        let Count { checks, recoveries, acknowledged, damaged } = count;
        println!(
            "  {name:22} {checks:4} checks, {recoveries:4} recoveries, {acknowledged:6} acknowledged, {damaged} damaged"
        );
    }
    for what in tally.damage.iter().take(5) {
        println!("    {what}");
    }
    let verdict = match (tally.damage.is_empty(), args.broken) {
        (true, None) => "ok".into(),
        (false, None) => "NOT OK".into(),
        (false, Some(broken)) => format!("damage found, as expected without the commit's {broken:?}"),
        (true, Some(broken)) => format!("NOT OK: without the commit's {broken:?} no damage was found"),
    };
    println!(
        "total: {}{}-DAX and disk: {} power cuts ({exact} at an exact operation, {on_acknowledgement} at an acknowledgement, \
         {timed} by time, {in_recovery} in a recovery; {missed} boots without one): {} damaged, in {:.0} s: {verdict}",
        if args.tiered { "tiered, " } else { "" },
        args.fs,
        tally.cuts(),
        tally.damage.len(),
        started.elapsed().as_secs_f64()
    );
}
