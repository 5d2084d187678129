//! The neighbour: another user without privileges, who does whatever such a user can, as fast as possible.
//!
//! The program prints each action as a line; `SECRET WHERE` when it has read what it must not.

use super::attacker::Attacker;
use super::files::c;
use super::originals::Originals;
use super::{attack, forge, litter, names};
use crate::classes::Classes;
use clap::Args;
use famio_test_support::random::Random;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// The neighbour's options.
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

/// Runs until killed.
pub fn run(agent: &Agent) -> Result<bool, String> {
    let mut attacker = Attacker {
        scene: agent.scene.clone(),
        random: Random::new(agent.seed),
        classes: Classes(agent.classes),
        secret: agent.secret.clone().into_bytes(),
        held: Vec::new(),
        originals: Originals::new(&agent.scene.join("hostile")),
        victims: ["sticky/v-0", "sticky/v-1", "victim/v-2", "victim/v-3", "shared/v-4", "victim/quiet"]
            .iter()
            .map(|name| agent.scene.join(name))
            .collect(),
        children: Vec::new(),
    };
    // SAFETY: no pointers; broken leases must not end the process.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::umask(0);
    }
    type Action = fn(&mut Attacker);
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
    // Hints lead to this FIFO. It only checks whether a process opens it for writing, without knowing what it is.
    let bait = attacker.scene.join("hostile/fifo");
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
        let at = attacker.random.below(actions.len() as u64) as usize;
        let (class, action) = actions[at];
        if attacker.classes.has(class) || at == 10 {
            action(&mut attacker);
        }
        if attacker.one_in(4) {
            // Leaves time for the other processes on a machine with two processors.
            std::thread::sleep(Duration::from_micros(attacker.random.below(800)));
        }
    }
}
