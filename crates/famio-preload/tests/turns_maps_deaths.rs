//! What one who is killed leaves in a map, in others' eyes; and what the living have is not taken for a dead one's.

mod common;

use common::Folder;
use common::agent::{Agent, everywhere};

/// The file is mapped, for reading, and has these bytes.
const KEPT: [&str; 3] = ["mapread", "write 0 kept", "sync"];
/// It is settled, and the turn stays: there is no session.
const RENAMED: [&str; 2] = ["rename atomic other", "rename other atomic"];

/// The one has joined a shadow and never had a turn; the other has the turn, and no session.
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

/// Its map does, without a call by it. In far less time than this, but the machine may have much to do.
#[track_caller]
fn shows_soon(agent: &mut Agent, what: &str) {
    let begun = std::time::Instant::now();
    while agent.tell(&format!("load 0 {}", what.len())) != what {
        assert!(begun.elapsed().as_secs() < 60, "{what} is not there");
        std::thread::yield_now();
    }
}

/// One stores, which `seer` sees in its map, and is killed: that goes.
#[track_caller]
fn one_dies_half_way(folder: &Folder, domain: &str, seer: &mut Agent) {
    let mut b = Agent::with(folder, domain);
    b.each(&["map", "store 0 half"]);
    assert_eq!(seer.tell("load 0 5"), "half.");
    b.kill();
    shows_soon(seer, "kept.");
}

/// Who only looks at its map makes no call: with the turn and a session, with the turn alone, and with neither.
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

/// What it wrote travels: the turn has gone on since.
#[test]
fn what_one_wrote_who_died_goes_from_a_map_after_its_turn() {
    everywhere("maps-die-travelling", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.each(&KEPT);
        b.ok("write 20 half");
        a.ok("write 10 mine"); // with the turn
        assert_eq!(a.tell("load 0 25"), "kept......mine......half.");
        b.kill();
        shows_soon(&mut a, "kept......mine...........");
        a.end();
        assert_eq!(&folder.read("atomic")[..25], b"kept......mine...........");
    });
}

/// Who only joined the shadow had nobody to watch for it; nor had who made it while idle, or was idle with another file.
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
            first.end(); // it is not to do it
            a.idle();
            one_dies_half_way(folder, domain, &mut a);
            a.end();
            assert_eq!(&folder.read("atomic")[..5], b"kept.");
        });
    }
}

/// Who has left the file, for an `exec` that failed, can't tell the dead from the living: neither when a map of its own is to be put in order,
/// nor when it reads.
#[test]
fn after_an_exec_that_failed_nobody_is_taken_for_dead() {
    for way in ["by itself", "reads"] {
        everywhere(&format!("maps-exec-{}", way.replace(' ', "-")), |folder, domain| {
            let mut c = Agent::with(folder, domain);
            c.each(&KEPT);
            let mut a = Agent::with(folder, domain);
            a.each(&["mapread", "lock", "write 20 living"]);
            let mut d = Agent::with(folder, domain);
            d.each(&["write 40 its", "close"]); // what a wrote travels, and nobody has the turn
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

/// While the file is being compared, which takes a moment, somebody else may begin to store: that is not undone.
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
            std::thread::yield_now(); // it stays, if it was not undone before somebody else could store
        }
        assert_eq!(a.tell("load 0 5"), "mine.");
        a.ok("sync");
        a.end();
        c.end();
        assert_eq!(&folder.read("atomic")[SIZE - 4096..SIZE - 4091], b"mine.");
    });
}
