//! Several processes that map one atomic file: attaches and detaches that coincide.

mod common;

use common::agent::{Agent, everywhere};

/// The reader commits nothing, as always; but it used to get `EBADF`.
#[test]
fn who_only_reads_syncs_and_closes_while_others_store() {
    everywhere("maps-reader-sync", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::new(folder, domain));
        b.ok("look atomic");
        a.ok("map");
        a.ok("store 0 stored");
        b.sees(0, "stored.");
        b.ok("sync");
        a.end();
        b.sees(0, "stored.");
        b.ok("sync");
        b.ok("close");
        assert_eq!(&folder.read("atomic")[..7], b"stored.");
        b.end();
    });
}

/// Its stores were taken for those of the process that died.
#[test]
fn what_one_stored_who_left_stays_though_another_dies() {
    everywhere("maps-leave-die", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.ok("map");
        b.ok("write 500 written"); // a is not the owner any more
        a.ok("store 0 stored");
        a.end();
        let mut c = Agent::with(folder, domain);
        c.ok("write 600 half");
        c.kill();
        b.ok("write 700 more");
        b.ok("sync");
        b.kill();
        let mut d = Agent::with(folder, domain);
        d.sees(0, "stored.");
        d.sees(500, "written.");
        d.sees(700, "more.");
        d.end();
    });
}

/// The process that can write has exited, too: the stores are committed like everything handed over.
#[test]
fn what_one_stored_who_left_is_committed_by_who_only_reads() {
    everywhere("maps-leave-reader", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        let mut reader = Agent::new(folder, domain);
        reader.ok("look atomic");
        a.ok("map");
        b.ok("write 500 written");
        b.ok("sync");
        reader.sees(500, "written.");
        a.ok("store 0 stored");
        a.end(); // for b to find
        b.kill();
        reader.ok("close");
        reader.end();
        let file = folder.read("atomic");
        assert_eq!((&file[..7], &file[500..508]), (&b"stored."[..], &b"written."[..]));
    });
}

/// One process waited for the other's map of the kernel's file, and the other one for ownership: 20 seconds, and
/// `EBUSY`.
#[test]
fn one_begins_to_write_as_another_maps_once_more() {
    everywhere("maps-begin", |folder, domain| {
        for round in 0..8 {
            std::fs::write(folder.path().join("atomic"), ".".repeat(16 << 20)).unwrap();
            let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
            b.ok("mapread");
            a.sees(0, ".");
            a.ask("write 0 written");
            b.ask("map");
            assert_eq!((a.answer().as_str(), b.answer().as_str()), ("ok", "ok"), "round {round}");
            assert_eq!(b.tell("load 0 8"), "written.");
            a.end();
            b.end();
        }
    });
}

#[test]
fn a_shadow_that_went_is_not_read_after_an_exec_that_failed() {
    everywhere("maps-exec", |folder, domain| {
        let mut a = Agent::with(folder, domain);
        a.ok("map");
        a.ok("store 0 stored");
        a.ok("unmap");
        a.ok("exec"); // as the last one, it has left
        a.sees(0, "stored.");
        let mut b = Agent::with(folder, domain);
        b.ok("write 0 written");
        a.ok("write 7 more");
        a.sees(0, "writtenmore.");
        b.ok("map");
        assert_eq!(b.tell("load 0 12"), "writtenmore.");
        a.end();
        b.end();
    });
}

/// It took the dead process's slot on the control page, so that no process noticed the death.
#[test]
fn who_comes_after_a_death_does_not_see_half_of_what_was_written() {
    everywhere("maps-die-come", |folder, domain| {
        let mut a = Agent::with(folder, domain);
        a.ok("write 0 kept");
        a.ok("sync");
        let mut b = Agent::with(folder, domain);
        b.ok("mapread"); // there is a shadow
        a.ok("lock");
        a.ok("write 2 half");
        assert_eq!(b.tell("load 0 7"), "kehalf.");
        a.kill();
        let mut c = Agent::with(folder, domain);
        c.ok("lock");
        c.ok("mapread");
        assert_eq!(c.tell("load 0 7"), "kept...");
        c.sees(0, "kept...");
        c.end();
        b.end();
    });
}

/// The next write used the size from before: bytes that had been cut reappeared, and half of the dead process's write
/// was gone.
#[test]
fn where_what_a_dead_one_had_stays_its_size_stays_too() {
    everywhere("maps-die-size", |folder, domain| {
        for (size, next) in [(5000, 8000), (12_000, 7000)] {
            std::fs::write(folder.path().join("atomic"), ".".repeat(10_000)).unwrap();
            let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
            b.ok("map"); // it may store, so its stores cannot be told from another process's
            a.ok("write 100 stays");
            a.ok(&format!("cut {size}"));
            a.kill();
            b.ok("lock");
            assert_eq!(b.tell("size"), size.to_string());
            b.ok(&format!("write {next} next"));
            b.sees(100, "stays");
            b.sees(next, "next");
            b.ok("sync");
            b.end();
            let mut file = [".".repeat(10_000).into_bytes(), vec![0; 2000]].concat();
            file[100..105].copy_from_slice(b"stays");
            file.truncate(size);
            file.resize(size.max(next as usize + 4), 0);
            file[next as usize..next as usize + 4].copy_from_slice(b"next");
            assert!(folder.read("atomic") == file);
        }
    });
}

/// The descriptor kept for the map was of a link that was removed: what was written under another name was lost at
/// the end.
#[test]
fn a_map_that_was_kept_by_a_link_that_is_gone() {
    everywhere("maps-link", |folder, domain| {
        let (mut a, mut b) = (Agent::new(folder, domain), Agent::with(folder, domain));
        for order in ["look atomic", "mapread", "close"] {
            a.ok(order);
        }
        std::fs::hard_link(folder.path().join("atomic"), folder.path().join("atomic-link")).unwrap();
        for order in ["open atomic-link", "write 10 first", "close", "unlink atomic-link"] {
            a.ok(order);
        }
        for order in ["open atomic", "write 20 second", "close"] {
            a.ok(order);
        }
        b.sees(18, "..second..");
        a.end();
        b.sees(18, "..second..");
        b.end();
        assert_eq!(&folder.read("atomic")[8..28], b"..first.....second..");
    });
}
