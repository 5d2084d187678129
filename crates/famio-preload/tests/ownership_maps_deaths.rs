//! What a killed process leaves in a map that others see; and what living processes have must not be taken for a dead
//! one's.

mod common;

use common::Folder;
use common::agent::{Agent, everywhere};

/// The file is mapped for reading, and has these bytes.
const KEPT: [&str; 3] = ["mapread", "write 0 kept", "sync"];
/// It is checkpointed, and the process stays its owner without a session.
const RENAMED: [&str; 2] = ["rename atomic other", "rename other atomic"];

/// One process has joined a shadow and never owned the file; the other owns it, without a session.
#[test]
fn what_one_stored_who_died_goes_though_nobody_has_a_session() {
    everywhere("maps-die-between", |folder, domain| {
        let mut a = Agent::with(folder, domain);
        a.each(&KEPT);
        a.each(&RENAMED);
        let mut b = Agent::with(folder, domain);
        b.ok("map");
        b.ok("store 0 half");
        a.sees(0, "half");
        b.kill();
        a.ok("lock");
        a.sees(0, "kept");
        assert_eq!(a.tell("load 0 5"), "kept.");
        a.end();
        assert_eq!(&folder.read("atomic")[..5], b"kept.");
    });
}

/// The map shows this without a call by the process. Normally at once, but the machine may be busy.
#[track_caller]
fn shows_soon(agent: &mut Agent, what: &str) {
    let begun = std::time::Instant::now();
    while agent.tell(&format!("load 0 {}", what.len())) != what {
        assert!(begun.elapsed().as_secs() < 60, "{what} is not there");
        std::thread::yield_now();
    }
}

/// A process stores, which `seer` sees in its map, and is killed: the stores must be rolled back.
#[track_caller]
fn one_dies_half_way(folder: &Folder, domain: &str, seer: &mut Agent) {
    let mut b = Agent::with(folder, domain);
    b.each(&["map", "store 0 half"]);
    assert_eq!(seer.tell("load 0 5"), "half.");
    b.kill();
    shows_soon(seer, "kept.");
}

/// A process that only looks at its map makes no call: as owner with a session, as owner without one, and not as
/// owner.
#[test]
fn what_one_stored_who_died_goes_from_a_map_though_nobody_calls() {
    for way in ["session", "turn", "neither"] {
        everywhere(&format!("maps-die-unseen-{way}"), |folder, domain| {
            let (mut a, mut c) = (Agent::with(folder, domain), Agent::with(folder, domain));
            a.each(&KEPT);
            match way {
                "turn" => a.each(&RENAMED),
                "neither" => {
                    c.each(&["write 10 its", "sync"]);
                    c.each(&RENAMED);
                }
                _ => {}
            }
            one_dies_half_way(folder, domain, &mut a);
            a.end();
            c.end();
            assert_eq!(&folder.read("atomic")[..5], b"kept.");
        });
    }
}

/// What it wrote is handed over: ownership has passed on since.
#[test]
fn what_one_wrote_who_died_goes_from_a_map_after_its_turn() {
    everywhere("maps-die-travelling", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.each(&KEPT);
        b.ok("write 20 half");
        a.ok("write 10 mine"); // as the owner
        assert_eq!(a.tell("load 0 25"), "kept......mine......half.");
        b.kill();
        shows_soon(&mut a, "kept......mine...........");
        a.end();
        assert_eq!(&folder.read("atomic")[..25], b"kept......mine...........");
    });
}

/// A process that only joined the shadow did not watch for deaths; nor did the process that made it, while it was
/// idle or busy with another file.
#[test]
fn what_one_stored_who_died_goes_from_the_map_of_who_was_idle() {
    for way in ["joined", "made", "busy"] {
        everywhere(&format!("maps-die-idle-{way}"), |folder, domain| {
            std::fs::write(folder.path().join("atomic2"), "x").unwrap();
            let mut first = Agent::with(folder, domain);
            let mut a = Agent::new(folder, domain);
            if way == "made" {
                a.each(&["open atomic", "write 0 kept", "sync"]);
                a.idle();
                a.ok("mapread");
            } else {
                first.each(&KEPT);
                first.each(&RENAMED);
                if way == "busy" {
                    a.each(&["open atomic2", "write 0 y", "sync"]);
                    a.idle();
                }
                a.each(&["open atomic", "mapread"]);
            }
            first.end(); // it must not do it
            a.idle();
            one_dies_half_way(folder, domain, &mut a);
            a.end();
            assert_eq!(&folder.read("atomic")[..5], b"kept.");
        });
    }
}

/// A process that has detached from the file, for an `exec` that failed, cannot tell the dead from the living:
/// neither to repair its map nor to read.
#[test]
fn after_an_exec_that_failed_nobody_is_taken_for_dead() {
    for way in ["by itself", "reads"] {
        everywhere(&format!("maps-exec-{}", way.replace(' ', "-")), |folder, domain| {
            let mut c = Agent::with(folder, domain);
            c.each(&KEPT);
            let mut a = Agent::with(folder, domain);
            a.each(&["mapread", "lock", "write 20 living"]);
            let mut d = Agent::with(folder, domain);
            d.each(&["write 40 its", "close"]); // what a wrote is handed over, and no process owns the file
            let mut b = Agent::with(folder, domain);
            b.each(&["map", "store 0 half"]);
            c.ok("exec");
            if way == "reads" {
                a.stop();
            }
            b.kill();
            if way == "reads" {
                c.sees(0, "kept");
                a.signal(libc::SIGCONT);
            }
            shows_soon(&mut a, "kept.");
            a.sees(20, "living");
            a.ok("sync");
            for agent in [a, c, d] {
                agent.kill();
            }
            let mut last = Agent::with(folder, domain);
            last.sees(20, "living");
            last.end();
        });
    }
}

/// While the file is being compared, which takes a moment, another process may begin to store: that must not be
/// undone.
#[test]
fn what_is_stored_while_a_dead_ones_stores_are_undone_stays() {
    const SIZE: usize = 32 << 20;
    everywhere("maps-die-protect", |folder, domain| {
        std::fs::write(folder.path().join("atomic"), ".".repeat(SIZE)).unwrap();
        let (mut a, mut c) = (Agent::with(folder, domain), Agent::with(folder, domain));
        c.ok("mapread");
        a.ok(&format!("mapreadat {}", SIZE - 4096));
        a.each(&["write 0 kept", "sync"]);
        let mut b = Agent::with(folder, domain);
        b.ok("map");
        b.ok("store 0 half");
        b.kill();
        a.ok("protect");
        a.ok("store 0 mine");
        let begun = std::time::Instant::now();
        while c.tell("load 0 5") == "half." && begun.elapsed().as_secs() < 2 {
            std::thread::yield_now(); // it stays if it was not undone before another process could store
        }
        assert_eq!(a.tell("load 0 5"), "mine.");
        a.ok("sync");
        a.end();
        c.end();
        assert_eq!(&folder.read("atomic")[SIZE - 4096..SIZE - 4091], b"mine.");
    });
}
