//! Runs workloads: all sides in each round, in a random order, each in processes of its own.

use super::bare::Bare;
use super::counted::{Counted, counted};
use super::files::Files;
use super::gathered::{Gathered, row};
use super::medium::Disk;
use super::side::Side;
use super::worker::{Job, Phases, READY, Report};
use crate::bench::container;
use crate::bench::document::effort::{Effort, Length};
use crate::bench::document::row::Row;
use crate::bench::document::workload::Workload;
use crate::bench::member::Member;
use crate::bench::session::Session;
use crate::settings::Options;
use std::path::Path;

/// Measures one row on files in this folder; what is there of it, if a signal ends the session.
pub fn measure(
    session: &Session,
    folder: &Path,
    options: &Options,
    effort: &Effort,
    sides: &[Side],
    workload: &Workload,
) -> Result<Option<Row>, String> {
    workload.check(effort.file_size)?;
    let mut random = fastrand::Rng::new();
    let mut gathered = Vec::new();
    for _ in sides {
        gathered.push(Gathered::new()?);
    }
    let size = workload.file_size(effort.file_size);
    let mut order: Vec<usize> = (0..sides.len()).collect();
    'rounds: for _ in 0..effort.rounds {
        random.shuffle(&mut order);
        for &at in &order {
            let side = &sides[at];
            // New files each time: Famio may leave a file in huge pages, and the plain file must be as a plain
            // program has it. Which pages of memory a file gets makes a difference of some percent, which must appear
            // between rounds rather than between sides.
            let mut files = Files::new(folder, &at.to_string(), size, workload)?;
            let done = one(options, effort.length, side, &mut files, workload, &mut gathered[at]);
            if session.interrupted() {
                // A measurement ended by the signal is no failure.
                break 'rounds;
            }
            done.map_err(|error| format!("{}, {}: {error}", workload.title(), side.name))?;
            session.step();
        }
    }
    let names: Vec<_> = sides.iter().map(|side| side.name.clone()).collect();
    row(workload, &names, &gathered)
}

/// Measures one side once.
fn one(
    options: &Options,
    length: Length,
    side: &Side,
    files: &mut Files,
    workload: &Workload,
    gathered: &mut Gathered,
) -> Result<(), String> {
    // A process has its first calls only once.
    let phases = if workload.cold { &[Phases::Together, Phases::Each][..] } else { &[Phases::Both] };
    for &phases in phases {
        let Worked { reports, to_disk, counted } = processes(options, length, side, files, workload, phases)?;
        let lanes = || reports.iter().flat_map(|report| &report.lanes);
        if phases != Phases::Each {
            let together = || lanes().filter_map(|lane| lane.together);
            let calls: u64 = together().map(|phase| phase.calls).sum();
            let began = together().map(|phase| phase.began).min().unwrap_or(0);
            let ended = together().map(|phase| phase.ended).max().unwrap_or(0);
            gathered.rounds.push((ended - began) as f64 / calls as f64);
            gathered.cpu.push(together().map(|phase| phase.cpu).sum::<u64>() as f64 / calls as f64);
        }
        for lane in lanes() {
            gathered.reads.add_all(&lane.reads);
            gathered.writes.add_all(&lane.written);
            gathered.syncs.add_all(&lane.syncs);
        }
        let written = lanes().map(|lane| lane.writes).sum::<u64>() * workload.io_size;
        gathered.bytes = gathered.bytes.zip(to_disk).map(|(sum, disk)| (sum.0 + disk, sum.1 + written));
        let of_baseline = lanes().map(|lane| lane.to_medium).sum::<Option<u64>>().map(|sum| (sum, written));
        let of_library = counted.map(|counted| (counted.to_medium, counted.written));
        gathered.add_to_medium(of_baseline.or(of_library));
        if side.bare().is_none_or(Bare::writes) {
            files.check(&lanes().map(|lane| lane.ops).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// What came of one measurement.
struct Worked {
    reports: Vec<Report>,
    /// Bytes that went to the disk meanwhile.
    to_disk: Option<u64>,
    /// What the library has counted meanwhile.
    counted: Option<Counted>,
}

/// Starts all processes, lets them begin at once when all are warm, and waits for their ends.
fn processes(
    options: &Options,
    length: Length,
    side: &Side,
    files: &mut Files,
    workload: &Workload,
    phases: Phases,
) -> Result<Worked, String> {
    let measurement = files.begin();
    let mut members = Vec::new();
    for process in 0..workload.processes {
        let first_lane = process * workload.threads;
        let mine = match files.paths() {
            [file] => vec![file.clone()],
            all => all[first_lane as usize..][..workload.threads as usize].to_vec(),
        };
        let library = side.library().map(Into::into);
        let job = Job {
            workload: *workload,
            length,
            phases,
            measurement,
            first_lane,
            files: mine,
            library,
            bare: side.bare(),
        };
        let job = serde_json::to_string(&job).map_err(|error| error.to_string())?;
        let mut command = side.command(options, files.paths())?;
        command.args(["bench", "io-work"]).arg(job);
        members.push(Member::start(if workload.in_containers { container::of(&command) } else { command })?);
    }
    for member in &mut members {
        match member.line()? {
            line if line == READY => {}
            other => return Err(format!("not ready: {other}")),
        }
    }
    let disk = files.paths().first().and_then(|path| Disk::of(path));
    let written = || disk.as_ref().and_then(Disk::written);
    let count = |files: &Files| if side.is_famio() { counted(files.paths()) } else { None };
    let (before, counted_before) = (written(), count(files));
    members.iter_mut().for_each(|member| member.tell("go"));
    let mut reports = Vec::new();
    for member in &mut members {
        let line = member.line()?;
        reports.push(serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?);
    }
    let counted = count(files).zip(counted_before).map(|(after, before)| after.since(before));
    // Only after all have reported: a process that closes the file would disturb the others.
    members.iter_mut().try_for_each(Member::end)?;
    let to_disk = written().zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(Worked { reports, to_disk, counted })
}

/// The number of measurements for a row.
pub fn steps(effort: &Effort, sides: usize) -> u64 {
    u64::from(effort.rounds) * sides as u64
}
