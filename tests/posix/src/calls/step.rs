//! The steps of a worker. A step depends only on the seed and its number, so that any of them can be left out without
//! changing the others.

use famio_test_support::random::Random;

/// The number of a worker's descriptors.
pub const SLOTS: usize = 4;
/// The number of its maps.
pub const MAPS: usize = 3;
/// Bytes in a page.
pub const PAGE: usize = 4096;

/// Which kinds of steps may occur.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kinds {
    /// Maps of the file.
    pub maps: bool,
    /// Children that also use the descriptors.
    pub forks: bool,
    /// Slot 0 stays open for reading and writing, so that the process never detaches from the file.
    pub stays: bool,
    /// Record locks.
    pub locks: bool,
}

/// One or a few calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    Open { slot: usize, flags: i32 },
    Close(usize),
    CloseAll,
    Dup { from: usize, to: usize },
    Dup2 { from: usize, to: usize },
    Read { slot: usize, len: usize },
    Write { slot: usize, len: usize },
    Pread { slot: usize, at: i64, len: usize },
    Pwrite { slot: usize, at: i64, len: usize },
    Readv { slot: usize, at: Option<i64>, lens: Vec<usize> },
    Writev { slot: usize, at: Option<i64>, lens: Vec<usize>, flags: i32 },
    Seek { slot: usize, to: i64, whence: i32 },
    Truncate { slot: usize, size: i64 },
    TruncatePath { size: i64 },
    Fallocate { slot: usize, mode: i32, at: i64, len: i64 },
    Copy { from: usize, to: usize, from_at: Option<i64>, to_at: Option<i64>, len: usize },
    Send { from: usize, to: usize, at: i64, len: usize },
    Sync { slot: usize, data: bool },
    SyncRange { slot: usize },
    Stat { slot: usize },
    Flags(usize),
    Append { slot: usize, on: bool },
    Lock { slot: usize, kind: i32, at: i64, len: i64 },
    Rename,
    Link { at: i64, len: usize },
    Stream { mode: u8, at: i64, len: usize, sync: bool },
    Fork { steps: Vec<Step> },
    Map { slot: usize, map: usize, page: i64, pages: usize, shared: bool, writable: bool },
    Unmap(usize),
    UnmapPart { map: usize, pages: usize },
    Load { map: usize, at: usize, len: usize },
    Store { map: usize, at: usize, len: usize },
    Msync { map: usize, flags: i32 },
    Protect { map: usize, writable: bool },
    Remap { map: usize, pages: usize },
    Advise { map: usize, what: i32 },
}

/// What is compared after a step, besides its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing: a check is a call, too, and may hide a defect.
    No,
    /// Each descriptor's position and the size.
    Positions,
    /// All bytes.
    Bytes,
}

/// The step with this number, and what is compared after it.
pub fn step(seed: u64, number: u64, kinds: Kinds) -> (Step, Look) {
    let mut random =
        Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(number.wrapping_mul(0xd6e8_feb8_6659_fd93)));
    random.next_u64();
    let step = any(&mut random, kinds);
    let look = match random.below(16) {
        0..3 => Look::Positions,
        3..5 => Look::Bytes,
        _ => Look::No,
    };
    (step, look)
}

fn any(random: &mut Random, kinds: Kinds) -> Step {
    if kinds.maps && random.below(4) == 0 {
        return on_a_map(random);
    }
    let slot = random.below(SLOTS as u64) as usize;
    let other = random.below(SLOTS as u64) as usize;
    match random.below(100) {
        0..8 => Step::Open { slot, flags: flags(random) },
        8..11 => Step::Close(slot),
        11 => Step::CloseAll,
        12..14 => Step::Dup { from: slot, to: other },
        14 => Step::Dup2 { from: slot, to: other },
        15..22 => Step::Read { slot, len: length(random) },
        22..31 => Step::Write { slot, len: length(random) },
        31..38 => Step::Pread { slot, at: offset(random), len: length(random) },
        38..50 => Step::Pwrite { slot, at: offset(random), len: length(random) },
        50..53 => Step::Readv { slot, at: perhaps(random), lens: lengths(random) },
        53..58 => {
            let (at, flags) = (perhaps(random), rwf(random));
            // At an offset that no file supports, the kernel checks that first.
            let flags = if at.is_none() { flags & !UNKNOWN } else { flags };
            Step::Writev { slot, at, lens: lengths(random), flags }
        }
        58..63 => Step::Seek { slot, to: offset(random), whence: random.below(4) as i32 },
        63..68 => Step::Truncate { slot, size: size(random) },
        68 => Step::TruncatePath { size: size(random) },
        69..74 => Step::Fallocate { slot, mode: mode(random), at: offset(random), len: size(random) },
        74..76 => {
            Step::Copy { from: slot, to: other, from_at: perhaps(random), to_at: perhaps(random), len: length(random) }
        }
        76 => Step::Send { from: slot, to: other, at: offset(random), len: length(random) },
        77..84 => Step::Sync { slot, data: random.below(2) == 0 },
        84 => Step::SyncRange { slot },
        85..88 => Step::Stat { slot },
        88 => Step::Flags(slot),
        89 => Step::Append { slot, on: random.below(2) == 0 },
        90..93 if !kinds.locks => Step::Stat { slot },
        90..93 => {
            Step::Lock { slot, kind: random.below(3) as i32, at: random.below(64) as i64, len: random.below(16) as i64 }
        }
        93 => Step::Rename,
        94 => Step::Link { at: offset(random), len: length(random) },
        95..98 => {
            let mode = random.below(5) as u8;
            Step::Stream {
                mode,
                at: offset(random).clamp(0, 16 << 20),
                len: length(random),
                sync: random.below(3) == 0,
            }
        }
        _ if !kinds.forks => Step::Pwrite { slot, at: offset(random), len: length(random) },
        _ => {
            let kinds = Kinds { maps: false, forks: false, ..kinds };
            Step::Fork { steps: (0..1 + random.below(4)).map(|_| any(random, kinds)).collect() }
        }
    }
}

fn on_a_map(random: &mut Random) -> Step {
    let map = random.below(MAPS as u64) as usize;
    let at = |random: &mut Random| match random.below(3) {
        0 => (random.below(6) * PAGE as u64 + random.below(70)) as usize,
        _ => random.below(24_000) as usize,
    };
    match random.below(30) {
        0..6 => Step::Map {
            slot: random.below(SLOTS as u64) as usize,
            map,
            page: random.below(5) as i64,
            pages: 1 + random.below(7) as usize,
            shared: random.below(4) > 0,
            writable: random.below(3) > 0,
        },
        6 => Step::Unmap(map),
        7 => Step::UnmapPart { map, pages: 1 + random.below(3) as usize },
        8..15 => Step::Load { map, at: at(random), len: length(random) },
        15..23 => Step::Store { map, at: at(random), len: length(random) },
        23..26 => {
            Step::Msync { map, flags: [libc::MS_SYNC, libc::MS_SYNC, libc::MS_ASYNC, 64][random.below(4) as usize] }
        }
        26..28 => Step::Protect { map, writable: random.below(3) > 0 },
        28 => Step::Remap { map, pages: 1 + random.below(9) as usize },
        _ => Step::Advise {
            map,
            what: [libc::MADV_DONTNEED, libc::MADV_WILLNEED, libc::MADV_SEQUENTIAL, libc::MADV_RANDOM]
                [random.below(4) as usize],
        },
    }
}

fn flags(random: &mut Random) -> i32 {
    let access = [libc::O_RDWR, libc::O_RDWR, libc::O_RDWR, libc::O_WRONLY, libc::O_RDONLY][random.below(5) as usize];
    access
        | match random.below(15) {
            0..7 => libc::O_CREAT,
            7..9 => libc::O_CREAT | libc::O_APPEND,
            9 => libc::O_CREAT | libc::O_TRUNC,
            10 => libc::O_CREAT | libc::O_SYNC,
            11 => libc::O_DSYNC | libc::O_APPEND,
            12 => libc::O_CREAT | libc::O_EXCL,
            13 => libc::O_DIRECTORY,
            _ => libc::O_NOFOLLOW,
        }
}

/// A flag of `pwritev2` that no kernel knows.
const UNKNOWN: i32 = 1 << 20;

fn rwf(random: &mut Random) -> i32 {
    match random.below(12) {
        0..8 => 0,
        8 => libc::RWF_DSYNC,
        9 => libc::RWF_SYNC,
        10 => libc::RWF_APPEND,
        _ => UNKNOWN,
    }
}

fn mode(random: &mut Random) -> i32 {
    let (keep, zero) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_ZERO_RANGE);
    match random.below(16) {
        0..4 => 0,
        4..6 => keep,
        6..10 => libc::FALLOC_FL_PUNCH_HOLE | keep,
        10..12 => zero,
        12..14 => zero | keep,
        14 => libc::FALLOC_FL_UNSHARE_RANGE,
        _ => [libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_INSERT_RANGE | zero, 1 << 20][random.below(3) as usize],
    }
}

fn offset(random: &mut Random) -> i64 {
    match random.below(48) {
        0..24 => random.below(20_000) as i64,
        24..38 => (random.below(12) * PAGE as u64 + random.below(7)) as i64 - 3,
        38..44 => random.below(400_000) as i64,
        44..46 => random.below(1 << 20) as i64 / 64 * 64,
        46 => random.below(3 << 20) as i64,
        _ => [-1, i64::MIN, -4096, i64::MAX][random.below(4) as usize],
    }
}

fn size(random: &mut Random) -> i64 {
    match random.below(20) {
        0..10 => random.below(24_000) as i64,
        10..15 => (random.below(12) * PAGE as u64) as i64,
        15..18 => random.below(400_000) as i64,
        18 => 0,
        _ => -1,
    }
}

fn length(random: &mut Random) -> usize {
    match random.below(22) {
        0..8 => random.below(200) as usize,
        8..16 => random.below(9000) as usize,
        16..20 => (random.below(5) * PAGE as u64) as usize,
        20 => 0,
        _ => random.below(150_000) as usize,
    }
}

fn lengths(random: &mut Random) -> Vec<usize> {
    (0..random.below(6)).map(|_| random.below(6000) as usize).collect()
}

fn perhaps(random: &mut Random) -> Option<i64> {
    (random.below(2) == 0).then(|| offset(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_of_its_number() {
        let kinds = Kinds { maps: true, forks: true, stays: false, locks: true };
        let steps = |seed| (0..500).map(|number| step(seed, number, kinds).0).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
        assert!(steps(7).iter().any(|step| matches!(step, Step::Fork { .. })));
        let without = (0..5000).map(|number| step(7, number, Kinds::default()).0);
        assert!(without.into_iter().all(|step| !matches!(step, Step::Fork { .. } | Step::Map { .. })));
    }
}
