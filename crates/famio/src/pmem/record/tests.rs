use super::*;
use crate::pmem::test_file;
use core::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// What the example protocol leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    DataFence,
    SlotFlush,
    SlotFence,
}

/// Two homes of 64 bytes and one slot word each; epoch *n* goes to home *n* mod 2, and the higher slot counts.
#[repr(C, align(64))]
struct Medium2 {
    homes: [[u8; 64]; 2],
    slots: [[u64; 8]; 2],
}

const EPOCHS: u64 = 4;

fn commit(recorder: &'static Recorder, at: *mut Medium2, epoch: u64, without: Without) {
    let medium: &dyn Medium = recorder;
    let data = [epoch as u8; 64];
    let which = epoch as usize % 2;
    // SAFETY: `at` is valid, and used by this thread only.
    unsafe {
        medium.copy((&raw mut (*at).homes[which]).cast(), data.as_ptr(), 64);
        if without != Without::DataFence {
            medium.fence();
        }
        let slot = AtomicU64::from_ptr(&raw mut (*at).slots[which][0]);
        medium.store(slot, epoch);
        if without != Without::SlotFlush {
            medium.flush(slot.as_ptr().cast(), 8);
        }
    }
    if without != Without::SlotFence {
        medium.fence();
    }
    recorder.mark(epoch);
}

/// Runs the protocol, then recovers every crash. Returns how many there were, and the first that breaks the promise.
fn broken(domain: Domain, without: Without) -> (usize, Option<String>) {
    let recorder = Recorder::new(domain);
    let mut room = Box::new(Medium2 { homes: [[0; 64]; 2], slots: [[0; 8]; 2] });
    // SAFETY: the box outlives the run.
    let id = unsafe { recorder.watch_memory((&raw const *room).cast(), size_of::<Medium2>()) };
    (1..=EPOCHS).for_each(|epoch| commit(recorder, &mut *room, epoch, without));
    let mut replay = recorder.trace().replay();
    let mut total = 0;
    while replay.advance() {
        let promised = replay.marks().last().copied().unwrap_or(0);
        let check = |image: &Image| {
            let bytes = image.get(id).unwrap();
            let slot = |n: usize| u64::from_ne_bytes(bytes[128 + 64 * n..][..8].try_into().unwrap());
            let epoch = slot(0).max(slot(1));
            let home = &bytes[64 * (epoch as usize % 2)..][..64];
            if epoch < promised {
                return ControlFlow::Break(format!("epoch {promised} was promised, {epoch} is there"));
            }
            if home.iter().any(|&byte| byte as u64 != epoch) {
                return ControlFlow::Break(format!("epoch {epoch} is torn"));
            }
            ControlFlow::Continue(())
        };
        let (seen, result) = replay.crashes(&Plan { exhaustive: 1 << 10, ..Plan::default() }, check);
        total += seen;
        if result.is_some() {
            return (total, result);
        }
    }
    (total, None)
}

#[test]
fn a_protocol_that_is_right_passes_and_each_omission_is_found() {
    for domain in [Domain::Pmem, Domain::Emulated] {
        let (seen, result) = broken(domain, Without::Nothing);
        assert_eq!(result, None);
        assert!(seen > 64, "{seen}");
        assert!(broken(domain, Without::DataFence).1.unwrap().contains("torn"));
        assert!(broken(domain, Without::SlotFlush).1.unwrap().contains("promised"));
        assert!(broken(domain, Without::SlotFence).1.unwrap().contains("promised"));
    }
}

#[test]
fn a_process_needs_neither() {
    for without in [Without::Nothing, Without::DataFence, Without::SlotFlush, Without::SlotFence] {
        assert_eq!(broken(Domain::Process, without).1, None, "{without:?}");
    }
}

#[test]
fn too_many_images_are_sampled() {
    let recorder = Recorder::new(Domain::Pmem);
    let mut room = vec![0u64; 512];
    // SAFETY: the vector outlives the run.
    unsafe {
        recorder.watch_memory(room.as_ptr().cast(), 4096);
        for line in 0..64 {
            recorder.copy(room.as_mut_ptr().cast::<u8>().add(64 * line), [1u8; 64].as_ptr(), 64);
        }
    }
    let mut replay = recorder.trace().replay();
    assert!(replay.advance());
    let plan = Plan { exhaustive: 100, deviations: 60, random: 20, seed: 3 };
    let mut images = Vec::new();
    let (seen, _) = replay.crashes::<()>(&plan, |image| {
        images.push(image.clone());
        ControlFlow::Continue(())
    });
    assert_eq!(seen, 2 + 60 + 20);
    assert!(images[0].get(ObjectId(0)).unwrap().iter().all(|&byte| byte == 0));
    assert!(images[1].get(ObjectId(0)).unwrap().iter().all(|&byte| byte == 1));
    let mut again = Vec::new();
    replay.crashes::<()>(&plan, |image| {
        again.push(image.clone());
        ControlFlow::Continue(())
    });
    assert!(images == again);
}

/// A page of data is torn in a few ways only.
#[test]
fn a_large_copy_is_one_choice() {
    let recorder = Recorder::new(Domain::Pmem);
    let mut room = vec![0u64; 1024];
    // SAFETY: the vector outlives the run.
    let id = unsafe {
        let id = recorder.watch_memory(room.as_ptr().cast(), 8192);
        recorder.copy(room.as_mut_ptr().cast(), [1u8; 4096].as_ptr(), 4096);
        recorder.copy(room.as_mut_ptr().cast::<u8>().add(4096), [2u8; 4096].as_ptr(), 4096);
        id
    };
    let images = at_end(recorder, id);
    assert_eq!(images.len(), 8 * 8);
    assert!(images.contains(&[[1; 4096], [2; 4096]].concat()));
    recorder.fence();
    assert_eq!(at_end(recorder, id).len(), 1);
}

/// All images at the end of a trace, of one object, without duplicates.
fn at_end(recorder: &Recorder, object: ObjectId) -> Vec<Vec<u8>> {
    let mut replay = recorder.trace().replay();
    while replay.advance() {}
    let mut images = Vec::new();
    let plan = Plan { exhaustive: 1 << 16, deviations: 0, random: 0, seed: 0 };
    replay.crashes::<()>(&plan, |image| {
        images.push(image.get(object).unwrap().to_vec());
        ControlFlow::Continue(())
    });
    images.sort();
    images.dedup();
    images
}

#[test]
fn stores_of_one_line_keep_their_order_and_lines_do_not() {
    #[repr(align(64))]
    struct Lines([AtomicU64; 16]);
    let room = Lines([const { AtomicU64::new(0) }; 16]);
    let recorder = Recorder::new(Domain::Pmem);
    // SAFETY: the words outlive the run.
    let id = unsafe { recorder.watch_memory((&raw const room).cast(), 128) };
    for (word, value) in [(0, 1), (1, 2), (0, 3), (8, 4)] {
        recorder.store(&room.0[word], value);
    }
    let words = |image: &Vec<u8>| [image[0], image[8], image[64]];
    let mut seen: Vec<_> = at_end(recorder, id).iter().map(words).collect();
    seen.sort();
    assert_eq!(seen, [[0, 0, 0], [0, 0, 4], [1, 0, 0], [1, 0, 4], [1, 2, 0], [1, 2, 4], [3, 2, 0], [3, 2, 4]]);

    // Another thread's flush covers the stores, at that thread's fence, not at ours.
    // SAFETY: the words are alive.
    std::thread::scope(|scope| drop(scope.spawn(|| unsafe { recorder.flush((&raw const room).cast(), 64) }).join()));
    recorder.fence();
    assert_eq!(at_end(recorder, id).len(), 8);
    // SAFETY: as above.
    unsafe { recorder.flush((&raw const room).cast(), 64) };
    recorder.store(&room.0[1], 5);
    recorder.fence();
    let seen: Vec<_> = at_end(recorder, id).iter().map(words).collect();
    assert_eq!(seen, [[3, 2, 0], [3, 2, 4], [3, 5, 0], [3, 5, 4]]);
}

#[test]
fn a_copy_is_torn_at_any_word_and_certain_at_its_own_threads_fence() {
    #[repr(align(64))]
    struct Line([u8; 64]);
    let mut room = Line([0; 64]);
    let recorder = Recorder::new(Domain::Pmem);
    // SAFETY: the line outlives the run.
    let id = unsafe { recorder.watch_memory(room.0.as_ptr(), 64) };
    // SAFETY: in bounds.
    unsafe { recorder.copy(room.0.as_mut_ptr().add(4), [7; 20].as_ptr(), 20) };
    assert_eq!(at_end(recorder, id).len(), 8);
    std::thread::scope(|scope| drop(scope.spawn(|| recorder.fence()).join()));
    assert_eq!(at_end(recorder, id).len(), 8);
    recorder.fence();
    assert_eq!(at_end(recorder, id), [room.0.to_vec()]);
}

#[test]
fn files_are_certain_after_fdatasync_and_torn_by_sectors_before() {
    let recorder = Recorder::new(Domain::PageCache);
    let file = test_file("/dev/shm", 1024);
    let id = recorder.object_of(file.as_fd()).unwrap();
    recorder.pwritev(file.as_fd(), &[&[1; 500], &[1; 100]], 200).unwrap();
    let sectors = |image: &Vec<u8>| (image.len(), image[200], image[512]);
    let seen: Vec<_> = at_end(recorder, id).iter().map(sectors).collect();
    assert_eq!(seen, [(1024, 0, 0), (1024, 0, 1), (1024, 1, 0), (1024, 1, 1)]);
    recorder.fdatasync(file.as_fd()).unwrap();
    recorder.ftruncate(file.as_fd(), 600).unwrap();
    recorder.ftruncate(file.as_fd(), 2048).unwrap();
    let cut = |image: &Vec<u8>| (image.len(), image[599], image.get(700).copied());
    let mut seen: Vec<_> = at_end(recorder, id).iter().map(cut).collect();
    seen.sort();
    // The rest of the page may be cleared before the size is certain.
    assert_eq!(seen, [(600, 1, None), (1024, 1, Some(0)), (1024, 1, Some(1)), (2048, 1, Some(0))]);
    recorder.fdatasync(file.as_fd()).unwrap();
    assert_eq!(at_end(recorder, id).len(), 1);
    let mut now = vec![0; 2048];
    file.read_exact_at(&mut now, 0).unwrap();
    assert_eq!(at_end(recorder, id)[0], now);
}

#[test]
fn a_failed_fdatasync_is_not_retried_into_success() {
    let recorder = Recorder::new(Domain::PageCache);
    let file = test_file("/dev/shm", 512);
    let id = recorder.object_of(file.as_fd()).unwrap();
    recorder.fail(Call::Fdatasync, 2, libc::EIO);
    recorder.fdatasync(file.as_fd()).unwrap();
    recorder.pwritev(file.as_fd(), &[&[1; 512]], 0).unwrap();
    assert_eq!(recorder.fdatasync(file.as_fd()).unwrap_err().errno(), libc::EIO);
    recorder.fdatasync(file.as_fd()).unwrap();
    assert_eq!(at_end(recorder, id).len(), 2, "the kernel forgot it");
    recorder.pwritev(file.as_fd(), &[&[2; 512]], 0).unwrap();
    recorder.fdatasync(file.as_fd()).unwrap();
    assert_eq!(at_end(recorder, id), [vec![2; 512]]);
    recorder.fail(Call::Ftruncate, 1, libc::EIO);
    recorder.fail(Call::Pwritev, 1, libc::ENOSPC);
    assert_eq!(recorder.ftruncate(file.as_fd(), 0).unwrap_err().errno(), libc::EIO);
    assert_eq!(recorder.pwritev(file.as_fd(), &[&[3; 512]], 0).unwrap_err().errno(), libc::ENOSPC);
    recorder.ftruncate(file.as_fd(), 512).unwrap();
    assert_eq!(at_end(recorder, id), [vec![2; 512]]);
}

#[test]
fn a_mapped_file_is_one_object_with_its_size() {
    let recorder = Recorder::new(Domain::Pmem);
    let file = test_file("/dev/shm", 4096);
    let map = crate::map::Mapping::read_write(file.as_fd(), Domain::Process, 4096).unwrap();
    recorder.watch(file.as_fd(), map.base(), map.reserved());
    let id = recorder.object_of(file.as_fd()).unwrap();
    recorder.ftruncate(file.as_fd(), 8192).unwrap();
    // SAFETY: within the file now.
    unsafe { recorder.zero(map.ptr(0, 64).unwrap(), 64) };
    // SAFETY: as above.
    unsafe { recorder.copy(map.ptr(5000, 8).unwrap(), [9; 8].as_ptr(), 8) };
    recorder.fence();
    // The data is safe, but the size is not: a file that did not grow has lost it.
    let byte = |image: &Vec<u8>| (image.len(), image.get(5000).copied());
    let seen: Vec<_> = at_end(recorder, id).iter().map(byte).collect();
    assert_eq!(seen, [(4096, None), (8192, Some(9))]);
    recorder.fdatasync(file.as_fd()).unwrap();
    assert_eq!(at_end(recorder, id).len(), 1);
    // Cut and grown again: the previous bytes are gone, bytes stored later stay.
    recorder.ftruncate(file.as_fd(), 4096).unwrap();
    recorder.ftruncate(file.as_fd(), 8192).unwrap();
    // SAFETY: within the file.
    unsafe { recorder.copy(map.ptr(5008, 8).unwrap(), [8; 8].as_ptr(), 8) };
    recorder.fence();
    let bytes = |image: &Vec<u8>| (image.len(), image.get(5000).copied(), image.get(5008).copied());
    let seen: Vec<_> = at_end(recorder, id).iter().map(bytes).collect();
    assert_eq!(seen, [(4096, None, None), (8192, Some(0), Some(8)), (8192, Some(9), Some(8))]);
}
