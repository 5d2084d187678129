//! A crash simulation of whole files: a recorder takes the place of the medium during a short sequence of operations.
//! Then, for every moment at which something became certain, images that a power cut could have left are recovered.
//! Each must give the last acknowledged epoch, or the one whose SYNC was under way.
//!
//! Not covered: the creation of the journal, and crashes of recovery itself.

mod common;
#[path = "common/crash.rs"]
mod crash;

use common::{Opened, Scratch};
use crash::{Crashed, Expose, Lease, Reads, Size, Step, Sync, in_place, write};
use famio::Settings;
use famio::journal::{BootId, Header};
use famio::pmem::record::{Plan, Recorder};
use famio::pmem::{Domain, stand_in};
use famio::recovery::{Outcome, Use};
use std::fs;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;

/// The recorder affects the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn crash_child() {
    crash::child();
}

fn do_step(opened: &Opened, step: &Step) {
    match *step {
        Step::Write { at, len, byte } => opened.write(at, &vec![byte; len]),
        Size(size) => opened.atomic().set_size(size).unwrap(),
        Sync => opened.atomic().sync().unwrap(),
        Lease => common::take_lease(opened),
        Expose => opened.atomic().give_up_lease().unwrap(),
        Reads => (0..10).for_each(|_| drop(opened.read(0, 64))),
        _ => {}
    }
}

/// Runs the epochs under a recorder, and recovers what crashes could leave. Returns how many images there were.
fn simulate(dir: Scratch, settings: &Settings, domain: Domain, epochs: &[Vec<Step>], plan: &Plan) -> usize {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let path = dir.path().join("app.db");
    fs::write(&path, crash::initial()).unwrap();
    let recorder = Recorder::new(domain);
    stand_in(Some(recorder));
    let opened = Opened::new(&path, settings);
    let mut models = vec![crash::initial()];
    for (number, steps) in epochs.iter().enumerate() {
        steps.iter().for_each(|step| do_step(&opened, step));
        opened.atomic().sync().unwrap();
        recorder.mark(number as u64 + 1);
        let last = models.last().unwrap().clone();
        models.push(crash::model(&last, steps).0);
    }
    let journal_path = crash::journals(&dir.path().join(".famio")).remove(0);
    let journal = fs::File::open(&journal_path).unwrap();
    let objects = [opened.file().as_fd(), journal.as_fd()].map(|fd| recorder.object_of(fd).unwrap());
    let trace = recorder.trace();
    stand_in(None);
    let mark = crash::get_mark(&path).unwrap();
    // The kernel allocates the journal's space: it is there whatever the crash lost.
    let length = journal.metadata().unwrap().len() as usize;
    drop(opened);

    let mut replay = trace.replay();
    let mut images = 0;
    while replay.advance() {
        let Some(&acked) = replay.marks().last() else { continue };
        let position = replay.position();
        let (seen, _) = replay.crashes(plan, |image| {
            let [file, mut journal] = objects.map(|object| image.get(object).unwrap());
            journal.resize(length.max(journal.len()), 0);
            if domain == Domain::PageCache {
                of_another_boot(&mut journal);
            }
            let what = format!("{settings:?}: crash at operation {position}, after epoch {acked}");
            recover(&path, &journal_path, &file, &journal, &mark, settings, &what);
            let found = fs::read(&path).unwrap();
            let legal = [acked as usize, acked as usize + 1].iter().any(|&epoch| models.get(epoch) == Some(&found));
            if !legal {
                let at = |model: &Vec<u8>| model.iter().zip(&found).position(|(a, b)| a != b);
                let first = models.get(acked as usize).map(|model| (at(model), model.len(), found.len()));
                panic!("{what}: of no epoch; differs from {acked} at {first:?}");
            }
            ControlFlow::<()>::Continue(())
        });
        images += seen;
    }
    images
}

fn recover(
    path: &Path,
    journal_path: &Path,
    file: &[u8],
    journal: &[u8],
    mark: &[u8],
    settings: &Settings,
    what: &str,
) {
    let crashed = Crashed {
        dir: Scratch::none(),
        path: path.to_path_buf(),
        settings: settings.clone(),
        committed: Vec::new(),
        raw: file.to_vec(),
        mark: mark.to_vec(),
        journal_path: journal_path.to_path_buf(),
        journal: journal.to_vec(),
    };
    crashed.restore();
    // In another boot, a journal of records is read as after a power cut; only this test gives the file times of the
    // current boot.
    let report = crash::recover(path, settings, Use::Journal);
    assert!(matches!(report.outcome, Outcome::Recovered), "{what}: {report:?}");
}

/// The header as it would be found after the end of its boot.
fn of_another_boot(journal: &mut [u8]) {
    for at in [0, 2048] {
        let copy: [u8; 2048] = journal[at..at + 2048].try_into().unwrap();
        if let Ok(mut header) = Header::decode(&copy) {
            header.boot_id = BootId([7; 16]);
            journal[at..at + 2048].copy_from_slice(&header.encode());
        }
    }
}

/// Overwriting committed data, in each home; changes of size in both directions; a block given up and taken again.
fn histories() -> Vec<Vec<Vec<Step>>> {
    vec![
        vec![vec![write(0, 200, 1)], vec![write(100, 200, 2)], vec![write(50, 64, 3), write(4000, 200, 4)]],
        vec![
            vec![write(0, 5000, 1)],
            vec![write(64, 64, 2), write(64, 64, 3)],
            vec![write(0, 128, 4)],
            vec![write(32, 64, 5)],
        ],
        vec![vec![write(15_990, 100, 1)], vec![Size(15_000)], vec![write(15_500, 30, 2)], vec![Size(17_000)]],
        vec![
            vec![write(0, 10, 1)],
            vec![Size(0), write(0, 300, 2)],
            vec![write(100, 10, 3), Size(250)],
            vec![Size(9000)],
        ],
        vec![vec![write(0, 1500, 9)], vec![write(8192, 1500, 1), write(0, 30, 2)], vec![write(8192, 1500, 3)]],
    ]
}

#[test]
fn journals_in_place() {
    let plan = Plan { exhaustive: 128, deviations: 60, random: 30, seed: 7 };
    for settings in in_place() {
        for (number, epochs) in histories().iter().enumerate() {
            let dir = Scratch::on_tmpfs(&format!("recorded-{number}"));
            // Stores of the emulated domain behave like those of pmem: every line that was not flushed and fenced may
            // be lost. In the domain of processes, each store is there when the next operation happens.
            let domain = if settings.emulated { Domain::Pmem } else { Domain::Process };
            let images = simulate(dir, &settings, domain, epochs, &plan);
            assert!(images > 20, "{settings:?}, history {number}: {images}");
        }
    }
}

/// The file is exposed to an outsider in the middle of an epoch: before, during and after that, a crash gives a
/// complete epoch.
#[test]
fn an_open_epoch_is_exposed() {
    let histories = [
        vec![
            vec![write(0, 9000, 1), Lease],
            vec![write(64, 640, 2), write(5000, 200, 2)],
            vec![write(128, 128, 3), write(4000, 2000, 3), Expose, write(100, 300, 4)],
            vec![write(0, 128, 5)],
        ],
        // With growth and cuts.
        vec![
            vec![write(0, 300, 1), Lease],
            vec![write(0, 200, 2), write(15_900, 5000, 2), Expose, write(100, 30, 3), write(20_000, 2000, 3), Lease],
            vec![Size(14_000), write(0, 100, 4), Expose, Size(15_000), Lease],
            vec![write(13_990, 100, 5), Size(30_000), Expose, write(18_000, 100, 6)],
        ],
        // Twice, and once when there is nothing to expose.
        vec![
            vec![write(0, 128, 1), Lease],
            vec![write(0, 64, 2), Expose, Lease, Expose, write(64, 64, 2), Lease],
            vec![write(0, 128, 3)],
            vec![Expose, write(0, 128, 4)],
        ],
        // Under auto, undo: more reads than writes.
        vec![
            vec![write(0, 128, 1), Lease, Reads],
            vec![write(32, 64, 2), write(4000, 300, 2), Expose, write(64, 64, 3), Lease, Reads],
            vec![write(0, 5000, 4), write(15_990, 500, 4), Expose, write(0, 100, 5)],
            vec![write(0, 64, 6)],
        ],
    ];
    let plan = Plan { exhaustive: 128, deviations: 60, random: 30, seed: 7 };
    for settings in common::in_place_settings().into_iter().filter(common::takes_lease) {
        for (number, epochs) in histories.iter().enumerate() {
            let dir = Scratch::on_tmpfs(&format!("exposed-{number}"));
            let domain = if settings.emulated { Domain::Pmem } else { Domain::Process };
            let images = simulate(dir, &settings, domain, epochs, &plan);
            assert!(images > 20, "{settings:?}, history {number}: {images}");
        }
    }
}

#[test]
fn journals_of_records() {
    let plan = Plan { exhaustive: 32, deviations: 20, random: 10, seed: 7 };
    for (number, epochs) in histories().iter().enumerate() {
        let dir = Scratch::on_disk(&format!("recorded-{number}"));
        let images = simulate(dir, &Settings::default(), Domain::PageCache, epochs, &plan);
        assert!(images > 5, "history {number}: {images}");
    }
}
