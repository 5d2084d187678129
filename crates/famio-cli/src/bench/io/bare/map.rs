//! A mapped file, with what makes stores to it durable.

use crate::bench::tx::bare;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::path::Path;

const LINE: usize = 64;

pub use bare::fence;

/// A shared map of a whole file, all of it in memory.
pub struct Map {
    start: *mut u8,
    length: usize,
    /// Bytes of the lines that were written back.
    written_back: u64,
}

impl Map {
    pub fn of(file: &File) -> Result<Self, Error> {
        let length = file.metadata()?.len() as usize;
        // SAFETY: a new map, of nothing that anybody else holds a reference to.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            libc::mmap(std::ptr::null_mut(), length, access, flags, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { start: start.cast(), length, written_back: 0 })
    }

    /// Of a new file of this many bytes, whose name is gone at once.
    pub fn beside(path: &Path, what: &str, length: usize) -> Result<Self, Error> {
        let path = path.with_extension(what);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let made = file.set_len(length as u64).and_then(|()| Self::of(&file));
        std::fs::remove_file(&path)?;
        made
    }

    pub fn len(&self) -> usize {
        self.length
    }

    fn at(&self, at: usize, length: usize) -> *mut u8 {
        assert!(at + length <= self.length);
        // SAFETY: within the map.
        unsafe { self.start.add(at) }
    }

    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) {
        let from = self.at(at, to.len());
        // SAFETY: within the map; `to` is memory of the program's own.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
    }

    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) {
        let to = self.at(at, from.len());
        // SAFETY: within the map; `from` is memory of the program's own.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// A number at a place that is a multiple of 8: whole or not at all.
    #[inline]
    pub fn store(&mut self, at: usize, number: u64) {
        let to = self.at(at, 8).cast::<u64>();
        // SAFETY: within the map, and aligned.
        unsafe { to.write_volatile(number) };
    }

    /// From another place of this map, or of another one: they do not overlap.
    #[inline]
    pub fn copy(&mut self, to: usize, from_map: *const u8, length: usize) {
        let to = self.at(to, length);
        // SAFETY: within the map; the caller has `from_map` from `place`, for as many bytes.
        unsafe { to.copy_from_nonoverlapping(from_map, length) };
    }

    /// Where these bytes are.
    pub fn place(&self, at: usize, length: usize) -> *const u8 {
        self.at(at, length)
    }

    /// Starts writing back the lines of these bytes.
    #[inline]
    pub fn write_back(&mut self, at: usize, length: usize) {
        let (first, end) = (at / LINE * LINE, (at + length).next_multiple_of(LINE).min(self.length));
        for line in (first..end).step_by(LINE) {
            // SAFETY: a line of the map.
            unsafe { bare::write_back(self.at(line, 1)) };
        }
        self.written_back += (end - first) as u64;
    }

    pub fn written_back(&self) -> u64 {
        self.written_back
    }
}

// SAFETY: the map belongs to this value alone, whichever thread has it.
unsafe impl Send for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and not used any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
