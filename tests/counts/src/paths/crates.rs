//! Paths through the Rust crate.

use super::lease;
use super::operation::{Operation, random_block};
use famio::{AtomicFile, Settings};
use std::fs::File;
use std::path::Path;

const BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;
const BLOCKS: u64 = BYTES / BLOCK as u64;

/// An atomic file of [`BYTES`], all of whose blocks were written several times, under the write lease.
fn attached(folder: &Path) -> AtomicFile {
    let path = folder.join("file.db");
    let settings = Settings { emulated: true, ..Settings::default() };
    let file = AtomicFile::options().create(true).settings(settings).open(&path).expect("open");
    file.write_at(&vec![1; BYTES as usize], 0).expect("write");
    file.sync().expect("sync");
    let write = |block: u64| {
        file.write_at(&[block as u8; BLOCK], block % BLOCKS * BLOCK as u64).expect("write");
        file.sync().expect("sync");
    };
    // Opened with O_PATH: a second open for writing would end the lease.
    lease::await_lease(&path_only(&path), write);
    (0..3 * BLOCKS).for_each(write);
    file
}

/// Opened with O_PATH, which breaks no lease.
fn path_only(path: &Path) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).custom_flags(libc::O_PATH).open(path).expect("open")
}

pub fn transaction(folder: &Path) -> Operation {
    let file = attached(folder);
    let bytes = [7; 128];
    Box::new(move |number| {
        let mut transaction = file.transaction().expect("begin");
        for range in 0..4 {
            let block = random_block(number * 4 + range, BLOCKS);
            transaction.write_at(&bytes, block * BLOCK as u64 + u64::from(number % 31) * 128).expect("write");
        }
        transaction.commit().expect("commit");
    })
}

/// Without a SYNC, which under valgrind compares the whole region: valgrind does not support `userfaultfd`.
pub fn copy_into_region(folder: &Path) -> Operation {
    let file = attached(folder);
    let region = file.map(0..BYTES).expect("map");
    let mut bytes = [0u8; 64];
    Box::new(move |number| {
        bytes[0] = number as u8;
        let at = random_block(number, BLOCKS) as usize * BLOCK + (number % 64) as usize * 64;
        // SAFETY: within the region, which this thread alone uses.
        unsafe { famio::region::copy(region.as_ptr().add(at), bytes.as_ptr(), bytes.len()) }.expect("copy");
        let _ = &file;
    })
}
