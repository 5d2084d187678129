//! Closes that are deferred.

use super::Folder;
use super::agent::Agent;
use std::time::{Duration, Instant};

/// With a journal for each change, so that there is a session.
pub const SETTINGS: [(&str, &str); 2] = [("FAMIO_JOURNAL", "always"), ("FAMIO_DEFER_CLOSE", "auto")];
/// Far more than a deferred close takes.
pub const LONG: Duration = Duration::from_secs(30);

pub fn agent(folder: &Folder, domain: &str) -> Agent {
    Agent::set(folder, domain, &SETTINGS)
}

pub fn has_pool(folder: &Folder) -> bool {
    folder.names().iter().any(|name| name == ".famio")
}

/// Writes, and closes, until the close is deferred; each time `before_close` first. Returns what was written last.
pub fn deferred(agent: &mut Agent, folder: &Folder, before_close: &[&str]) -> String {
    for round in 100..200 {
        let text = format!("round{round}");
        agent.each(&["open atomic", &format!("write 20 {text}")]);
        agent.each(before_close);
        agent.ok("close");
        if has_pool(folder) {
            return text;
        }
    }
    panic!("no close was deferred");
}

pub fn bytes(folder: &Folder) -> String {
    String::from_utf8(folder.read("atomic")[20..28].to_vec()).unwrap()
}

pub fn wait_until_closed(folder: &Folder) {
    let begun = Instant::now();
    while has_pool(folder) {
        assert!(begun.elapsed() < LONG, "it is not closed: {:?}", folder.names());
        std::thread::yield_now();
    }
}
