//! The mark of a growing file, which has no journal because everything uncommitted lies beyond its committed size. It
//! is another version of the attribute that marks a file with a journal ([`super::mark`]).
//!
//! It fits into an ext4 inode of 256 bytes, beside the file's size: both reach the disk together. A mark with bytes
//! that overwrite committed ones does not; it is only used where the file system changes an attribute as a whole.

use super::boot::BootId;
use super::bytes::{bytes_at, put, u32_at, u64_at};
use super::overwrites::Overwrites;
use crate::error::{Error, Result};
use crate::rule::{Rule, holds};
use crate::sys::coarse_now;
use xxhash_rust::xxh3::Xxh3;

/// The version of the attribute's format.
pub(super) const VERSION_GROWING: u32 = 2;
/// As that, followed by [`Overwrites`].
pub(super) const VERSION_OVERWRITING: u32 = 4;

// On the medium.
const MAGIC: usize = 0;
const VERSION: usize = MAGIC + 8;
const UNTIL: usize = VERSION + 4;
const BASE: usize = UNTIL + 4;
const NEW: usize = BASE + 8;
const HASH: usize = NEW + 8;
const IDENTITY: usize = HASH + 16;
const CHECKSUM: usize = IDENTITY + 8;
/// Bytes of the mark without overwrites.
const LEN: usize = CHECKSUM + 8;
/// The most bytes that overwrites take in a mark.
pub(crate) const OVERWRITES_MAX: usize = 32 << 10;
/// The most bytes of a mark.
pub(super) const LEN_MAX: usize = LEN + OVERWRITES_MAX;

/// Flag in the word of the base: the bytes below it may not have been synced.
const FOUND: u64 = 1 << 63;
/// Flag in the same word: nothing is to survive the end of the boot, whose id takes the place of the hash.
const VOLATILE: u64 = 1 << 62;

/// Seconds after such a note during which changes of the file count as its process's own.
const LASTS: u32 = 3;

/// The content of a growing file's mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrowingMark {
    /// The first `base` bytes of the file are committed.
    pub base: u64,
    /// The bytes from `base` to here are committed too, if they have [`hash`](Self::hash). Never less than `base`.
    pub new: u64,
    /// The hash of the bytes from `base` to `new`.
    pub hash: u128,
    /// The bytes below `base` are as they were found; the program that wrote them may not have synced them.
    pub is_found: bool,
    /// The boot that the committed state was not made to survive. There is no hash then.
    pub boot: Option<BootId>,
    /// Until this second, of the clock of file times, changes of the file count as its process's own.
    pub until: u32,
    /// The low half of [`Identity::hash128`](super::Identity::hash128) of the file.
    pub identity: u64,
    /// Committed bytes below `base` that the file may not have yet: recovery writes them.
    pub overwrites: Overwrites,
    /// The mark has room for overwrites of so many bytes on the medium.
    pub reserved: usize,
}

impl GrowingMark {
    /// A mark that commits exactly the first `size` bytes, which are durable.
    pub fn new(size: u64, boot: Option<BootId>, identity: u64) -> Self {
        let (hash, is_found, until, overwrites, reserved) = (0, false, 0, Overwrites::default(), 0);
        Self { base: size, new: size, hash, is_found, boot, until, identity, overwrites, reserved }
    }

    /// As [`new`](Self::new), for the same file.
    pub fn of_size(&self, size: u64) -> Self {
        Self { until: self.until, ..Self::new(size, self.boot, self.identity) }
    }

    /// As [`of_size`](Self::of_size), with the same room for overwrites.
    pub fn of_size_with_room(&self, size: u64) -> Self {
        Self { reserved: self.reserved, ..self.of_size(size) }
    }

    /// From now on, and for some seconds, changes count as the process's own. Returns whether the mark must be stored
    /// for that: the last note is missing or old.
    pub fn renew(&mut self) -> bool {
        let now = u32::try_from(coarse_now().tv_sec).unwrap_or(0);
        let is_over = self.until <= now;
        if is_over {
            self.until = now + LASTS;
        }
        is_over
    }

    /// Whether the mark alone says what is committed, without a look at the file's bytes, and the file has all of it.
    pub fn is_plain(&self) -> bool {
        self.base == self.new && !self.is_found && self.overwrites.is_empty()
    }

    /// As it lies in the attribute.
    pub fn encode(&self, magic: &[u8; 8]) -> Vec<u8> {
        let behind = self.overwrites.encoded_len().max(self.reserved);
        let version = if behind == 0 { VERSION_GROWING } else { VERSION_OVERWRITING };
        let mut out = vec![0; LEN + behind];
        put(&mut out, MAGIC, magic);
        put(&mut out, VERSION, &version.to_le_bytes());
        put(&mut out, UNTIL, &self.until.to_le_bytes());
        let flags = [(self.is_found, FOUND), (self.boot.is_some(), VOLATILE)];
        let base = flags.iter().filter(|(is_set, _)| *is_set).fold(self.base, |base, (_, flag)| base | flag);
        put(&mut out, BASE, &base.to_le_bytes());
        put(&mut out, NEW, &self.new.to_le_bytes());
        put(&mut out, HASH, &self.boot.map_or(self.hash.to_le_bytes(), |boot| boot.0));
        put(&mut out, IDENTITY, &self.identity.to_le_bytes());
        self.overwrites.encode(&mut out[LEN..]);
        let sum = checksum(&out);
        put(&mut out, CHECKSUM, &sum.to_le_bytes());
        out
    }

    /// Decodes the attribute's bytes, whose magic and version were checked; the error says what is wrong with them.
    pub(super) fn decode(from: &[u8]) -> Result<Self> {
        let wrong = |what: &str| Error::with(libc::EIO, format!("the mark user.famio is damaged: {what}"));
        let has_overwrites = from.len() > LEN && u32_at(from, VERSION) == VERSION_OVERWRITING;
        if from.len() != LEN && !has_overwrites {
            return Err(wrong("it has not the length of a growing file's"));
        }
        if u64_at(from, CHECKSUM) != checksum(from) && holds(Rule::MarkHasCheck) {
            return Err(wrong("its checksum does not fit"));
        }
        let base = u64_at(from, BASE);
        let boot = (base & VOLATILE != 0).then(|| BootId(bytes_at(from, HASH)));
        let hash = if boot.is_some() { 0 } else { u128::from_le_bytes(bytes_at(from, HASH)) };
        let (is_found, base) = (base & FOUND != 0, base & !(FOUND | VOLATILE));
        let Some(overwrites) = Overwrites::decode(&from[LEN..], base) else {
            return Err(wrong("its overwrites do not fit"));
        };
        let mark = Self {
            base,
            new: u64_at(from, NEW),
            hash,
            is_found,
            boot,
            until: u32_at(from, UNTIL),
            identity: u64_at(from, IDENTITY),
            overwrites,
            reserved: from.len() - LEN,
        };
        if mark.new < mark.base { Err(wrong("its sizes do not fit")) } else { Ok(mark) }
    }
}

/// Covers everything but the checksum itself.
fn checksum(mark: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&mark[..CHECKSUM]);
    hash.update(&mark[LEN..]);
    hash.digest()
}

/// A hash of bytes that come in pieces.
#[derive(Default)]
pub struct RangeHash(Xxh3);

impl RangeHash {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The hash of all pieces.
    pub fn get(&self) -> u128 {
        self.0.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC_OF_TEST: &[u8; 8] = b"FAMIOMRK";

    fn sample() -> GrowingMark {
        GrowingMark {
            base: 100,
            new: 5000,
            hash: 7 << 100 | 3,
            is_found: true,
            boot: None,
            until: 1_800_000_000,
            identity: 99,
            overwrites: Overwrites::default(),
            reserved: 0,
        }
    }

    fn overwriting() -> GrowingMark {
        let mut mark = sample().of_size(100);
        mark.overwrites.add_differences(7, b"old, same bytes", b"new, same bytes");
        mark.reserved = mark.overwrites.encoded_len();
        mark
    }

    #[test]
    fn the_layout_is_fixed() {
        assert_eq!([VERSION, UNTIL, BASE, NEW, HASH, IDENTITY, CHECKSUM, LEN], [8, 12, 16, 24, 32, 48, 56, 64]);
        let mark = sample().encode(MAGIC_OF_TEST);
        assert_eq!(u64_at(&mark, CHECKSUM), xxhash_rust::xxh3::xxh3_64(&mark[..CHECKSUM]));
    }

    #[test]
    fn is_read_as_it_was_written() {
        let boot = Some(BootId([5; 16]));
        let volatile = GrowingMark { is_found: false, boot, hash: 0, ..sample() };
        let reserved = GrowingMark { reserved: 500, ..sample() };
        let both = GrowingMark { reserved: 500, ..overwriting() };
        for mark in [sample(), volatile, sample().of_size(0), overwriting(), reserved, both] {
            assert_eq!(GrowingMark::decode(&mark.encode(MAGIC_OF_TEST)).unwrap(), mark);
        }
        assert_eq!(sample().encode(MAGIC_OF_TEST).len(), LEN);
        assert!(!sample().is_plain() && sample().of_size(8).is_plain() && !overwriting().is_plain());
    }

    #[test]
    fn damage_is_told() {
        for good in [sample().encode(MAGIC_OF_TEST), overwriting().encode(MAGIC_OF_TEST)] {
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 4;
                assert_eq!(GrowingMark::decode(&bad).unwrap_err().errno(), libc::EIO, "byte {at}");
            }
            GrowingMark::decode(&good[..good.len() - 1]).unwrap_err();
        }
        let beyond = GrowingMark { base: 9, new: 9, ..overwriting() }.encode(MAGIC_OF_TEST);
        assert_eq!(GrowingMark::decode(&beyond).unwrap_err().errno(), libc::EIO);
        let shrunk = GrowingMark { new: 99, ..sample() }.encode(MAGIC_OF_TEST);
        assert_eq!(GrowingMark::decode(&shrunk).unwrap_err().errno(), libc::EIO);
    }
}
