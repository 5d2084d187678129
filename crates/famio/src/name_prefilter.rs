//! Name prefilter: the first and the last byte of its name rule out most files that are not selected, before any
//! pattern is matched.

use core::sync::atomic::{AtomicU64, Ordering};

/// The bytes with which selected names may begin and end: one bit for each ASCII byte. Any other byte is always
/// possible.
pub(crate) struct NamePrefilter {
    first: [AtomicU64; 2],
    last: [AtomicU64; 2],
}

impl NamePrefilter {
    const fn filled(bits: u64) -> Self {
        Self { first: [AtomicU64::new(bits), AtomicU64::new(bits)], last: [AtomicU64::new(bits), AtomicU64::new(bits)] }
    }

    /// Accepts no name.
    pub const fn none() -> Self {
        Self::filled(0)
    }

    /// Accepts every name.
    pub const fn any() -> Self {
        Self::filled(u64::MAX)
    }

    /// Also accepts names that match the last component of `glob`.
    pub fn add(&self, glob: &[u8]) {
        for (bits, edge) in [(&self.first, glob.first()), (&self.last, glob.last())] {
            match edge {
                Some(&byte) if byte.is_ascii() && !b"*?[]".contains(&byte) => {
                    bits[usize::from(byte >> 6)].fetch_or(1 << (byte & 63), Ordering::Relaxed);
                }
                _ => bits.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed)),
            }
        }
    }

    /// Becomes equal to `other`. A concurrent reader may see a mixture of both.
    pub fn set(&self, other: &Self) {
        for (to, from) in [(&self.first, &other.first), (&self.last, &other.last)] {
            to.iter().zip(from).for_each(|(to, from)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        }
    }

    /// Whether a file may be selected, by its name. If false, and no link is on the path, it certainly is not. For
    /// most names the last byte decides.
    #[inline(always)]
    pub fn may_match(&self, path: &[u8]) -> bool {
        path.last().is_some_and(|&last| has(&self.last, last))
            && path.get(name_start(path)).is_some_and(|&first| has(&self.first, first))
    }
}

#[inline(always)]
fn has(bits: &[AtomicU64; 2], byte: u8) -> bool {
    !byte.is_ascii() || bits[usize::from(byte >> 6)].load(Ordering::Relaxed) >> (byte & 63) & 1 != 0
}

/// The index where the last component begins. Names are short: a loop here is faster than a call of a library
/// function.
#[inline(always)]
pub(crate) fn name_start(path: &[u8]) -> usize {
    const LOW: u64 = u64::MAX / 255 * 0x7F;
    let mut rest = path;
    while let Some((before, word)) = rest.split_last_chunk() {
        // Sets the highest bit of each byte that is a slash, and no other bit.
        let other = u64::from_le_bytes(*word) ^ (u64::MAX / 255 * u64::from(b'/'));
        let slashes = !(((other & LOW) + LOW) | other | LOW);
        if slashes != 0 {
            return before.len() + slashes.ilog2() as usize / 8 + 1;
        }
        rest = before;
    }
    rest.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use famio_test_support::random::Random;

    #[test]
    fn a_name_begins_after_the_last_slash() {
        let bytes = [b'/', b'.', b'0', b'a', 0xAF, 0x80, 0xFF, 1];
        let mut random = Random::new(1);
        for length in 0..40 {
            for _ in 0..2000 {
                let mut path = Vec::new();
                for _ in 0..length {
                    // Many paths have one slash, or none.
                    let which = random.below(40) as usize;
                    path.push(bytes[if which < 8 { which } else { 1 + which % 7 }]);
                }
                let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
                assert_eq!(name_start(&path), start, "{path:?}");
            }
        }
    }

    #[test]
    fn prefilter_tells_names() {
        let prefilter = NamePrefilter::none();
        prefilter.add(b"a*b");
        for path in ["ab", "a.b", "/x/a.b", "a/b/a.db", "\u{e9}.b", "a\u{e9}"] {
            assert!(prefilter.may_match(path.as_bytes()), "{path}");
        }
        for path in ["", "/", "a", "b", "a.c", "/a/x.b", "a/", "a/c.b"] {
            assert!(!prefilter.may_match(path.as_bytes()), "{path}");
        }
        prefilter.add(b"c");
        assert!(prefilter.may_match(b"c") && prefilter.may_match(b"ac") && !prefilter.may_match(b"bc"));
        prefilter.add(b"d?");
        assert!(prefilter.may_match(b"dx") && !prefilter.may_match(b"bx"), "any last one");
        let same = NamePrefilter::any();
        assert!(same.may_match(b"bx") && !same.may_match(b"x/"), "a name that is none");
        same.set(&prefilter);
        assert!(same.may_match(b"cx") && !same.may_match(b"bx"));
    }
}
