//! What a call on a file that is not atomic looks at: one cache line. After a system call little else is near, and a line that is
//! not costs such a call more than all it does with it.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

#[repr(C, align(64))]
pub(crate) struct Near {
    /// Descriptors of atomic files: counted by `posix::table`.
    pub descriptors: AtomicUsize,
    /// The program's maps of atomic files: counted by `file::shadow`.
    pub maps: AtomicUsize,
    /// The configuration, while files are managed, and never freed: `posix::process`.
    pub config: AtomicPtr<()>,
    /// With which bytes of ASCII the name of a file may begin, and end, that is meant, a bit each.
    pub edges: [[AtomicU64; 2]; 2],
}

pub(crate) static NEAR: Near = Near {
    descriptors: AtomicUsize::new(0),
    maps: AtomicUsize::new(0),
    config: AtomicPtr::new(null_mut()),
    edges: [const { [const { AtomicU64::new(u64::MAX) }; 2] }; 2],
};

impl Near {
    /// Whether any descriptor, or any map, is an atomic file's.
    #[inline]
    pub fn any(&self) -> bool {
        self.descriptors.load(Ordering::Relaxed) != 0 || self.maps.load(Ordering::Acquire) != 0
    }

    /// Whether a file may be meant, by the first and the last byte of its name: if not, it surely is not, where the path leads over
    /// no links. Most names show it by the last.
    #[inline(always)]
    pub fn may_match(&self, path: &[u8]) -> bool {
        let is = |edge: usize, byte: u8| {
            !byte.is_ascii() || self.edges[edge][usize::from(byte >> 6)].load(Ordering::Relaxed) >> (byte & 63) & 1 != 0
        };
        path.last().is_some_and(|&last| is(1, last)) && path.get(name_start(path)).is_none_or(|&first| is(0, first))
    }
}

/// Where the last component begins. Names are short: a loop here is sooner done than the nearest library's.
#[inline(always)]
fn name_start(path: &[u8]) -> usize {
    const LOW: u64 = u64::MAX / 255 * 0x7F;
    let mut rest = path;
    while let Some((before, word)) = rest.split_last_chunk() {
        // The highest bit of each byte that is a slash, and nothing else.
        let other = u64::from_le_bytes(*word) ^ (u64::MAX / 255 * u64::from(b'/'));
        let slashes = !(((other & LOW) + LOW) | other | LOW);
        if slashes != 0 {
            return before.len() + slashes.ilog2() as usize / 8 + 1;
        }
        rest = before;
    }
    rest.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)
}

const _: () = assert!(size_of::<Near>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_after_the_last_slash() {
        let bytes = [b'/', b'.', b'0', b'a', 0xAF, 0x80, 0xFF, 1];
        let mut random = 1u64;
        for length in 0..40 {
            for _ in 0..2000 {
                let mut path = Vec::new();
                for _ in 0..length {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Many paths have one slash, or none.
                    let which = (random >> 33) as usize % 40;
                    path.push(bytes[if which < 8 { which } else { 1 + which % 7 }]);
                }
                let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
                assert_eq!(name_start(&path), start, "{path:?}");
            }
        }
    }

    #[test]
    fn edges_tell_names() {
        let near = Near {
            descriptors: AtomicUsize::new(0),
            maps: AtomicUsize::new(0),
            config: AtomicPtr::new(null_mut()),
            edges: [
                [AtomicU64::new(0), AtomicU64::new(1 << (b'a' - 64))],
                [AtomicU64::new(0), AtomicU64::new(1 << (b'b' - 64))],
            ],
        };
        for path in ["ab", "a.b", "/x/a.b", "a/b/a.db", "\u{e9}.b", "a\u{e9}"] {
            assert!(near.may_match(path.as_bytes()), "{path}");
        }
        for path in ["", "a", "b", "a.c", "/a/x.b", "a/", "a/c.b"] {
            assert!(!near.may_match(path.as_bytes()), "{path}");
        }
        assert!(NEAR.may_match(b"any"), "nothing is known yet");
    }
}
