//! Reads and writes of blocks by file calls, without locks, as a program makes them; and two processes that write
//! alternately.

use super::token::Token;
use super::window::{Call, Window, work};
use crate::bench::checked::expect;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

pub const BLOCK: usize = 4096;
type Block = [u64; BLOCK / 8];
const HALF: usize = BLOCK / 16;

/// Fills a block with bytes derived from `stamp`; both halves are equal.
fn fill(block: &mut Block, stamp: u64) {
    let (first, second) = block.split_at_mut(HALF);
    first.iter_mut().zip(0..).for_each(|(word, at)| *word = stamp.wrapping_add(at << 32));
    second.copy_from_slice(first);
}

fn is_whole(block: &Block) -> bool {
    block[..HALF] == block[HALF..]
}

/// Fills a file with complete blocks, and syncs it.
pub fn prepare(path: &Path, size: u64) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut block = [0; BLOCK / 8];
    for number in 0..size / BLOCK as u64 {
        fill(&mut block, number);
        block.iter().try_for_each(|word| file.write_all(&word.to_ne_bytes()))?;
    }
    file.into_inner().map_err(std::io::Error::from)?.sync_all()
}

/// An open file, and a block in memory.
struct Blocks {
    file: File,
    count: u64,
    block: Block,
}

impl Blocks {
    fn open(path: &Path, writes: bool) -> std::io::Result<Self> {
        let file = File::options().read(true).write(writes).open(path)?;
        let count = (file.metadata()?.len() / BLOCK as u64).max(1);
        Ok(Self { file, count, block: [0; BLOCK / 8] })
    }

    fn pread(&mut self, number: u64) -> std::io::Result<()> {
        let (fd, at) = (self.file.as_raw_fd(), (number * BLOCK as u64) as i64);
        // SAFETY: the block has that length.
        expect(unsafe { libc::pread64(fd, self.block.as_mut_ptr().cast(), BLOCK, at) }, BLOCK)
    }

    fn pwrite(&self, number: u64) -> std::io::Result<()> {
        let (fd, at) = (self.file.as_raw_fd(), (number * BLOCK as u64) as i64);
        // SAFETY: the block has that length.
        expect(unsafe { libc::pwrite64(fd, self.block.as_ptr().cast(), BLOCK, at) }, BLOCK)
    }

    fn fsync(&self) -> std::io::Result<()> {
        // SAFETY: touches no memory.
        expect(unsafe { libc::fsync(self.file.as_raw_fd()) } as isize, 0)
    }
}

/// Reads blocks at random.
pub fn read(path: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", path.display());
    let mut blocks = Blocks::open(path, false).map_err(failed)?;
    let mut random = fastrand::Rng::new();
    work(None, |_| {
        let number = random.u64(..blocks.count);
        let began = Instant::now();
        blocks.pread(number).map_err(failed)?;
        Ok(Some(Call { took: began.elapsed(), is_whole: is_whole(&blocks.block) }))
    })
}

/// Writes blocks at random, each followed by an `fsync`.
pub fn write(path: &Path, rate: Option<f64>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", path.display());
    let mut blocks = Blocks::open(path, true).map_err(failed)?;
    let mut random = fastrand::Rng::new();
    work(rate, |_| {
        fill(&mut blocks.block, random.u64(..));
        let number = random.u64(..blocks.count);
        let began = Instant::now();
        blocks.pwrite(number).and_then(|()| blocks.fsync()).map_err(failed)?;
        Ok(Some(Call::of(began.elapsed())))
    })
}

/// Writes a block whenever the other process has written one. Measures the `pwrite`, for which ownership of the file
/// is handed over. `uncommitted`: number of blocks that both processes have written and not synced, or, if 0, with an
/// `fsync` after each write.
pub fn in_turn(path: &Path, token: &Path, me: u32, uncommitted: u64) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", path.display());
    let mut blocks = Blocks::open(path, true).map_err(failed)?;
    let token = Token::open(token).map_err(|error| format!("{}: {error}", token.display()))?;
    let places = uncommitted.max(2);
    let mut random = fastrand::Rng::new();
    work(None, |window: &Window| {
        let Some(turn) = token.wait(me, window.end) else { return Ok(None) };
        let previous = (turn + places - 1) % places;
        if turn == 0 {
            for place in 0..uncommitted {
                fill(&mut blocks.block, random.u64(..));
                blocks.pwrite(place).map_err(failed)?;
            }
        }
        fill(&mut blocks.block, stamp(turn));
        let began = Instant::now();
        blocks.pwrite(turn % places).map_err(failed)?;
        let took = began.elapsed();
        if uncommitted == 0 {
            blocks.fsync().map_err(failed)?;
        }
        if turn > 0 {
            blocks.pread(previous).map_err(failed)?;
            if blocks.block[0] != stamp(turn - 1) || !is_whole(&blocks.block) {
                return Err(failed(std::io::Error::other("does not have what the other process wrote last")));
            }
        }
        token.pass();
        Ok(Some(Call::of(took)))
    })
}

fn stamp(turn: u64) -> u64 {
    turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_two_writes_is_told_from_a_whole_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        prepare(&path, 4 * BLOCK as u64).unwrap();
        let mut blocks = Blocks::open(&path, true).unwrap();
        assert_eq!(blocks.count, 4);
        blocks.pread(3).unwrap();
        assert!(is_whole(&blocks.block) && blocks.block[0] == 3);
        let old = blocks.block;
        fill(&mut blocks.block, 7);
        assert!(is_whole(&blocks.block));
        blocks.block[HALF..].copy_from_slice(&old[HALF..]);
        assert!(!is_whole(&blocks.block));
    }
}
