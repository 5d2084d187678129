//! A process that reads a file which another one writes reads within that process's session: ownership stays where it
//! is.

mod common;

use common::agent::{Agent, everywhere, pool, program};
use common::{Folder, under};

/// The number of the session's arena: another owner has another one.
fn arena(folder: &Folder) -> u64 {
    let beside = std::fs::read_dir(folder.path().join(".famio")).or_else(|_| std::fs::read_dir(pool(folder)));
    let beside = beside.unwrap().flatten();
    let control = beside.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|what| what == "control"));
    let page = std::fs::read(control.expect("a control file")).unwrap();
    u64::from_ne_bytes(page[24..32].try_into().unwrap())
}

/// `a` owns the file, and `b` reads beside it.
fn checkpointed(folder: &Folder, a: &mut Agent, b: &mut Agent) -> u64 {
    a.ok("write 0 Begin");
    b.sees(0, "Begin");
    arena(folder)
}

#[test]
fn readers_see_all_and_a_writer_goes_on_with_the_session() {
    everywhere("read-along", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        let turn = checkpointed(folder, &mut a, &mut b);
        assert_ne!(turn, 0);
        for i in 0..50 {
            let text = format!("text{i:04}");
            a.ok(&format!("write {} {text}", 4090 + i));
            b.sees(4090 + i, &text);
            if i % 7 == 0 {
                a.ok("sync");
                b.sees(4090 + i, &text);
            }
        }
        // The file ends elsewhere.
        a.ok("append tail");
        assert_eq!(b.tell("size"), "10004");
        b.sees(9998, "..tail");
        a.ok("cut 5000");
        assert_eq!(b.tell("size"), "5000");
        b.sees(4998, "..");
        a.ok("cut 5003");
        b.sees(4998, "..000");
        b.ok("write 2 OTHER"); // in the same session, which is handed over
        a.sees(0, "BeOTHER");
        assert_eq!(arena(folder), turn, "the session has ended");
        b.ok("sync");
        b.end();
        a.end();
        assert_eq!(&folder.read("atomic")[..7], b"BeOTHER");
    });
}

/// Whole blocks of a lone writer may lie in a tiered journal alone.
#[test]
fn whole_blocks_of_a_lone_writer_are_everybodys() {
    let mut letters = "ab".repeat(30);
    letters.push('c');
    everywhere("whole-blocks", |folder, domain| {
        let mut a = Agent::with(folder, domain);
        a.each(&[&format!("blocks 1 {letters}"), "sync", &format!("blocks 0 {letters}"), "sync"]);
        let mut b = Agent::with(folder, domain);
        b.sees(4000, &"c".repeat(200));
        let session = arena(folder);
        a.ok("write 4100 dd");
        b.sees(4096, "ccccddcc");
        b.sees(8190, "cc....");
        assert_eq!(arena(folder), session);
        // Another process goes on with the session, and is killed with an epoch open.
        b.each(&["write 8000 ee", "sync", &format!("blocks 1 {letters}"), &format!("blocks 0 {letters}d")]);
        a.sees(4095, "dc");
        b.kill();
        a.sees(4090, "ccccccccc");
        a.each(&["write 10 f", "sync"]);
        a.sees(8, "ccfc");
        a.end();
        let read = folder.read("atomic");
        assert!(read[..10] == [b'c'; 10] && read[11..8192] == [b'c'; 8181] && read[10] == b'f');
    });
}

/// From the 17th read on it failed with `ENOMEM`: the file was to be mapped.
#[test]
fn a_reader_without_room_for_a_map_reads_by_calls() {
    let folder = Folder::new("read-no-room");
    std::fs::File::create(folder.path().join("atomic")).unwrap().set_len(6 << 30).unwrap();
    let mut a = Agent::with(&folder, "emulated");
    a.each(&["write 0 first", "sync", "write 0 again"]);
    let mut limited = under(&folder, "sh");
    limited.args(["-c", "ulimit -v 4000000; exec \"$0\""]).arg(program()).env("FAMIO_DOMAIN", "emulated");
    let mut b = Agent::of(limited);
    b.ok("look atomic");
    (0..50).for_each(|_| b.sees(0, "again"));
    a.ok("write 0 later");
    (0..50).for_each(|_| b.sees(0, "later"));
}

/// The control page has slots for 64 processes. The 65th once read what the kernel's file had, without an error.
#[test]
fn a_reader_without_a_slot_sees_all_too() {
    everywhere("read-visit", |folder, domain| {
        let mut members: Vec<_> = (0..64).map(|_| Agent::with(folder, domain)).collect();
        members[0].ok("write 0 first");
        members.iter_mut().for_each(|member| member.sees(0, "first"));
        let mut visitors = [Agent::with(folder, domain), Agent::with(folder, domain)];
        let mut see = |at, what| visitors.iter_mut().for_each(|visitor| visitor.sees(at, what));
        see(0, "first");
        members[0].each(&["sync", "write 0 again", "append tail"]);
        see(0, "again.");
        see(9_999, ".tail");
        members[1].each(&["write 0 other", "sync", "cut 9000"]); // handed over
        see(0, "other.");
        see(8_999, ".");
        members[1].ok("sync");
        members[2].each(&["write 0 taken", "lock"]);
        members.swap_remove(2).kill();
        see(0, "other.");
        members.push(Agent::with(folder, domain));
        members[0].ok("write 0 third");
        members.last_mut().unwrap().sees(0, "third");
        see(0, "third");
        let [mut last, mut other] = visitors;
        assert_eq!(last.tell("write 0 x"), "Device or resource busy");
        assert_eq!(last.tell("size"), "9000");
        members.pop().unwrap().end();
        last.each(&["write 0 place", "sync"]);
        members[5].sees(0, "place");
        members[5].ok("write 0 never");
        other.sees(0, "never");
        members.drain(..).for_each(Agent::kill);
        last.kill();
        other.sees(0, "place."); // it has a slot now, and recovers the file
        other.each(&["write 6 end", "sync"]);
        other.end();
        assert_eq!(&folder.read("atomic")[..10], b"place.end.");
    });
}

/// What was read in this way and is not committed is rolled back with its writer.
#[test]
fn what_was_read_along_is_rolled_back_with_its_writer() {
    everywhere("read-killed", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        checkpointed(folder, &mut a, &mut b);
        a.each(&["write 100 kept", "sync", "write 100 gone", "append gone"]);
        b.sees(100, "gone");
        assert_eq!(b.tell("size"), "10004");
        a.kill();
        b.sees(100, "kept");
        assert_eq!(b.tell("size"), "10000");
        b.end();
    });
}

/// Arena, journal and file outgrow what a reader has mapped of them.
#[test]
fn what_outgrows_a_readers_maps_is_mapped_anew() {
    everywhere("read-grown", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        let turn = checkpointed(folder, &mut a, &mut b);
        for block in 0..3000u64 {
            let at = block * 4096 + 1;
            a.ok(&format!("write {at} block{block}"));
            if block % 97 == 0 {
                b.sees(at, &format!("block{block}"));
                assert_eq!(b.tell("size"), (at + 5 + block.to_string().len() as u64).max(10_000).to_string());
            }
            if block == 1500 {
                a.ok("sync");
            }
        }
        for block in (0..3000).step_by(61) {
            b.sees(block * 4096 + 1, &format!("block{block}"));
        }
        assert_eq!(arena(folder), turn, "the turn was given");
        b.end();
        a.end();
    });
}

/// A writer in exclusive mode bypasses its caches; a reader revokes that mode once.
#[test]
fn who_had_the_file_alone_is_read_along_from_then_on() {
    everywhere("read-alone", |folder, domain| {
        let mut a = Agent::with(folder, domain);
        for i in 0..20 {
            a.each(&[&format!("write 0 alone{i:02}"), "sync"]);
        }
        let mut b = Agent::with(folder, domain);
        b.sees(0, "alone19");
        a.ok("write 0 alone20");
        b.sees(0, "alone20");
        let turn = arena(folder);
        for i in 21..60 {
            a.ok(&format!("write 0 alone{i:02}"));
            b.sees(0, &format!("alone{i:02}"));
            a.ok("sync");
        }
        assert_eq!(arena(folder), turn, "the turn was given");
        b.end();
        a.end();
    });
}

/// The session and its journal end and others begin, of the same process or another one.
#[test]
fn sessions_end_under_a_reader() {
    everywhere("read-ends", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        checkpointed(folder, &mut a, &mut b);
        for i in 0..6 {
            let mut c = Agent::with(folder, domain);
            c.ok(&format!("write 200 third{i}"));
            b.sees(200, &format!("third{i}"));
            a.ok(&format!("write 300 first{i}"));
            b.sees(198, &format!("..third{i}"));
            b.sees(298, &format!("..first{i}"));
            if i % 2 == 0 {
                c.ok("sync");
            }
            c.end();
            b.sees(298, &format!("..first{i}"));
        }
        assert!(program().exists());
        b.end();
        a.end();
    });
}
