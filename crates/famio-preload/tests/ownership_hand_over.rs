//! A session that is handed over continues: nothing is done to file or journal, and uncommitted writes stay their
//! writers' own.

mod common;

use common::agent::{Agent, everywhere, program};
use common::{Folder, has_strace, under};

/// The system calls of a process between two writes of 4 KiB, as strace sees them: none on file or journal.
#[test]
fn no_system_call_is_made_on_file_or_journal() {
    if !has_strace() {
        return;
    }
    let folder = Folder::new("hand-over-calls");
    std::fs::write(folder.path().join("atomic"), [b'.'; 10_000]).unwrap();
    let trace = folder.path().join("trace");
    let mut command = under(&folder, "strace");
    command.args(["-f", "-y", "-o"]).arg(&trace).arg(program());
    let (mut a, mut b) = (Agent::of(command), Agent::with(&folder, "process"));
    a.ok("open atomic");
    for i in 0..20 {
        a.ok(&format!("write {} aa", 2 * i));
        b.ok(&format!("write {} bb", 5000 + 2 * i));
    }
    a.tell("peek /begin-here");
    for i in 0..20 {
        a.ok(&format!("write {} AA", 2 * i));
        b.ok(&format!("write {} BB", 5000 + 2 * i));
    }
    a.tell("peek /end-here");
    b.sees(0, &"AA".repeat(20));
    a.end();
    b.end();
    let trace = std::fs::read_to_string(trace).unwrap();
    let between = trace.rsplit("/begin-here\", ").next().unwrap().split("/end-here").next().unwrap();
    assert!(between.contains(".control"), "nothing was handed over:\n{between}");
    let touched: Vec<_> =
        between.lines().filter(|line| line.contains("/atomic>") || line.contains(".journal")).collect();
    assert!(touched.is_empty(), "{touched:#?}");
    let expected = [&b"AA".repeat(20)[..], &b".".repeat(4960), &b"BB".repeat(20), &b".".repeat(4960)].concat();
    assert!(folder.read("atomic") == expected);
}

/// Each process lost what others had written, or kept what the dead one had.
#[test]
fn a_kill_between_two_of_many_hand_overs_takes_back_ones_own() {
    everywhere("hand-over-kill", |folder, domain| {
        for killed in 0..3 {
            let mut agents: Vec<_> = (0..3).map(|_| Agent::with(folder, domain)).collect();
            agents[0].ok("write 0 .............................."); // the background for all
            agents[0].ok("sync");
            for round in 0..3 {
                for (number, agent) in agents.iter_mut().enumerate() {
                    agent.ok(&format!("write {} {number}", number * 10 + round));
                }
            }
            agents.remove(killed).kill();
            let expected: String = (0..3)
                .map(|number| if number == killed { "..........".into() } else { format!("{0}{0}{0}.......", number) })
                .collect();
            for agent in &mut agents {
                agent.sees(0, &expected);
            }
            agents[0].ok("sync");
            agents.into_iter().for_each(Agent::end);
            assert_eq!(String::from_utf8_lossy(&folder.read("atomic")[..30]), expected, "{domain} {killed}");
        }
    });
}

/// The readers waited a minute and got `EBUSY`, and what a process had written that exited cleanly was lost.
#[test]
fn a_reader_that_can_own_nothing_finds_what_the_last_writers_left() {
    everywhere("hand-over-reader", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        let mut reader = Agent::new(folder, domain);
        reader.ok("look atomic");
        for i in 0..4 {
            a.ok(&format!("write {} a", 2 * i));
            b.ok(&format!("write {} b", 100 + 2 * i));
        }
        reader.sees(0, "a.a.a.a.");
        a.end(); // the others have to commit what it wrote
        b.kill();
        reader.sees(0, "a.a.a.a.");
        reader.sees(100, "........");
        reader.end();
        assert_eq!(&folder.read("atomic")[..8], b"a.a.a.a.");
        assert_eq!(&folder.read("atomic")[100..108], b"........");

        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        let mut reader = Agent::new(folder, domain);
        reader.ok("look atomic");
        a.each(&["write 0 A", "sync"]);
        b.ok("write 50 lost");
        a.ok("write 60 lost");
        a.kill();
        b.kill();
        reader.sees(0, "A.a.a.a.");
        reader.sees(50, "....");
        reader.sees(60, "....");
        reader.end();
    });
}

/// A cut of more than a MiB, or more images than allowed: the session goes on without them, and no process's bytes
/// are lost.
#[test]
fn a_large_cut_beside_others_changes_ends_the_session_and_keeps_them() {
    everywhere("hand-over-cut", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        a.each(&["cut 5000000", "write 4000000 far", "sync"]);
        b.ok("write 100 theirs");
        a.ok("write 200 mine");
        b.ok("cut 1000");
        b.sees(100, "theirs");
        a.sees(200, "mine");
        assert_eq!(a.tell("size"), "1000");
        b.kill();
        a.sees(98, "........");
        a.sees(200, "mine");
        assert_eq!(a.tell("size"), "5000000");
        a.sees(4_000_000, "far");
        a.end();
    });
}

/// If a process changes bytes again in its tenure, they have one image, whatever other processes have written in
/// between.
#[test]
fn bytes_that_were_changed_again_and_again_are_rolled_back_to_what_they_were_before() {
    everywhere("hand-over-again", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        for i in 0..40 {
            a.each(&[&format!("write 100 a{i:03}"), &format!("write {} AAAA", 102 + i % 4)]);
            b.ok(&format!("write {} b{i:03}", 200 + i % 3));
        }
        a.kill();
        b.sees(98, "..........");
        b.sees(198, "..b03938..");
        // Giving up a lock makes what was written until then permanent.
        let mut a = Agent::with(folder, domain);
        a.each(&["write 100 kept", "lock", "unlock"]);
        b.ok("write 200 BBBB");
        a.each(&["write 100 gone", "write 102 GONE"]);
        b.ok("write 200 CCCC");
        a.kill();
        b.sees(98, "..kept....");
        b.sees(200, "CCCC");
        // Bytes that are cut off and written again.
        let mut a = Agent::with(folder, domain);
        a.each(&["write 5000 end", "cut 4000"]);
        b.ok("write 200 DDDD");
        a.each(&["write 5000 END", "cut 5001", "write 5000 X"]);
        b.ok("write 300 EEEE");
        a.kill();
        b.sees(4998, "......");
        assert_eq!(b.tell("size"), "10000");
        b.sees(200, "DDDD");
        b.each(&["sync", "write 300 FFFF"]);
        b.kill();
        let mut c = Agent::with(folder, domain);
        c.sees(98, "..kept....");
        c.sees(300, "EEEE");
        c.end();
    });
}

/// Each relied on the others to commit what all had written, and it was lost.
#[test]
fn of_processes_that_close_or_end_at_the_same_time_the_last_commits() {
    everywhere("hand-over-leave", |folder, domain| {
        for round in 0..30u8 {
            let mut agents: Vec<_> = (0..4).map(|_| Agent::with(folder, domain)).collect();
            let letter = char::from(b'a' + round % 26);
            let mut expected = String::new();
            for turn in 0..3 {
                for (agent, at) in agents.iter_mut().zip(0..) {
                    let text: String = [letter, char::from(b'0' + turn), char::from(b'A' + at)].iter().collect();
                    agent.ok(&format!("write {} {text}", expected.len()));
                    expected += &text;
                }
            }
            if round % 2 == 0 {
                agents.iter_mut().for_each(|agent| agent.ask("close"));
                agents.iter_mut().for_each(|agent| assert_eq!(agent.answer(), "ok"));
            } else {
                agents.iter_mut().for_each(Agent::begin_to_end);
            }
            agents.into_iter().for_each(Agent::end);
            let file = folder.read("atomic");
            assert_eq!(String::from_utf8_lossy(&file[..expected.len()]), expected, "{domain}, round {round}");
        }
    });
}

/// It had tried to become another program before, and was no member for that moment.
#[test]
fn a_killed_writer_whose_exec_failed_is_rolled_back() {
    everywhere("exec-failed", |folder, domain| {
        let mut a = Agent::with(folder, domain);
        a.each(&["open atomic", "write 0 sync", "sync", "exec", "write 20 torn"]);
        let mut b = Agent::with(folder, domain);
        b.each(&["open atomic", "write 5000 theirs"]);
        a.kill();
        let mut c = Agent::with(folder, domain);
        c.each(&["open atomic", "write 9000 other"]);
        b.each(&["write 5000 theirs", "sync"]);
        b.end();
        c.end();
        assert_eq!(&folder.read("atomic")[20..24], b"....");
    });
}

/// Their slots were given back only when the owner changed: after 62 of them nobody could open the file to write.
#[test]
fn processes_that_are_killed_leave_their_slots_while_one_process_stays_the_owner() {
    everywhere("killed-slots", |folder, domain| {
        let (mut a, mut b) = (Agent::with(folder, domain), Agent::with(folder, domain));
        b.each(&["open atomic", "write 0 b", "sync"]);
        a.each(&["open atomic", "write 1 a", "sync", "write 2 a"]);
        for _ in 0..70 {
            let mut killed = Agent::with(folder, domain);
            killed.ok("open atomic");
            killed.sees(0, "baa");
            killed.kill();
        }
        let (mut killed, mut c) = (Agent::with(folder, domain), Agent::with(folder, domain));
        killed.each(&["open atomic", "write 3 torn"]);
        killed.kill();
        c.each(&["open atomic", "write 7 c"]);
        a.ok("sync");
        for agent in [a, b, c] {
            agent.end();
        }
        assert_eq!(&folder.read("atomic")[..8], b"baa....c");
    });
}
