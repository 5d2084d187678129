//! What one who is killed leaves in a map, in others' eyes; and what the living have is not taken for a dead one's.

mod common;

use common::agent::{Agent, everywhere};

/// The one has joined a shadow and never had a turn; the other has the turn, and no session.
#[test]
fn what_one_stored_who_died_goes_though_nobody_has_a_session() {
    everywhere("maps-die-between", |folder, domain| {
        let mut a = Agent::with(folder, domain);
        for order in ["mapread", "write 0 kept", "sync", "rename atomic other", "rename other atomic"] {
            a.ok(order);
        }
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
fn shows_soon(agent: &mut Agent, at: u64, what: &str) {
    let begun = std::time::Instant::now();
    while agent.tell(&format!("load {at} {}", what.len())) != what {
        assert!(begun.elapsed().as_secs() < 60, "{what} is not there");
        std::thread::yield_now();
    }
}

/// Who only looks at its map makes no call: with the turn and a session, with the turn alone, and with neither.
#[test]
fn what_one_stored_who_died_goes_from_a_map_though_nobody_calls() {
    for way in ["session", "turn", "neither"] {
        everywhere(&format!("maps-die-unseen-{way}"), |folder, domain| {
            let (mut a, mut c) = (Agent::with(folder, domain), Agent::with(folder, domain));
            for order in ["mapread", "write 0 kept", "sync"] {
                a.ok(order);
            }
            match way {
                "turn" => ["rename atomic other", "rename other atomic"].iter().for_each(|order| a.ok(order)),
                "neither" => ["write 10 its", "sync", "rename atomic other", "rename other atomic"]
                    .iter()
                    .for_each(|order| c.ok(order)),
                _ => {}
            }
            let mut b = Agent::with(folder, domain);
            b.ok("map");
            b.ok("store 0 half");
            assert_eq!(a.tell("load 0 5"), "half.");
            b.kill();
            shows_soon(&mut a, 0, "kept.");
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
        for order in ["mapread", "write 0 kept", "sync"] {
            a.ok(order);
        }
        b.ok("lock"); // else a map counts as a look at it
        b.ok("write 20 half");
        a.ok("write 10 mine"); // with the turn
        assert_eq!(a.tell("load 0 25"), "kept......mine......half.");
        b.kill();
        shows_soon(&mut a, 0, "kept......mine...........");
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
                ["open atomic", "write 0 kept", "sync"].iter().for_each(|order| a.ok(order));
                a.idle();
                a.ok("mapread");
            } else {
                let orders = ["mapread", "write 0 kept", "sync", "rename atomic other", "rename other atomic"];
                orders.iter().for_each(|order| first.ok(order));
                if way == "busy" {
                    ["open atomic2", "write 0 y", "sync"].iter().for_each(|order| a.ok(order));
                    a.idle();
                }
                ["open atomic", "mapread"].iter().for_each(|order| a.ok(order));
            }
            first.end(); // it is not to do it
            a.idle();
            let mut b = Agent::with(folder, domain);
            b.ok("map");
            b.ok("store 0 half");
            assert_eq!(a.tell("load 0 5"), "half.");
            b.kill();
            shows_soon(&mut a, 0, "kept.");
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
            ["mapread", "write 0 kept", "sync"].iter().for_each(|order| c.ok(order));
            let mut a = Agent::with(folder, domain);
            ["mapread", "lock", "write 20 living"].iter().for_each(|order| a.ok(order));
            let mut d = Agent::with(folder, domain);
            ["write 40 its", "close"].iter().for_each(|order| d.ok(order)); // what a wrote travels, and nobody has the turn
            let mut b = Agent::with(folder, domain);
            ["map", "store 0 half"].iter().for_each(|order| b.ok(order));
            c.ok("exec");
            if way == "reads" {
                a.stop();
            }
            b.kill();
            if way == "reads" {
                c.sees(0, "kept");
                a.signal(libc::SIGCONT);
            }
            shows_soon(&mut a, 0, "kept.");
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
        ["write 0 kept", "sync"].iter().for_each(|order| a.ok(order));
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
