//! The hot paths: the most frequent calls.
//!
//! Each is a set-up that returns the operation. Neither a warm-up of some operations nor the work of other threads is
//! counted.

mod crates;
mod interposed;
mod lease;
mod operation;

use operation::{FEW, MANY, Operation};
use std::path::Path;

/// How a path enters the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Calls of libc, with `libfamio_preload.so` in the program.
    Interposer,
    /// The Rust crate.
    Crate,
}

/// Where its files lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// On tmpfs, in the domain `emulated`.
    Memory,
    /// On the file system of the build, in the domain `page-cache`.
    Disk,
}

/// A path that is counted.
pub struct HotPath {
    pub name: &'static str,
    pub through: Through,
    pub medium: Medium,
    /// The number of operations counted.
    pub operations: u32,
    set_up: fn(&Path) -> Operation,
}

const fn interposed(name: &'static str, operations: u32, set_up: fn(&Path) -> Operation) -> HotPath {
    HotPath { name, through: Through::Interposer, medium: Medium::Memory, operations, set_up }
}

const fn of_crate(name: &'static str, operations: u32, set_up: fn(&Path) -> Operation) -> HotPath {
    HotPath { name, through: Through::Crate, medium: Medium::Memory, operations, set_up }
}

/// All paths, in the order of the file.
pub static ALL: &[HotPath] = &[
    // pwrite of 4 KiB, always to the same block.
    interposed("pwrite-4k", MANY, interposed::pwrite_same_block),
    // write of 128 bytes at the file position.
    interposed("write-128", MANY, interposed::write_sequential),
    // pwrite of 4 KiB to a random block, and an fsync every 10.
    interposed("pwrite-4k-fsync", MANY, interposed::pwrite_random_and_fsync),
    // The same on a disk.
    HotPath {
        medium: Medium::Disk,
        ..interposed("disk-write-fsync", FEW, interposed::pwrite_random_and_fsync_on_disk)
    },
    // pread of 4 KiB of a random block.
    interposed("pread-4k", MANY, interposed::pread_random),
    // read of 128 bytes at the file position.
    interposed("read-128", MANY, interposed::read_sequential),
    // A record lock and its unlock, kept in memory.
    interposed("lock", MANY, interposed::lock_and_unlock),
    // A new file: open, write, close.
    interposed("small-file", FEW, interposed::small_file),
    // pwrite of 64 bytes to a file that is not atomic.
    interposed("plain-pwrite", MANY, interposed::pwrite_plain),
    // stat of a file that is not atomic.
    interposed("plain-stat", MANY, interposed::stat_plain),
    // A copy of 64 bytes into a region.
    of_crate("region-copy", MANY, crates::copy_into_region),
    // A transaction of four ranges of 128 bytes.
    of_crate("transaction", MANY, crates::transaction),
];

/// The path of this name.
pub fn find(name: &str) -> Result<&'static HotPath, String> {
    let names = || ALL.iter().map(|path| path.name).collect::<Vec<_>>().join(", ");
    ALL.iter().find(|path| path.name == name).ok_or_else(|| format!("{name}: there are the paths {}", names()))
}

/// The program that is counted: runs one path in an empty folder.
pub fn run(path: &HotPath, folder: &Path) -> Result<bool, String> {
    let mut operation = (path.set_up)(folder);
    (0..FEW).for_each(&mut operation);
    famio_counted(&mut operation, FEW, path.operations);
    Ok(true)
}

/// What callgrind counts (`--toggle-collect`): the thread inside this function.
#[unsafe(no_mangle)]
#[inline(never)]
fn famio_counted(operation: &mut Operation, from: u32, count: u32) {
    for number in from..from + count {
        operation(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_is_one_word() {
        for path in ALL {
            assert!(std::ptr::eq(find(path.name).unwrap(), path), "{} is there twice", path.name);
            assert!(!path.name.contains([' ', ':', '#']) && path.name.len() <= 20);
            assert!(path.operations.is_multiple_of(640));
        }
    }
}
