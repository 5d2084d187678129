//! The pools that this process uses: one member for each.

use super::ledger::Ledger;
use super::member::Member;
use super::process::{nameless, was_forked};
use crate::error::Result;
use crate::journal::pools::pool::Pool;
use crate::settings::Settings;
use crate::thread::Mutex;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

type List = Mutex<Vec<Weak<Member>>>;

/// Null: none yet; a forked child begins anew.
static MEMBERS: AtomicPtr<List> = AtomicPtr::new(null_mut());

fn members() -> &'static List {
    let list = MEMBERS.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    if let Some(list) = unsafe { list.as_ref() } {
        return list;
    }
    let new: *mut List = Box::leak(Box::new(Mutex::new(Vec::new())));
    let made = MEMBERS.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: as above. One that lost the race stays leaked.
    unsafe { &*made.map_or_else(|there| there, |_| new) }
}

/// In a forked child: the parent's slots are not touched. The child takes one with its first journal.
pub(crate) fn forget_parents() {
    was_forked();
    MEMBERS.store(null_mut(), Ordering::Release);
}

/// This process as a user of `pool`; `None`: the pool has no size, or none for this process.
///
/// # Errors
/// Those of looking at the pool.
pub(super) fn member_of(pool: &Pool, settings: &Settings) -> Result<Option<Arc<Member>>> {
    let Some(ledger) = Ledger::open_to_use(pool)? else { return Ok(None) };
    let mut list = members().lock();
    list.retain(|member| member.strong_count() > 0);
    let known = list.iter().filter_map(Weak::upgrade).find(|known| known.is_of(&ledger));
    if known.is_some() {
        return Ok(known);
    }
    let name = settings.application.clone().map_or_else(nameless, Ok)?;
    let member = Arc::new(Member::new(ledger, name, settings.pool_weight));
    list.push(Arc::downgrade(&member));
    Ok(Some(member))
}
