//! The bytes of the file of shares: a header, and a slot for each process. `docs/format.md` describes them.

use crate::journal::bytes::{is_zero, put, u32_at, u64_at, u128_at};
use core::ops::{Range, RangeInclusive};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"FAMIOPOL";
const VERSION: u32 = 1;
/// Where the slots begin.
pub(super) const SLOTS: usize = 4096;
/// Bytes of a slot.
pub(super) const SLOT: usize = 128;
/// The most processes that use a pool at once.
pub(super) const SLOTS_MAX: usize = 1024;
/// The most bytes of the file that are read.
pub(super) const FILE_MAX: usize = SLOTS + SLOT * SLOTS_MAX;

/// Offsets in the header.
const SIZE: usize = 16;
const CHECK: usize = 24;
pub(super) const LEFT: usize = 32;
/// Bytes of the header that are used.
pub(super) const HEADER: usize = 40;

/// The smallest size of a pool: room for the journals of a few applications.
pub const SIZE_MIN: u64 = 16 << 20;
/// The weight of an application that says nothing, as of control groups,
pub const WEIGHT: u32 = 100;
/// and all that there are.
pub const WEIGHTS: RangeInclusive<u32> = 1..=10_000;

/// The longest name of an application, in bytes; longer ones are cut.
pub(super) const APPLICATION_MAX: usize = 64;

/// Beyond all bytes: a byte for each slot, locked by its process, ...
const HELD: i64 = 1 << 62;

pub(super) fn held(slot: usize) -> Range<i64> {
    let byte = HELD + slot as i64;
    byte..byte + 1
}

/// ... and one for whoever decides on what is free.
pub(super) const DECIDING: Range<i64> = HELD - 1..HELD;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub size: u64,
    /// Bytes of journals whose processes are dead. Not part of the check: it changes.
    pub left: u64,
}

impl Head {
    pub fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, SIZE, &self.size.to_le_bytes());
        let check = xxh3_64(&bytes[..CHECK]);
        put(&mut bytes, CHECK, &check.to_le_bytes());
        put(&mut bytes, LEFT, &self.left.to_le_bytes());
        bytes
    }

    /// `None`: this is no such header, or of another version.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let is_whole = &bytes[..8] == MAGIC && xxh3_64(&bytes[..CHECK]) == u64_at(bytes, CHECK);
        let size = u64_at(bytes, SIZE);
        (is_whole && u32_at(bytes, 8) == VERSION && size >= SIZE_MIN).then(|| Self { size, left: u64_at(bytes, LEFT) })
    }
}

/// What a process says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// The hash of its application's name; never 0.
    pub application: u128,
    pub weight: u32,
    pub used: u64,
    pub wants: u64,
    pub journals: u32,
    /// Its process id, in this PID namespace: for people.
    pub pid: u32,
    pub namespace: u32,
    /// The application's name.
    pub name: String,
}

impl Slot {
    pub fn bytes(&self) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        put(&mut bytes, 0, &self.application.to_le_bytes());
        put(&mut bytes, 16, &self.used.to_le_bytes());
        put(&mut bytes, 24, &self.wants.to_le_bytes());
        put(&mut bytes, 32, &self.weight.to_le_bytes());
        put(&mut bytes, 36, &self.journals.to_le_bytes());
        put(&mut bytes, 40, &self.pid.to_le_bytes());
        put(&mut bytes, 44, &self.namespace.to_le_bytes());
        let mut end = self.name.len().min(APPLICATION_MAX);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        put(&mut bytes, 64, &self.name.as_bytes()[..end]);
        bytes
    }

    /// `None`: it is free. Any other bytes are a slot.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if is_zero(&bytes[..16]) {
            return None;
        }
        let name = &bytes[64..64 + APPLICATION_MAX];
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(Self {
            application: u128_at(bytes, 0),
            used: u64_at(bytes, 16),
            wants: u64_at(bytes, 24),
            weight: u32_at(bytes, 32).clamp(*WEIGHTS.start(), *WEIGHTS.end()),
            journals: u32_at(bytes, 36),
            pid: u32_at(bytes, 40),
            namespace: u32_at(bytes, 44),
            name: String::from_utf8_lossy(name).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_fixed() {
        assert_eq!((SLOTS, SLOT, SIZE, CHECK, LEFT, HEADER), (4096, 128, 16, 24, 32, 40));
        assert_eq!((held(0), held(3), DECIDING), (1 << 62..(1 << 62) + 1, (1 << 62) + 3..(1 << 62) + 4, DECIDING));
    }

    #[test]
    fn a_header_goes_to_the_file_and_back_and_every_changed_byte_shows() {
        let head = Head { size: 5 << 30, left: 77 };
        let bytes = head.bytes();
        assert_eq!(Head::of(&bytes), Some(head));
        for byte in 0..CHECK + 8 {
            let mut bytes = bytes;
            bytes[byte] ^= 0x10;
            assert_eq!(Head::of(&bytes), None, "byte {byte}");
        }
        assert_eq!([Head::of(&bytes[..39]), Head::of(&[]), Head::of(&[0; 4096])], [None; 3]);
        assert_eq!(Head::of(&Head { size: SIZE_MIN - 1, left: 0 }.bytes()), None);
    }

    #[test]
    fn a_slot_goes_to_the_file_and_back() {
        let slot = Slot {
            application: 9 << 100,
            weight: 250,
            used: 1 << 40,
            wants: 3,
            journals: 4,
            pid: 5,
            namespace: 6,
            name: "web".into(),
        };
        assert_eq!(Slot::of(&slot.bytes()), Some(slot.clone()));
        assert_eq!(Slot::of(&[0; SLOT]), None);
        let long = Slot { name: "ä".repeat(40), weight: 0, ..slot };
        let read = Slot::of(&long.bytes()).unwrap();
        assert_eq!((read.name, read.weight), ("ä".repeat(32), 1));
        assert_eq!(Slot::of(&[0xff; SLOT]).unwrap().weight, 10_000);
    }
}
