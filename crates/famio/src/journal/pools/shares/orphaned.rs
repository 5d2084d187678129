//! Journals that dead processes have left in the pool: they belong to no process until they are recovered.

use super::ledger::{Ledger, NOWHERE, State};

impl Ledger {
    fn is_alive(&self, number: usize) -> bool {
        number == NOWHERE || self.is_held(number)
    }

    /// Takes back the slots of dead processes. `mine`: this process's.
    pub fn take_back_slots(&self, mine: Option<usize>, state: &mut State) {
        let before = state.head.left;
        state.slots.retain(|(number, slot)| {
            let lives = Some(*number) == mine || self.is_alive(*number);
            if !lives {
                state.head.left = state.head.left.saturating_add(slot.used);
                self.put(*number, None);
            }
            lives
        });
        if state.head.left != before {
            self.put_left(state.head.left);
        }
    }

    /// Counts the bytes of journals for which no living process accounts. Slots of dead processes are freed.
    pub fn count_orphaned(&self, state: &mut State) {
        let Ok(total) = self.total() else { return };
        let left = total.saturating_sub(state.used());
        if left != state.head.left {
            state.head.left = left;
            self.put_left(left);
        }
    }

    /// From the death of a process on, its journals count as orphaned. Its slot stays until the next decision.
    pub fn exclude_dead(&self, state: &mut State) {
        let left = &mut state.head.left;
        state.slots.retain(|&(number, ref slot)| {
            let lives = self.is_alive(number);
            if !lives {
                *left = left.saturating_add(slot.used);
            }
            lives
        });
    }
}
