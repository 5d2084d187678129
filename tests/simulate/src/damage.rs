//! Damages bytes that a crash does not change: those of header, mark, slots, entries and records, one at a time.
//! Recovery must refuse, or give what was promised; for what is stored twice, it must give that.

use crate::case::Case;
use crate::explore::{Explorer, Failure};
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
    let in_place = case.machine.has_policies();
    let bytes = image.content(journal).map(|content| content.trimmed().to_vec()).unwrap_or_default();
    for at in (0..bytes.len()).filter(|&at| says_something(&bytes, at, in_place)) {
        for change in [1, 0x80] {
            let image = image.with_changed_byte(journal, at, change);
            let has_another = at < PAGE || in_place && at < TWICE;
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

/// Whether a byte of a journal is covered by a check, and is not one of many similar ones.
fn says_something(bytes: &[u8], at: usize, in_place: bool) -> bool {
    if at < PAGE {
        return at % (PAGE / 2) < 300 || at % (PAGE / 2) > PAGE / 2 - 20; // the rest is the path
    }
    let line = &bytes[at / 64 * 64..(at / 64 * 64 + 64).min(bytes.len())];
    let used = line.iter().any(|&byte| byte != 0);
    // In a journal in place: slots, and the first segment's header and entries. Logged data has no check.
    used && if in_place { at < TWICE + 64 * 65 } else { at % PAGE < 256 || at.is_multiple_of(61) }
}
