use super::requests::{RECENT, moment};
use super::slots::is_taken;
use super::*;
use crate::index::STORES;
use crate::index::members::control::{TestControl, for_test};
use crate::index::members::life::{Life, Lives};

fn open(file: &TestControl) -> Membership {
    let membership = Membership::new();
    membership.attach(|| Ok(file.open()), || Ok(false)).unwrap();
    membership
}

/// As a kill: nothing is recorded, and the lock of the slot goes. By name: a child that another test starts may hold
/// a duplicate for a moment.
fn killed(membership: Membership) {
    unlock(&*membership.control().unwrap(), place(membership.me().place));
}

#[test]
fn the_last_removes_it() {
    let file = for_test();
    let first = open(&file);
    let second = open(&file);
    assert!(first.has_others() && second.has_others());
    assert_ne!(first.me(), second.me());
    assert!(first.leave());
    assert!(!second.has_others());
    assert!(file.path().exists());
    assert!(second.leave());
    assert!(!file.path().exists());
}

/// The page was once begun anew, and with it went what the others had not committed.
#[test]
fn a_page_of_another_version_is_left_alone_while_its_processes_live() {
    const OTHER: u64 = u64::from_le_bytes(*b"FAMIODX1");
    let file = for_test();
    let old = open(&file);
    old.set_session(true);
    old.page().magic.store(OTHER, Ordering::Relaxed);
    let state = old.state();
    let attach = || Membership::new().attach(|| Ok(file.open()), || Ok(false));
    assert_eq!(attach().unwrap_err().errno(), libc::EBUSY);
    assert_eq!((old.state(), old.page().magic.load(Ordering::Relaxed)), (state, OTHER));
    assert!(file.path().exists());
    killed(old);
    attach().unwrap();
}

#[test]
fn a_writer_is_open_over_or_dead() {
    let file = for_test();
    let mine = open(&file);
    let other = open(&file);
    let wrote = other.me();
    assert_eq!((mine.writer_state(wrote), mine.writer_state(mine.me())), (WriterState::Open, WriterState::Open));
    other.end_tenure();
    assert_eq!(mine.writer_state(wrote), WriterState::Over);
    let wrote = other.me();
    mine.end_tenure_of(wrote);
    assert_eq!(mine.writer_state(wrote), WriterState::Over);
    let (wrote, before) = (other.me(), mine.me());
    killed(other);
    assert_eq!((mine.writer_state(wrote), mine.writer_state(before)), (WriterState::Dead, WriterState::Open));
    assert!(mine.leave());
}

#[test]
fn what_travels_keeps_the_last_one_in_and_the_place_of_a_dead_one() {
    let file = for_test();
    let mine = open(&file);
    let other = open(&file);
    let number = other.number();
    other.set_owner(); // as before any change
    std::fs::write(other.epoch_path(number), "x").unwrap();
    other.set_epoch(number, ImageKind::default());
    let wrote = other.me();
    killed(other);
    let third = open(&file);
    assert_eq!(third.writer_state(wrote), WriterState::Dead);
    // One that has never owned the file leaves nothing behind, though it could have written.
    let reader = open(&file);
    reader.set_writes(true);
    let place = reader.place();
    killed(reader);
    let next = open(&file);
    assert_eq!(next.place(), place);
    assert!(next.leave() && third.leave());
    assert!(!mine.leave());
    mine.forget_epoch();
    assert!(!std::path::Path::new(&mine.epoch_path(number)).exists());
    assert!(mine.leave());
}

#[test]
fn who_comes_after_all_have_died_finds_nothing_of_theirs() {
    let file = for_test();
    let dead = open(&file);
    let number = dead.number();
    std::fs::write(dead.epoch_path(number), "x").unwrap();
    dead.set_epoch(number, ImageKind::default());
    dead.set_session(true);
    let path = dead.epoch_path(number);
    killed(dead);
    let next = open(&file);
    assert!(next.state() & (SESSION | HAS_IMAGE) == 0 && !std::path::Path::new(&path).exists());
    assert!(next.leave());
}

#[test]
fn one_that_ended_is_dead_though_its_locks_stay_a_while() {
    let file = for_test();
    let mine = open(&file);
    let other = open(&file);
    let wrote = other.me();
    std::thread::spawn({
        let life = &other.page().members[wrote.place as usize].life;
        let life = core::ptr::from_ref(life).expose_provenance();
        move || {
            let lives: &'static Lives = Box::leak(Box::new(Lives::new()));
            lives.keep();
            // SAFETY: in the page of `other`, which is there until the end of this test.
            lives.add(unsafe { &*core::ptr::with_exposed_provenance::<Life>(life) });
        }
    })
    .join()
    .unwrap();
    while mine.writer_state(wrote) == WriterState::Open {
        std::thread::yield_now();
    }
    assert_eq!(mine.writer_state(wrote), WriterState::Dead);
    assert_eq!(mine.dead(), [(wrote.place as usize, wrote.id)]);
    assert!(!mine.has_others() && is_taken(&file.again(), wrote.place as usize));
    assert!(mine.leave());
}

#[test]
fn attaching_waits_for_a_process_that_takes_long_to_attach() {
    let file = for_test();
    let first = open(&file);
    let slow = file.again();
    let attaching = slow.attaching().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| open(&file));
        // Longer than a few tries, as if the process had no processor meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(150));
        drop(attaching);
        assert!(second.join().unwrap().leave());
    });
    assert!(first.leave());
}

#[test]
fn who_comes_anew_after_the_control_file_was_removed_leaves_the_old_one() {
    let file = for_test();
    let (mine, third) = (open(&file), open(&file));
    std::fs::remove_file(file.path()).unwrap();
    mine.leave_behind();
    assert!(!mine.is_attached() && third.state() & MOVED != 0 && !third.has_others());
    std::fs::write(file.path(), [0; 4096]).unwrap();
    let other = open(&file);
    mine.attach(|| Ok(file.open()), || Ok(false)).unwrap();
    assert!(mine.has_others() && mine.leave() && other.leave());
}

/// Each counted on the other to end the session.
#[test]
fn of_two_that_leave_an_unowned_session_the_last_has_to_end_it_first() {
    let file = for_test();
    let (first, second, reader) = (open(&file), open(&file), open(&file));
    file.again().set_arena(7);
    for membership in [&first, &second] {
        membership.set_writes(true);
        membership.set_attached(7);
    }
    first.set_session(true);
    first.set_unowned(true);
    assert!(first.is_attached_by_others(7) && second.is_attached_by_others(7));
    assert!(first.retire());
    assert!(!second.retire() && !second.leave());
    first.set_attached(7);
    assert!(first.leave());
    assert!(!second.leave());
    second.set_session(false);
    file.again().set_arena(0);
    assert!(!second.retire()); // the reader cannot commit anything
    reader.set_writes(true);
    assert!(second.retire() && second.leave());
    assert!(reader.leave());
}

/// Its background had not begun yet: others went on reading what it had written.
#[test]
fn one_that_owned_a_session_and_ended_at_once_is_seen_to_be_dead() {
    let file = for_test();
    let (mine, other) = (open(&file), open(&file));
    assert!(!mine.has_dead());
    other.set_attached(7);
    assert!(!mine.has_dead());
    killed(other);
    assert!(mine.has_dead());
    mine.reap(&mine.dead());
    assert!(!mine.has_dead() && mine.leave());
}

#[test]
fn noise_in_the_page_crashes_nobody() {
    crate::map::guard::install().unwrap();
    let file = for_test();
    let (mine, other) = (open(&file), open(&file));
    mine.register_for_death_notice();
    let page = file.again();
    for seed in 0..200u64 {
        let noise: Vec<u8> =
            (0..4096u64).map(|i| ((i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect();
        rustix::io::pwrite(&page, &noise, 0).unwrap();
        for membership in [&mine, &other] {
            let _ = (
                membership.state(),
                membership.me(),
                membership.has_others(),
                membership.dead(),
                membership.has_dead(),
                membership.dead_hash(),
            );
            let _ = (
                membership.others_map(STORES),
                membership.others_store(),
                membership.epoch(),
                membership.is_orphaned(),
                membership.has_other_writers(),
            );
            membership.reap(&membership.dead());
            membership.set_session(seed % 2 == 0);
            membership.end_tenure();
        }
    }
    rustix::fs::ftruncate(&page, 0).unwrap();
    assert_eq!((mine.state(), mine.shadow()), (0, None));
    mine.leave();
    other.leave();
}

/// The process of the next test.
#[test]
fn makes_shadows_until_it_is_killed() {
    use std::io::Write;
    let Ok(path) = std::env::var("FAMIO_CONTROL_OF") else { return };
    let control = || InternalFd::adopt(std::fs::File::options().read(true).write(true).open(&path).unwrap().into());
    let membership = Membership::new();
    membership.attach(control, || Ok(false)).unwrap();
    std::io::stderr().write_all(b"ready\n").unwrap();
    loop {
        let path = membership.shadow_path(membership.begin_shadow());
        std::fs::write(path, b"").unwrap();
        membership.set_shadow();
        membership.forget_shadow();
    }
}

/// Its number was cleared before the memory was removed: a process that was killed in between left it for good.
#[test]
fn a_shadow_is_known_until_it_is_gone() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let file = for_test();
    let membership = open(&file);
    for kill in 0..200 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = concat!(module_path!(), "::makes_shadows_until_it_is_killed").strip_prefix("famio::").unwrap();
        command.args(["--exact", child, "--nocapture"]);
        command.env("FAMIO_CONTROL_OF", file.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        (0..kill * 997 % 20_000).for_each(|_| core::hint::spin_loop());
        child.kill().unwrap();
        child.wait().unwrap();
        membership.forget_shadow();
        let beside =
            membership.path(0, "").strip_prefix("/dev/shm/").unwrap().rsplit_once('-').unwrap().0.to_owned() + "-";
        let left = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(&beside)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(membership.leave());
}

/// Recovery removed the control file but left what it named until the next sweep.
#[test]
fn what_killed_processes_shared_goes_with_their_control_file() {
    let file = for_test();
    let membership = open(&file);
    let number = membership.begin_epoch();
    let mut paths = vec![membership.epoch_path(number), membership.shadow_path(membership.begin_shadow())];
    membership.set_epoch(number, ImageKind::default());
    membership.set_shadow();
    paths.push(membership.epoch_path(membership.begin_epoch()));
    paths.iter().for_each(|path| std::fs::write(path, b"x").unwrap());
    file.again().remove_if_unused();
    let are_there = || paths.iter().map(|path| std::path::Path::new(path).exists()).collect::<Vec<_>>();
    assert_eq!(are_there(), [true; 3], "a process has them");
    killed(membership);
    file.again().remove_if_unused();
    assert_eq!((are_there(), file.path().exists()), (vec![false; 3], false));
}

/// Each request once woke the background of every process that had the file open.
#[test]
fn a_request_calls_the_owner_and_nobody_else() {
    let file = for_test();
    let (owner, asks, third) = (open(&file), open(&file), open(&file));
    let calls = || [&owner, &asks, &third].map(|member| member.calls().load(Ordering::SeqCst));
    let before = calls();
    let since = || [0, 1, 2].map(|member| calls()[member] - before[member]);
    owner.set_session(true);
    asks.request_ownership();
    assert_eq!((since(), owner.requests()), ([1, 0, 0], 1));
    owner.set_unowned(true);
    asks.request_ownership(); // whoever takes it looks by itself
    assert_eq!((since(), owner.requests()), ([1, 0, 0], 2));
    asks.request_ownership_of_any();
    assert_eq!((since(), owner.requests()), ([2, 0, 1], 3));
    owner.set_session(false);
    asks.request_ownership(); // the owner, if there is one, has no session
    assert_eq!(since(), [3, 0, 2]);
}

#[test]
fn who_waits_is_seen_until_it_has_ended() {
    let file = for_test();
    let (mine, other) = (open(&file), open(&file));
    assert!(!mine.has_live_waiter());
    other.set_waits(true);
    assert!(mine.has_live_waiter() && !other.has_live_waiter());
    let waits = &other.page().members[other.me().place as usize].waits;
    waits.store(moment().wrapping_sub(2 * RECENT) | 1, Ordering::SeqCst); // it is stopped
    assert!(!mine.has_live_waiter());
    other.set_waits(true);
    assert!(mine.has_live_waiter());
    other.page().members[other.me().place as usize].life.end();
    assert!(!mine.has_live_waiter());
}

#[test]
fn nobody_begins_to_keep_locks_while_another_waits_for_one() {
    let file = for_test();
    let [keeper, waiter] = [open(&file), open(&file)];
    assert!(keeper.begin_to_keep_locks().is_some() && waiter.do_others_keep_locks() && !keeper.do_others_keep_locks());
    keeper.end_to_keep_locks();
    waiter.set_waits_for_lock(true);
    assert!(keeper.begin_to_keep_locks().is_none() && !waiter.do_others_keep_locks());
    waiter.set_waits_for_lock(false);
    assert!(keeper.begin_to_keep_locks().is_some());
    keeper.end_to_keep_locks();
    waiter.set_waits_for_lock(true);
    killed(waiter);
    assert!(keeper.begin_to_keep_locks().is_some(), "it waits no more");
}

#[test]
fn kept_locks_are_recalled_from_the_living_once() {
    let file = for_test();
    let [keeper, dead, caller] = [open(&file), open(&file), open(&file)];
    assert!(!caller.recall_kept_locks(), "nobody keeps any");
    let recalls = keeper.begin_to_keep_locks().unwrap();
    dead.begin_to_keep_locks().unwrap();
    killed(dead);
    std::thread::scope(|scope| {
        let recall = scope.spawn(|| caller.recall_kept_locks());
        while !keeper.are_locks_recalled(recalls) {
            std::thread::yield_now();
        }
        keeper.end_to_keep_locks();
        assert!(recall.join().unwrap());
    });
    // One that does not answer is waited for once.
    keeper.begin_to_keep_locks().unwrap();
    assert!(!caller.recall_kept_locks() && caller.do_others_keep_locks());
    assert_ne!(caller.page().hung_keepers.load(Ordering::SeqCst), 0);
    assert!(!caller.recall_kept_locks(), "it is asked, and not waited for");
    keeper.end_to_keep_locks();
    assert!(!caller.do_others_keep_locks() && caller.page().hung_keepers.load(Ordering::SeqCst) == 0);
}
