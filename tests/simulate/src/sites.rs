//! Where the library calls a barrier: found by unwinding, so that the library needs no code for it.

use crate::away::{Away, Part};
use famio::pmem::record::Barrier;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// A call, as `what: file:line function < file:line function` of its caller.
pub type Site = String;

/// How far a call has to be unwound, out of the recorder to the caller's caller.
const DEPTH: usize = 16;

#[derive(Default)]
struct Sites {
    of_chain: HashMap<(Barrier, [usize; DEPTH]), usize>,
    numbers: BTreeMap<Site, usize>,
}

static SITES: Mutex<Option<Sites>> = Mutex::new(None);

/// For [`Recorder::leave_out`](famio::pmem::record::Recorder::leave_out).
pub fn is_left_out(barrier: Barrier) -> bool {
    let mut chain = [0; DEPTH];
    let mut depth = 0;
    backtrace::trace(|frame| {
        chain[depth] = frame.ip() as usize;
        depth += 1;
        depth < DEPTH
    });
    let mut locked = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let sites = locked.get_or_insert_default();
    let number = match sites.of_chain.get(&(barrier, chain)) {
        Some(&number) => number,
        None => {
            let next = sites.numbers.len();
            let number = *sites.numbers.entry(name(barrier, &chain)).or_insert(next);
            sites.of_chain.insert((barrier, chain), number);
            number
        }
    };
    drop(locked);
    Away::is_missing(Part::Site(number))
}

/// The library's innermost two places in a chain, without the recorder's.
fn name(barrier: Barrier, chain: &[usize; DEPTH]) -> Site {
    let mut places = Vec::new();
    for &ip in chain.iter().filter(|&&ip| ip != 0) {
        // The address after the call may belong to the next line.
        backtrace::resolve((ip - 1) as *mut _, |symbol| {
            let Some((file, line)) = symbol.filename().zip(symbol.lineno()) else { return };
            let file = file.to_string_lossy();
            if let Some((_, inside)) = file.split_once("crates/famio/src/")
                && !inside.starts_with("pmem/")
                && !inside.starts_with("rule.rs")
            {
                places.push(format!("{inside}:{line} {}", function(symbol.name().map(|name| name.to_string()))));
            }
        });
    }
    places.dedup();
    places.truncate(2);
    format!("{barrier:?}: {}", places.join(" < "))
}

/// The last part of a function's path that is not a closure.
fn function(path: Option<String>) -> String {
    let path = path.unwrap_or_default();
    let parts = path.split("::").filter(|part| !part.starts_with('{') && !is_hash(part));
    parts.last().unwrap_or_default().into()
}

fn is_hash(part: &str) -> bool {
    part.len() == 17 && part.starts_with('h') && part[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The sites seen so far, by their numbers.
pub fn seen() -> BTreeMap<usize, Site> {
    let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    sites.iter().flat_map(|sites| &sites.numbers).map(|(site, &number)| (number, site.clone())).collect()
}
