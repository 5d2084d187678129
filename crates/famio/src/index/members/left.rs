//! What killed processes have left of a file, as the control file and the last session's arena tell.

use super::control::Control;
use super::control_page::{MEMBERS, Member, Page, SHADOW, SIZE, STORES};
use crate::index::shared::{MAGIC, Shared};
use crate::sys::read_at;
use core::mem::offset_of;
use rustix::fs::lstat;

impl Control {
    /// The first page of the arena of the last session, whose process has died or is this one. `None`: there is none,
    /// or it belongs to another user.
    pub fn arena_page(&self) -> Option<Box<[u8; 4096]>> {
        let arena = self.open_arena().ok()??;
        let mut page = Box::new([0; 4096]); // the caller's stack may be small
        matches!(read_at(&arena, 0, &mut page[..]), Ok(4096)).then_some(page)
    }

    /// Whether uncommitted changes of a killed process may have to be kept: in its arena, or in a hand-over image.
    pub fn may_keep(&self) -> bool {
        self.has_leftover() || self.has_kept_epoch()
    }

    /// Whether the arena says that uncommitted changes of a killed process are to be kept.
    fn has_leftover(&self) -> bool {
        let Some(page) = self.arena_page() else { return false };
        let half = |at: usize| u32::from_ne_bytes(core::array::from_fn(|i| page[at + i]));
        let magic = u64::from_ne_bytes(core::array::from_fn(|i| page[offset_of!(Shared, magic) + i]));
        magic == MAGIC && [offset_of!(Shared, keeps), offset_of!(Shared, dirty)].into_iter().all(|at| half(at) != 0)
    }

    /// Whether there is a [kept](Self::has_kept_epoch) image that did not go with the machine.
    pub fn has_kept_image(&self) -> bool {
        self.has_kept_epoch() && lstat(self.epoch_path()).is_ok()
    }

    /// For a file to which no process is attached: whether one could store to it through maps when all were killed,
    /// so that these stores are lost.
    pub fn has_lost_stores(&self) -> bool {
        let mut page = [0; SIZE];
        if !matches!(read_at(self, 0, &mut page), Ok(SIZE)) {
            return false;
        }
        let word = |at: usize| u64::from_ne_bytes(core::array::from_fn(|i| page[at + i]));
        let could_store = |member: usize| {
            let at = offset_of!(Page, members) + member * size_of::<Member>();
            word(at + offset_of!(Member, id)) != 0 && word(at + offset_of!(Member, maps)) & STORES != 0
        };
        word(offset_of!(Page, lost_stores)) != 0
            || word(offset_of!(Page, state)) & SHADOW != 0 && (0..MEMBERS).any(could_store)
    }
}
