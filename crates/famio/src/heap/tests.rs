use super::*;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use famio_test_support::random::Random;

static HEAP: Heap = Heap::new();

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn every_size_has_a_class_that_holds_it_and_wastes_little() {
    for size in 0..LARGE {
        let class = class_of(size);
        assert!(class < CLASSES, "{size}");
        let room = size_of_class(class);
        assert!(room >= size && room.is_multiple_of(GRAIN), "{size}: {room}");
        assert!(room <= GRAIN || room - size < room / 4 || room - size < GRAIN, "{size}: {room}");
        assert!(class == 0 || size_of_class(class - 1) < size.max(1), "{size} is not in the smallest");
    }
}

#[test]
fn memory_is_as_asked_for_and_nobody_elses() {
    let mut all = Vec::new();
    for round in 0..300usize {
        for align in [1, 8, 16, 64, 4096, 1 << 20] {
            let layout = layout(1 + round * round * 7, align);
            // SAFETY: not of size zero; freed below with the same layout.
            unsafe {
                let at = if round % 2 == 0 { HEAP.alloc(layout) } else { HEAP.alloc_zeroed(layout) };
                assert!(!at.is_null() && at.addr().is_multiple_of(align));
                if round % 2 == 1 {
                    let bytes = core::slice::from_raw_parts(at, layout.size());
                    assert!(bytes.iter().all(|&byte| byte == 0));
                }
                at.write_bytes(all.len() as u8, layout.size());
                all.push((at, layout));
            }
        }
        if round % 3 == 0 {
            // Freed blocks are reused, and `alloc_zeroed` must clear them.
            let (at, layout) = all.swap_remove(round % all.len());
            // SAFETY: given out above.
            unsafe { HEAP.dealloc(at, layout) };
            if let Some((at, layout)) = all.get(round % all.len().max(1)) {
                // SAFETY: as above; the block moved in the list, so its byte is written again.
                unsafe { at.write_bytes((round % all.len()) as u8, layout.size()) };
            }
        }
    }
    let mut seen: Vec<(usize, usize)> = all.iter().map(|(at, layout)| (at.addr(), layout.size())).collect();
    seen.sort_unstable();
    assert!(seen.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "two of them overlap");
    for (at, layout) in all {
        // SAFETY: given out above, and whole.
        unsafe {
            let bytes = core::slice::from_raw_parts(at, layout.size());
            assert!(bytes.iter().all(|&byte| byte == bytes[0]));
            HEAP.dealloc(at, layout);
        }
    }
}

#[test]
fn what_grows_and_shrinks_keeps_its_bytes() {
    for align in [1, 64] {
        let mut size = 10;
        // SAFETY: by the allocator's rules; the bytes are ours.
        unsafe {
            let mut at = HEAP.alloc(layout(size, align));
            for index in 0..size {
                at.add(index).write(index as u8);
            }
            for next in [12, 100, 5000, LARGE - 1, LARGE, 3 * LARGE, 20 * LARGE, LARGE + 1, 700, 10] {
                at = HEAP.realloc(at, layout(size, align), next);
                assert!(!at.is_null() && at.addr().is_multiple_of(align));
                size = next;
                assert!((0..10).all(|index| at.add(index).read() == index as u8), "{next}");
                at.add(size - 1).write((size - 1) as u8);
            }
            HEAP.dealloc(at, layout(size, align));
        }
    }
}

#[test]
fn freed_memory_is_used_again() {
    static OWN: Heap = Heap::new();
    let mut seen = std::collections::HashSet::new();
    for round in 0..100_000 {
        let layout = layout(100 + round % 20_000, 8);
        // SAFETY: freed at once.
        unsafe {
            let at = OWN.alloc(layout);
            seen.insert(at.addr());
            OWN.dealloc(at, layout);
        }
    }
    assert!(seen.len() <= CLASSES, "{}", seen.len());
}

/// Threads allocate and free blocks of the same sizes and pass blocks to each other; each fills its blocks and checks
/// them.
#[test]
fn threads_do_not_get_in_each_others_way() {
    static OWN: Heap = Heap::new();
    const SLOTS: usize = 64;
    static SHARED: [AtomicPtr<u8>; SLOTS] = [const { AtomicPtr::new(null_mut()) }; SLOTS];
    let size = |slot: usize| 24 << (slot % 10);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..100_000 {
                    let slot = random.below(SLOTS as u64) as usize;
                    let layout = layout(size(slot), 8);
                    // SAFETY: a thread that takes a block out of a slot has it alone.
                    unsafe {
                        let new = OWN.alloc(layout);
                        new.write_bytes(slot as u8, layout.size());
                        let old = SHARED[slot].swap(new, Ordering::AcqRel);
                        if !old.is_null() {
                            let bytes = core::slice::from_raw_parts(old, layout.size());
                            assert!(bytes.iter().all(|&byte| byte == slot as u8));
                            OWN.dealloc(old, layout);
                        }
                    }
                }
            });
        }
    });
}

/// A signal handler uses the heap wherever it interrupts its thread in it.
#[test]
fn a_handler_may_use_it_anywhere() {
    static OWN: Heap = Heap::new();
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    static BAD: AtomicBool = AtomicBool::new(false);
    fn once(mark: u8) {
        for size in [20, 40, 3000] {
            let layout = layout(size, 8);
            // SAFETY: freed at once.
            unsafe {
                let blocks = [OWN.alloc(layout), OWN.alloc(layout)];
                blocks.iter().for_each(|block| block.write_bytes(mark, size));
                for block in blocks {
                    let bytes = core::slice::from_raw_parts(block, size);
                    if !bytes.iter().all(|&byte| byte == mark) {
                        BAD.store(true, Ordering::Relaxed);
                    }
                    OWN.dealloc(block, layout);
                }
            }
        }
    }
    extern "C" fn handler(_: i32) {
        once(2);
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    let action = crate::sys::SignalAction::new(handler as *const () as usize, libc::SA_RESTART as u64, 0);
    crate::sys::signal_action(libc::SIGUSR2, Some(&action)).unwrap();
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as usize;
    let pid = rustix::process::getpid().as_raw_nonzero().get() as usize;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: sends a signal that is handled.
                unsafe { syscall(libc::SYS_tgkill, [pid, tid, libc::SIGUSR2 as usize, 0, 0, 0]) };
                std::thread::yield_now();
            }
        });
        while HANDLED.load(Ordering::Relaxed) < 2000 {
            once(1);
        }
        done.store(true, Ordering::Relaxed);
    });
    crate::sys::signal_action(libc::SIGUSR2, Some(&crate::sys::SignalAction::DEFAULT)).unwrap();
    assert!(!BAD.load(Ordering::Relaxed));
}
