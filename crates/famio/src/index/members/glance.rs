//! What other processes' session says of their file, read by a process that does not join it: for `stat` by a name, to
//! which a membership for that one answer would cost ten times as much.

use super::control::{Control, is_anybody};
use super::control_page::{HAS_IMAGE, MAGIC, MOVED, Page, SESSION, SHADOW, SIZE, UNOWNED};
use super::dead::{DeadArena, Words, read_words};
use crate::index::blocks::growth::Growth;
use crate::index::shared::{CLOSED, Shared, follow_up};
use crate::sys::shm;
use core::sync::atomic::Ordering;
use std::os::fd::AsFd;

// SAFETY: atomic words only.
unsafe impl Words for Page {}

/// See the module.
pub(crate) struct Glance {
    /// Device and inode.
    file: (u64, u64),
    control: Control,
    /// The state of the control page.
    state: u64,
    arena: DeadArena,
}

impl Glance {
    /// `file`: its device and inode. `None`: there is no session, or only a member may learn what the file is: its owner's
    /// death or deferred writes, stores through maps, or tenures of others have to be looked after first.
    pub fn of(control: Control, file: (u64, u64)) -> Option<Self> {
        let page: Box<Page> = read_words(control.as_fd(), SIZE as u64, 0).ok()?;
        let word = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let state = word(&page.state);
        let is_session = state & (SESSION | HAS_IMAGE | SHADOW | MOVED) == SESSION;
        let is_ours = word(&page.magic) == MAGIC && (word(&page.shm), word(&page.shm_inode)) == shm::identity();
        let is_this_file = [0, file.0].contains(&word(&page.device));
        if !is_session || !is_ours || !is_this_file || word(&page.grows_no_more) != 0 {
            return None;
        }
        let holder = || page.members.get(page.holder.load(Ordering::Relaxed).checked_sub(1)? as usize);
        let is_whole = state & UNOWNED != 0 || holder().is_some_and(|of| of.life.is_kept() && !of.life.is_over());
        if !is_whole || !is_anybody(&control) {
            return None;
        }
        let memory = control.open_arena().ok()??;
        Growth::check(&memory).ok()?;
        let arena = DeadArena::open(memory).ok()??;
        may_be_read(arena.shared()).then_some(Self { file, control, state, arena })
    }

    /// The state that the session's processes share.
    pub fn shared(&self) -> &Shared {
        self.arena.shared()
    }

    /// Whether it is of the file with this device and inode.
    pub fn is_of(&self, file: (u64, u64)) -> bool {
        self.file == file
    }

    /// Whether what was read, and whatever was asked since, belongs to the present session, outside of its transactions.
    pub fn is_current(&self) -> bool {
        let Ok(now) = self.arena.shared_now() else { return false };
        let words = |shared: &Shared| [&shared.open, &shared.transactions].map(|word| word.load(Ordering::Relaxed));
        words(&now) == words(self.shared()) && may_be_read(&now) && self.control.changes() == self.state
    }
}

/// Whether others may read along now.
fn may_be_read(shared: &Shared) -> bool {
    let open = shared.open.load(Ordering::Relaxed);
    let needs_follow_up = shared.follow_up.load(Ordering::Relaxed) & (follow_up::SHADOW | follow_up::OTHERS) != 0;
    ![0, CLOSED].contains(&open)
        && shared.gate.is_nobodys()
        && !shared.deferred.is_any()
        && shared.released.load(Ordering::Relaxed) == 0
        && shared.transactions.load(Ordering::Relaxed) & 1 == 0
        && !needs_follow_up
}
