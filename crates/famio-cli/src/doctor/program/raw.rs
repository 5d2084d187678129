//! Finds system call instructions in machine code, with the number loaded before them. A guess: control flow is not
//! followed, and bytes may be something else.

use libc::c_long;
use std::collections::BTreeSet;
#[cfg(target_arch = "x86_64")]
use std::ops::RangeInclusive;

/// Calls that access a file's data, by name. Others, such as futexes or random numbers, do not matter.
const CALLS: &[(c_long, &str)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_openat2, "openat2"),
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_preadv, "preadv"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_preadv2, "preadv2"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_truncate, "truncate"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_sendfile, "sendfile"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_splice, "splice"),
    (libc::SYS_io_submit, "io_submit"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
];

/// The names of the calls that matter.
pub fn names(numbers: &BTreeSet<u32>) -> Vec<&'static str> {
    let named = |(number, name): &(c_long, &'static str)| numbers.contains(&(*number as u32)).then_some(*name);
    CALLS.iter().filter_map(named).collect()
}

/// Adds the numbers of the calls in this code.
#[cfg(target_arch = "x86_64")]
pub fn search(code: &[u8], found: &mut BTreeSet<u32>) {
    /// How far before the instruction its number is searched.
    const BEFORE: usize = 24;
    /// First bytes of likely next instructions: tests, moves, comparisons, jumps, returns. In the middle of an
    /// address or a number, something else follows most of the time.
    const AFTER: [RangeInclusive<u8>; 13] = [
        0x0f..=0x0f,
        0x31..=0x31,
        0x3d..=0x3d,
        0x41..=0x4f,
        0x58..=0x5f,
        0x66..=0x66,
        0x72..=0x7f,
        0x83..=0x85,
        0x89..=0x8b,
        0x90..=0x90,
        0xc3..=0xc3,
        0xe9..=0xeb,
        0xf7..=0xf7,
    ];
    for (at, bytes) in code.windows(3).enumerate() {
        if bytes[..2] != [0x0f, 0x05] || !AFTER.iter().any(|range| range.contains(&bytes[2])) {
            continue;
        }
        let before = &code[at.saturating_sub(BEFORE)..at];
        // The nearest `mov eax, number` counts.
        let number = (0..before.len()).rev().find_map(|start| match before[start..] {
            [0xb8, a, b, 0, 0, ..] => Some(u32::from(a) | u32::from(b) << 8),
            _ => None,
        });
        found.extend(number.filter(|&number| number < 512));
    }
}

/// Adds the numbers of the calls in this code.
#[cfg(target_arch = "aarch64")]
pub fn search(code: &[u8], found: &mut BTreeSet<u32>) {
    /// How many instructions before it its number is searched.
    const BEFORE: usize = 8;
    let words: Vec<u32> =
        code.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == 0xd400_0001) {
        // movz w8 or x8, number.
        let before = words[at.saturating_sub(BEFORE)..at].iter().rev();
        let number = before.copied().find(|word| word & 0x7fe0_001f == 0x5280_0008).map(|word| word >> 5 & 0xffff);
        found.extend(number.filter(|&number| number < 512));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn numbers_before_the_instruction() {
        let of = |code: &[u8]| {
            let mut found = BTreeSet::new();
            search(code, &mut found);
            names(&found)
        };
        assert_eq!(of(b"\xb8\x01\0\0\0\x0f\x05\xc3"), ["write"]);
        assert_eq!(of(b"\xb8\x12\0\0\0\x48\x89\xdf\x0f\x05\xc3"), ["pwrite64"]);
        // A futex; no number; an address; an invalid number.
        assert!(of(b"\xb8\xca\0\0\0\x0f\x05\xc3").is_empty());
        assert!(of(b"\x0f\x05\xc3").is_empty());
        assert!(of(b"\xb8\x01\0\0\0\xe8\x11\x0f\x05\0").is_empty());
        assert!(of(b"\xb8\x01\0\0\0\x48\xd3\xe0\xa9\x0f\x05\x20\x5b\x0f\x85").is_empty());
        assert!(of(b"\xb8\0\0\x01\0\x0f\x05\xc3").is_empty());
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn numbers_before_the_instruction() {
        let mut found = BTreeSet::new();
        search(&[0x08, 0x08, 0x80, 0xd2, 0x01, 0, 0, 0xd4], &mut found);
        assert_eq!(names(&found), ["write"]);
    }
}
