//! SIGKILL at random moments: afterwards the file is exactly as of the last acknowledged epoch, or of the one whose
//! SYNC was under way. Without Famio, the same harness must find damage, or it proves nothing.

mod common;

use common::{Opened, Scratch};
use famio::{PolicyChoice, Settings};
use famio_test_support::random::Random;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The changes of epoch `epoch`: writes, and sometimes a new size. The same for the child and the checker.
fn apply(epoch: u64, mut write: impl FnMut(u64, &[u8]), mut resize: impl FnMut(u64)) {
    let mut random = Random::new(epoch);
    let mut random = |below| random.below(below);
    for _ in 0..1 + random(6) {
        if random(12) == 0 {
            resize(random(300_000));
            continue;
        }
        let (offset, len) = (random(300_000), 1 + if random(3) == 0 { random(20_000) } else { random(300) });
        write(offset, &vec![epoch as u8 ^ random(250) as u8; len as usize]);
    }
}

fn model_of(epochs: u64) -> Vec<u8> {
    let model = std::cell::RefCell::new(vec![1u8; 50_000]);
    for epoch in 1..=epochs {
        apply(
            epoch,
            |offset, data| {
                let mut model = model.borrow_mut();
                let end = offset as usize + data.len();
                if model.len() < end {
                    model.resize(end, 0);
                }
                model[offset as usize..end].copy_from_slice(data);
            },
            |size| model.borrow_mut().resize(size as usize, 0),
        );
    }
    model.into_inner()
}

fn settings_of(text: &str) -> Settings {
    if text.starts_with("tiered") {
        return common::tiered_settings(text.ends_with("tight"));
    }
    let policy = match text.split('-').next() {
        Some("undo") => PolicyChoice::Undo,
        Some("redo") => PolicyChoice::Redo,
        Some("alternate") => PolicyChoice::Alternate,
        _ => PolicyChoice::Auto,
    };
    Settings { policy, emulated: text.ends_with("emulated"), ..Settings::default() }
}

/// The child: goes on from the given epoch, and reports each acknowledged epoch. Runs only when told to.
#[test]
fn child() {
    let Ok(path) = std::env::var("FAMIO_KILL_FILE") else { return };
    let settings = settings_of(&std::env::var("FAMIO_KILL_SETTINGS").unwrap());
    let from: u64 = std::env::var("FAMIO_KILL_FROM").unwrap().parse().unwrap();
    let bare = std::env::var("FAMIO_KILL_BARE").is_ok();
    let mut out = std::io::stdout();
    if bare {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for epoch in from.. {
            apply(epoch, |at, data| file.write_all_at(data, at).unwrap(), |size| file.set_len(size).unwrap());
            file.sync_data().unwrap();
            writeln!(out, "acked {epoch}").unwrap();
            out.flush().unwrap();
        }
    }
    let opened = Opened::new(Path::new(&path), &settings);
    for epoch in from.. {
        apply(epoch, |at, data| opened.write(at, data), |size| opened.atomic().set_size(size).unwrap());
        opened.atomic().sync().unwrap();
        writeln!(out, "acked {epoch}").unwrap();
        out.flush().unwrap();
    }
}

/// After a power cut of the machine that ran `child`: the file must be as of an epoch, not before `FAMIO_KILL_ACKED`.
/// Runs only when told to.
#[test]
fn check_after_power_cut() {
    let Ok(acked) = std::env::var("FAMIO_KILL_ACKED") else { return };
    let acked: u64 = acked.parse().unwrap();
    let path = std::env::var("FAMIO_KILL_FILE").unwrap();
    let settings = settings_of(&std::env::var("FAMIO_KILL_SETTINGS").unwrap());
    drop(Opened::new(Path::new(&path), &settings));
    let found = std::fs::read(&path).unwrap();
    // The machine may have gone on for a while after the line was seen.
    let epoch = (acked..acked + 3000).find(|&epoch| found == model_of(epoch));
    println!("epoch {epoch:?}, acknowledged {acked}");
    assert!(epoch.is_some(), "the file is no epoch's from {acked} on");
    assert!(!Path::new(&path).with_file_name(".famio").exists());
}

/// Kills the child `kills` times; returns how often the file was of no epoch.
fn campaign(dir: &Path, settings: &str, kills: u64, bare: bool) -> u64 {
    let path = dir.join(settings);
    std::fs::write(&path, vec![1u8; 50_000]).unwrap();
    let (mut epoch, mut damaged) = (0u64, 0);
    for kill in 0..kills {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.env("FAMIO_KILL_FILE", &path).env("FAMIO_KILL_SETTINGS", settings);
        command.env("FAMIO_KILL_FROM", (epoch + 1).to_string());
        if bare {
            command.env("FAMIO_KILL_BARE", "1");
        }
        let mut child = command.spawn().unwrap();
        // Killed after a number of acknowledgements, somewhere in what follows; the scheduler decides the moment.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 1 + kill * 7919 % 60;
        while left > 0 {
            let line = lines.next().expect("the child ended by itself").unwrap();
            if let Some(acked) = line.strip_prefix("acked ") {
                epoch = acked.parse().unwrap();
                left -= 1;
            }
        }
        for _ in 0..kill * 104_729 % 20_000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            if let Some(acked) = line.unwrap().strip_prefix("acked ") {
                epoch = acked.parse().unwrap();
            }
        }
        if !bare {
            drop(Opened::new(&path, &settings_of(settings))); // recovers, and closes clean
            assert!(!dir.join(".famio").exists());
        }
        let found = std::fs::read(&path).unwrap();
        if found == model_of(epoch) {
        } else if found == model_of(epoch + 1) {
            epoch += 1;
        } else {
            damaged += 1;
            assert!(bare, "{settings}: after kill {kill} the file is neither epoch {epoch} nor the next");
            std::fs::write(&path, model_of(epoch)).unwrap();
        }
    }
    damaged
}

fn kills() -> u64 {
    common::kills_asked().unwrap_or(12)
}

#[test]
fn every_kill_leaves_an_epoch() {
    if std::env::var("FAMIO_KILL_FILE").is_ok() {
        return;
    }
    let dir = Scratch::on_tmpfs("kill");
    for settings in
        ["undo", "redo", "alternate", "undo-emulated", "redo-emulated", "alternate-emulated", "auto-emulated"]
    {
        let folder = dir.path().join(format!("d-{settings}"));
        std::fs::create_dir(&folder).unwrap();
        campaign(&folder, settings, kills(), false);
    }
}

#[test]
fn every_kill_leaves_an_epoch_on_disk() {
    if std::env::var("FAMIO_KILL_FILE").is_ok() {
        return;
    }
    campaign(Scratch::on_disk("kill").path(), "records", kills(), false);
}

#[test]
fn every_kill_leaves_an_epoch_on_disk_with_the_journal_in_memory() {
    if std::env::var("FAMIO_KILL_FILE").is_ok() {
        return;
    }
    for settings in ["tiered", "tiered-tight"] {
        campaign(Scratch::on_disk(settings).path(), settings, kills(), false);
    }
}

#[test]
fn without_famio_the_same_harness_finds_damage() {
    if std::env::var("FAMIO_KILL_FILE").is_ok() {
        return;
    }
    let dir = Scratch::on_tmpfs("kill-bare");
    // Depends on chance on a busy machine: kills may fall between epochs.
    assert!((0..25).any(|_| campaign(dir.path(), "bare", 40.max(kills()), true) > 0), "it finds nothing");
}
