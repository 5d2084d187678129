//! Programs that are killed with `FAMIO_ON_KILL=keep`: what remains of their calls, and of their stores through maps.

mod common;

use common::agent::{Agent, everywhere as in_any_journal, nothing_left, program};
use common::{Folder, under};
use std::process::Stdio;

fn agent(folder: &Folder, domain: &str, on_kill: &str) -> Agent {
    let mut command = under(folder, program());
    if domain != "power" {
        command.env("FAMIO_DOMAIN", domain);
    }
    let mut agent = Agent::of({
        command.env("FAMIO_ON_KILL", on_kill);
        command
    });
    assert_eq!(agent.tell("open atomic"), "ok");
    agent
}

/// For each kind of journal.
fn everywhere(name: &str, test: impl Fn(&Folder, &str)) {
    let folders = [("", true), ("emulated", true), ("", false)];
    for (at, (domain, in_memory)) in folders.into_iter().enumerate() {
        let name = format!("keep-{name}-{at}");
        let folder = if in_memory { Folder::new(&name) } else { Folder::on_disk(&name) };
        std::fs::write(folder.path().join("atomic"), ".".repeat(10_000)).unwrap();
        test(&folder, if domain.is_empty() { "power" } else { domain });
        nothing_left(&folder);
    }
}

/// What the next program reads, and its stderr.
fn next(folder: &Folder) -> (Vec<u8>, String) {
    let shown = under(folder, "cat").arg("atomic").stderr(Stdio::piped()).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    (shown.stdout, String::from_utf8_lossy(&shown.stderr).into_owned())
}

#[test]
fn what_complete_calls_did_is_there() {
    everywhere("calls", |folder, domain| {
        let mut a = agent(folder, domain, "keep");
        a.each(&["write 0 one", "sync", "write 5000 two", "write 0 three", "append tail", "cut 7000", "append end"]);
        a.kill();
        let (seen, said) = next(folder);
        let wanted = format!("three{}two{}end", ".".repeat(4995), ".".repeat(1997));
        assert!(seen == wanted.as_bytes() && said.is_empty(), "{} bytes, {said}", seen.len());
        assert!(folder.read("atomic") == seen); // also without Famio
    });
}

/// A lone writer's whole blocks, committed or not, may lie in a tiered journal alone.
#[test]
fn whole_blocks_of_a_lone_writer_are_there() {
    let letters = "ab".repeat(30);
    in_any_journal("keep-whole", |folder, domain| {
        let mut a = Agent::set(folder, domain, &[("FAMIO_ON_KILL", "keep")]);
        a.each(&["open atomic", &format!("blocks 1 {letters}c"), "write 8000 e", &format!("blocks 0 {letters}d")]);
        a.kill();
        let mut b = Agent::with(folder, domain);
        b.sees(4090, "ddddddcc");
        b.sees(7998, "ccec");
        b.end();
        let read = folder.read("atomic");
        assert!(read[..4096] == [b'd'; 4096] && read[4096..8000] == [b'c'; 3904] && read[8192..8200] == [b'.'; 8]);
    });
}

#[test]
fn only_files_that_were_named_keep_it() {
    everywhere("named", |folder, domain| {
        for (globs, is_kept) in [("*.ibd\n./atomic", true), ("*.ibd", false), ("rollback", false)] {
            let mut a = agent(folder, domain, globs);
            a.each(&["write 0 gone", "sync", "write 0 kept"]);
            a.kill();
            assert_eq!(next(folder).0[..4], *if is_kept { b"kept" } else { b"gone" });
        }
    });
}

#[test]
fn others_see_it_at_once_and_go_on() {
    everywhere("others", |folder, domain| {
        let (mut a, mut b) = (agent(folder, domain, "keep"), agent(folder, domain, "keep"));
        b.each(&["write 100 bbbb", "lock"]);
        a.ok("write 200 aaaa");
        b.ok("write 300 BBBB");
        b.kill();
        a.sees(98, "..bbbb..");
        a.sees(198, "..aaaa..");
        a.sees(298, "..BBBB..");
        let mut c = agent(folder, domain, "keep");
        c.ok("cut 5000");
        c.kill();
        assert_eq!(a.tell("size"), "5000");
        a.ok("append more");
        a.kill();
        let (seen, _) = next(folder);
        assert_eq!((seen.len(), &seen[300..304], &seen[5000..]), (5004, &b"BBBB"[..], &b"more"[..]));
    });
}

/// If a process that stores through a map was the last one, its stores are lost: everything is rolled back, which is
/// reported.
#[test]
fn stores_through_maps_stay_while_others_have_the_file() {
    everywhere("stores", |folder, domain| {
        let mut a = agent(folder, domain, "keep");
        a.each(&["write 0 old", "sync", "map", "write 0 new", "store 10 stored"]);
        a.kill();
        let (seen, said) = next(folder);
        assert_eq!(&seen[..20], b"old.................", "{said}");
        assert!(said.contains("on-kill=keep does not hold here") && said.contains("map"), "{said}");

        let (mut a, mut b) = (agent(folder, domain, "keep"), agent(folder, domain, "keep"));
        b.ok("mapread");
        a.each(&["map", "write 0 new", "store 10 stored"]);
        a.kill();
        b.sees(0, "new.......stored....");
        b.ok("sync");
        b.kill();
        assert_eq!(next(folder).0[..20], *b"new.......stored....");
    });
}

/// A process that only reads the file, and one that renames it.
#[test]
fn whoever_comes_next_keeps_it() {
    everywhere("whoever", |folder, domain| {
        let mut a = agent(folder, domain, "keep");
        a.each(&["write 0 one", "sync", "write 0 two"]);
        a.kill();
        let mut b = Agent::of(under(folder, program()));
        assert_eq!(b.tell("look atomic"), "ok");
        b.sees(0, "two");
        b.kill();
        assert_eq!(folder.read("atomic")[..3], *b"two");
        let mut a = agent(folder, domain, "keep");
        a.ok("write 0 six");
        a.kill();
        let mut b = Agent::of(under(folder, program()));
        b.each(&["rename atomic atomic2", "rename atomic2 atomic"]);
        b.kill();
        assert_eq!(folder.read("atomic")[..3], *b"six");
    });
}
