//! Damages bytes that a crash does not change: those of header, mark, slots, entries and records, one at a time.
//! Recovery must refuse, or give what was promised; for what is stored twice, it must give that.

use crate::case::Case;
use crate::explorer::{Explorer, Failure};
use crate::machine::{Machine, SEGMENT};
use famio::pmem::record::Image;

const PAGE: usize = 4096;
/// Header, slots.
const TWICE: usize = 2 * PAGE;

/// Runs a history, and damages what is left when the process is killed at its end.
pub fn each_byte(explorer: &mut Explorer, case: &Case) -> Result<(), Box<Failure>> {
    let failure = |what: String| Box::new(Failure { case: case.clone(), fail: None, what });
    let run = explorer.world.run(case, None).map_err(failure)?;
    explorer.counts.histories += 1;
    let mut replay = run.trace.replay();
    while replay.step() {}
    let (image, _) = replay.killed();
    let legal = run.oracle.legal(replay.marks());
    let Some(journal) = image.names.journal else { return Err(failure("it leaves no journal".into())) };
    let mut look = |what: &dyn Fn() -> String, image: &Image, has_another: bool| {
        explorer.counts.states += 1;
        let world = &explorer.world;
        world.restore(image).map_err(failure)?;
        let checked = match world.recover_damaged(case.machine, 1) {
            Ok(found) => legal.check(&found),
            Err(_) if !has_another => Ok(()),
            Err(e) => Err(e),
        };
        checked.map_err(|e| failure(format!("{}: {e}", what())))
    };
    let kind = match case.machine {
        Machine::Tiered => Kind::Tiered,
        machine if machine.has_policies() => Kind::InPlace,
        _ => Kind::Records,
    };
    let bytes = image.content(journal).map(|content| content.trimmed().to_vec()).unwrap_or_default();
    for at in (0..bytes.len()).filter(|&at| says_something(&bytes, at, kind)) {
        for change in [1, 0x80] {
            let image = image.with_changed_byte(journal, at, change);
            let has_another = at < PAGE || kind != Kind::Records && at < TWICE;
            look(&|| format!("byte {at} of the journal changed by {change:#x}"), &image, has_another)?;
        }
    }
    let mark = image.names.mark.clone().unwrap_or_default();
    for at in 0..mark.len() {
        let mut changed = image.clone();
        if let Some(mark) = &mut changed.names.mark {
            mark[at] ^= 1;
        }
        look(&|| format!("byte {at} of the mark changed"), &changed, false)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    InPlace,
    Records,
    Tiered,
}

/// Whether a byte of a journal has a check over it, and is not one of many alike.
fn says_something(bytes: &[u8], at: usize, kind: Kind) -> bool {
    if at < PAGE {
        return at % (PAGE / 2) < 300 || at % (PAGE / 2) > PAGE / 2 - 20; // the rest is the path
    }
    let line = &bytes[at / 64 * 64..(at / 64 * 64 + 64).min(bytes.len())];
    let used = line.iter().any(|&byte| byte != 0);
    used && match kind {
        // Slots, and the first segment's header and entries. What is logged has no check.
        Kind::InPlace => at < TWICE + 64 * 65,
        Kind::Records => at % PAGE < 256 || at.is_multiple_of(61),
        Kind::Tiered => at < TWICE || !is_logged(bytes, at),
    }
}

/// Whether a byte of a tiered journal's segments is one of a granule.
fn is_logged(bytes: &[u8], at: usize) -> bool {
    const LINE: usize = 64;
    let count = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
    };
    let begin = TWICE + (at - TWICE) / SEGMENT as usize * SEGMENT as usize;
    let mut record = begin + LINE;
    while record <= at {
        let list = (count(record + 48) * 16).next_multiple_of(LINE);
        let data = record + LINE + list;
        let end = data + count(record + 52) * LINE;
        if at < end {
            return at >= data;
        }
        record = end;
    }
    false
}
