//! `famio bench region`: the cost of a copy into a region, and of finding a region.

use super::median::median;
use super::output::Json;
use super::results::{Method, Nanoseconds};
use crate::text::table;
use famio::region::{copy, find_region};
use famio::{AtomicFile, Durability, Region, Settings};
use serde::Serialize;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Copies into regions, and the search for them
///
/// In one process, alternately: a copy of 64 bytes into a region that was just used (`nvmemcpy`), and the same bytes
/// by bare non-temporal stores and a fence; the search for the region of an address among many, with and without the
/// thread's memory of its last regions. Then a new region, copied from and to in order, in pieces of 4 KiB, without
/// map-ahead (by advice) and with it; a busy machine has no processor left for mapping in the background. At last a
/// copy with its SYNC, to a region that may be stored to and to one for copies.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench region --folder /dev/shm
  famio bench region --regions 100 --rounds 21")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Regions that are searched
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=30_000))]
    regions: u32,
    /// Thousands of calls of each measurement
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    thousands: u32,
    #[command(flatten)]
    output: Json,
}

const SMALL: usize = 64;
const PAGE: usize = 4096;
/// Size of the file that is copied to.
const SIZE: usize = 1 << 20;
/// Size of a new region: more than the widest window.
const FRESH: usize = 64 << 20;

#[derive(Serialize)]
struct Extent {
    /// Per measurement.
    calls: u64,
    regions: u32,
}

/// The time of a copy or a search.
#[derive(Serialize)]
struct Row {
    work: String,
    #[serde(flatten)]
    time: Nanoseconds,
    /// Ratio of this time to that of the previous row.
    times_as_long: Option<f64>,
}

/// Measures, and shows the rows.
pub fn main(args: &Args) -> Result<(), String> {
    let extent = Extent { calls: u64::from(args.thousands) * 1000, regions: args.regions };
    let measure = || {
        let path = args.folder.join(format!("famio-bench-region-{}", std::process::id()));
        let done = rows(args, &path);
        let _ = std::fs::remove_file(&path);
        done
    };
    let method = Method::new(&args.folder, args.rounds, extent).emulated();
    method.show(&args.output, measure, |rows| text(args, rows))
}

fn text(args: &Args, rows: &[Row]) -> String {
    let mut lines = vec![["", "NS", "OF THE ROW ABOVE"].map(String::from).to_vec()];
    for row in rows {
        let times = row.times_as_long.map_or(String::new(), |times| format!("{times:.2}x"));
        lines.push(vec![row.work.clone(), format!("{:.1}", row.time.median), times]);
    }
    let how = format!("nanoseconds; {} rounds of {} thousand calls, alternating, medians", args.rounds, args.thousands);
    format!("{}{how}\n", table(&lines))
}

fn rows(args: &Args, path: &Path) -> Result<Vec<Row>, String> {
    let text = |e: famio::Error| e.to_string();
    // Ordinary memory that stands for persistent memory survives no power cut on any file system.
    let settings = Settings { emulated: true, durability: Durability::Process, ..Settings::default() };
    let file = AtomicFile::options().create(true).settings(settings).open(path).map_err(text)?;
    let pages = args.regions as usize;
    file.set_len((SIZE.max(pages * PAGE)) as u64).map_err(text)?;
    let hot = file.map(0..SIZE as u64).map_err(text)?;
    let calls = args.thousands as usize * 1000;
    let mut plain = vec![0u8; SIZE + SMALL];
    let aligned = plain.as_mut_ptr().wrapping_add(plain.as_ptr().align_offset(SMALL));

    let mut figures: [Vec<f64>; 6] = Default::default();
    for _ in 0..args.rounds {
        let from = [7u8; SMALL];
        // SAFETY: within the buffer, and the region.
        figures[0].push(batches(calls, |_| unsafe { bare(aligned, black_box(from.as_ptr())) }));
        // SAFETY: as above.
        figures[1].push(batches(calls, |_| unsafe { copied(hot.as_ptr(), black_box(from.as_ptr())) }));
        // SAFETY: as above.
        figures[2].push(batches(calls, |call| unsafe { bare(aligned.add(place(call)), black_box(from.as_ptr())) }));
        // SAFETY: as above.
        figures[3]
            .push(batches(calls, |call| unsafe { copied(hot.as_ptr().add(place(call)), black_box(from.as_ptr())) }));
        file.sync().map_err(text)?;
    }
    // Regions of one file, alternately writable and read-only, so that the kernel does not merge their maps.
    let many: Vec<Region> = (0..pages as u64)
        .map(|page| {
            let range = page * PAGE as u64..(page + 1) * PAGE as u64;
            if page % 2 == 0 { file.map(range) } else { file.map_read(range) }
        })
        .collect::<famio::Result<_>>()
        .map_err(text)?;
    let mut order: Vec<usize> = many.iter().map(|region| region.as_ptr() as usize + 100).collect();
    fastrand::shuffle(&mut order);
    for _ in 0..args.rounds {
        figures[4].push(batches(calls, |_| assert!(find_region(black_box(order[0])), "a region")));
        figures[5].push(batches(calls, |call| assert!(find_region(order[call % order.len()]), "a region")));
    }
    drop(many);
    drop(hot);
    file.close().map_err(text)?;

    let (mut fresh, mut synced): ([Vec<f64>; 4], [Vec<f64>; 2]) = Default::default();
    let bytes = vec![7u8; FRESH];
    for _ in 0..args.rounds {
        // Written again each time, so that no page is huge.
        std::fs::write(path, &bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        for (index, figures) in fresh.iter_mut().enumerate() {
            figures.push(in_order(path, index % 2 == 1, index >= 2).map_err(text)?);
        }
        for (index, figures) in synced.iter_mut().enumerate() {
            figures.push(with_sync(path, index == 1).map_err(text)?);
        }
    }

    let [bare_one, copy_one, bare_many, copy_many, cached, searched] = figures.map(Nanoseconds::of);
    let [load_off, load_on, store_off, store_on] = fresh.map(Nanoseconds::of);
    let [of_stores, of_copies] = synced.map(Nanoseconds::of);
    // Two rows: without Famio's part, and with it.
    let pair = |works: [&str; 2], [base, time]: [Nanoseconds; 2]| {
        let times_as_long = Some(time.median / base.median);
        let [base_work, work] = works.map(String::from);
        [Row { work: base_work, time: base, times_as_long: None }, Row { work, time, times_as_long }]
    };
    let search = |which: &str, time| {
        let work = format!("search among {pages} regions, {which}");
        Row { work, time, times_as_long: None }
    };
    let one = ["64 B to one place, bare non-temporal copy and fence", "64 B to one place of a region"];
    let many = ["64 B over 1 MiB, bare non-temporal copy and fence", "64 B over 1 MiB of a region"];
    let load = ["4 KiB in order from a new region, without map-ahead", "4 KiB in order from a new region"];
    let store = ["4 KiB in order to a new region, without map-ahead", "4 KiB in order to a new region"];
    let sync = ["64 B over 64 MiB of a region, and a SYNC", "the same, of a region for copies"];
    let mut rows = Vec::new();
    rows.extend(pair(one, [bare_one, copy_one]));
    rows.extend(pair(many, [bare_many, copy_many]));
    rows.extend([search("the last one again", cached), search("in no order", searched)]);
    rows.extend(pair(load, [load_off, load_on]));
    rows.extend(pair(store, [store_off, store_on]));
    rows.extend(pair(sync, [of_stores, of_copies]));
    Ok(rows)
}

/// Nanoseconds per page, copied in order from or to a region that was not touched since it was mapped.
fn in_order(path: &Path, ahead: bool, to: bool) -> famio::Result<f64> {
    let file = AtomicFile::open(path)?;
    let region = file.map(..)?;
    if !ahead {
        region.advise(0..region.len(), famio::Advice::Random)?;
    }
    let mut page = [7u8; PAGE];
    let begun = Instant::now();
    for at in (0..region.len()).step_by(PAGE) {
        let (there, here) = (region.as_ptr().wrapping_add(at), page.as_mut_ptr());
        // SAFETY: a page of the region, and one of ours.
        unsafe { if to { copy(there, here, PAGE) } else { copy(here, there, PAGE) } }?;
    }
    let taken = begun.elapsed().as_nanos() as f64 / (region.len() / PAGE) as f64;
    drop(region);
    file.close()?;
    Ok(taken)
}

/// Copies of 64 bytes, each with a SYNC.
const SYNCED: usize = 2000;

/// Nanoseconds of a copy to a random place and a SYNC, when every page of the region was used. `for_copies`: it can
/// only be changed by copies.
fn with_sync(path: &Path, for_copies: bool) -> famio::Result<f64> {
    let settings = Settings { emulated: true, durability: Durability::Process, ..Settings::default() };
    let file = AtomicFile::options().settings(settings).open(path)?;
    let region = if for_copies { file.map_for_copies(..) } else { file.map(..) }?;
    // SAFETY: within the region, and below the end of the file.
    let load = |at: usize| unsafe { region.as_ptr().add(at).read_volatile() };
    (0..region.len()).step_by(PAGE).for_each(|at| _ = black_box(load(at)));
    file.sync()?;
    let mut times = Vec::with_capacity(SYNCED);
    for call in 0..SYNCED as u64 {
        let (at, bytes) = (fastrand::usize(..region.len() / SMALL) * SMALL, [call; SMALL / 8]);
        let begun = Instant::now();
        // SAFETY: as above.
        unsafe { copy(region.as_ptr().add(at), bytes.as_ptr().cast(), SMALL) }?;
        region.sync()?;
        times.push(begun.elapsed().as_nanos() as f64);
    }
    drop(region);
    file.close()?;
    Ok(median(times))
}

/// Calls between two readings of the clock.
const BATCH: usize = 500;

/// Nanoseconds per call: the median of batches, which interrupts and other programs hardly affect.
#[inline]
fn batches(calls: usize, mut work: impl FnMut(usize)) -> f64 {
    let batch = |from: usize| {
        let begun = Instant::now();
        (from..from + BATCH).for_each(&mut work);
        begun.elapsed().as_nanos() as f64 / BATCH as f64
    };
    median((0..calls).step_by(BATCH).map(batch).collect())
}

/// Where copy number `call` goes: lines in an order that no prefetcher predicts.
fn place(call: usize) -> usize {
    call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 & (SIZE - 1) & !(SMALL - 1)
}

/// # Safety
/// As `nvmemcpy`.
unsafe fn copied(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, SMALL) }.expect("within the region");
}

/// A copy past the cache, and a fence.
///
/// # Safety
/// `to` is aligned to a line; both are valid for one.
#[cfg(target_arch = "x86_64")]
unsafe fn bare(to: *mut u8, from: *const u8) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    // SAFETY: the caller's promise; the instructions are of every x86-64.
    unsafe {
        let (to, from) = (to.cast::<__m128i>(), from.cast::<__m128i>());
        for part in 0..SMALL / 16 {
            _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part)));
        }
        _mm_sfence();
    }
}

/// As on x86-64.
///
/// # Safety
/// As there.
#[cfg(target_arch = "aarch64")]
unsafe fn bare(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "ldp {a:q}, {b:q}, [{from}]",
            "ldp {c:q}, {d:q}, [{from}, #32]",
            "stnp {a:q}, {b:q}, [{to}]",
            "stnp {c:q}, {d:q}, [{to}, #32]",
            "dmb ishst",
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
            from = in(reg) from, to = in(reg) to,
        );
    }
}
