//! The cost of an append, compared with writing and flushing the same bytes. Run with `--release --ignored
//! --nocapture`.

use super::super::{BLOCK, Batch, Block, PAGE, RecordLog};
use super::test_hooks::JournalFile;
use crate::journal::testing::Scratch;
use crate::journal::{Header, Identity, Kind, State};
use crate::pmem::{Domain, medium};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
#[ignore = "a measurement"]
fn append_beside_bare_writes() {
    let dir = Scratch::new();
    let open = |name| File::options().read(true).write(true).create_new(true).open(dir.path(name)).unwrap();
    let (data, journal, bare) = (open("data"), open("journal"), open("bare"));
    let medium = medium(Domain::PageCache, false);
    let identity = Identity::of_fd(data.as_fd()).unwrap();
    let mut header =
        Header::new(Kind::Records, Domain::PageCache, Domain::PageCache, identity, &dir.path("data")).unwrap();
    header.state = State::Active;
    header.store(journal.as_fd(), medium).unwrap();
    let keeper = Arc::new(JournalFile::new(journal, header, medium));
    let mut log = RecordLog::create(keeper, 0, Default::default(), 1 << 30, medium).unwrap();
    let length = 64 << 20;
    medium.pwritev(bare.as_fd(), &[&vec![0; length]], 0).unwrap();
    medium.fdatasync(bare.as_fd()).unwrap();
    log.reserve(16 << 20).unwrap();
    let mut at = 0;
    let mut contents = vec![[7; BLOCK]; 120];
    for (count, mask) in [(1, 1u64), (1, u64::MAX), (8, u64::MAX), (120, u64::MAX), (120, 0x5555_5555_5555_5555)] {
        let mut times = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for round in 0..200u64 {
            contents.iter_mut().for_each(|block| block[..8].copy_from_slice(&round.to_le_bytes()));
            let blocks: Vec<Block<'_>> =
                (0..count).map(|number| Block { number: number as u64, mask, data: &contents[number] }).collect();
            let granules = (count as u32 * mask.count_ones()).into();
            log.reserve(RecordLog::cost(count as u64, granules)).unwrap();
            let epoch = log.committed() + 1;
            let batch = Batch { epoch, size: 1 << 30, cut: 0, commit: false, blocks: &blocks };
            let batch = Batch { cut: if epoch > 1 { 1 << 30 } else { 0 }, ..batch };
            let start = Instant::now();
            log.append(&Batch { commit: true, ..batch }).unwrap();
            times[0].push(start.elapsed());
            log.release(epoch);
            // The same pages, from one buffer.
            let bytes = ((granules as usize * 64) + 200).next_multiple_of(PAGE);
            let buffer = vec![round as u8; bytes];
            at = if at + bytes > length { 0 } else { at };
            let start = Instant::now();
            medium.pwritev(bare.as_fd(), &[&buffer], at as u64).unwrap();
            times[2].push(start.elapsed());
            medium.fdatasync(bare.as_fd()).unwrap();
            times[1].push(start.elapsed());
            at += bytes;
        }
        // Without the flush: the cost of the log itself.
        for _ in 0..50 {
            let blocks: Vec<Block<'_>> =
                (0..count).map(|number| Block { number: number as u64, mask, data: &contents[number] }).collect();
            let granules = (count as u32 * mask.count_ones()).into();
            log.reserve(RecordLog::cost(count as u64, granules)).unwrap();
            let size = 1 << 30;
            let start = Instant::now();
            let batch = Batch { epoch: log.committed() + 1, size, cut: size, commit: false, blocks: &blocks };
            log.append(&batch).unwrap();
            times[3].push(start.elapsed());
        }
        let size = 1 << 30;
        log.append(&Batch { epoch: log.committed() + 1, size, cut: size, commit: true, blocks: &[] }).unwrap();
        log.release(log.committed());
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_nanos() as f64 / 1000.0
        };
        let [append, both, write, part] = times.each_mut().map(median);
        println!(
            "{count} blocks, {} granules each: append+fdatasync {append:.1} us, pwrite+fdatasync {both:.1} us; \
             append alone {part:.1} us, pwrite alone {write:.1} us",
            mask.count_ones()
        );
    }
}
