//! The first 4096 bytes of every journal of every format: a header, and its mirror at 2048.

use super::boot::BootId;
use super::bytes::{bytes_at, is_zero, put, u32_at, u64_at, u128_at};
use super::identity::Identity;
use super::mark::JournalId;
use crate::error::{Error, Result};
use crate::pmem::{Domain, Medium};
use crate::rule::{Rule, holds};
use crate::sys::read_at;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// Size of the header with its mirror.
pub const LEN: usize = 4096;

/// Size of one copy.
pub const COPY_LEN: usize = LEN / 2;

/// The longest path of a file that a header holds.
pub const HINT_MAX: usize = 1024;

/// Words that each format defines for itself.
pub const GEOMETRY_WORDS: usize = 16;

const MAGIC_BYTES: &[u8; 8] = b"FAMIOJNL";
const VERSION_NOW: u32 = 1;

// On the medium.
const MAGIC: usize = 0;
const VERSION: usize = MAGIC + 8;
const KIND: usize = VERSION + 4;
const STATE: usize = KIND + 4;
const DOMAIN: usize = STATE + 4;
const FILE_DOMAIN: usize = DOMAIN + 4;
const SEQUENCE: usize = FILE_DOMAIN + 8;
const JOURNAL_ID: usize = SEQUENCE + 8;
const BOOT_ID: usize = JOURNAL_ID + 16;
const IDENTITY: usize = BOOT_ID + 16;
const GEOMETRY: usize = IDENTITY + Identity::LEN + 56;
const HINT_LEN: usize = GEOMETRY + 8 * GEOMETRY_WORDS;
const HINT: usize = HINT_LEN + 8;
const END: usize = HINT + HINT_MAX;
const CHECKSUM: usize = COPY_LEN - 16;
const _: () = assert!(END <= CHECKSUM);

/// Which format follows the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Log blocks, entries and commit slots, mapped.
    InPlace,
    /// Epoch records.
    Records,
    /// A log in memory that persists by itself, for a file on a disk.
    Tiered,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::InPlace, Kind::Records, Kind::Tiered];

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::InPlace => "in place",
            Kind::Records => "records",
            Kind::Tiered => "tiered",
        }
    }
}

/// The state of a journal; see `verdict`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not in use yet: nothing was committed, and nothing stored outside of it.
    Creating,
    /// In use, or left by a crash.
    Active,
    /// Everything is in the file. Never replayed.
    Clean,
    /// A flush failed, so it takes no more commits. Its content is recovered like an active journal's.
    Suspect,
    /// The file's mark decides: with it, the journal is active; without it, everything is in the file.
    AsMarked,
}

impl State {
    const ALL: [State; 5] = [State::Creating, State::Active, State::Clean, State::Suspect, State::AsMarked];

    /// Whether it may hold what the file lacks. `is_marked`: the file's mark names this journal.
    pub const fn is_pending(self, is_marked: bool) -> bool {
        match self {
            State::Active | State::Suspect => true,
            State::AsMarked => is_marked,
            State::Creating | State::Clean => false,
        }
    }

    /// Whether it changes if a flush of the journal or the file fails. *Clean* stays: otherwise it would be replayed over
    /// later changes. *As marked* stays: without the mark, which may not be durable, a suspect journal would be a
    /// conflict; and what the failed flush has lost may be the other copy of the header.
    pub const fn can_become_suspect(self) -> bool {
        !matches!(self, State::Clean | State::AsMarked)
    }

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            State::Creating => "creating",
            State::Active => "active",
            State::Clean => "clean",
            State::Suspect => "suspect",
            State::AsMarked => "as marked",
        }
    }
}

/// The contents of the header. All fields may be changed between two stores; the copies' order is managed here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The format of the rest.
    pub kind: Kind,
    /// The state.
    pub state: State,
    /// The domain of the journal.
    pub domain: Domain,
    /// The domain of the file.
    pub file_domain: Domain,
    /// The random name of the journal; the mark on the file has it too.
    pub journal_id: JournalId,
    /// The boot in which the journal was last written.
    pub boot_id: BootId,
    /// The only file that this journal may touch.
    pub identity: Identity,
    /// Words that the format defines.
    pub geometry: [u64; GEOMETRY_WORDS],
    /// Where the file was last seen: a hint for people, and for finding the file of a journal in a pool; never
    /// trusted.
    pub path_hint: PathBuf,
    /// Counts the stores: of two valid copies, the one with the higher number counts.
    sequence: u64,
    copies: Copies,
}

/// How the header lies on the medium: no part of its contents, and not compared.
#[derive(Clone, Copy, Debug)]
struct Copies {
    /// The copy to store first: the damaged or older one, or the one that may be only in a cache.
    first: Copy,
    /// Whether the other copy is certainly durable.
    is_other_durable: bool,
    /// A new journal has only the mirror until this.
    has_begun: bool,
}

impl PartialEq for Copies {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Copies {}

/// One of the two places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copy {
    Primary = 0,
    Mirror = 1,
}

impl Copy {
    fn other(self) -> Self {
        match self {
            Copy::Primary => Copy::Mirror,
            Copy::Mirror => Copy::Primary,
        }
    }
}

/// The state in which the two copies were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Both valid and equal.
    Whole,
    /// One was damaged, or older than the other: a store was interrupted, or the medium is failing.
    OneCopy,
}

impl Header {
    /// The header of a new journal.
    pub fn new(
        kind: Kind,
        domain: Domain,
        file_domain: Domain,
        identity: Identity,
        file_path: &Path,
    ) -> Result<Header> {
        let fits = file_path.as_os_str().len() <= HINT_MAX;
        Ok(Header {
            kind,
            state: State::Creating,
            domain,
            file_domain,
            journal_id: JournalId::random()?,
            boot_id: BootId::current()?,
            identity,
            geometry: [0; GEOMETRY_WORDS],
            path_hint: if fits { file_path.to_path_buf() } else { PathBuf::new() },
            sequence: 0,
            // Creation stores only the mirror, so a primary of zeros shows that the creation was never finished.
            copies: Copies { first: Copy::Mirror, is_other_durable: true, has_begun: false },
        })
    }

    /// Encodes one copy.
    pub fn encode(&self) -> [u8; COPY_LEN] {
        *self.encode_on_heap()
    }

    /// As [`encode`](Self::encode), for callers with a small stack.
    fn encode_on_heap(&self) -> Box<[u8; COPY_LEN]> {
        let hint = self.path_hint.as_os_str().as_bytes();
        let hint = if hint.len() <= HINT_MAX { hint } else { &[] };
        let mut room = Box::new([0; COPY_LEN]);
        let out = &mut room[..];
        put(out, MAGIC, MAGIC_BYTES);
        put(out, VERSION, &VERSION_NOW.to_le_bytes());
        put(out, KIND, &code(&Kind::ALL, self.kind).to_le_bytes());
        put(out, STATE, &code(&State::ALL, self.state).to_le_bytes());
        put(out, DOMAIN, &code(&Domain::ALL, self.domain).to_le_bytes());
        put(out, FILE_DOMAIN, &code(&Domain::ALL, self.file_domain).to_le_bytes());
        put(out, SEQUENCE, &self.sequence.to_le_bytes());
        put(out, JOURNAL_ID, &self.journal_id.0);
        put(out, BOOT_ID, &self.boot_id.0);
        put(out, IDENTITY, &self.identity.encode());
        for (i, word) in self.geometry.iter().enumerate() {
            put(out, GEOMETRY + 8 * i, &word.to_le_bytes());
        }
        put(out, HINT_LEN, &(hint.len() as u64).to_le_bytes());
        put(out, HINT, hint);
        let sum = xxh3_128(&out[..CHECKSUM]);
        put(out, CHECKSUM, &sum.to_le_bytes());
        room
    }

    /// Decodes one copy; the error says what is wrong with it.
    pub fn decode(from: &[u8; COPY_LEN]) -> Result<Header> {
        let wrong = |what: String| Error::with(libc::EIO, format!("the header {what}"));
        if from[..VERSION] != MAGIC_BYTES[..] {
            return Err(wrong("does not begin with FAMIOJNL".into()));
        }
        let version = u32_at(from, VERSION);
        if version != VERSION_NOW {
            return Err(wrong(format!(
                "has format version {version}; this Famio knows {VERSION_NOW}: recover the file with the version of Famio that made it"
            )));
        }
        if u128_at(from, CHECKSUM) != xxh3_128(&from[..CHECKSUM]) && holds(Rule::HeaderHasCheck) {
            return Err(wrong("is damaged: its checksum does not fit".into()));
        }
        let unknown = |field: &str, at: usize| wrong(format!("has an unknown {field}, {}", u32_at(from, at)));
        let hint_len = u64_at(from, HINT_LEN);
        if hint_len > HINT_MAX as u64 {
            return Err(wrong(format!("has a path of {hint_len} bytes, at most {HINT_MAX} fit")));
        }
        Ok(Header {
            kind: decoded(&Kind::ALL, u32_at(from, KIND)).ok_or_else(|| unknown("kind", KIND))?,
            state: decoded(&State::ALL, u32_at(from, STATE)).ok_or_else(|| unknown("state", STATE))?,
            domain: decoded(&Domain::ALL, u32_at(from, DOMAIN)).ok_or_else(|| unknown("domain", DOMAIN))?,
            file_domain: decoded(&Domain::ALL, u32_at(from, FILE_DOMAIN))
                .ok_or_else(|| unknown("domain of the file", FILE_DOMAIN))?,
            journal_id: JournalId(bytes_at(from, JOURNAL_ID)),
            boot_id: BootId(bytes_at(from, BOOT_ID)),
            identity: Identity::decode(&bytes_at(from, IDENTITY)).map_err(|e| e.context("the header"))?,
            geometry: core::array::from_fn(|i| u64_at(from, GEOMETRY + 8 * i)),
            path_hint: PathBuf::from(OsStr::from_bytes(&from[HINT..HINT + hint_len as usize])),
            sequence: u64_at(from, SEQUENCE),
            copies: Copies { first: Copy::Mirror, is_other_durable: false, has_begun: true },
        })
    }

    /// Reads the header from a journal's first bytes: the valid copy, or the later one if both are valid.
    pub fn read(bytes: &[u8]) -> Result<(Header, Found)> {
        let copies = (bytes.first_chunk(), bytes.get(COPY_LEN..).and_then(|rest| rest.first_chunk()));
        let (Some(primary), Some(mirror)) = copies else {
            let text = format!("too short for a journal: {} bytes, the header alone has {LEN}", bytes.len());
            return Err(Error::with(libc::EIO, text));
        };
        let (primary, mirror) = (Self::decode(primary), Self::decode(mirror));
        let (mut header, weaker, found) = match (primary, mirror) {
            (Ok(p), Ok(m)) if p.sequence >= m.sequence => {
                let found = if p == m { Found::Whole } else { Found::OneCopy };
                (p, Copy::Mirror, found)
            }
            (Ok(_), Ok(m)) => (m, Copy::Primary, Found::OneCopy),
            (Ok(p), Err(_)) => (p, Copy::Mirror, Found::OneCopy),
            (Err(_), Ok(m)) => (m, Copy::Primary, Found::OneCopy),
            (Err(e), Err(_)) => return Err(e),
        };
        header.copies.first = weaker;
        Ok((header, found))
    }

    /// Reads the header from a journal's file.
    pub fn load(journal: BorrowedFd<'_>) -> Result<(Header, Found)> {
        let (bytes, length) = first_bytes(journal)?;
        Self::read(&bytes[..length])
    }

    /// Stores both copies one after the other, so that one is always valid. The weaker copy is made durable at once;
    /// the other becomes durable with the next flush of the journal, or at the latest with the next store, which begins
    /// with it. After an error the medium has the old or the new state.
    ///
    /// Of a new journal, in state *creating* or *as marked*: the mirror alone, without a flush. A crash leaves a journal
    /// that is blank, or has no valid copy; nothing may rely on the journal before it has [begun](Self::has_begun).
    pub fn store(&mut self, journal: impl AsFd, medium: &dyn Medium) -> Result<()> {
        if !self.copies.has_begun && matches!(self.state, State::Creating | State::AsMarked) {
            return write_copy(Copy::Mirror, &self.next(), journal.as_fd(), medium);
        }
        let bytes = self.next();
        let first = self.store_weaker(&bytes, journal.as_fd(), medium)?;
        medium.fdatasync(journal.as_fd())?;
        if holds(Rule::HeaderGoesOnWithWeaker) {
            self.copies.first = first.other();
        }
        write_copy(first.other(), &bytes, journal.as_fd(), medium)
    }

    /// For the last state of a journal: stores the weaker copy, and flushes nothing that this call has written. As long
    /// as the copy is not flushed, a crash leaves the old or the new state.
    pub fn store_one_copy(&mut self, journal: impl AsFd, medium: &dyn Medium) -> Result<()> {
        let bytes = self.next();
        let first = self.store_weaker(&bytes, journal.as_fd(), medium)?;
        self.copies = Copies { first: first.other(), is_other_durable: false, has_begun: true };
        Ok(())
    }

    /// Writes the copy to store first, without a flush; before that, the other one is made durable.
    fn store_weaker(&mut self, bytes: &[u8; COPY_LEN], journal: BorrowedFd<'_>, medium: &dyn Medium) -> Result<Copy> {
        if !self.copies.is_other_durable && holds(Rule::HeaderFlushesWhatItRead) {
            medium.fdatasync(journal)?;
        }
        self.copies.is_other_durable = true;
        let first = self.copies.first;
        write_copy(first, bytes, journal, medium)?;
        Ok(first)
    }

    /// How often it was stored.
    pub fn stores(&self) -> u64 {
        self.sequence
    }

    /// To be called before a header that was read is acted upon or stored again: writes the copy that it was read
    /// from once more, and flushes it. That copy may be only in a cache, left by a process that died or by a flush
    /// that failed; a power cut during a store of the other copy would then lose both.
    pub fn secure(&mut self, journal: BorrowedFd<'_>, medium: &dyn Medium) -> Result<()> {
        write_copy(self.copies.first.other(), &self.encode_on_heap(), journal, medium)?;
        medium.fdatasync(journal)?;
        self.copies.is_other_durable = true;
        Ok(())
    }

    /// A new journal was flushed, or, if not `is_durable`, written to the disk. Until then, and if that fails, the next
    /// store begins with the mirror, too: a later flush may succeed without it, and a primary that is torn then would
    /// not look like an unfinished creation.
    pub fn has_begun(&mut self, is_durable: bool) {
        self.copies = Copies { first: Copy::Primary, is_other_durable: is_durable, has_begun: true };
    }

    /// All of the journal that was written is durable.
    pub fn was_flushed(&mut self) {
        self.copies.is_other_durable = true;
    }

    fn next(&mut self) -> Box<[u8; COPY_LEN]> {
        self.sequence += 1;
        self.encode_on_heap()
    }
}

fn write_copy(copy: Copy, bytes: &[u8; COPY_LEN], journal: BorrowedFd<'_>, medium: &dyn Medium) -> Result<()> {
    medium.pwritev(journal, &[bytes], (copy as usize * COPY_LEN) as u64)
}

/// Whether a journal's creation was interrupted before its header was complete: the file cannot have a mark then.
pub fn is_blank(bytes: &[u8]) -> bool {
    is_zero(&bytes[..bytes.len().min(COPY_LEN)])
}

/// The first [`LEN`] bytes of a journal, and how many of them exist. On the heap: the caller's stack may be small.
pub fn first_bytes(journal: BorrowedFd<'_>) -> Result<(Box<[u8; LEN]>, usize)> {
    let mut bytes = Box::new([0; LEN]);
    let length = read_at(journal, 0, &mut bytes[..]).map_err(|e| e.context("reading the header"))?;
    Ok((bytes, length))
}

/// Codes begin at 1, so that 0 is not a code.
fn code<T: PartialEq>(all: &[T], value: T) -> u32 {
    all.iter().position(|v| *v == value).map_or(0, |i| i as u32 + 1)
}

fn decoded<T: core::marker::Copy>(all: &[T], code: u32) -> Option<T> {
    all.get((code as usize).checked_sub(1)?).copied()
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
