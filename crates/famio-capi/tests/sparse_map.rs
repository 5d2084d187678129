//! A mapped file of twice the memory, most of it holes: it is protected, a kill leaves exactly the last msync, and
//! memory stays within what was stored since the checkpoint. For programs under `famio run`, and of libfamio.
//!
//! `FAMIO_KILLS`: kills of each test (4).

mod common;

use common::memory::Memory;
use common::{Folder, beside, command, succeed};
use famio_test_support::memory::twice_the_memory;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Bounds, for the about 7 MiB of pages of an epoch: 64 MiB of copies start a checkpoint, and the journal has as much.
const OWN_MOST: u64 = 160 << 20;
const ALL_MOST: u64 = 512 << 20;

/// A file, its model, and the program.
struct Place {
    folder: Folder,
    program: PathBuf,
    nvmmap: bool,
    /// Percent of the stores that lie anywhere in the file, rather than in one GiB.
    everywhere: &'static str,
}

impl Place {
    /// `None`, with a loud message, if the kernel cannot say which pages were stored to.
    fn new(nvmmap: bool, everywhere: &'static str) -> Option<Self> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        if (numbers.next(), numbers.next()) < (Some(6), Some(7)) {
            eprintln!("SKIPPED: maps of large files need Linux 6.7, this is {release}");
            return None;
        }
        let folder = Folder::on_disk(if nvmmap { "sparse-nvmmap" } else { "sparse-run" });
        let program = folder.path().join("sparse");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/sparse.c");
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-o"]).arg(&program).arg(source);
        if nvmmap {
            let libraries = common::libraries();
            cc.arg("-DNVMMAP").arg("-I").arg(common::root().join("include")).arg("-L").arg(libraries).arg("-lfamio");
            cc.arg(format!("-Wl,-rpath,{}", libraries.display()));
        }
        succeed(&mut cc);
        Some(Self { folder, program, nvmmap, everywhere })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("atomic")
    }

    fn command(&self, what: &str) -> Command {
        let mut command = if self.nvmmap {
            command(&self.program)
        } else {
            let mut famio = command(beside("famio"));
            famio.args(["run", "--require", "--atomic"]).arg(self.file()).arg("--").arg(&self.program);
            famio
        };
        command.arg(self.file()).args([what, &twice_the_memory(), self.everywhere]);
        command
    }

    /// The epoch that is there as a whole, and nothing else; seen in one of three ways.
    fn check(&self, way: u64) -> u64 {
        let model = self.folder.path().join("model");
        let mut check = match way % 3 {
            0 | 1 => self.command("check"),
            _ => {
                succeed(command(beside("famio")).arg("recover").arg(self.file()));
                let mut plain = command(&self.program);
                plain.env("FAMIO_ATOMIC", "").arg(self.file()).args(["check", &twice_the_memory(), self.everywhere]);
                plain
            }
        };
        check.arg(model).arg(if way.is_multiple_of(3) { "mapped" } else { "read" });
        succeed(&mut check).trim().parse().unwrap()
    }

    /// Starts the writer, and a thread that passes on its lines.
    fn start(&self, epochs: &str) -> (Child, Receiver<Line>) {
        let mut child = self.command("work").arg(epochs).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sends, lines) = channel();
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).filter_map(|line| Line::of(&line)).try_for_each(|line| sends.send(line))
        });
        (child, lines)
    }

    /// What the writer takes now, with its journal.
    fn memory(&self, pid: u32) -> Memory {
        Memory::of(pid, &self.folder.path().join(".famio")).unwrap_or_default()
    }
}

/// What the writer says.
enum Line {
    Sync(u64),
    Done(u64, Duration),
}

impl Line {
    fn of(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split(' ').collect();
        match words[..] {
            ["sync", epoch] => Some(Line::Sync(epoch.parse().ok()?)),
            ["done", epoch, us] => Some(Line::Done(epoch.parse().ok()?, Duration::from_micros(us.parse().ok()?))),
            _ => None,
        }
    }
}

/// Nothing is said of a file given back to the kernel, or unprotected.
fn assert_quiet(child: &mut Child) {
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "");
}

/// `famio ps` shows the file with a journal.
fn assert_protected(place: &Place, pid: u32) {
    let listed = succeed(command(beside("famio")).args(["ps", "--json"]));
    let about = listed.split('}').find(|object| object.contains(&format!("\"pid\": {pid},")));
    let about = about.unwrap_or_else(|| panic!("{pid} is not in {listed}"));
    assert!(about.contains(&place.file().display().to_string()), "{about}");
}

fn figures(name: &str, syncs: &mut [Duration], most: &Memory) {
    syncs.sort();
    let (p50, longest) = (syncs[syncs.len() / 2], syncs[syncs.len() - 1]);
    println!("{name}: {} msyncs, p50 {p50:.1?}, longest {longest:.1?}; at most {most}", syncs.len());
}

fn kills(nvmmap: bool) {
    let Some(place) = Place::new(nvmmap, "2") else { return };
    let count = std::env::var("FAMIO_KILLS").map_or(4, |count| count.parse().unwrap());
    let (mut last, mut in_syncs, mut next_found) = (0, 0, 0);
    let (mut syncs, mut most) = (Vec::new(), Memory::default());
    for kill in 0..count {
        let (mut child, lines) = place.start("1000000");
        let pid = child.id();
        // After some epochs, of which about ten start a checkpoint: half of them in a msync or soon after it, the others
        // in the stores that follow.
        let random = (kill + 1u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let (epochs, in_msync) = (1 + random % 15, kill % 2 == 0);
        let usual = syncs.last().copied().unwrap_or(Duration::from_millis(50));
        let pause = if in_msync { usual.mul_f64((random >> 8) as f64 / 65536.0 * 1.2) } else { usual / 8 };
        let (mut begun, mut done, mut seen) = (last, last, 0);
        let mut until: Option<Instant> = None;
        loop {
            let wait = until.map_or(Duration::from_secs(60), |until| until.saturating_duration_since(Instant::now()));
            match lines.recv_timeout(wait) {
                Ok(Line::Sync(epoch)) => {
                    (begun, seen) = (epoch, seen + 1);
                    if in_msync && seen == epochs {
                        until = Some(Instant::now() + pause);
                    }
                }
                Ok(Line::Done(epoch, time)) => {
                    done = epoch;
                    syncs.push(time);
                    most = most.most(place.memory(pid));
                    if seen == 1 {
                        assert_protected(&place, pid);
                    }
                    if !in_msync && seen == epochs {
                        until = Some(Instant::now() + pause);
                    }
                }
                Err(RecvTimeoutError::Timeout) if until.is_some() => break,
                Err(why) => panic!("kill {kill}: the writer is stuck or gone: {why}"),
            }
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        for line in lines {
            match line {
                Line::Sync(epoch) => begun = epoch,
                Line::Done(epoch, time) => (done, _) = (epoch, syncs.push(time)),
            }
        }
        assert_quiet(&mut child);
        let found = place.check(kill);
        assert!((done..=begun.max(done)).contains(&found), "kill {kill}: {done} done, {begun} begun, {found} found");
        in_syncs += u64::from(begun > done);
        next_found += u64::from(found > done);
        last = found;
    }
    println!("{count} kills, {in_syncs} in a msync, of which {next_found} found it whole; {last} epochs");
    figures(if nvmmap { "nvmmap" } else { "famio run" }, &mut syncs, &most);
    assert!(most.own <= OWN_MOST && most.all() <= ALL_MOST, "{most}");
}

#[test]
fn a_kill_leaves_the_last_msync_under_famio_run() {
    kills(false);
}

#[test]
fn a_kill_leaves_the_last_msync_of_a_region() {
    kills(true);
}

/// One process with many epochs: the second half takes no more than the first. All stores lie in one GiB, since the
/// index grows with the parts of the file that are stored to.
fn memory(nvmmap: bool, epochs: usize) {
    let Some(place) = Place::new(nvmmap, "0") else { return };
    let (mut child, lines) = place.start(&epochs.to_string());
    let (mut syncs, mut halves) = (Vec::new(), [Memory::default(); 2]);
    for line in lines {
        let half = &mut halves[usize::from(syncs.len() > epochs / 2)];
        *half = half.most(place.memory(child.id()));
        if let Line::Done(_, time) = line {
            syncs.push(time);
        }
    }
    assert!(child.wait().unwrap().success());
    assert_quiet(&mut child);
    assert_eq!(place.check(0), epochs as u64);
    assert_eq!(place.check(2), epochs as u64);
    let [first, second] = halves;
    figures(if nvmmap { "nvmmap" } else { "famio run" }, &mut syncs, &first.most(second));
    println!("  in the second half: at most {second}");
    assert!(first.own.max(second.own) <= OWN_MOST && first.all() <= ALL_MOST, "{first}, then {second}");
    assert!(second.all() <= first.all() + (32 << 20), "{first}, then {second}");
}

#[test]
fn memory_is_bounded_by_what_was_stored_since_the_checkpoint() {
    memory(false, 40);
}

#[test]
#[ignore = "minutes"]
fn memory_does_not_grow_over_many_epochs() {
    for nvmmap in [false, true] {
        memory(nvmmap, 400);
    }
}
