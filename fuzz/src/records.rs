//! Edits of a journal of records.

use crate::check::{seal_record, seal_segment};
use crate::in_place::Value;
use crate::stage::Crashed;
use arbitrary::Arbitrary;
use famio::journal::State;
use xxhash_rust::xxh3::xxh3_64;

const PAGE: usize = 4096;

/// Which checks are corrected after an edit.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    Nothing,
    /// The page's own hash.
    Hash,
    /// Also the checks of the record's other pages.
    Pages,
    /// Also every later record's hash of the previous one.
    Chain,
}

/// One edit.
#[derive(Arbitrary, Clone, Debug)]
pub enum Edit {
    Byte {
        at: u32,
        xor: u8,
    },
    /// A word of page number n among those that begin a record or a segment.
    Word {
        head: u8,
        at: u8,
        value: Value,
        fix: Fix,
    },
    /// Copies a page over another: an old one that reappears.
    Copy {
        from: u8,
        to: u8,
    },
    /// Zeros, as a torn write leaves them.
    Zero {
        page: u8,
        from: u16,
        len: u16,
    },
    /// Old contents: the page before the last writes.
    Data {
        head: u8,
        page: u8,
        at: u16,
        xor: u8,
        fix: Fix,
    },
    Geometry {
        word: u8,
        value: Value,
    },
    OtherBoot,
    Suspect,
    Cut {
        length: u32,
    },
    Longer {
        by: u16,
    },
}

fn is_head(page: &[u8]) -> bool {
    page.starts_with(b"FAMIOREC") || page.starts_with(b"FAMIOSEG")
}

/// The pages that begin a record or segment.
fn heads(journal: &[u8]) -> Vec<usize> {
    let pages = (PAGE..journal.len().saturating_sub(PAGE - 1)).step_by(PAGE);
    pages.filter(|&at| is_head(&journal[at..at + PAGE])).collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Corrects checks, beginning with the head at `at`.
fn repair(journal: &mut [u8], at: usize, fix: Fix) {
    if fix == Fix::Nothing {
        return;
    }
    if journal[at..].starts_with(b"FAMIOSEG") {
        return seal_segment(&mut journal[at..at + PAGE]);
    }
    if fix != Fix::Hash {
        let pages = word(journal, at + 88).min(200) as usize;
        let count = u32::from_le_bytes(journal[at + 12..at + 16].try_into().expect("4 bytes")) as usize;
        for page in 1..pages {
            let check = 144 + count.min(300) * 16 + (page - 1) * 16;
            let from = at + page * PAGE;
            if check + 8 <= PAGE && from + PAGE <= journal.len() {
                let sum = xxh3_64(&journal[from..from + PAGE]);
                journal[at + check..at + check + 8].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
    seal_record(&mut journal[at..at + PAGE]);
    if fix == Fix::Chain {
        let mut hash: [u8; 16] = journal[at + 128..at + 144].try_into().expect("16 bytes");
        let mut next = at + (word(journal, at + 88).clamp(1, 200) as usize) * PAGE;
        while next + PAGE <= journal.len() && journal[next..].starts_with(b"FAMIOREC") {
            journal[next + 96..next + 112].copy_from_slice(&hash);
            seal_record(&mut journal[next..next + PAGE]);
            hash = journal[next + 128..next + 144].try_into().expect("16 bytes");
            next += (word(journal, next + 88).clamp(1, 200) as usize) * PAGE;
        }
    }
}

/// Applies the edits.
pub fn apply(crashed: &mut Crashed, edits: &[Edit]) {
    for edit in edits {
        let mut header = crashed.header();
        match *edit {
            Edit::OtherBoot => {
                header.boot_id.0[0] ^= 1;
                crashed.set_header(&header);
            }
            Edit::Suspect => {
                header.state = State::Suspect;
                crashed.set_header(&header);
            }
            Edit::Geometry { word, value } => {
                let place = &mut header.geometry[usize::from(word % 5)];
                *place = value.of(*place);
                crashed.set_header(&header);
            }
            _ => {}
        }
        let journal = &mut crashed.journal;
        let heads = heads(journal);
        let head = |n: u8| heads.get(usize::from(n) % heads.len().max(1)).copied();
        match *edit {
            Edit::Byte { at, xor } => {
                let at = PAGE + at as usize % (journal.len() - PAGE);
                journal[at] ^= xor;
            }
            Edit::Word { head: n, at, value, fix } => {
                if let Some(from) = head(n) {
                    // The fields and the first entry of the list, as words of four bytes.
                    let at = from + usize::from(at % 64) * 4;
                    let value = value.of(word(journal, at));
                    journal[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    repair(journal, from, fix);
                }
            }
            Edit::Copy { from, to } => {
                let pages = journal.len() / PAGE;
                let place = |n: u8| (1 + usize::from(n) % (pages - 1)) * PAGE;
                let (from, to) = (place(from), place(to));
                journal.copy_within(from..from + PAGE, to);
            }
            Edit::Zero { page, from, len } => {
                let at = PAGE * (1 + usize::from(page)) + usize::from(from % 4096);
                let end = (at + usize::from(len)).min(journal.len());
                if at < end {
                    journal[at..end].fill(0);
                }
            }
            Edit::Data { head: n, page, at, xor, fix } => {
                if let Some(from) = head(n) {
                    let place = from + usize::from(page % 8) * PAGE + usize::from(at % 4096);
                    if let Some(byte) = journal.get_mut(place) {
                        *byte ^= xor;
                    }
                    repair(journal, from, fix);
                }
            }
            Edit::Cut { length } => journal.truncate(PAGE + length as usize % (journal.len() - PAGE + 1)),
            Edit::Longer { by } => journal.resize(journal.len() + usize::from(by), 0),
            Edit::OtherBoot | Edit::Suspect | Edit::Geometry { .. } => {}
        }
        if journal.len() < 2 * PAGE {
            journal.resize(2 * PAGE, 0);
        }
    }
}
