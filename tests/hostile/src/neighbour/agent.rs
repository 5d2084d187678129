//! The neighbour: another user without any right, who does what he can, as fast as he can.
//!
//! He says what he does, a line each; `SECRET WHERE` when he has read what he must not.

use super::attack::{self, Held};
use super::forge::{self, Forge};
use super::litter;
use super::names::{self, c};
use crate::classes::Classes;
use clap::Args;
use famio_test_support::random::Random;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What he is told.
#[derive(Args, Clone, Debug)]
pub struct Agent {
    /// Decides what he does
    #[arg(long)]
    pub seed: u64,
    /// Classes of actions
    #[arg(long)]
    pub classes: u64,
    /// What he looks for
    #[arg(long)]
    pub secret: String,
    /// Where all of it is
    pub scene: PathBuf,
}

/// All that he has and knows.
pub struct Mind {
    /// Where all of it is.
    pub scene: PathBuf,
    /// For what is random.
    pub random: Random,
    /// What he may do.
    pub classes: Classes,
    /// What he looks for.
    pub secret: Vec<u8>,
    /// Descriptors with locks, leases and maps.
    pub held: Vec<Held>,
    /// Journals and marks to change.
    pub forge: Forge,
    /// The victim's files.
    pub victims: Vec<PathBuf>,
    /// Programs of his own.
    pub children: Vec<std::process::Child>,
}

/// Says what is done. What comes of it he does not care about.
pub fn say(what: &str, path: &Path) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{what} {}\n", path.display()).as_bytes());
}

impl Mind {
    /// One of these.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.random.below(from.len() as u64) as usize].clone())
    }

    /// One chance in so many.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }
}

/// Goes on until he is killed.
pub fn run(agent: &Agent) -> Result<bool, String> {
    let mut mind = Mind {
        scene: agent.scene.clone(),
        random: Random::new(agent.seed),
        classes: Classes(agent.classes),
        secret: agent.secret.clone().into_bytes(),
        held: Vec::new(),
        forge: Forge::new(&agent.scene.join("hostile")),
        victims: ["sticky/v-0", "sticky/v-1", "victim/v-2", "victim/v-3", "shared/v-4", "victim/quiet"]
            .iter()
            .map(|name| agent.scene.join(name))
            .collect(),
        children: Vec::new(),
    };
    // SAFETY: no pointers; leases that are broken are not to end him.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::umask(0);
    }
    type Action = fn(&mut Mind);
    let actions: [(&str, Action); 11] = [
        ("shm", attack::shared_memory),
        ("shm", names::squat_shared_memory),
        ("dotfamio", names::squat_folders),
        ("dotfamio", attack::folders),
        ("readers", attack::look_for_secret),
        ("readers", attack::read_under_famio),
        ("journals", forge::journals),
        ("settings", litter::settings),
        ("swap", attack::swap),
        ("deep", litter::deep),
        ("shm", attack::let_go),
    ];
    // Hints lead to it. He only looks whether somebody opens it for writing, who can't know what it is.
    let bait = mind.scene.join("hostile/fifo");
    // SAFETY: a valid string.
    unsafe { libc::mkfifo(c(&bait).as_ptr(), 0o600) };
    let bait = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&bait)
        .map_err(|error| format!("fifo: {error}"))?;
    let mut bitten = false;
    loop {
        let mut poll = libc::pollfd { fd: bait.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is alive.
        if !bitten && unsafe { libc::poll(&mut poll, 1, 0) } > 0 {
            println!("OPENED hostile/fifo");
            bitten = true;
        }
        let at = mind.random.below(actions.len() as u64) as usize;
        let (class, action) = actions[at];
        if mind.classes.has(class) || at == 10 {
            action(&mut mind);
        }
        if mind.one_in(4) {
            // So that the others, too, get somewhere on a machine with two processors.
            std::thread::sleep(Duration::from_micros(mind.random.below(800)));
        }
    }
}
