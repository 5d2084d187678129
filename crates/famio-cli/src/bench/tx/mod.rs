//! `famio bench tx`: the cost of a transaction, compared with the bare copy of its bytes and with libpmemobj.

mod bare;
mod pmemobj;
mod rows;

use super::median::median;
use super::output::Json;
use super::results::Method;
use famio::{AtomicFile, Durability, Settings};
use rows::Figures;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Transactions, and the bare copy of what they write
///
/// In one process, alternately: ranges of a file, in an order that no prefetcher knows, are changed as a whole by a
/// transaction, by a transaction that checks what it overwrites, by as many writes and a SYNC, and by a bare copy
/// with write-backs and a fence, which is not atomic. If libpmemobj is installed, also by its transaction, on another
/// file. Then two threads commit on one file, each its own ranges.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  famio bench tx --folder /dev/shm
  famio bench tx --folder /dev/shm --ranges 4 --bytes 1024")]
pub struct Args {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Ranges of a transaction
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    ranges: u32,
    /// Bytes of a range; a multiple of 64
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(64..=65_536))]
    bytes: u32,
    /// MiB of the file
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    mib: u32,
    /// Transactions of each measurement
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    #[command(flatten)]
    output: Json,
}

/// The changes of one transaction: `ranges` pieces of `bytes` bytes, somewhere in `size` bytes.
#[derive(Clone, Copy)]
struct Shape {
    ranges: usize,
    bytes: usize,
    size: usize,
}

impl Shape {
    /// Where piece number `n` goes: lines in an order that no prefetcher predicts.
    fn place(self, n: usize) -> usize {
        ((n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (self.size - self.bytes)) & !63
    }

    fn places(self, transaction: usize) -> impl Iterator<Item = usize> {
        (0..self.ranges).map(move |range| self.place(transaction * self.ranges + range))
    }
}

#[derive(Serialize)]
struct Extent {
    /// Per transaction.
    ranges: usize,
    /// Per range.
    range_bytes: usize,
    file_bytes: usize,
    /// Per measurement.
    transactions: u32,
}

/// Measures, and shows the rows.
pub fn main(args: &Args) -> Result<(), String> {
    let shape =
        Shape { ranges: args.ranges as usize, bytes: args.bytes as usize / 64 * 64, size: (args.mib as usize) << 20 };
    if shape.bytes * 2 > shape.size {
        return Err("the file is too small for ranges of so many bytes".into());
    }
    let Shape { ranges, bytes, size } = shape;
    let extent = Extent { ranges, range_bytes: bytes, file_bytes: size, transactions: args.count };
    let measure = || {
        let path = args.folder.join(format!("famio-bench-tx-{}", std::process::id()));
        let beside = args.folder.join(format!("famio-bench-tx-{}.obj", std::process::id()));
        let done = measure(args, shape, &path, &beside);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(&beside);
        done.map(|figures| figures.rows())
    };
    Method::new(&args.folder, args.rounds, extent).emulated().show(&args.output, measure, |rows| {
        let how = format!(
            "{ranges} ranges of {bytes} bytes over {} MiB; {} rounds of {} transactions, alternating, medians; \
             persistent memory is emulated",
            args.mib, args.rounds, args.count
        );
        format!("{}{how}\n", rows::text(rows))
    })
}

fn failed(e: famio::Error) -> String {
    e.to_string()
}

fn measure(args: &Args, shape: Shape, path: &Path, beside: &Path) -> Result<Figures, String> {
    // Ordinary memory that stands for persistent memory survives no power cut on any file system.
    let settings = Settings { emulated: true, durability: Durability::Process, ..Settings::default() };
    let file = AtomicFile::options().create(true).settings(settings).open(path).map_err(failed)?;
    file.write_at(&vec![1; shape.size], 0).map_err(failed)?;
    file.sync().map_err(failed)?;
    let count = args.count as usize;
    let from = vec![7u8; shape.bytes];
    let mut plain = vec![0u8; shape.size + 64];
    let aligned = plain.as_mut_ptr().wrapping_add(plain.as_ptr().align_offset(64));
    let mut other = pmemobj::Pool::make(beside, shape.size)?;

    let mut figures = Figures::default();
    for _ in 0..args.rounds {
        figures.copy.push(batches(count, |n| {
            for at in shape.places(n) {
                // SAFETY: within the buffer.
                unsafe { bare::copy(aligned.add(at), &from) };
            }
            bare::fence();
        }));
        let one = |checks| batches(count, |n| transaction(&file, shape, n, &from, checks).expect("a transaction"));
        figures.transaction.push(one(false));
        figures.checked.push(one(true));
        figures.writes.push(batches(count, |n| {
            for at in shape.places(n) {
                file.write_at(&from, at as u64).expect("a write");
            }
            file.sync().expect("a SYNC");
        }));
        if let Some(pool) = &mut other {
            figures.libpmemobj.push(batches(count, |n| pool.transaction(shape.places(n), &from)));
        }
        figures.one_thread.push(at_once(&file, shape, &from, count, 1));
        figures.two_threads.push(at_once(&file, shape, &from, count, 2));
    }
    drop(other);
    file.close().map_err(failed)?;
    Ok(figures)
}

fn transaction(file: &AtomicFile, shape: Shape, n: usize, from: &[u8], checks: bool) -> famio::Result<()> {
    let mut tx = file.transaction()?;
    if checks {
        tx.check()?;
    }
    for at in shape.places(n) {
        tx.write_at(from, at as u64)?;
    }
    tx.commit()
}

/// Transactions per second of this many threads on one file.
fn at_once(file: &AtomicFile, shape: Shape, from: &[u8], count: usize, threads: usize) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for n in 0..count {
                    transaction(file, shape, n * threads + thread, from, false).expect("a transaction");
                }
            });
        }
    });
    (count * threads) as f64 / begun.elapsed().as_secs_f64()
}

/// Transactions between two readings of the clock.
const BATCH: usize = 20;

/// Nanoseconds per transaction: the median of batches, which interrupts and other programs hardly affect.
fn batches(count: usize, mut work: impl FnMut(usize)) -> f64 {
    let batch = |from: usize| {
        let begun = Instant::now();
        (from..from + BATCH).for_each(&mut work);
        begun.elapsed().as_nanos() as f64 / BATCH as f64
    };
    median((0..count.max(BATCH)).step_by(BATCH).map(batch).collect())
}
