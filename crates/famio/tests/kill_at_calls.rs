//! SIGKILL before and after every system call of the writing thread, one kill at a time: afterwards the file is
//! exactly as of the last acknowledged epoch or of the one whose SYNC was under way, and so is a backup. With
//! `on-kill = keep`, it is as before or after the call that was under way. The dead process's arena remains, so a
//! change of the file that the arena does not know about looks like an outsider's.

mod common;
#[path = "common/crash.rs"]
mod crash;
#[path = "common/small.rs"]
mod small;
#[path = "common/traced.rs"]
mod traced;

use common::{Opened, Scratch, in_place_settings};
use crash::{Close, Size, Step, Sync, write};
use famio::{Durability, OnKill, Settings};
use small::Small;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use traced::Traced;

const MIB: u64 = 1 << 20;

#[test]
fn crash_child() {
    crash::child();
}

/// Runs the steps and kills the process at stop number `stop`. Returns how many SYNCs were acknowledged, or calls
/// kept, and whether it came that far; `None`: a process cannot be traced here.
fn kill_at(stop: usize, path: &Path, settings: &Settings, steps: &[Step]) -> Option<(usize, bool)> {
    let mut command = crash::command(path, settings, steps);
    if may_grow(steps) {
        command.env(crash::MAY_GROW, "1");
    }
    let mut child =
        command.env(crash::MEETS, "1").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("this binary");
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    let thread = said.find_map(|line| line.strip_prefix("thread ").map(|id| id.parse().unwrap())).expect("its thread");
    let traced = Traced::attach(thread);
    if let Some(traced) = &traced {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let lives = (0..stop).all(|_| traced.step());
        child.kill().unwrap();
        if lives {
            while libc::WIFSTOPPED(traced.wait()) {}
        }
        let status = child.wait().unwrap();
        let said: Vec<String> = said.collect();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}: {said:?}");
        let word = if settings.on_kill == OnKill::Keep { "done" } else { "acknowledged" };
        return Some((said.iter().filter(|line| *line == word).count(), lives));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// The possible contents of the file: one after each SYNC and the close, or each call that is kept.
fn states(settings: &Settings, steps: &[Step]) -> Vec<Vec<u8>> {
    let is_end = |step: &Step| [Sync, Close].contains(step) || settings.on_kill == OnKill::Keep;
    let ends = steps.iter().enumerate().filter(|(_, step)| is_end(step)).map(|(at, _)| at + 1);
    [0].into_iter().chain(ends).map(|end| crash::model(&crash::initial(), &steps[..end]).0).collect()
}

/// The distance between kills; with `FAMIO_KILLS` of a hundred or more, which asks for a long run, none is left out.
fn stride() -> usize {
    if common::kills_asked().is_some_and(|kills| kills >= 100) { 1 } else { 23 }
}

/// Every kill, or every [`stride`]th, beginning with `first`.
fn campaign(folder: &Path, settings: &Settings, steps: &[Step], first: usize) {
    let path = folder.join("app.db");
    let states = states(settings, steps);
    for stop in (first % stride()..).step_by(stride()) {
        fs::write(&path, crash::initial()).unwrap();
        let Some((acknowledged, lives)) = kill_at(stop, &path, settings, steps) else {
            eprintln!("NOT TESTED: kills at system calls take ptrace(2), which is refused here");
            return;
        };
        let at = || format!("{settings:?}: killed at stop {stop}, {acknowledged} acknowledged");
        let copy = folder.join("copy");
        let backup = famio::recovery::backup(&path, &copy, true, &Settings::default(), &|_| {});
        let opened = Opened::try_new(&path, settings).unwrap_or_else(|error| panic!("{}: {error}", at()));
        let most = states.iter().map(Vec::len).max().unwrap();
        let found = opened.read(0, most + 1);
        let epoch = states.iter().skip(acknowledged).take(2).position(|state| *state == found);
        assert!(epoch.is_some(), "{}: the file is neither that epoch nor the next", at());
        backup.unwrap_or_else(|error| panic!("{}: no backup: {error}", at()));
        assert!(fs::read(&copy).unwrap() == found, "{}: a backup is as of another epoch", at());
        opened.write(found.len() as u64, b"more");
        opened.atomic().sync().unwrap();
        drop(opened);
        let used = fs::read(&path).unwrap();
        assert!(used.strip_prefix(&*found) == Some(b"more"), "{}: what was written then is not there", at());
        assert!(!folder.join(".famio").exists(), "{}: the journal stays", at());
        if !lives {
            println!("{settings:?}: {stop} stops");
            return;
        }
    }
}

/// Whether a file that is changed this way needs no journal at first: the first change overwrites a few bytes.
fn may_grow(steps: &[Step]) -> bool {
    matches!(steps[0], Step::Write { len, .. } if len < 100)
}

/// A few bytes are overwritten, and some appended; at last the file needs a journal.
fn few() -> Vec<Step> {
    let growing = [write(10, 20, 1), write(300, 30, 2), Sync, write(15, 90, 3), write(16_000, 500, 4), Sync, Sync];
    let more = [write(16_400, 200, 5), Size(16_700), Sync, write(0, 5, 6), Size(17_000), write(50, 100_000, 7)];
    growing.into_iter().chain(more).chain([write(3, 30, 8), Sync, Close]).collect()
}

/// The same without a journal, and the close commits.
fn fewer() -> Vec<Step> {
    vec![write(10, 20, 1), Sync, write(300, 30, 2), write(16_000, 500, 3), Close]
}

/// A file that grows by little and by much, loses a part, is cut, and grows again.
fn sizes() -> Vec<Step> {
    let (fast_path, far) = (write(16_000, 300_000, 2), write(17 * MIB, 9000, 3));
    let hole = Step::Zero { at: 5000, len: 200_000 };
    let steps = [write(100, 5000, 1), fast_path, hole, far, Size(7000), Size(60_000), write(90_000, 9000, 4)];
    steps.into_iter().flat_map(|step| [step, Sync]).chain([Close]).collect()
}

/// Some of the steps of [`sizes`], with few SYNCs.
fn calls() -> Vec<Step> {
    let first =
        [write(100, 5000, 1), write(16_000, 300_000, 2), Sync, write(4000, 30_000, 3), Size(9000), Size(70_000)];
    let then = [write(60_000, 50_000, 4), Step::Zero { at: 5000, len: 100_000 }, write(5, 200_000, 5), Sync, Size(50)];
    first.into_iter().chain(then).chain([write(1000, 300_000, 6), write(MIB, 9000, 7), Close]).collect()
}

fn kept(settings: &Settings) -> Settings {
    Settings { on_kill: OnKill::Keep, ..settings.clone() }
}

#[test]
fn a_kill_at_every_call_is_between_calls_where_they_are_kept_in_place() {
    let dir = Scratch::on_tmpfs("keep-at-calls");
    for (first, settings) in in_place_settings().iter().enumerate() {
        campaign(dir.path(), &kept(settings), &calls(), first);
    }
}

#[test]
fn a_kill_at_every_call_is_between_calls_where_they_are_kept_by_records() {
    let dir = Scratch::on_disk("keep-at-calls");
    for (first, durability) in [Durability::Process, Durability::Power].into_iter().enumerate() {
        campaign(dir.path(), &kept(&Settings { durability, ..Settings::default() }), &calls(), first);
    }
}

#[test]
fn a_kill_at_every_call_in_place() {
    let dir = Scratch::on_tmpfs("kill-at-calls");
    for (first, settings) in in_place_settings().iter().enumerate() {
        campaign(dir.path(), settings, &sizes(), first);
    }
}

#[test]
fn a_kill_at_every_call_without_a_journal() {
    let dir = Scratch::on_tmpfs("kill-growing");
    for (first, emulated) in [false, true].into_iter().enumerate() {
        let settings = Settings { emulated, ..Settings::default() };
        (0..stride()).step_by(6).for_each(|more| campaign(dir.path(), &settings, &few(), first + more));
        (0..stride()).step_by(3).for_each(|more| campaign(dir.path(), &settings, &fewer(), first + more));
    }
}

#[test]
fn a_kill_at_every_call_without_a_journal_where_the_order_is_kept() {
    let Some(small) = Small::in_memory("kill-growing-in-order", 192) else { return };
    (0..stride()).step_by(6).for_each(|first| campaign(&small.path(), &Settings::default(), &few(), first));
    (0..stride()).step_by(3).for_each(|first| campaign(&small.path(), &Settings::default(), &fewer(), first));
}

/// A session there begins and ends by one flush each, and a kill may come between what is written and that.
#[test]
fn a_kill_at_every_call_by_records_where_the_order_is_kept() {
    let Some(small) = Small::in_memory("kill-in-order", 192) else { return };
    campaign(&small.path(), &Settings::default(), &sizes(), 5);
    campaign(&small.path(), &kept(&Settings::default()), &calls(), 9);
    let short = [write(100, 5000, 1), Sync, Close];
    (0..stride()).step_by(5).for_each(|first| campaign(&small.path(), &Settings::default(), &short, first));
}

#[test]
fn a_kill_at_every_call_by_records() {
    let dir = Scratch::on_disk("kill-at-calls");
    for (first, durability) in [Durability::Process, Durability::Power].into_iter().enumerate() {
        campaign(dir.path(), &Settings { durability, ..Settings::default() }, &sizes(), first);
    }
}
