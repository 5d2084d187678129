//! What a program does to the file: operations, their text form, and long histories.

use famio::PolicyChoice;
use famio_test_support::random::Random;
use std::fmt;
use std::str::FromStr;

/// How a program stores in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Alternately by a copy and through a pointer.
    Turns,
    /// By a copy.
    Copy,
    /// Through a pointer: also beyond the end of the file, within its last page.
    Pointer,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes `len` bytes at an offset.
    Write { at: u64, len: u64 },
    /// Two threads write concurrently; the ranges do not overlap.
    Both { first: (u64, u64), second: (u64, u64) },
    /// Appends `len` bytes.
    Append { len: u64 },
    /// Stores `len` bytes, within the file, in a map of it, which is made if there is none.
    Map { at: u64, len: u64, by: By },
    /// Drops the map.
    Unmap,
    /// Commits a transaction that writes [`pieces`]; as a SYNC, or as a part of the open epoch.
    Transaction { at: u64, len: u64, syncs: bool },
    /// Commits a transaction of this file and another, which first sets a size and then writes [`pieces`] here. The
    /// open epoch is committed before, by itself.
    Joint { at: u64, len: u64, size: Option<u64> },
    /// Writes to the other file of the group.
    Peer,
    /// SYNC of the other file of the group.
    PeerSync,
    /// Writes `len` bytes, at the end if no offset is given; they are durable as a whole with the open epoch.
    Whole { at: Option<u64>, len: u64 },
    /// Discards the open epoch.
    Rollback,
    /// Sets the size.
    Size(u64),
    /// SYNC.
    Sync,
    /// Checkpoints as much as possible, as the background would, and then shrinks the journal.
    Checkpoint,
    /// Checkpoints a block or a few. A pass begins if none is under way; of a write cache, as in a moment that is not
    /// quiet, and only if the journal is used so far.
    Blocks,
    /// The end of a pass that has written all its blocks.
    EndPass,
    /// `famio flush`: the file gets what is committed, and nothing else.
    Flush,
    /// Sets another policy, from the next SYNC on.
    Policy(PolicyChoice),
    /// Commits and closes the journal clean; the next write attaches again.
    Close,
    /// Closes the file and opens it again.
    Reopen,
    /// Hands the file over with whatever is open; the next operation acquires it again.
    HandOver,
    /// The same, and the writer of the open epoch dies.
    Die,
}

impl Op {
    /// Whether it makes Famio attach a plain file.
    pub fn attaches(self) -> bool {
        match self {
            Op::Write { len, .. } | Op::Append { len } => len > 0,
            Op::Both { .. } | Op::Map { .. } | Op::Size(_) | Op::Transaction { .. } => true,
            Op::Joint { .. } | Op::Whole { .. } => true,
            Op::Sync | Op::Checkpoint | Op::Policy(_) | Op::Close | Op::Reopen | Op::Peer | Op::PeerSync => false,
            Op::Blocks | Op::EndPass | Op::Flush | Op::HandOver | Op::Die | Op::Unmap | Op::Rollback => false,
        }
    }
}

/// An operation, and which of the two threads makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// By the second thread.
    pub other: bool,
    /// What it does.
    pub op: Op,
}

impl From<Op> for Step {
    fn from(op: Op) -> Self {
        Step { other: false, op }
    }
}

/// The policy's letter in a trace.
pub fn letter(policy: PolicyChoice) -> char {
    match policy {
        PolicyChoice::Undo => 'u',
        PolicyChoice::Redo => 'r',
        PolicyChoice::Alternate => 'a',
        PolicyChoice::Auto => 'x',
    }
}

/// The policy of a letter.
pub fn policy_of(letter: &str) -> Option<PolicyChoice> {
    let all = [PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate, PolicyChoice::Auto];
    all.into_iter().find(|&policy| letter.starts_with(self::letter(policy)))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.other {
            f.write_str("2:")?;
        }
        match self.op {
            Op::Write { at, len } => write!(f, "w{at}+{len}"),
            Op::Both { first, second } => write!(f, "b{}+{}/{}+{}", first.0, first.1, second.0, second.1),
            Op::Append { len } => write!(f, "a{len}"),
            Op::Map { at, len, by: By::Turns } => write!(f, "m{at}+{len}"),
            Op::Map { at, len, by: By::Copy } => write!(f, "mc{at}+{len}"),
            Op::Map { at, len, by: By::Pointer } => write!(f, "mp{at}+{len}"),
            Op::Unmap => f.write_str("u"),
            Op::Transaction { at, len, syncs: true } => write!(f, "x{at}+{len}"),
            Op::Transaction { at, len, syncs: false } => write!(f, "n{at}+{len}"),
            Op::Joint { at, len, size: None } => write!(f, "j{at}+{len}"),
            Op::Joint { at, len, size: Some(size) } => write!(f, "j{at}+{len}/{size}"),
            Op::Peer => f.write_str("z"),
            Op::PeerSync => f.write_str("zs"),
            Op::Whole { at: Some(at), len } => write!(f, "y{at}+{len}"),
            Op::Whole { at: None, len } => write!(f, "ya{len}"),
            Op::Rollback => f.write_str("r"),
            Op::Size(size) => write!(f, "t{size}"),
            Op::Sync => f.write_str("s"),
            Op::Checkpoint => f.write_str("g"),
            Op::Blocks => f.write_str("gb"),
            Op::EndPass => f.write_str("ge"),
            Op::Flush => f.write_str("gf"),
            Op::Policy(policy) => write!(f, "p{}", letter(policy)),
            Op::Close => f.write_str("c"),
            Op::Reopen => f.write_str("o"),
            Op::HandOver => f.write_str("h"),
            Op::Die => f.write_str("k"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: not an operation");
        let (other, rest) = match text.strip_prefix("2:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let place = |text: &str| {
            let (at, len) = text.split_once('+').ok_or_else(wrong)?;
            Ok::<_, String>((number(at)?, number(len)?))
        };
        let (head, tail) = rest.split_at_checked(1).ok_or_else(wrong)?;
        let op = match head {
            "w" => place(tail).map(|(at, len)| Op::Write { at, len })?,
            "b" => {
                let (first, second) = tail.split_once('/').ok_or_else(wrong)?;
                Op::Both { first: place(first)?, second: place(second)? }
            }
            "m" => {
                let (by, tail) = match tail.split_at_checked(1) {
                    Some(("c", tail)) => (By::Copy, tail),
                    Some(("p", tail)) => (By::Pointer, tail),
                    _ => (By::Turns, tail),
                };
                place(tail).map(|(at, len)| Op::Map { at, len, by })?
            }
            "u" => Op::Unmap,
            "x" | "n" => place(tail).map(|(at, len)| Op::Transaction { at, len, syncs: head == "x" })?,
            "j" => {
                let (part, size) = tail.split_once('/').map_or((tail, None), |(part, size)| (part, Some(size)));
                let ((at, len), size) = (place(part)?, size.map(number).transpose()?);
                Op::Joint { at, len, size }
            }
            "y" => match tail.strip_prefix('a') {
                Some(len) => Op::Whole { at: None, len: number(len)? },
                None => place(tail).map(|(at, len)| Op::Whole { at: Some(at), len })?,
            },
            "z" if tail == "s" => Op::PeerSync,
            "z" if tail.is_empty() => Op::Peer,
            "r" => Op::Rollback,
            "a" => Op::Append { len: number(tail)? },
            "t" => Op::Size(number(tail)?),
            "s" => Op::Sync,
            "g" if tail == "b" => Op::Blocks,
            "g" if tail == "e" => Op::EndPass,
            "g" if tail == "f" => Op::Flush,
            "g" if tail.is_empty() => Op::Checkpoint,
            "p" => Op::Policy(policy_of(tail).ok_or_else(wrong)?),
            "c" => Op::Close,
            "o" => Op::Reopen,
            "h" => Op::HandOver,
            "k" => Op::Die,
            _ => return Err(wrong()),
        };
        Ok(Step { other, op })
    }
}

/// The bytes of write number `number` of a run, for a place in the file: no two writes have the same bytes anywhere.
pub fn bytes(number: usize, at: u64, len: u64) -> Vec<u8> {
    (at..at + len).map(|at| (number as u8).wrapping_mul(29).wrapping_add(1) ^ (at / 8) as u8).collect()
}

/// What a transaction at a place writes: that place, whole granules around it and in the next block, and the first
/// granule again.
pub fn pieces(at: u64, len: u64) -> [(u64, u64); 4] {
    let granule = at / 64 * 64;
    [(at, len), (granule + 128, 192), (granule + 4096 + 64, 128), (granule, 64)]
}

/// The initial contents of every file: two blocks, the second partly filled.
pub fn initial() -> Vec<u8> {
    (0..6000u32).map(|i| (i % 251) as u8).collect()
}

/// A longer history from a seed, perhaps with two threads.
pub fn random(seed: u64, steps: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let two = random.below(3) == 0;
    // Some keep the file mapped, and store there, too.
    let maps = seed % 4 == 3;
    // In some, the file is handed over.
    let turns = seed % 4 == 1;
    let mut size = initial().len() as u64;
    let mut all = Vec::new();
    for _ in 0..steps {
        let at = match random.below(4) {
            0 => random.below(16) * 64,
            1 => 4096 * random.below(4) + random.below(3) * 64,
            2 => random.below(size + 1),
            _ => random.below(14_000),
        };
        let len = match random.below(8) {
            0 => 1 + random.below(8),
            1 => 64 * (1 + random.below(4)),
            2 => 4096,
            3 => 1 + random.below(6000),
            _ => 1 + random.below(300),
        };
        let op = match random.below(20) {
            0..=4 if maps => Op::Map { at, len, by: [By::Turns, By::Copy, By::Pointer][random.below(3) as usize] },
            13 if maps => Op::Unmap,
            13 | 14 | 16 if turns => [Op::HandOver, Op::HandOver, Op::Die][random.below(3) as usize],
            0..=8 => Op::Write { at, len },
            9 => Op::Append { len: len.min(1000) },
            10 => Op::Size(random.below(size + 1)),
            11 => Op::Size((size + random.below(5000)).min(20_000)),
            12..=15 => Op::Sync,
            16 => [Op::Checkpoint, Op::Flush][random.below(2) as usize],
            17 => {
                Op::Policy([PolicyChoice::Undo, PolicyChoice::Redo, PolicyChoice::Alternate][random.below(3) as usize])
            }
            18 if two => Op::Both { first: (at, len.min(500)), second: (at + 500 + random.below(900), len.min(2000)) },
            18 if at % 2 == 0 => Op::Whole { at: (at % 4 == 0).then_some(at), len: len.min(5000) },
            18 => Op::Transaction { at, len: len.min(2000), syncs: at % 3 != 0 },
            _ if random.below(3) == 0 && !maps => Op::Rollback,
            _ if random.below(2) == 0 => Op::Close,
            _ => Op::Reopen,
        };
        size = size_after(size, op);
        let alone = matches!(op, Op::Reopen | Op::Both { .. });
        all.push(Step { other: two && !alone && random.below(2) == 0, op });
    }
    all
}

/// A longer history of a file that belongs to a group: the other file is written and synced in between.
pub fn grouped(seed: u64, steps: usize) -> Vec<Step> {
    let mut choice = Random::new(!seed);
    let mut all = Vec::new();
    for step in random(seed, steps) {
        match choice.below(6) {
            0..=2 => all.push(Op::Peer.into()),
            3 => all.push(Op::PeerSync.into()),
            _ => {}
        }
        if !matches!(step.op, Op::HandOver | Op::Die) {
            all.push(Step { other: false, op: step.op });
        }
    }
    all
}

/// A longer history of a small write cache ([`Cache`](crate::case::Cache)): whole blocks fill the journal, small writes
/// overwrite what it holds, and passes begin, go on and end anywhere between them. No epoch is larger than the smallest
/// journal.
pub fn write_back(seed: u64, steps: usize) -> Vec<Step> {
    const MOST: u64 = 48 << 10;
    let mut random = Random::new(seed);
    let (turns, maps) = (seed % 8 == 1, seed % 8 == 3);
    let mut size = initial().len() as u64;
    let mut all = Vec::new();
    // Most begin with as much as makes passes partial ones.
    let full = random.below(4) != 0;
    let filling = [(0, 16_384), (16_384, 12_288), (random.below(3) * 4096, 8192)];
    for (at, len) in filling.into_iter().filter(|_| full) {
        all.extend([Op::Write { at, len }, Op::Sync].map(Step::from));
        size = size.max(at + len);
    }
    while all.len() < steps {
        let block = 4096 * random.below(10);
        let within = block + 64 * random.below(60) + random.below(3);
        let small = 1 + random.below(600);
        let op = match random.below(30) {
            0..=3 => Op::Write { at: block, len: (4096 * (1 + random.below(5))).min(MOST - block) },
            4 => Op::Write { at: within, len: (1 + random.below(9000)).min(MOST - within) },
            5..=10 => Op::Write { at: within.min(size), len: small },
            11..=14 => Op::Sync,
            15..=18 => Op::Blocks,
            19 | 20 => Op::EndPass,
            // A whole pass, within an epoch.
            21..=24 => {
                all.extend([Op::Blocks; 3].map(Step::from));
                Op::EndPass
            }
            25 => [Op::Checkpoint, Op::Flush][random.below(2) as usize],
            26 if maps => Op::Map { at: within, len: small, by: By::Turns },
            26 if turns => [Op::HandOver, Op::Die][random.below(2) as usize],
            26 | 27 => match random.below(6) {
                0 | 1 => Op::Size(random.below(size + 1)),
                2 => Op::Size((size + random.below(9000)).min(MOST)),
                3 => Op::Transaction { at: within.min(36_000), len: small, syncs: random.below(2) == 0 },
                4 => Op::Whole { at: Some(within), len: small },
                _ => Op::Rollback,
            },
            28 if random.below(3) == 0 => [Op::Close, Op::Reopen][random.below(2) as usize],
            _ => Op::Sync,
        };
        size = size_after(size, op);
        all.push(Step::from(op));
    }
    all
}

fn size_after(size: u64, op: Op) -> u64 {
    match op {
        Op::Write { at, len } => size.max(at + len),
        Op::Both { first, second } => size.max(first.0 + first.1).max(second.0 + second.1),
        Op::Append { len } => size + len,
        Op::Transaction { at, len, .. } => pieces(at, len).iter().fold(size, |size, (at, len)| size.max(at + len)),
        Op::Whole { at, len } => size.max(at.unwrap_or(size) + len),
        Op::Joint { at, len, size: cut } => {
            pieces(at, len).iter().fold(cut.unwrap_or(size), |size, (at, len)| size.max(at + len))
        }
        Op::Size(size) => size,
        _ => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_reads_back() {
        for seed in 0..200 {
            for step in random(seed, 20) {
                assert_eq!(step.to_string().parse::<Step>(), Ok(step));
            }
        }
        for seed in 0..50 {
            for step in write_back(seed, 30) {
                assert_eq!(step.to_string().parse::<Step>(), Ok(step));
            }
        }
        for seed in 0..50 {
            for step in grouped(seed, 30) {
                assert_eq!(step.to_string().parse::<Step>(), Ok(step));
            }
        }
        for text in ["j100+60", "j0+64/10", "y3+4", "ya5", "z", "zs"] {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
        for wrong in ["gx", "zx", "j", "j1", "j1+2/", "", "w", "w3", "x", "pz", "b1+2", "2:"] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_two_writes_look_alike() {
        for number in 1..200 {
            let (one, other) = (bytes(0, 0, 64), bytes(number, 0, 64));
            assert!(number % 256 == 0 || one.iter().zip(&other).all(|(a, b)| a != b), "{number}");
        }
    }
}
