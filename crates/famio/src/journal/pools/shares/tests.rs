//! Several users of one pool, and files of shares that somebody has spoiled. Each has a description of its own, as a
//! process would.

use super::arithmetic::Verdict;
use super::charge::Charge;
use super::format::{FILE_MAX, SLOT, SLOTS, Slot};
use super::ledger::{Ledger, NAME, set_pool_size};
use super::member::Member;
use super::usage::pool_use;
use super::wants::Want;
use crate::journal::pools::pool::Pool;
use crate::journal::testing::Scratch;
use crate::pmem::TestHooks;
use crate::sys::monotonic_now;
use famio_test_support::random::Random;
use rustix::fs::OFlags;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Waits until `is_so`; a test that would wait for ever fails.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "in vain");
        std::thread::sleep(std::time::Duration::from_millis(1)); // pause between two checks
    }
}

struct Shared {
    dir: Scratch,
}

impl Shared {
    fn new(size: u64) -> Self {
        let dir = Scratch::new();
        std::fs::set_permissions(dir.root(), std::fs::Permissions::from_mode(0o755)).unwrap();
        set_pool_size(dir.root(), Some(size)).unwrap();
        Self { dir }
    }

    fn ledger(&self) -> Option<Ledger> {
        Ledger::open(&Pool::at(self.dir.root(), None).unwrap(), OFlags::RDWR).unwrap()
    }

    fn member(&self, name: &str, weight: u32) -> Arc<Member> {
        Arc::new(Member::new(self.ledger().unwrap(), name.into(), weight))
    }

    fn file(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.dir.path(NAME)).unwrap()
    }

    /// A journal that no process accounts for.
    fn left_behind(&self, bytes: u64) -> std::path::PathBuf {
        let path = self.dir.path(&format!("{}.journal", "a1".repeat(16)));
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// For how many bytes all applications wait.
    fn wants(&self) -> u64 {
        pool_use(self.dir.root()).unwrap().applications.iter().map(|one| one.wants).sum()
    }

    fn shares(&self) -> Vec<(String, u64, u64)> {
        let seen = pool_use(self.dir.root()).unwrap();
        seen.applications.iter().map(|one| (one.name.clone(), one.share / MIB, one.used / MIB)).collect()
    }
}

#[test]
fn a_size_is_set_and_taken_away() {
    let pool = Shared::new(64 * MIB);
    assert_eq!(std::fs::metadata(pool.dir.path(NAME)).unwrap().permissions().mode() & 0o777, 0o600);
    let size = || pool_use(pool.dir.root()).unwrap().size;
    assert_eq!(size(), Some(64 * MIB));
    let member = pool.member("one", 100);
    assert_eq!(member.grow(20 * MIB, 20 * MIB), Verdict::Granted);
    set_pool_size(pool.dir.root(), Some(128 * MIB)).unwrap();
    assert_eq!((size(), pool.shares()), (Some(128 * MIB), vec![("one".into(), 112, 20)]));
    assert_eq!(set_pool_size(pool.dir.root(), Some(MIB)).unwrap_err().errno(), libc::EINVAL);
    set_pool_size(pool.dir.root(), None).unwrap();
    assert_eq!((size(), member.grow(1 << 40, 1 << 40)), (None, Verdict::Granted));
    assert!(pool.ledger().is_none());
    // For all who may make journals there.
    std::fs::set_permissions(pool.dir.root(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    set_pool_size(pool.dir.root(), Some(16 * MIB)).unwrap();
    assert_eq!(std::fs::metadata(pool.dir.path(NAME)).unwrap().permissions().mode() & 0o777, 0o666);
}

#[test]
fn a_newcomer_gets_its_share() {
    let pool = Shared::new(64 * MIB);
    let first = Charge::new(pool.member("first", 100));
    first.grow(56 * MIB).unwrap();
    assert_eq!(first.grow(57 * MIB).unwrap_err().errno(), libc::ENOSPC);
    let second = Charge::new(pool.member("second", 100));
    second.grow(8 * MIB).unwrap();
    std::thread::scope(|scope| {
        let lender = scope.spawn(|| {
            // What a process does from time to time while it writes: until it owes nothing.
            until(|| first.look() > 0);
            let mut length = 56 * MIB;
            until(|| {
                length -= first.look().min(MIB);
                first.set(length);
                length <= 28 * MIB
            });
        });
        let refused = second.grow(20 * MIB).unwrap_err().context("journal");
        assert_eq!(refused.errno(), libc::ENOSPC, "others have it");
        assert!(refused.lent().unwrap().wait(), "until they give it back");
        second.grow(20 * MIB).unwrap();
        let again = |e: crate::Error| if e.lent().unwrap().wait() { second.grow(28 * MIB) } else { Ok(()) };
        second.grow(28 * MIB).or_else(again).unwrap();
        lender.join().unwrap();
    });
    assert_eq!(pool.shares(), [("first".into(), 28, 28), ("second".into(), 28, 28)]);
    let error = second.grow(29 * MIB).unwrap_err();
    assert!(error.lent().is_none(), "it has all of its share");
    let error = error.to_string();
    assert!(error.contains("application second has 29360128 bytes of a share of 29360128"), "{error}");
    assert!(error.contains("famio pool set") && !error.contains("killed"), "{error}");
    drop(first);
    assert_eq!(pool.shares(), [("second".into(), 56, 28)]);
    second.grow(29 * MIB).unwrap();
}

/// A SYNC, or a session that took up a hand-over image, had no room for what was written long before.
#[test]
fn what_was_promised_is_not_refused() {
    let pool = Shared::new(64 * MIB);
    let first = Charge::new(pool.member("first", 100));
    first.grow(50 * MIB).unwrap();
    let second = Charge::new(pool.member("second", 100));
    assert!(second.grow(20 * MIB).is_err());
    {
        let _promised = super::promised();
        second.grow(20 * MIB).unwrap();
        second.grow(10 * MIB).unwrap(); // it is that long already
    }
    assert!(second.grow(21 * MIB).is_err(), "what is new is asked for");
    assert_eq!(pool.shares(), [("first".into(), 28, 50), ("second".into(), 28, 20)]);
    // Who has more than his share owes the reserve; it looks once a millisecond.
    until(|| first.look() >= 8 * MIB);
}

/// The background was still making a segment of a journal that had been left to a recovery.
#[test]
fn a_journal_that_has_ended_has_nothing() {
    let pool = Shared::new(64 * MIB);
    let member = pool.member("one", 100);
    let charge = Charge::new(member.clone());
    charge.grow(4 * MIB).unwrap();
    charge.end();
    charge.grow(8 * MIB).unwrap();
    charge.set(8 * MIB);
    assert_eq!(member.has(), (0, 0));
    drop(charge);
    assert_eq!(member.has(), (0, 0));
}

/// The program had closed the descriptor with the lock, and the next one had the slot.
#[test]
fn a_slot_that_another_process_has_by_now_stays() {
    let pool = Shared::new(64 * MIB);
    let lost = pool.member("lost", 100);
    assert_eq!(lost.grow(MIB, MIB), Verdict::Granted);
    lost.lose_slot();
    let other = pool.member("other", 100);
    assert_eq!(other.grow(2 * MIB, 2 * MIB), Verdict::Granted);
    drop(lost);
    assert_eq!(pool.shares(), [("other".into(), 56, 2)]);
}

#[test]
fn shares_follow_the_weights() {
    let pool = Shared::new(64 * MIB);
    let [light, heavy] = [("light", 100), ("heavy", 300)].map(|(name, weight)| Charge::new(pool.member(name, weight)));
    light.grow(MIB).unwrap();
    heavy.grow(MIB).unwrap();
    assert_eq!(pool.shares(), [("heavy".into(), 42, 1), ("light".into(), 14, 1)]);
}

#[test]
fn what_a_dead_process_has_is_nobodys() {
    let pool = Shared::new(64 * MIB);
    pool.left_behind(24 * MIB);
    let dead = Slot { application: 7, weight: 100, used: 40 * MIB, wants: 30 * MIB, journals: 1, ..Slot::default() };
    pool.ledger().unwrap().put(5, Some(&dead));
    let member = pool.member("living", 100);
    assert_eq!(member.grow(MIB, MIB), Verdict::Granted);
    // Its slot is free, and what its journals really have counts.
    let seen = pool_use(pool.dir.root()).unwrap();
    assert_eq!((seen.left, pool.shares()), (23 * MIB, vec![("living".into(), 35, 1)]));
    let mut slot = [1; SLOT];
    pool.file().read_exact_at(&mut slot, (SLOTS + 5 * SLOT) as u64).unwrap();
    assert_eq!(slot, [0; SLOT]);
}

/// A dead application's share counted until a refusal, or a new process.
#[test]
fn a_dead_process_has_no_share() {
    let pool = Shared::new(64 * MIB);
    let member = pool.member("living", 100);
    assert_eq!(member.grow(MIB, MIB), Verdict::Granted);
    let dead = Slot { application: 7, weight: 100, used: 40 * MIB, journals: 1, ..Slot::default() };
    pool.ledger().unwrap().put(5, Some(&dead));
    assert_eq!(member.would_grow(1, MIB).0, Verdict::Granted);
    assert_eq!(member.share(), 21 * MIB);
}

/// What refuses a journal holds locks, and waits for nothing: not even the first segment.
#[test]
fn a_refusal_comes_at_once_and_others_are_not_told_of_it() {
    let pool = Shared::new(64 * MIB);
    let first = Charge::new(pool.member("first", 100));
    first.grow(56 * MIB).unwrap();
    let member = pool.member("second", 100);
    let second = Charge::new(member.clone());
    let refused = second.grow(9 * MIB).unwrap_err();
    assert!(refused.lent().is_some());
    assert!(!member.is_impatient(), "it would have waited in vain");
    // Another refusal of the same journal, of which nobody waits, leaves nothing behind.
    drop(refused);
    second.grow(8 * MIB).unwrap();
    assert_eq!(pool.wants(), 0);
}

/// What a thread that waits was refused.
fn wait(refused: crate::error::Result<()>) -> bool {
    refused.unwrap_err().lent().unwrap().wait()
}

/// Once somebody had not given back in time, every later wait was short, whatever others gave back.
#[test]
fn who_has_got_room_is_patient_again() {
    TestHooks { patience: Some(1), ..TestHooks::current() }.enter();
    let pool = Shared::new(64 * MIB);
    let first = Charge::new(pool.member("first", 100));
    first.grow(56 * MIB).unwrap();
    let member = pool.member("second", 100);
    let second = Charge::new(member.clone());
    assert!(!wait(second.grow(20 * MIB)), "nobody gives back");
    assert!(member.is_impatient() && second.grow(20 * MIB).is_err() && member.is_impatient());
    first.set(28 * MIB);
    second.grow(28 * MIB).unwrap();
    assert!(!member.is_impatient());
}

/// A thread waited for room that only its own next SYNC could give back, as long as for others.
#[test]
fn a_process_waits_for_itself_only_briefly() {
    const HOUR: u64 = 3_600_000_000_000;
    TestHooks { patience: Some(HOUR), ..TestHooks::current() }.enter();
    let pool = Shared::new(64 * MIB);
    let member = pool.member("one", 100);
    let (full, new) = (Charge::new(member.clone()), Charge::new(member));
    full.grow(56 * MIB).unwrap();
    assert!(!wait(new.grow(20 * MIB)));
    assert_eq!(pool.wants(), 0);
}

/// A signal handler left the wait by `siglongjmp`, and the bytes were kept from others for good.
#[test]
fn a_wait_that_never_ends_is_forgotten() {
    let pool = Shared::new(64 * MIB);
    let member = pool.member("one", 100);
    let charge = Charge::new(member.clone());
    charge.grow(MIB).unwrap();
    let deadline = monotonic_now() + 300_000_000;
    member.want(|wants| wants.begin(Want { bytes: 5 * MIB, deadline }));
    assert!(pool.wants() == 5 * MIB || monotonic_now() > deadline);
    until(|| {
        charge.look();
        pool.wants() == 0
    });
}

/// The journal that was left had been recovered, and a write got `ENOSPC` for it at once.
#[test]
fn what_is_recovered_by_now_is_free() {
    let pool = Shared::new(64 * MIB);
    let journal = pool.left_behind(40 * MIB);
    let member = pool.member("one", 100);
    assert_eq!(member.grow(MIB, MIB), Verdict::Granted);
    assert_eq!(member.grow(40 * MIB, 41 * MIB), Verdict::Full);
    std::fs::remove_file(journal).unwrap();
    assert_eq!(member.grow(40 * MIB, 41 * MIB), Verdict::Granted);
}

/// What is left was counted where the pool had been before.
#[test]
fn a_pool_may_get_another_name() {
    let pool = Shared::new(64 * MIB);
    let member = pool.member("one", 100);
    pool.left_behind(40 * MIB);
    let elsewhere = Scratch::new();
    std::fs::rename(pool.dir.root(), elsewhere.path("pool")).unwrap();
    assert_eq!(member.grow(MIB, MIB), Verdict::Granted);
    assert_eq!(member.grow(30 * MIB, 31 * MIB), Verdict::Full);
}

/// A program with a low limit on file sizes was ended by `SIGXFSZ` for a write of the library's.
#[test]
fn a_low_limit_on_file_sizes_raises_no_signal() {
    let pool = Shared::new(64 * MIB);
    let ledger = pool.ledger().unwrap();
    let slot = Slot { application: 7, used: MIB, ..Slot::default() };
    // SAFETY: the child takes no lock that another thread may hold.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for limit in [SLOTS as u64, 39, 0] {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: a limit of the child's own.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
            ledger.put(0, Some(&slot));
            if limit.rlim_cur < SLOTS as u64 {
                ledger.put_left(5);
            }
            if set != 0 {
                // SAFETY: ends the child, without the parent's handlers.
                unsafe { libc::_exit(1) };
            }
        }
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "{status:#x}");
    let state = ledger.read().unwrap();
    assert!(state.slots.is_empty() && state.head.left == 0);
}

/// The thread that held the lock is not there in a child, whose last close waited for it for ever.
#[test]
fn a_forked_child_does_not_wait_for_its_parents_threads() {
    let pool = Shared::new(64 * MIB);
    let charge = Charge::new(pool.member("one", 100));
    charge.grow(MIB).unwrap();
    let held = charge.changing.lock();
    // SAFETY: the child does nothing that could need another thread: no allocation, and no lock but the one in
    // question.
    let child = unsafe { libc::fork() };
    if child == 0 {
        super::forget_parents();
        // SAFETY: as above; the alarm ends a child that waits.
        unsafe { libc::alarm(20) };
        charge.set(0);
        let granted = charge.grow(2 * MIB).is_ok();
        // SAFETY: ends the child, without the parent's handlers.
        unsafe { libc::_exit(i32::from(!granted)) };
    }
    drop(held);
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "{status:#x}");
    assert_eq!(pool.shares(), [("one".into(), 56, 1)]);
}

/// Who may make journals in the pool, by an access list, and not write to its file of shares, was refused.
#[test]
fn a_user_who_may_not_write_to_the_file_has_no_size() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: another user takes root");
        return;
    }
    let pool = Shared::new(64 * MIB);
    std::fs::set_permissions(pool.dir.root(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let folder = Pool::at(pool.dir.root(), None).unwrap();
    let as_nobody = || {
        // SAFETY: changes the user of this thread alone, which ends soon.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) };
        assert_eq!(changed, 0);
        let opened = Ledger::open(&folder, OFlags::RDWR).err().map(|e| e.errno());
        (opened, Charge::of(&folder, &crate::Settings::default()).unwrap().is_none())
    };
    let seen = std::thread::scope(|scope| scope.spawn(as_nobody).join().unwrap());
    assert_eq!(seen, (Some(libc::EACCES), true));
}

#[test]
fn a_file_that_makes_no_sense_is_a_pool_without_a_size() {
    let pool = Shared::new(64 * MIB);
    let member = pool.member("one", 100);
    assert_eq!(member.grow(MIB, MIB), Verdict::Granted);
    let whole = std::fs::read(pool.dir.path(NAME)).unwrap();
    let file = pool.file();
    for length in [0, 1, 39, 40, 4096, 4100, whole.len() as u64 - 1] {
        file.set_len(length).unwrap();
        let expected = if length < 40 { Verdict::Granted } else { Verdict::Full };
        assert_eq!(member.grow(1 << 40, 1 << 40), expected, "{length} bytes");
        member.look();
        member.change(-1, 0);
        file.write_all_at(&whole, 0).unwrap();
    }
    let mut random = Random::new(1);
    for _ in 0..200 {
        let noise: Vec<u8> = std::iter::repeat_with(|| random.next_u64() as u8).take(FILE_MAX - 40 + 999).collect();
        file.write_all_at(&noise, 40).unwrap();
        let _ = (member.grow(MIB, MIB), member.would_grow(MIB, u64::MAX), member.look());
        let _ = pool_use(pool.dir.root()).unwrap();
        let _ = member.refusal(Verdict::Full, 1, 1);
    }
}

/// A link to it, or another user's file: what is written there must not reach anything else.
#[test]
fn a_file_that_leads_elsewhere_is_not_used() {
    let pool = Shared::new(64 * MIB);
    let path = pool.dir.path(NAME);
    std::fs::hard_link(&path, pool.dir.path("other")).unwrap();
    assert!(pool.ledger().is_none());
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("other", &path).unwrap();
    assert!(pool.ledger().is_none());
    // Making the size anew puts a file there.
    set_pool_size(pool.dir.root(), Some(32 * MIB)).unwrap();
    assert!(pool.ledger().is_some() && std::fs::symlink_metadata(&path).unwrap().is_file());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(&path, Some(1234), None).unwrap();
        assert!(pool.ledger().is_none());
    }
}

/// The lock of a process that is stopped in the middle.
#[test]
fn nobody_waits_for_ever_for_who_decides() {
    use super::format::DECIDING;
    use crate::sys::locks::{Lock, try_lock};
    let pool = Shared::new(64 * MIB);
    let stopped = pool.ledger().unwrap();
    assert!(try_lock(&stopped.file, DECIDING, Lock::Exclusive).unwrap());
    let member = pool.member("one", 100);
    assert_eq!(member.grow(MIB, MIB), Verdict::Granted);
    assert_eq!(pool.shares(), [("one".into(), 56, 1)]);
}

#[test]
fn processes_find_slots_of_their_own() {
    let pool = Shared::new(64 * MIB);
    let all: Vec<_> = (0..50).map(|number| pool.member(&format!("m{number}"), 100)).collect();
    for member in &all {
        assert_eq!(member.grow(4096, 4096), Verdict::Granted);
    }
    assert_eq!(pool.shares().len(), 50);
    drop(all);
    assert_eq!(pool.shares(), []);
}
