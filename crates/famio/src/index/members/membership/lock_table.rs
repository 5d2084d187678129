//! Where the lock table of a file is, and who may use it.

use super::Membership;
use super::slots::is_taken;
use crate::error::Result;
use crate::index::members::control::Owner;
use crate::index::members::lock_table::{Holder, LockTable};
use core::sync::atomic::Ordering;
use rustix::fs::{AtFlags, CWD};
use std::os::fd::AsFd;

impl Membership {
    /// The number of the lock table; 0: there is none.
    pub fn lock_table(&self) -> u64 {
        self.page().lock_table.load(Ordering::Acquire)
    }

    pub fn lock_table_path(&self, number: u64) -> String {
        self.path(number, "locks")
    }

    /// The table with that number, which was just made, is the file's. False: another process was first.
    pub fn set_lock_table(&self, number: u64) -> bool {
        self.page().lock_table.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// This process cannot use a table: as long as there are members, locks stay in the kernel.
    pub fn bar_lock_table(&self) {
        self.page().no_lock_table.store(1, Ordering::SeqCst);
    }

    pub fn is_lock_table_barred(&self) -> bool {
        self.page().no_lock_table.load(Ordering::SeqCst) != 0
    }

    /// Maps the table in `file` for this member. `None`: its death would not be noticed at once.
    pub fn map_lock_table(&self, file: impl AsFd) -> Result<Option<LockTable>> {
        if !self.own_slot().life.is_kept() {
            return Ok(None);
        }
        let me = Holder { place: self.place(), id: self.id.load(Ordering::Acquire) };
        LockTable::map(file, me, Owner::me().word()).map(Some)
    }

    /// Whether a process with locks in the table is gone: all of its threads have ended, or it is no member any more.
    #[inline]
    pub fn is_gone(&self, holder: Holder) -> bool {
        let Some(member) = self.page().members.get(holder.place as usize) else { return true };
        match member.id.load(Ordering::Acquire) {
            // Another process may have freed the slot as soon as the first thread had ended.
            0 => self.has_ended(holder),
            id => !holder.may_be(id) || member.life.is_over() && self.has_ended(holder),
        }
    }

    /// Whether a process with locks in the table is being killed, or is gone.
    pub fn is_dying(&self, holder: Holder) -> bool {
        self.page().members.get(holder.place as usize).is_none_or(|member| member.life.is_over())
    }

    /// Of a process that is being killed, one thread marks its end, and others may still be running for a moment. The
    /// kernel unlocks its slot after the last.
    #[cold]
    fn has_ended(&self, holder: Holder) -> bool {
        self.control.lock().as_ref().is_some_and(|control| !is_taken(control, holder.place as usize))
    }

    /// Removes the table, if this process is the only member. Returns whether it did.
    pub fn forget_lock_table_if_alone(&self) -> bool {
        let here = self.control.lock();
        let Some(control) = here.as_ref() else { return false };
        // A process that attaches comes before or after this.
        let Some(_attaching) = control.try_attaching() else { return false };
        let is_alone = !self.others_at(control);
        if is_alone {
            self.forget_lock_table();
        }
        is_alone
    }

    /// Removes the table. Called by the last member, or by the first one after all were killed.
    pub(super) fn forget_lock_table(&self) {
        let number = self.page().lock_table.load(Ordering::Acquire);
        if number != 0 {
            let _ = rustix::fs::unlinkat(CWD, &*self.lock_table_path(number), AtFlags::empty());
            self.page().lock_table.store(0, Ordering::Release);
        }
        self.page().no_lock_table.store(0, Ordering::Release);
    }
}
