//! Several processes that map one atomic file: it is one memory for all of them.

mod common;

use common::agent::{Agent, everywhere};

#[test]
fn what_one_stores_or_writes_the_others_maps_show() {
    everywhere("maps-both", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("map");
        a.ok("store 0 first");
        b.sees(0, "first."); // it has no map
        b.ok("map");
        b.ok("store 100 second");
        assert_eq!(a.tell("load 0 6") + &a.tell("load 100 7"), "first.second.");
        b.ok("write 200 third");
        assert_eq!(a.tell("load 200 6"), "third.");
        a.ok("write 300 fourth");
        b.sees(0, "first.");
        assert_eq!(b.tell("load 300 7"), "fourth.");
        b.ok("sync"); // covers what any process has stored
        b.kill();
        a.kill();
        let mut c = Agent::with(folder, domain);
        for (at, what) in [(0, "first."), (100, "second."), (200, "third."), (300, "fourth.")] {
            c.sees(at, what);
        }
        c.end();
    });
}

/// The maps were of the kernel's file, and did not show another process's writes.
#[test]
fn maps_of_a_file_that_nobody_changes_follow_who_begins_to() {
    everywhere("maps-quiet", |folder, domain| {
        let (mut a, mut b, mut c) =
            (Agent::with(folder, domain), Agent::new(folder, domain), Agent::with(folder, domain));
        b.ok("look atomic");
        for agent in [&mut a, &mut b] {
            agent.ok("mapread");
            assert_eq!(agent.tell("load 0 4"), "....");
        }
        c.ok("write 0 from-c");
        for agent in [&mut a, &mut b] {
            assert_eq!(agent.tell("load 0 7"), "from-c.");
        }
        a.ok("write 10 from-a");
        assert_eq!(b.tell("load 0 17"), "from-c....from-a.");
        for agent in [a, b, c] {
            agent.end();
        }
        assert_eq!(&folder.read("atomic")[..17], b"from-c....from-a.");
    });
}

/// When its descriptor was closed, it had detached from the file: what another process wrote after its first SYNC did
/// not show.
#[test]
fn a_map_follows_others_after_its_descriptor_that_only_reads_is_closed() {
    everywhere("maps-closed", |folder, domain| {
        let mut a = Agent::new(folder, domain);
        for order in ["look atomic", "mapread", "close"] {
            a.ok(order);
        }
        let mut b = Agent::with(folder, domain);
        for order in ["write 0 first", "sync", "write 10 second"] {
            b.ok(order);
        }
        assert_eq!(a.tell("load 0 18"), "first.....second..");
        a.ok("unmap");
        a.end();
        b.end();
        assert_eq!(&folder.read("atomic")[..18], b"first.....second..");
    });
}

/// `a` has written `before` and not synced; `b` may only read.
fn maps_while_it_is_written(a: &mut Agent, b: &mut Agent) {
    b.ok("mapread");
    assert_eq!(b.tell("load 0 7"), "before.");
    a.ok("write 10 after");
    assert_eq!(b.tell("load 0 16"), "before....after.");
    a.ok("sync");
}

#[test]
fn who_only_reads_maps_what_others_are_writing() {
    everywhere("maps-reader", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::new(folder, domain));
        a.ok("write 0 before");
        b.ok("look atomic");
        maps_while_it_is_written(&mut a, &mut b);
        a.end();
        assert_eq!(b.tell("load 0 16"), "before....after.");
        b.end();
    });
}

/// It waited for a session that was handed over uncommitted, which a reader cannot own: 10 seconds, then `EBUSY`.
#[test]
fn who_only_reads_and_is_there_before_maps_what_others_are_writing() {
    everywhere("maps-reader-before", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::new(folder, domain));
        for order in ["look atomic", "mapread", "unmap"] {
            b.ok(order);
        }
        a.ok("write 0 before");
        maps_while_it_is_written(&mut a, &mut b);
        a.end();
        b.end();
    });
}

#[test]
fn what_one_stored_is_committed_by_anothers_sync() {
    everywhere("maps-sync", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("map");
        a.ok("store 0 stored");
        b.ok("sync");
        a.ok("store 0 gone");
        a.kill();
        b.kill();
        let mut c = Agent::with(folder, domain);
        c.sees(0, "stored.");
        c.end();
    });
}

/// Half a transaction of a process that dies must not remain in a map that is only read.
#[test]
fn what_one_wrote_who_died_goes_from_a_map_that_is_read() {
    everywhere("maps-die", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("mapread");
        b.ok("mapread");
        b.ok("write 0 kept");
        b.ok("sync");
        b.ok("lock");
        b.ok("write 2 half");
        b.ok("cut 9000");
        assert_eq!(a.tell("load 0 7"), "kehalf.");
        b.kill();
        a.ok("lock");
        assert_eq!(a.tell("load 0 7"), "kept...");
        assert_eq!(a.tell("size"), "10000");
        a.ok("write 10 more");
        a.ok("sync");
        a.end();
        assert_eq!(&folder.read("atomic")[..15], b"kept......more.");
    });
}

/// No other process has looked at the file since.
#[test]
fn who_comes_after_a_death_maps_what_was_there_before() {
    everywhere("maps-after", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("mapread");
        b.ok("write 0 kept");
        b.ok("sync");
        b.ok("lock");
        b.ok("write 2 half");
        a.stop(); // it would undo it at once
        b.kill();
        let mut c = Agent::with(folder, domain);
        c.ok("mapread");
        assert_eq!(c.tell("load 0 7"), "kept...");
        a.signal(libc::SIGCONT);
        assert_eq!(a.tell("load 0 7"), "kept...");
        a.end();
        c.end();
    });
}

/// The stores, too, are rolled back; but not if another process may store, since it is unknown which of them stored
/// what.
#[test]
fn what_one_stored_who_died_goes_unless_another_stores_too() {
    everywhere("maps-die-storing", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("mapread");
        b.ok("map");
        b.ok("store 0 half");
        assert_eq!(a.tell("load 0 5"), "half.");
        b.kill();
        a.ok("lock");
        assert_eq!(a.tell("load 0 5"), ".....");
        a.ok("unlock");
        a.ok("unmap");
        a.ok("map");
        let mut b = Agent::with(folder, domain);
        b.ok("map");
        a.ok("store 100 mine");
        b.ok("store 200 its");
        b.ok("write 300 written");
        b.kill();
        a.ok("sync");
        a.kill();
        let mut c = Agent::with(folder, domain);
        c.sees(100, "mine.");
        c.sees(200, "its.");
        c.sees(300, "written.");
        c.end();
    });
}

#[test]
fn what_one_stored_stays_when_it_leaves() {
    everywhere("maps-leave", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        b.ok("mapread");
        a.ok("map");
        a.ok("store 0 stored");
        a.end();
        assert_eq!(b.tell("load 0 7"), "stored.");
        b.ok("sync");
        b.kill();
        let mut c = Agent::with(folder, domain);
        c.sees(0, "stored.");
        c.end();
    });
}

/// If one process demoted it, it would go on as the others' memory.
#[test]
fn what_others_have_mapped_is_not_demoted() {
    everywhere("maps-hand-back", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("map");
        assert_eq!(b.tell("stdin"), "Device or resource busy");
        b.ok("write 0 both");
        assert_eq!(a.tell("load 0 5"), "both.");
        a.end();
        b.end();
    });
}

#[test]
fn the_size_is_the_same_to_all() {
    everywhere("maps-size", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("mapread");
        b.ok("cut 3000");
        assert_eq!(a.tell("size"), "3000");
        a.ok("cut 12000");
        assert_eq!(b.tell("size"), "12000");
        assert_eq!(b.tell("read 2999 3"), ".00");
        b.ok("append end");
        assert_eq!(a.tell("size"), "12003");
        a.sees(12000, "end");
        a.end();
        b.end();
        assert_eq!(folder.read("atomic").len(), 12003);
    });
}

#[test]
fn a_map_stays_when_one_dies_whose_writes_it_shows() {
    everywhere("map-die", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        b.ok("write 8000 bbbb");
        a.ok("write 0 aaaa");
        a.ok("map");
        b.kill();
        a.ok("store 100 stored");
        a.sees(8000, "bbbb"); // it was mapped, so relied on
        a.sees(100, "stored.");
        a.ok("write 200 written");
        a.ok("sync");
        assert_eq!(a.tell("load 200 8"), "written.");
        let mut c = Agent::with(folder, domain);
        c.ok("write 300 third");
        assert_eq!(a.tell("load 300 5"), "third");
        c.end();
        a.end();
        let file = folder.read("atomic");
        assert_eq!((&file[100..107], &file[200..207]), (&b"stored."[..], &b"written"[..]));
    });
}

#[test]
fn a_map_shows_what_others_have_written() {
    everywhere("map-others", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        b.ok("write 0 bbbb");
        a.sees(0, "bbbb.");
        a.ok("mapread");
        assert_eq!(a.tell("load 0 5"), "bbbb.");
        b.end();
        a.end();
    });
}

#[test]
fn a_map_of_what_was_committed_follows_what_others_wrote() {
    everywhere("map-follow", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("mapread");
        b.ok("write 0 bbbb");
        a.ok("write 10 aaaa"); // from here on, its map is a shadow's
        assert_eq!(a.tell("load 0 14"), "bbbb......aaaa");
        a.sees(0, "bbbb......aaaa");
        a.ok("sync");
        a.end();
        b.end();
        assert_eq!(&folder.read("atomic")[..14], b"bbbb......aaaa");
    });
}

#[test]
fn a_map_after_a_map_that_is_gone() {
    everywhere("map-again", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("map");
        a.ok("unmap");
        b.ok("write 0 bbbb");
        b.ok("sync");
        assert_eq!(a.tell("size"), "10000");
        a.ok("mapread");
        a.ok("write 10 aaaa");
        assert_eq!(a.tell("load 0 14"), "bbbb......aaaa");
        b.end();
        a.kill();
        let mut c = Agent::with(folder, domain);
        c.sees(0, "bbbb......"); // it was not demoted
        c.end();
    });
}

/// A file that is mapped for writing grows far beyond the memory for maps: each process's own map of the shadow was too
/// short then, and calls and SYNCs failed with EFBIG.
#[test]
fn a_file_that_outgrows_its_memory_is_one_memory_still() {
    everywhere("maps-outgrown", |folder, domain| {
        let small = || {
            let mut agent = Agent::set(folder, domain, &[("FAMIO_MAP_MEMORY", "16K")]);
            agent.ok("open atomic");
            agent
        };
        let (mut a, mut b) = (small(), small());
        a.each(&["map", "store 0 first", "sync"]);
        b.sees(0, "first.");
        for at in [102_400, 1_024_000, 20_480_000] {
            let [map, stored] = [format!("map {at}"), format!("read {} 6", at + 5)];
            a.each(&[&format!("cut {}", at + 4096), &map, "store 5 stored"]);
            assert_eq!(b.tell(&stored), "stored", "{at}");
            b.each(&[&map, "store 50 from-b", &format!("write {} written", at + 100)]);
            assert_eq!(a.tell("load 50 6") + &a.tell("load 100 7"), "from-bwritten", "{at}");
            b.ok("sync");
            a.each(&["store 60 from-a", "sync"]);
            let mut late = small();
            assert_eq!(late.tell(&format!("read {} 6", at + 60)), "from-a", "{at}");
            late.each(&[&map, "store 70 late", "sync"]);
            late.end();
        }
        a.kill();
        b.kill();
        let mut c = small();
        for at in [102_400, 1_024_000, 20_480_000] {
            for (from, what) in [(5, "stored"), (50, "from-b"), (60, "from-a"), (70, "late"), (100, "written")] {
                c.sees(at + from, what);
            }
        }
        c.end();
    });
}
