use super::*;
use rustix::fs::{MemfdFlags, memfd_create};
use std::os::fd::OwnedFd;

fn memory() -> OwnedFd {
    let file = memfd_create("famio-test-locks", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, SIZE as u64).unwrap();
    file
}

fn member(file: &OwnedFd, place: u32) -> LockTable {
    LockTable::map(file, Holder { place, id: u64::from(place) + 100 }, 7).unwrap()
}

fn nobody(_: Holder) -> bool {
    false
}

fn region(start: i64, last: i64, is_write: bool) -> Region {
    Region { start, last, is_write }
}

fn set(table: &LockTable, regions: &[Region]) {
    table.lock(&nobody).unwrap().set_own(regions, true);
}

const ALL: Region = Region { start: 0, last: i64::MAX, is_write: true };

#[test]
fn locks_exclude_those_of_others_only() {
    let file = memory();
    let (first, second) = (member(&file, 0), member(&file, 1));
    set(&first, &[region(0, 9, false), region(50, 59, true)]);
    let found = |wanted| second.lock(&nobody).unwrap().conflict(wanted).map(|(holder, there)| (holder.id, there));
    assert_eq!(found(region(5, 5, false)), None);
    assert_eq!(found(region(5, 5, true)), Some((100, region(0, 9, false))));
    assert_eq!(found(region(9, 50, false)), Some((100, region(50, 59, true))));
    assert_eq!(first.lock(&nobody).unwrap().conflict(region(0, 100, true)), None);
    set(&second, &[region(20, 29, true)]);
    set(&first, &[]);
    assert_eq!(found(ALL), None);
    assert!(first.lock(&nobody).unwrap().has_others() && !second.lock(&nobody).unwrap().has_others());
}

#[test]
fn what_a_dead_process_held_is_free() {
    let file = memory();
    let (first, second) = (member(&file, 0), member(&file, 1));
    set(&first, &[region(0, 9, true)]);
    core::mem::forget(first.lock(&nobody)); // it is killed in the middle of a change
    first.row().sequence.fetch_add(1, Ordering::Relaxed);
    let is_gone = |holder: Holder| holder.place == 0;
    let locked = second.lock(&is_gone).unwrap();
    assert_eq!(locked.conflict(region(0, 9, true)), None);
    core::mem::forget(locked);
    let next = LockTable::map(&file, Holder { place: 1, id: 900 }, 7).unwrap();
    let is_gone = |holder: Holder| holder.place == 0 || !holder.may_be(900);
    assert!(!next.lock(&is_gone).unwrap().has_others(), "another process has the slot of a dead one");
    assert_eq!(next.memory().state.load(Ordering::Relaxed), 0, "no lock for writing is left");
}

#[test]
fn a_row_that_stays_unfinished_counts_as_a_lock_of_everything() {
    let file = memory();
    let (first, second) = (member(&file, 0), member(&file, 1));
    first.row().sequence.fetch_add(1, Ordering::Relaxed); // its process is stopped there
    assert!(second.lock(&nobody).unwrap().conflict(region(3, 3, false)).is_some());
}

#[test]
fn readers_need_no_lock_while_there_is_a_cover_and_nobody_writes() {
    let file = memory();
    let (first, second) = (member(&file, 0), member(&file, 1));
    let reads = [region(0, 9, false)];
    assert!(!second.set_quickly(&reads, &nobody), "the locks are the kernel's");
    first.lock(&nobody).unwrap().set_cover();
    assert!(!second.set_quickly(&reads, &|holder| holder.place == 0), "its process is dead");
    assert!(second.set_quickly(&reads, &nobody));
    assert!(first.lock(&nobody).unwrap().conflict(region(9, 9, true)).is_some());
    set(&first, &[region(20, 20, true)]);
    assert!(!second.set_quickly(&reads, &nobody), "there is a lock for writing");
    assert!(second.release_quickly(&[]));
    assert!(first.lock(&nobody).unwrap().conflict(ALL).is_none());
    set(&first, &[]);
    assert!(second.set_quickly(&reads, &nobody) && second.release_quickly(&[]));
    first.lock(&nobody).unwrap().end_cover(0);
    assert!(!second.release_quickly(&[]));
}

/// Of a reader and a writer of the same bytes at most one has its lock.
#[test]
fn a_quick_reader_and_a_writer_never_both_succeed() {
    let file = memory();
    let (reader, writer) = (member(&file, 0), member(&file, 1));
    writer.lock(&nobody).unwrap().set_cover();
    let value = AtomicU64::new(0); // odd while the writer has its lock
    let (reads, ends) = (AtomicU64::new(0), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                if reader.set_quickly(&[region(0, 9, false)], &nobody) {
                    assert_eq!(value.load(Ordering::Relaxed) & 1, 0);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                assert!(reader.release_quickly(&[]));
            }
        });
        let mut written = 0;
        while written < 20_000 || reads.load(Ordering::Relaxed) < 100 {
            let locked = writer.lock(&nobody).unwrap();
            if locked.conflict(region(5, 5, true)).is_none() {
                locked.set_own(&[region(5, 5, true)], false);
                drop(locked);
                value.fetch_add(1, Ordering::Relaxed);
                value.fetch_add(1, Ordering::Relaxed);
                set(&writer, &[]);
                written += 1;
            }
            if written % 16 == 0 {
                std::thread::yield_now(); // readers succeed only while the table is free
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_circle_of_waiting_processes_is_seen() {
    let file = memory();
    let tables: Vec<_> = (0..3).map(|place| member(&file, place)).collect();
    let bytes = |of: usize| region(of as i64, of as i64, true);
    (0..3).for_each(|of| set(&tables[of], &[bytes(of)]));
    let waits = |who: usize, whom: usize| {
        let wait = tables[who].lock(&nobody).unwrap().wait_for(tables[whom].me, bytes(whom));
        matches!(wait, Wait::For(_))
    };
    assert!(waits(0, 1) && waits(1, 2) && !waits(2, 0));
    tables[1].end_wait(tables[2].me);
    assert!(waits(2, 0));
    tables[0].end_wait(tables[1].me);
    set(&tables[0], &[]);
    assert_eq!(tables[0].row().releases.load(Ordering::Relaxed), 1, "it has told who waits");
    let over = tables[1].lock(&nobody).unwrap().wait_for(tables[0].me, bytes(0));
    assert!(matches!(over, Wait::Over));
}

#[test]
fn nobody_takes_the_cover_while_a_call_waits_in_the_kernel() {
    let file = memory();
    let (first, second) = (member(&file, 0), member(&file, 1));
    second.set_waits_in_kernel(true);
    assert!(!first.lock(&nobody).unwrap().may_cover(0));
    assert!(first.lock(&|holder| holder.place == 1).unwrap().may_cover(0));
    second.set_waits_in_kernel(false);
    let locked = first.lock(&nobody).unwrap();
    assert!(locked.may_cover(0) && !first.is_covered());
    locked.set_cover();
    assert!(second.is_covered() && locked.cover() == Some(first.me));
    locked.end_cover(5);
    assert!(!second.is_covered() && !locked.may_cover(4) && locked.may_cover(5));
}

#[test]
fn threads_of_two_processes_change_it_one_at_a_time() {
    let file = memory();
    let tables = [member(&file, 0), member(&file, 1)];
    let sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for table in &tables {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _locked = table.lock(&nobody).unwrap();
                        sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 80_000);
}
