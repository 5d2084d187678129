//! Passes a program's advice about its use of a file on to the maps by which the file is read and stored to.

use crate::file::atomic::{ATTACHED, AtomicFile, PLAIN};
use crate::file::state::plain::WORTH_MAPPING;
use crate::map::{Advice, cache};
use core::ops::Range;
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// Advises how calls will read a range of the file, for the maps that they read by. `Sequential` and `WillNeed`
    /// start map-ahead (not of a small file, or for a short range), `Random` ends it; `DontNeed` drops page tables, and
    /// the file from the mapping cache.
    pub fn advise(&self, range: Range<u64>, advice: Advice) {
        if self.advise_maps(range.clone(), advice) {
            return;
        }
        match self.state.load(Ordering::Acquire) {
            // The kernel was told, too, and has it read; to map a few pages earlier costs more than it saves.
            ATTACHED if advice == Advice::WillNeed && range.end.saturating_sub(range.start) < WORTH_MAPPING => {}
            ATTACHED => {
                self.with_session(|session| session.home.advise(session.arena.shared(), range, advice));
            }
            // `cat` and `cp` advise on each file before its only read.
            PLAIN if self.found_size < WORTH_MAPPING => self.plain.note(advice),
            // A process that is not attached does not know whether the file is quiet.
            PLAIN if self.look().is_ok() => {
                let quiet = self.quiet().map(|quiet| (quiet, move || self.is_still(quiet)));
                self.plain.advise(&self.fds, quiet, range, advice);
            }
            _ => {}
        }
    }

    /// As [`advise`](Self::advise), for the shadow, which calls also read. Returns whether there is one.
    pub(crate) fn advise_maps(&self, range: Range<u64>, advice: Advice) -> bool {
        if advice == Advice::DontNeed {
            cache::forget(self.device, self.inode);
        }
        let shadow = self.shadow().filter(|_| !self.is_demoted());
        shadow.map(|shadow| shadow.advise(range, advice)).is_some()
    }
}
