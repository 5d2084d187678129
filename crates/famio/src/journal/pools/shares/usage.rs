//! What people see of a pool: its size, and who uses it.

use super::arithmetic::Shares;
use super::format::Slot;
use super::ledger::{Ledger, State, total};
use crate::error::Result;
use crate::journal::pools::pool::Pool;
use rustix::fs::OFlags;
use std::path::Path;

/// How often all is read until nothing has changed in between.
const READS: u32 = 20;

/// What an application has of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolShare {
    /// Its name.
    pub name: String,
    pub weight: u32,
    /// Bytes that it may always have.
    pub share: u64,
    /// Bytes of its journals.
    pub used: u64,
    /// Bytes for which it waits.
    pub wants: u64,
    /// How many journals it has.
    pub journals: u64,
    /// Its processes that use the pool, ...
    pub processes: u64,
    /// ... and the ids of those in this PID namespace.
    pub pids: Vec<u32>,
}

/// A pool, and who uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// `None`: it has no size.
    pub size: Option<u64>,
    /// Bytes of all journals in it.
    pub used: u64,
    /// Bytes of journals that belong to no application that runs.
    pub left: u64,
    /// The applications that use it. Without a size they are not known.
    pub applications: Vec<PoolShare>,
}

/// Looks at a pool, and changes nothing.
///
/// # Errors
/// Those of listing it. `EACCES`: this process may not read who uses it.
pub fn pool_use(path: &Path) -> Result<PoolUse> {
    let pool = Pool::at(path, None)?;
    let without_size = |used| PoolUse { size: None, used, left: 0, applications: Vec::new() };
    let Some(ledger) = Ledger::open(&pool, OFlags::RDONLY)? else { return Ok(without_size(total(&pool)?)) };
    let Some((mut state, used)) = read_all(&ledger, &pool)? else { return Ok(without_size(total(&pool)?)) };
    state.head.left = used.saturating_sub(state.used());
    let here = crate::sys::namespaces::of_process(rustix::process::getpid().as_raw_nonzero().get() as u32);
    let share = |shares: &Shares<'_>, application: u128| {
        let mine: Vec<&Slot> =
            state.slots.iter().map(|(_, slot)| slot).filter(|slot| slot.application == application).collect();
        PoolShare {
            name: mine.first().map_or(String::new(), |slot| slot.name.clone()),
            weight: shares.weight(application),
            share: shares.share(application),
            used: shares.used(application),
            wants: mine.iter().fold(0, |sum: u64, slot| sum.saturating_add(slot.wants)),
            journals: mine.iter().map(|slot| u64::from(slot.journals)).sum(),
            processes: mine.len() as u64,
            pids: mine.iter().filter(|slot| slot.namespace == here).map(|slot| slot.pid).collect(),
        }
    };
    let mut applications: Vec<PoolShare> =
        state.shares(None, |shares| shares.applications().into_iter().map(|id| share(shares, id)).collect());
    applications.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(PoolUse { size: Some(state.head.size), used, left: state.head.left, applications })
}

/// The living, and the bytes of all journals: those of the same moment, if that can be had while the pool is used.
/// `None`: it has no size.
fn read_all(ledger: &Ledger, pool: &Pool) -> Result<Option<(State, u64)>> {
    let living = || {
        let mut state = ledger.read()?;
        state.slots.retain(|&(number, _)| ledger.is_held(number));
        Some(state)
    };
    let mut before = living();
    for _ in 1..READS {
        let used = total(pool)?;
        let after = living();
        if after.as_ref().map(State::used) == before.as_ref().map(State::used) {
            return Ok(after.map(|state| (state, used)));
        }
        before = after;
    }
    let used = total(pool)?;
    Ok(before.map(|state| (state, used)))
}
