//! Watching who has the session: if that process ends, another one that is at the door puts the file in order at once, though
//! nobody looks at it. What reads the file without Famio is not to find the dead one's changes for long.

use super::{Door, SESSION};
use crate::index::life::Life;
use crate::sys::Word;
use core::sync::atomic::Ordering;

impl Door {
    /// By who does not have the turn: the words that change when the session begins, ends, or is a dead one's. False: it is that
    /// now, and was not when `known` was the state.
    pub fn watch(&self, words: &mut Vec<Word>, holders: &mut Vec<Word>, known: u64) -> bool {
        if !self.is_here() {
            return true;
        }
        self.watch_given(words);
        let watched = self.holder().and_then(Life::watched);
        let missed = watched.is_none() && self.is_orphaned() && self.state() != known;
        holders.extend(watched);
        !missed
    }

    /// The word that changes when somebody begins to be seen, or a turn is given: before a look at who there is.
    pub fn watch_given(&self, words: &mut Vec<Word>) {
        words.push(Word::shared(&self.page().given, self.given()));
    }

    /// The words that change when another process at the door ends.
    pub fn watch_others(&self, lives: &mut Vec<Word>) {
        let me = self.id.load(Ordering::Acquire);
        let others = self.places().iter().filter(|member| ![0, me].contains(&member.id.load(Ordering::Acquire)));
        lives.extend(others.filter_map(|member| member.life.watched()));
    }

    /// Whether who has the session has ended with it, and nobody has put that in order.
    pub fn is_orphaned(&self) -> bool {
        self.is_here() && self.holder().is_some_and(Life::is_over)
    }

    /// Whether another process has the session, and is known to live. Before a lock that it had on the file can be had, this is
    /// false: that of its place would go after that.
    pub fn has_living_holder(&self) -> bool {
        if self.has_unowned() {
            return true; // whoever dies, it stays whole
        }
        let Some((place, life)) = self.holding() else { return false };
        place != self.place.load(Ordering::Acquire) as usize && !life.is_over() && life.is_kept()
    }

    fn holder(&self) -> Option<&Life> {
        self.holding().map(|(_, life)| life)
    }

    fn holding(&self) -> Option<(usize, &Life)> {
        if self.state() & SESSION == 0 {
            return None;
        }
        let place = self.page().holder.load(Ordering::Acquire).checked_sub(1)? as usize;
        self.page().members.get(place).map(|member| (place, &member.life))
    }
}
