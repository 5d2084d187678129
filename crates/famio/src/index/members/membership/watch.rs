//! Watches the process that has the session. If it ends, another member puts the file in order at once, even if no
//! call looks at the file, so that programs without Famio do not read the dead process's changes for long.

use super::{Membership, SESSION};
use crate::index::members::life::Life;
use crate::sys::Word;
use core::sync::atomic::Ordering;

impl Membership {
    /// Adds the words that change when a session begins, ends, or loses its process. Not for the owner. Returns false
    /// if the state is such now and was not when it was `known`.
    pub fn watch(&self, words: &mut Vec<Word>, holders: &mut Vec<Word>, known: u64) -> bool {
        if !self.is_attached() {
            return true;
        }
        self.watch_given(words);
        let watched = self.holder().and_then(Life::watched);
        let missed = watched.is_none() && self.is_orphaned() && self.state() != known;
        holders.extend(watched);
        !missed
    }

    /// Adds the word that changes when a member becomes watchable or ownership is handed over. To be read before a
    /// look at the members.
    pub fn watch_given(&self, words: &mut Vec<Word>) {
        words.push(Word::shared(&self.page().changes, self.change_count()));
    }

    /// Adds the words that change when other members end.
    pub fn watch_others(&self, lives: &mut Vec<Word>) {
        let me = self.id.load(Ordering::Acquire);
        let others = self.slots().iter().filter(|member| ![0, me].contains(&member.id.load(Ordering::Acquire)));
        lives.extend(others.filter_map(|member| member.life.watched()));
    }

    /// Whether the process that has the session has died, and nobody has put the file in order.
    pub fn is_orphaned(&self) -> bool {
        self.is_attached() && self.holder().is_some_and(Life::is_over)
    }

    /// Whether another process has the session and is known to live. It turns false before a lock that the process
    /// had on the file can be acquired; the lock of its slot would go after that.
    pub fn has_living_holder(&self) -> bool {
        if self.has_unowned() {
            return true; // the session stays whole, whichever process dies
        }
        let Some((place, life)) = self.holding() else { return false };
        place != self.place.load(Ordering::Acquire) as usize && !life.is_over() && life.is_kept()
    }

    fn holder(&self) -> Option<&Life> {
        self.holding().map(|(_, life)| life)
    }

    pub(super) fn holding(&self) -> Option<(usize, &Life)> {
        if self.state() & SESSION == 0 {
            return None;
        }
        let place = self.page().holder.load(Ordering::Acquire).checked_sub(1)? as usize;
        self.page().members.get(place).map(|member| (place, &member.life))
    }
}
