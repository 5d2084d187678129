//! The changes of a transaction to one file: in the process's memory until the commit.

use crate::error::{Error, Result};
use crate::file::UserBuf;
use crate::file::engine::home::{copy_in, copy_out, zero_out};
use crate::file::session::write::SIZE_MAX;
use crate::index::BLOCK;
use crate::journal::joint::Builder;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

/// Steps up to which a read looks at all of them; with more it uses an index.
const FEW: usize = 64;
/// The first write makes room for this many steps and bytes, which is enough for most transactions.
const STEPS: usize = 32;
const BYTES: usize = 4096;

/// The offset of a [`Step::Write`] at the end of the file, wherever that is by then. Only for
/// [`write_vector`](WriteSet::write_vector).
pub(crate) const AT_END: u64 = u64::MAX;

/// One change. A later step overwrites earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Writes `len` bytes at `offset` of the file; they begin at `from` in the set's bytes.
    Write { offset: u64, from: usize, len: usize },
    /// Sets the file's size.
    SetSize(u64),
}

/// The changes of one file, in order.
#[derive(Default)]
pub(crate) struct WriteSet {
    steps: Vec<Step>,
    bytes: Vec<u8>,
    changes_size: bool,
    /// The offset of [`AT_END`].
    end: AtomicU64,
    /// For reads among many steps: the numbers of the steps that write to a block, by block.
    by_block: Option<BTreeMap<u64, Vec<u32>>>,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The bytes of a [`Step::Write`] of this set.
    #[inline]
    pub fn bytes(&self, from: usize, len: usize) -> &[u8] {
        &self.bytes[from..from + len]
    }

    /// The bytes of all writes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The last `len` bytes that were written to it.
    pub fn last_written(&self, len: usize) -> &[u8] {
        &self.bytes[self.bytes.len() - len..]
    }

    /// Approximate bytes in a record of a joint commit.
    pub fn len_of_record(&self) -> usize {
        self.bytes.len() + (self.steps.len() + 4) * 16
    }

    /// Adds its steps to such a record.
    pub fn put_into(&self, record: &mut Builder) {
        for step in &self.steps {
            match *step {
                Step::Write { offset, from, len } => record.write(offset, self.bytes(from, len)),
                Step::SetSize(size) => record.set_size(size),
            }
        }
    }

    /// The offset of a step, after [`find_end`](Self::find_end).
    #[inline]
    pub fn place(&self, offset: u64) -> u64 {
        if offset == AT_END { self.end.load(Ordering::Relaxed) } else { offset }
    }

    /// Sets the end of the file that it will be applied to.
    #[inline]
    pub fn find_end(&self, size: u64) {
        self.end.store(size, Ordering::Relaxed);
    }

    /// Whether a step sets the size.
    pub fn changes_size(&self) -> bool {
        self.changes_size
    }

    /// Forgets everything, and frees the memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds a write of the caller's bytes at `offset`.
    ///
    /// # Errors
    /// `EFBIG`: beyond the largest file. `ENOMEM`. `EFAULT`: a bad buffer. Nothing was added then.
    ///
    /// # Safety
    /// The buffer may be read; it may be bad.
    #[inline]
    pub unsafe fn write(&mut self, offset: u64, buf: UserBuf) -> Result<()> {
        if offset.checked_add(buf.len as u64).is_none_or(|end| end > SIZE_MAX) {
            return Err(Error::new(libc::EFBIG));
        }
        if buf.len == 0 {
            return Ok(());
        }
        let from = self.bytes.len();
        self.make_room(buf.len)?;
        // SAFETY: there is room for them; the source is the caller's promise.
        unsafe { copy_in(self.bytes.as_mut_ptr().add(from), buf.base, buf.len) }?;
        // SAFETY: just stored.
        unsafe { self.bytes.set_len(from + buf.len) };
        self.push(Step::Write { offset, from, len: buf.len });
        Ok(())
    }

    /// Adds one write of up to `most` bytes of the caller's buffers at `offset`, or [`AT_END`]; returns its length.
    /// `may_be_short`: if a buffer is bad, or the largest file is reached, it has the bytes before that.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub unsafe fn write_vector(
        &mut self,
        offset: u64,
        bufs: &[UserBuf],
        most: usize,
        may_be_short: bool,
    ) -> Result<usize> {
        let mut len = UserBuf::total(bufs).min(most);
        if offset != AT_END && offset.checked_add(len as u64).is_none_or(|end| end > SIZE_MAX) {
            let room = SIZE_MAX.saturating_sub(offset);
            if room == 0 || !may_be_short {
                return Err(Error::new(libc::EFBIG));
            }
            len = len.min(room as usize);
        }
        let from = self.bytes.len();
        self.make_room(len)?;
        let mut done = 0;
        for buf in bufs {
            let n = buf.len.min(len - done);
            // SAFETY: there is room for `len`; the source is the caller's promise.
            let (copied, result) = unsafe { copy_readable(self.bytes.as_mut_ptr().add(from + done), buf.base, n) };
            done += copied;
            match result {
                Ok(()) => {}
                Err(_) if may_be_short && done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        // SAFETY: just stored.
        unsafe { self.bytes.set_len(from + done) };
        if done > 0 {
            self.push(Step::Write { offset, from, len: done });
        }
        Ok(done)
    }

    /// As [`write`](Self::write), of readable memory.
    ///
    /// # Errors
    /// As there, except `EFAULT`.
    #[inline]
    pub fn write_slice(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > SIZE_MAX) {
            return Err(Error::new(libc::EFBIG));
        }
        if !bytes.is_empty() {
            let from = self.bytes.len();
            self.make_room(bytes.len())?;
            self.bytes.extend_from_slice(bytes);
            self.push(Step::Write { offset, from, len: bytes.len() });
        }
        Ok(())
    }

    /// Adds a change of the size.
    ///
    /// # Errors
    /// `EFBIG`, `ENOMEM`.
    pub fn set_size(&mut self, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Error::new(libc::EFBIG));
        }
        self.make_room(0)?;
        self.changes_size = true;
        self.push(Step::SetSize(size));
        Ok(())
    }

    /// Makes room for one more step with this many bytes.
    #[inline]
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.bytes.capacity() - self.bytes.len() < bytes || self.steps.len() == self.steps.capacity() {
            let no_memory = |_| Error::new(libc::ENOMEM);
            let is_first = self.steps.capacity() == 0;
            self.steps.try_reserve(if is_first { STEPS } else { 1 }).map_err(no_memory)?;
            self.bytes.try_reserve(if is_first { bytes.max(BYTES) } else { bytes }).map_err(no_memory)?;
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, step: Step) {
        let number = self.steps.len() as u32;
        self.steps.push(step);
        if let Some(index) = &mut self.by_block {
            add_to_index(index, number, step);
        }
    }

    /// The size of a file of `size` bytes after all steps.
    pub fn size_after(&self, size: u64) -> u64 {
        self.steps.iter().fold(size, |size, step| match *step {
            Step::Write { offset, len, .. } => size.max(offset + len as u64),
            Step::SetSize(size) => size,
        })
    }

    /// The ranges that it changes. A change of the size is an empty range, unless the file becomes longer again: then
    /// it was cut there, and has zeros.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let end = if self.changes_size { self.size_after(0) } else { 0 };
        self.steps.iter().map(move |step| match *step {
            Step::Write { offset, len, .. } => self.place(offset)..self.place(offset) + len as u64,
            Step::SetSize(size) => size..end.max(size),
        })
    }

    /// Applies the changes to `to`, which has `len` bytes of the file from `offset` on (zeros beyond its end).
    ///
    /// # Errors
    /// `EFAULT`: a bad buffer.
    ///
    /// # Safety
    /// The buffer may be overwritten; it may be bad.
    pub unsafe fn show(&mut self, offset: u64, to: *mut u8, len: usize) -> Result<()> {
        let end = offset + len as u64;
        let show = |step: Step| match step {
            Step::Write { offset: first, from, len } => {
                let (start, until) = (first.max(offset), (first + len as u64).min(end));
                if start >= until {
                    return Ok(());
                }
                let source = &self.bytes[from + (start - first) as usize..from + (until - first) as usize];
                // SAFETY: the caller's promise.
                unsafe { copy_out(to.wrapping_add((start - offset) as usize), source.as_ptr(), source.len()) }
            }
            Step::SetSize(size) => {
                let start = size.clamp(offset, end);
                // SAFETY: the caller's promise.
                unsafe { zero_out(to.wrapping_add((start - offset) as usize), (end - start) as usize) }
            }
        };
        if self.steps.len() <= FEW {
            return self.steps.iter().copied().try_for_each(show);
        }
        let index = self.by_block.get_or_insert_with(|| {
            let mut index = BTreeMap::new();
            (0..).zip(&self.steps).for_each(|(number, step)| add_to_index(&mut index, number, *step));
            index
        });
        let blocks = offset / BLOCK as u64..=end.saturating_sub(1) / BLOCK as u64;
        let mut numbers: Vec<u32> =
            index.range(blocks).chain(index.get_key_value(&SIZES)).flat_map(|(_, numbers)| numbers).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().try_for_each(|number| show(self.steps[number as usize]))
    }
}

/// Copies from the caller's memory as far as it is readable, by pages. Returns the number of bytes, and the error of
/// the rest.
///
/// # Safety
/// `to` is ours, with room for `len` bytes; the source may be bad.
unsafe fn copy_readable(to: *mut u8, from: *mut u8, len: usize) -> (usize, Result<()>) {
    // SAFETY: the caller's promise.
    if unsafe { copy_in(to, from, len) }.is_ok() {
        return (len, Ok(()));
    }
    let mut done = 0;
    while done < len {
        let n = (BLOCK - from.wrapping_add(done).addr() % BLOCK).min(len - done);
        // SAFETY: the caller's promise.
        if let Err(e) = unsafe { copy_in(to.wrapping_add(done), from.wrapping_add(done), n) } {
            return (done, Err(e));
        }
        done += n;
    }
    (done, Ok(()))
}

/// In the index, instead of a block: changes of the size.
const SIZES: u64 = u64::MAX;

fn add_to_index(index: &mut BTreeMap<u64, Vec<u32>>, number: u32, step: Step) {
    let blocks = match step {
        Step::Write { offset, len, .. } => offset / BLOCK as u64..=(offset + len as u64 - 1) / BLOCK as u64,
        Step::SetSize(_) => SIZES..=SIZES,
    };
    blocks.for_each(|block| index.entry(block).or_default().push(number));
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio_test_support::random::Random;

    fn write(set: &mut WriteSet, offset: u64, bytes: &mut [u8]) {
        // SAFETY: a live buffer.
        unsafe { set.write(offset, UserBuf::of(bytes)) }.unwrap();
    }

    fn shown(set: &mut WriteSet, before: &[u8], offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let there = before.get(offset as usize..).unwrap_or(&[]);
        let n = there.len().min(len);
        bytes[..n].copy_from_slice(&there[..n]);
        // SAFETY: a live buffer.
        unsafe { set.show(offset, bytes.as_mut_ptr(), len) }.unwrap();
        bytes
    }

    /// Compares with a plain vector, with few steps and with many.
    #[test]
    fn it_shows_what_a_file_would_be_after_it() {
        let mut random = Random::new(7);
        let mut next = |below| random.below(below);
        for round in 0..60 {
            let before: Vec<u8> = (0..next(20_000)).map(|i| (i % 251) as u8).collect();
            let (mut model, mut set) = (before.clone(), WriteSet::default());
            for step in 0..next(if round % 2 == 0 { 20 } else { 300 }) {
                if next(10) == 0 {
                    let size = next(20_000);
                    set.set_size(size).unwrap();
                    model.resize(size as usize, 0);
                } else {
                    let (offset, len) = (next(20_000), next(6000) as usize + 1);
                    write(&mut set, offset, &mut vec![step as u8; len]);
                    let end = offset as usize + len;
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].fill(step as u8);
                }
                assert_eq!(set.size_after(before.len() as u64), model.len() as u64);
                let (offset, len) = (next(22_000), next(9000) as usize);
                let mut wanted = vec![0; len];
                let there = model.get(offset as usize..).unwrap_or(&[]);
                let n = there.len().min(len);
                wanted[..n].copy_from_slice(&there[..n]);
                assert!(shown(&mut set, &before, offset, len) == wanted, "round {round}, step {step}");
            }
        }
    }

    #[test]
    fn what_can_not_be_is_refused_and_adds_nothing() {
        let mut set = WriteSet::default();
        let mut byte = [1];
        for offset in [u64::MAX, SIZE_MAX] {
            // SAFETY: a live buffer.
            let refused = unsafe { set.write(offset, UserBuf::of(&mut byte)) };
            assert_eq!(refused.unwrap_err().errno(), libc::EFBIG);
        }
        assert_eq!(set.set_size(SIZE_MAX + 1).unwrap_err().errno(), libc::EFBIG);
        crate::map::guard::install().unwrap();
        // SAFETY: bad memory is an error.
        let refused = unsafe { set.write(0, UserBuf { base: 8 as *mut u8, len: 100 }) };
        assert_eq!(refused.unwrap_err().errno(), libc::EFAULT);
        assert!(set.is_empty() && set.bytes.is_empty());
    }
}
