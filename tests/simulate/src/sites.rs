//! Where in the library a barrier is called: found by unwinding, so that the library needs nothing for it.

use famio::pmem::record::Barrier;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// A call, as `what: file:line < file:line of its caller`.
pub type Site = String;

/// As far as a call has to be unwound to get out of the recorder and to the caller's caller.
const DEPTH: usize = 16;

thread_local! {
    /// The site whose barriers this thread leaves out.
    static LEFT_OUT: Cell<Option<usize>> = const { Cell::new(None) };
}

#[derive(Default)]
struct Sites {
    of_chain: HashMap<(Barrier, [usize; DEPTH]), usize>,
    numbers: BTreeMap<Site, usize>,
    calls: Vec<u64>,
}

static SITES: Mutex<Option<Sites>> = Mutex::new(None);

/// From now on, this thread's recorders hear nothing of this site's barriers.
pub fn leave_out(site: Option<usize>) {
    LEFT_OUT.set(site);
}

/// For [`Recorder::leave_out`](famio::pmem::record::Recorder::leave_out).
pub fn is_left_out(barrier: Barrier) -> bool {
    let mut chain = [0; DEPTH];
    let mut depth = 0;
    backtrace::trace(|frame| {
        chain[depth] = frame.ip() as usize;
        depth += 1;
        depth < DEPTH
    });
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let sites = sites.get_or_insert_default();
    let number = match sites.of_chain.get(&(barrier, chain)) {
        Some(&number) => number,
        None => {
            let next = sites.numbers.len();
            let number = *sites.numbers.entry(name(barrier, &chain)).or_insert(next);
            sites.calls.resize(sites.numbers.len(), 0);
            sites.of_chain.insert((barrier, chain), number);
            number
        }
    };
    sites.calls[number] += 1;
    LEFT_OUT.get() == Some(number)
}

/// The library's innermost two places in a chain, the recorder's aside.
fn name(barrier: Barrier, chain: &[usize; DEPTH]) -> Site {
    let mut places = Vec::new();
    for &ip in chain.iter().filter(|&&ip| ip != 0) {
        // The address after the call may be the next line's.
        backtrace::resolve((ip - 1) as *mut _, |symbol| {
            let Some((file, line)) = symbol.filename().zip(symbol.lineno()) else { return };
            let file = file.to_string_lossy();
            if let Some((_, inside)) = file.split_once("crates/famio/src/")
                && !inside.starts_with("pmem/")
            {
                places.push(format!("{inside}:{line}"));
            }
        });
    }
    places.dedup();
    places.truncate(2);
    format!("{barrier:?}: {}", places.join(" < "))
}

/// The sites seen so far, and how often each was called.
pub fn seen() -> Vec<(Site, usize, u64)> {
    let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(sites) = &*sites else { return Vec::new() };
    sites.numbers.iter().map(|(site, &number)| (site.clone(), number, sites.calls[number])).collect()
}
