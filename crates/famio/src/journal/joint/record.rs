//! The bytes of a record.

use crate::error::{Error, Result};
use crate::journal::bytes::{bytes_at, put, u32_at, u64_at};
use crate::journal::{Identity, JournalId, RangeHash, lock};
use crate::pmem::Medium;
use crate::rule::{Rule, holds};
use crate::sys::read_at;
use std::os::fd::BorrowedFd;

const MAGIC_BYTES: [u8; 8] = *b"FAMIOJNT";
const VERSION: u32 = 1;

// On the medium: the head.
const MAGIC: usize = 0;
const FORMAT: usize = MAGIC + 8;
const PARTS: usize = FORMAT + 4;
const LENGTH: usize = PARTS + 4;
const HASH: usize = LENGTH + 8;
const HEAD: usize = HASH + 16;
// A part.
const IDENTITY: usize = 0;
const JOURNAL: usize = IDENTITY + 16;
const COMMITTED: usize = JOURNAL + 16;
const STEPS: usize = COMMITTED + 8;
const PART: usize = STEPS + 8;
// A step.
const OFFSET: usize = 0;
const LEN: usize = OFFSET + 8;
const STEP: usize = LEN + 8;

/// Flag in a step's offset: the step sets the file's size, and no bytes follow.
const SIZE: u64 = 1 << 63;
/// Size of the longest record.
pub(crate) const MOST: u64 = 1 << 30;
/// The most files in a record.
pub(crate) const MOST_PARTS: u32 = 4096;

/// A record under construction.
pub(crate) struct Builder {
    bytes: Vec<u8>,
    parts: u32,
    /// Where the last part begins.
    part: usize,
}

impl Builder {
    /// An empty record. `room`: bytes of all steps, as far as known.
    ///
    /// # Errors
    /// `ENOMEM`. `E2BIG`: too long.
    pub fn new(room: usize) -> Result<Self> {
        if room as u64 > MOST {
            return Err(too_long(room as u64));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve(HEAD + room).map_err(|_| Error::new(libc::ENOMEM))?;
        bytes.resize(HEAD, 0);
        Ok(Self { bytes, parts: 0, part: 0 })
    }

    /// Begins the part of a file whose journal is at epoch `committed`.
    pub fn begin_part(&mut self, identity: &Identity, journal: JournalId, committed: u64) {
        self.part = self.bytes.len();
        self.parts += 1;
        let mut part = [0; PART];
        put(&mut part, IDENTITY, &identity.hash128().to_le_bytes());
        put(&mut part, JOURNAL, &journal.0);
        put(&mut part, COMMITTED, &committed.to_le_bytes());
        self.bytes.extend_from_slice(&part);
    }

    /// Adds bytes to write at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.step(offset, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a size to set.
    pub fn set_size(&mut self, size: u64) {
        self.step(size | SIZE, 0);
    }

    fn step(&mut self, offset: u64, len: u64) {
        let mut step = [0; STEP];
        put(&mut step, OFFSET, &offset.to_le_bytes());
        put(&mut step, LEN, &len.to_le_bytes());
        self.bytes.extend_from_slice(&step);
        let count = u64_at(&self.bytes, self.part + STEPS) + 1;
        put(&mut self.bytes, self.part + STEPS, &count.to_le_bytes());
    }

    /// The encoded record.
    ///
    /// # Errors
    /// `E2BIG`: too long.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        let length = self.bytes.len() as u64;
        if length > MOST {
            return Err(too_long(length));
        }
        if self.parts > MOST_PARTS {
            return Err(Error::with(libc::E2BIG, format!("a commit of more than {MOST_PARTS} files")));
        }
        put(&mut self.bytes, MAGIC, &MAGIC_BYTES);
        put(&mut self.bytes, FORMAT, &VERSION.to_le_bytes());
        put(&mut self.bytes, PARTS, &self.parts.to_le_bytes());
        put(&mut self.bytes, LENGTH, &length.to_le_bytes());
        let mut hash = RangeHash::default();
        hash.update(&self.bytes);
        put(&mut self.bytes, HASH, &hash.get().to_le_bytes());
        Ok(self.bytes)
    }
}

/// A change of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step<'a> {
    Write { offset: u64, bytes: &'a [u8] },
    SetSize(u64),
}

/// A complete record, as read at one moment.
pub(crate) struct Record {
    bytes: Vec<u8>,
    parts: u32,
}

/// One part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Of [`Identity::hash128`].
    pub identity: u128,
    pub journal: JournalId,
    /// The last epoch committed to that journal.
    pub committed: u64,
    steps: u64,
    /// Where its steps begin.
    at: usize,
}

impl Record {
    /// Reads the record in a file, which may have been cut short by a crash, or contain anything. `None`: no complete
    /// record.
    ///
    /// # Errors
    /// `EIO`: of an unknown version. `ENOMEM`.
    pub fn read(file: BorrowedFd<'_>) -> Result<Option<Self>> {
        let mut head = [0; HEAD];
        if read_at(file, 0, &mut head)? < HEAD || head[..FORMAT] != MAGIC_BYTES {
            return Ok(None);
        }
        let (version, parts, length) = (u32_at(&head, FORMAT), u32_at(&head, PARTS), u64_at(&head, LENGTH));
        if version != VERSION {
            let what = format!("the record of a joint commit has version {version}, and this Famio knows {VERSION}");
            return Err(Error::with(libc::EIO, what));
        }
        let is_there = rustix::fs::fstat(file)?.st_size as u64 >= length;
        if !(HEAD as u64..=MOST).contains(&length) || parts > MOST_PARTS || !is_there {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length as usize).map_err(|_| Error::new(libc::ENOMEM))?;
        bytes.resize(length as usize, 0);
        if read_at(file, 0, &mut bytes)? < bytes.len() {
            return Ok(None);
        }
        let stored: [u8; 16] = bytes_at(&bytes, HASH);
        bytes[HASH..HEAD].fill(0);
        let mut hash = RangeHash::default();
        hash.update(&bytes);
        put(&mut bytes, HASH, &stored);
        Ok((hash.get().to_le_bytes() == stored).then_some(Self { bytes, parts }))
    }

    /// Makes durable what was read: the process that wrote it may have been killed before it was. If the kernel
    /// failed to write it, it shows it all the same, so it is written once more, with its size, unless its process may
    /// be about to write another record.
    pub fn secure(&self, file: BorrowedFd<'_>, medium: &dyn Medium) -> Result<()> {
        if !lock::is_record_taken(file) {
            medium.pwritev(file, &[&self.bytes], 0)?;
            // Bytes that lie within the visible size do not set it: that of a failed flush may not be the durable one.
            if holds(Rule::RecordSizeIsSetAgain) {
                medium.ftruncate(file, rustix::fs::fstat(file)?.st_size as u64)?;
            }
        }
        medium.fdatasync(file)
    }

    /// All parts.
    ///
    /// # Errors
    /// `EIO`: the content makes no sense, though its hash is right.
    pub fn parts(&self) -> Result<Vec<Part>> {
        let (mut parts, mut at) = (Vec::new(), HEAD);
        for _ in 0..self.parts {
            let bytes: [u8; PART] = self.bytes(at)?;
            let part = Part {
                identity: u128::from_le_bytes(bytes_at(&bytes, IDENTITY)),
                journal: JournalId(bytes_at(&bytes, JOURNAL)),
                committed: u64_at(&bytes, COMMITTED),
                steps: u64_at(&bytes, STEPS),
                at: at + PART,
            };
            at = self.each(&part, |_| Ok(()))?;
            parts.push(part);
        }
        Ok(parts)
    }

    /// Calls `visit` with the changes of a part, in order. Returns where the part ends.
    ///
    /// # Errors
    /// As [`parts`](Self::parts); those of `visit`.
    pub fn each(&self, part: &Part, mut visit: impl FnMut(Step<'_>) -> Result<()>) -> Result<usize> {
        let mut at = part.at;
        for _ in 0..part.steps {
            let bytes: [u8; STEP] = self.bytes(at)?;
            let (offset, len) = (u64_at(&bytes, OFFSET), u64_at(&bytes, LEN));
            at += STEP;
            if offset & SIZE != 0 {
                visit(Step::SetSize(offset & !SIZE))?;
                continue;
            }
            let end =
                usize::try_from(len).ok().and_then(|len| at.checked_add(len)).filter(|&end| end <= self.bytes.len());
            let end = end.ok_or_else(damaged)?;
            visit(Step::Write { offset, bytes: &self.bytes[at..end] })?;
            at = end;
        }
        Ok(at)
    }

    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        if at + N <= self.bytes.len() { Ok(bytes_at(&self.bytes, at)) } else { Err(damaged()) }
    }
}

fn too_long(length: u64) -> Error {
    Error::with(libc::E2BIG, format!("a commit of several files with {length} bytes: at most {MOST}"))
}

fn damaged() -> Error {
    Error::with(libc::EIO, "the record of a joint commit makes no sense")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use std::fs::File;
    use std::os::fd::AsFd;

    fn example() -> (Vec<u8>, Identity) {
        let identity = Identity::of_path(std::path::Path::new("/")).unwrap();
        let mut builder = Builder::new(100).unwrap();
        builder.begin_part(&identity, JournalId([1; 16]), 7);
        builder.write(5, b"hello");
        builder.set_size(9);
        builder.begin_part(&identity, JournalId([2; 16]), 8);
        builder.write(0, &[3; 100_000]);
        (builder.finish().unwrap(), identity)
    }

    fn steps(record: &Record, part: &Part) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        let put = |step: Step<'_>| {
            all.push(match step {
                Step::Write { offset, bytes } => (offset, bytes.to_vec()),
                Step::SetSize(size) => (size | SIZE, Vec::new()),
            });
            Ok(())
        };
        record.each(part, put).unwrap();
        all
    }

    #[test]
    fn it_is_read_as_it_was_made_and_any_damage_is_seen() {
        let scratch = Scratch::new();
        let (mut bytes, identity) = example();
        bytes.extend_from_slice(b"what was there before");
        std::fs::write(scratch.path("r"), &bytes).unwrap();
        let file = File::open(scratch.path("r")).unwrap();
        let record = Record::read(file.as_fd()).unwrap().unwrap();
        let parts = record.parts().unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!((parts[0].identity, parts[0].committed, parts[1].committed), (identity.hash128(), 7, 8));
        assert_eq!(steps(&record, &parts[0]), [(5, b"hello".to_vec()), (9 | SIZE, Vec::new())]);
        let long = steps(&record, &parts[1]);
        assert_eq!((long.len(), long[0].1.len()), (1, 100_000));
        for at in [0, 9, 12, 16, 24, HEAD, HEAD + 30, bytes.len() - 30] {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            std::fs::write(scratch.path("bad"), &bad).unwrap();
            let file = File::open(scratch.path("bad")).unwrap();
            assert!(!matches!(Record::read(file.as_fd()), Ok(Some(_))), "byte {at}");
        }
        std::fs::write(scratch.path("cut"), &bytes[..1000]).unwrap();
        assert!(Record::read(File::open(scratch.path("cut")).unwrap().as_fd()).unwrap().is_none());
    }

    #[test]
    fn what_is_too_long_is_refused_at_once() {
        assert_eq!(Builder::new(MOST as usize + 1).map(drop).unwrap_err().errno(), libc::E2BIG);
    }
}
