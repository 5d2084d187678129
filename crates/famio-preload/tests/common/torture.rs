//! Several processes that report what is durable, and are killed at random and restarted.

use famio_test_support::random::Random;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What processes have reported as durable.
pub type Said = Arc<Mutex<Vec<String>>>;

pub fn start(mut command: Command, said: &Said) -> (Child, JoinHandle<()>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = said.clone();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            said.lock().unwrap().push(line);
        }
    });
    (child, reader)
}

pub fn seconds(otherwise: u64) -> Duration {
    let set = std::env::var("FAMIO_TURNS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(otherwise))
}

/// How often each of them must have reported something before the end, however slow the machine is.
const LEAST: usize = 10;
/// A process that does not get there within this time hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `processes` of them for `time` and until they have reported enough; one is killed and restarted every
/// `pause`. Returns how many were killed.
pub fn torture(
    processes: usize,
    time: Duration,
    pause: Duration,
    begin: impl Fn(usize) -> Command,
    said: &[Said],
    acknowledges: impl Fn(&str) -> bool,
) -> u64 {
    let mut running: Vec<_> = (0..processes).map(|number| start(begin(number), &said[number])).collect();
    let end = Instant::now() + time;
    let (mut kills, mut random) = (0, Random::new(std::process::id().into()));
    let enough = |said: &Said| said.lock().unwrap().iter().filter(|line| acknowledges(line)).count() >= LEAST;
    let is_enough = || said.iter().all(enough);
    while Instant::now() < end || !is_enough() && Instant::now() < end + PATIENCE {
        std::thread::sleep(random.time_up_to(2 * pause));
        let number = random.below(processes as u64) as usize;
        let (mut child, reader) = running.swap_remove(number.min(running.len() - 1));
        // Its index identifies it: it is put back below.
        let ended = child.try_wait().unwrap().filter(|status| !status.success());
        assert!(ended.is_none(), "one has failed: {ended:?}");
        let _ = child.kill();
        child.wait().unwrap();
        reader.join().unwrap();
        kills += 1;
        let number = number.min(processes - 1);
        running.push(start(begin(number), &said[number]));
        let last = running.len() - 1;
        running.swap(number, last);
    }
    for (mut child, reader) in running {
        let ended = child.try_wait().unwrap().filter(|status| !status.success());
        assert!(ended.is_none(), "one has failed: {ended:?}");
        let _ = child.kill();
        child.wait().unwrap();
        reader.join().unwrap();
    }
    assert!(is_enough(), "too little was said");
    kills
}
