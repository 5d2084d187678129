//! The process that is killed: it checks what it finds in its file, then writes one epoch after the other.

use super::board::{Commit, now};
use super::epochs::{CELL, Script, State, Wrong};
use famio_test_support::random::Random;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How it is started.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Its file
    pub file: PathBuf,
    /// What it says about its commits
    pub board: PathBuf,
    /// Seed of its epochs
    #[arg(long)]
    pub seed: u64,
    /// The least length of the file
    #[arg(long)]
    pub cells: u32,
    /// The state of the file after the last epoch known to be committed
    #[arg(long)]
    pub state: PathBuf,
    /// Longest pause between two epochs, in microseconds
    #[arg(long)]
    pub pause: u64,
    /// No SYNC: it is not what a kill needs to tear an epoch of a plain file
    #[arg(long)]
    pub plain: bool,
}

/// Runs until its input ends. Prints `found N NANOSECONDS`, with the time that its `open` took, `lost N` or `torn TEXT`.
pub fn run(args: &Args) -> Result<bool, String> {
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let script = Script { seed: args.seed, cells: args.cells };
    let known = State::of_bytes(&std::fs::read(&args.state).map_err(|error| failed("state", error))?);
    let started = now();
    let file = File::options().read(true).write(true).open(&args.file).map_err(|error| failed("open", error))?;
    let opened = now();
    let found = match script.check(&file, &known).map_err(|error| failed("read", error))? {
        Ok(found) => found,
        Err(Wrong::Lost(number)) => {
            println!("lost {number}");
            return Ok(false);
        }
        Err(Wrong::Torn(text)) => {
            println!("torn {text}");
            return Ok(false);
        }
    };
    println!("found {found} {}", opened - started);
    let mut board = File::options().append(true).open(&args.board).map_err(|error| failed("board", error))?;
    let is_over = end_of_input();
    let mut pauses = Random::new(args.seed ^ found);
    let mut buffer = Vec::new();
    let mut length = script.length(found);
    let waits = File::open("/proc/thread-self/schedstat").ok();
    for number in found + 1.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let epoch = script.epoch(number);
        let at_epoch = |what: &str, error| failed(&format!("epoch {number}: {what}"), error);
        let (waited, begun) = (not_run(waits.as_ref()), now());
        if epoch.length != length {
            file.set_len(u64::from(epoch.length) * CELL as u64).map_err(|error| at_epoch("ftruncate", error))?;
            length = epoch.length;
        }
        for run in epoch.runs {
            buffer.resize(run.len() * CELL, 0);
            let at = u64::from(run.start) * CELL as u64;
            for (cell, bytes) in run.zip(buffer.chunks_exact_mut(CELL)) {
                script.fill(cell, number, bytes);
            }
            file.write_all_at(&buffer, at).map_err(|error| at_epoch("write", error))?;
        }
        let written = now();
        if !args.plain {
            file.sync_data().map_err(|error| at_epoch("fdatasync", error))?;
        }
        let ended = now();
        let commit = Commit {
            epoch: number,
            begun,
            writing: written - begun,
            sync: ended - written,
            not_run: not_run(waits.as_ref()) - waited,
        };
        commit.append(&mut board).map_err(|error| at_epoch("board", error))?;
        if args.pause > 0 {
            std::thread::sleep(pauses.time_up_to(Duration::from_micros(args.pause)));
        }
    }
    Ok(true)
}

/// Set when the input has ended.
fn end_of_input() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let set = is_over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        set.store(true, Ordering::Relaxed);
    });
    is_over
}

/// The second number in the kernel's file: how long this thread has waited for a processor.
fn not_run(file: Option<&File>) -> u64 {
    let mut text = [0; 64];
    let read = file.and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..read]);
    text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
