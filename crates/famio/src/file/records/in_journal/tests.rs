use super::super::state::State;
use super::super::tiered_file::{check, commit_block, with_tiered, write};
use crate::file::AtomicFile;
use crate::file::session::Session;
use crate::index::BLOCK;
use crate::pmem::TestHooks;
use core::sync::atomic::Ordering;

/// Where in the journal the bytes of a block lie.
fn in_journal(atomic: &AtomicFile, block: u64) -> Option<u64> {
    let of = |session: &Session| {
        let cx = session.context(&atomic.fds);
        cx.index().lookup(block).and_then(|cell| State::of(cell, cx.shared().committed()).in_journal)
    };
    atomic.with_session(of).unwrap()
}

/// With a file of which this thread has overwritten the first eight blocks, so often that whole blocks are not compared
/// any more, and that it is alone.
fn with_lone_writer(name: &str, test: impl FnOnce(&AtomicFile, &mut Vec<u8>)) {
    with_tiered(name, 16, TestHooks::default(), |atomic, model| {
        for number in 0..40 {
            commit_block(atomic, model, number % 8, number as u8 + 1);
        }
        (0..8).for_each(|block| assert!(in_journal(atomic, block).is_some(), "block {block}"));
        check(atomic, model);
        test(atomic, model);
    });
}

#[test]
fn a_part_that_is_written_moves_the_block_to_its_buffer() {
    with_lone_writer("in-journal-part", |atomic, model| {
        for (block, (start, len)) in [(0, 1), (100, 60), (64, 64), (4000, 96), (1, 4094)].into_iter().enumerate() {
            write(atomic, model, block * BLOCK + start, &[200; 4096][..len]);
            assert_eq!(in_journal(atomic, block as u64), None);
            check(atomic, model);
        }
        atomic.sync().unwrap();
        check(atomic, model);
    });
}

#[test]
fn a_write_of_the_same_bytes_changes_nothing() {
    with_lone_writer("in-journal-same", |atomic, model| {
        let before = in_journal(atomic, 3);
        let same = model[3 * BLOCK..4 * BLOCK].to_vec();
        // One of sixteen is compared; of those in between, the journal gets all bytes.
        for _ in 0..40 {
            write(atomic, model, 3 * BLOCK, &same);
            atomic.sync().unwrap();
        }
        let now = in_journal(atomic, 3);
        assert!(now.is_some() && now != before);
        let written = commit_block(atomic, model, 3, same[0]);
        assert_eq!((written, in_journal(atomic, 3)), (0, now));
        check(atomic, model);
        // A few of its bytes differ.
        let mut other = same;
        other[700..710].fill(9);
        write(atomic, model, 3 * BLOCK, &other);
        assert_eq!(in_journal(atomic, 3), None);
        check(atomic, model);
    });
}

#[test]
fn what_an_epoch_writes_twice_is_its_last() {
    with_lone_writer("in-journal-twice", |atomic, model| {
        write(atomic, model, BLOCK, &[101; BLOCK]);
        let early = in_journal(atomic, 1);
        assert!(early.is_some());
        write(atomic, model, BLOCK, &[102; BLOCK]);
        assert_eq!(in_journal(atomic, 1), None, "its place in the journal is its record's");
        check(atomic, model);
        write(atomic, model, 2 * BLOCK, &[103; BLOCK]);
        atomic.sync().unwrap();
        check(atomic, model);
        for number in 0..20 {
            commit_block(atomic, model, 5, 110 + number); // none is stored early for a while
        }
        assert!(in_journal(atomic, 5).is_some());
        write(atomic, model, 5 * BLOCK, &[105; BLOCK]);
        write(atomic, model, 5 * BLOCK + 10, &[106; 10]);
        check(atomic, model);
        atomic.sync().unwrap();
        check(atomic, model);
    });
}

#[test]
fn cuts_keep_what_is_below() {
    for (size, again) in [(BLOCK + 100, 0), (BLOCK, 0), (0, 0), (BLOCK + 100, 3 * BLOCK), (2 * BLOCK, 9 * BLOCK)] {
        with_lone_writer("in-journal-cut", |atomic, model| {
            write(atomic, model, BLOCK, &[101; BLOCK]);
            assert!(in_journal(atomic, 1).is_some());
            for size in [size, again] {
                if size != 0 || again == 0 {
                    atomic.set_size(size as u64).unwrap();
                    model.resize(size, 0);
                }
                check(atomic, model);
            }
            write(atomic, model, 0, &[102; BLOCK]);
            atomic.sync().unwrap();
            check(atomic, model);
        });
    }
}

/// The file has all that is committed then, and the journal may be used again.
#[test]
fn a_flush_beside_an_open_epoch_moves_the_blocks_that_the_epoch_keeps() {
    with_lone_writer("in-journal-flush", |atomic, model| {
        write(atomic, model, BLOCK, &[101; BLOCK]);
        write(atomic, model, 2 * BLOCK + 64, &[102; 64]);
        let open = in_journal(atomic, 1);
        assert!(open.is_some());
        atomic.flush_as_asked().unwrap();
        for block in 0..8 {
            let lies = in_journal(atomic, block);
            assert_eq!(lies.is_some(), block == 1, "block {block} at {lies:?}");
        }
        check(atomic, model);
        atomic.sync().unwrap();
        check(atomic, model);
    });
}

/// Memory that is no more there when it is copied: nothing was done, and the next write has the place.
#[test]
fn bad_memory_changes_nothing() {
    with_lone_writer("in-journal-bad", |atomic, model| {
        let try_bad = |session: &Session| {
            let mut cx = session.context(&atomic.fds);
            let _inside = session.enter_gate(&mut cx).ok().unwrap();
            assert!(cx.exclusive && session.engine.takes_callers_memory(true));
            let before = cx.shared().used.load(Ordering::Relaxed);
            let bad = core::ptr::without_provenance_mut(4096);
            for block in [1, 12] {
                assert!(!session.engine.write_callers(&cx, block, (0, BLOCK), bad).unwrap());
            }
            assert_eq!(cx.shared().used.load(Ordering::Relaxed), before);
        };
        let before = in_journal(atomic, 1);
        atomic.with_session(try_bad).unwrap();
        assert_eq!(in_journal(atomic, 1), before);
        check(atomic, model);
        commit_block(atomic, model, 2, 100);
        assert!(in_journal(atomic, 2).is_some());
        check(atomic, model);
    });
}
