//! What a program says of how it will use a file: told to the maps that the file is read and stored through.

use crate::file::atomic::{ATTACHED, AtomicFile, PLAIN};
use crate::map::{Advice, cache};
use core::ops::Range;
use core::sync::atomic::Ordering;

impl AtomicFile {
    /// Says how a range of the file will be read by calls: of the maps that it is read through. `Sequential` and `WillNeed` start
    /// map-ahead, `Random` ends it; `DontNeed` gives page tables up, and what the mapping cache has of the file.
    pub fn advise(&self, range: Range<u64>, advice: Advice) {
        if self.advise_maps(range.clone(), advice) {
            return;
        }
        match self.state.load(Ordering::Acquire) {
            ATTACHED => {
                self.with_session(|session| session.home.advise(session.arena.shared(), range, advice));
            }
            // Who has not come to the file yet does not know whether it is quiet.
            PLAIN if self.look().is_ok() => {
                let quiet = self.quiet().map(|quiet| (quiet, move || self.is_still(quiet)));
                self.plain.advise(&self.fds, quiet, range, advice);
            }
            _ => {}
        }
    }

    /// The same of what maps of it are made of: whether that is a shadow. Calls go through that, too.
    pub(crate) fn advise_maps(&self, range: Range<u64>, advice: Advice) -> bool {
        if advice == Advice::DontNeed {
            cache::forget(self.device, self.inode);
        }
        let shadow = self.shadow().filter(|_| !self.is_demoted());
        shadow.map(|shadow| shadow.advise(range, advice)).is_some()
    }
}
