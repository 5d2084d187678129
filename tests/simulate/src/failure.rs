//! Histories in which one call fails, once: any write, flush, or change of size.

use crate::case::{Case, Found};
use crate::explorer::{Explorer, Failure};
use famio::pmem::record::Call;

/// Runs the history once for each of its calls, up to `most` of each kind, with that call failing.
pub fn each_call(explorer: &mut Explorer, case: &Case, most: usize) -> Result<(), Box<Failure>> {
    // A file that was not synced may be lost by the failing call, even if that is Famio's: the kernel reports the
    // error once, to one caller.
    let case = &Case { found: Found { unsynced: false, ..case.found }, ..case.clone() };
    let counts = explorer.explore(case, None)?;
    for (call, count) in Call::ALL.into_iter().zip(counts) {
        for nth in chosen(count, most) {
            explorer.explore(case, Some((call, nth)))?;
        }
    }
    Ok(())
}

/// A call and its number, as text.
pub fn parse(text: &str) -> Result<(Call, usize), String> {
    let wrong = || format!("{text}: not a call and its number, such as Fdatasync:3");
    let (name, nth) = text.split_once(':').ok_or_else(wrong)?;
    let call = Call::ALL.into_iter().find(|call| format!("{call:?}") == name).ok_or_else(wrong)?;
    Ok((call, nth.parse().ok().filter(|&nth| nth > 0).ok_or_else(wrong)?))
}

/// Up to `most` numbers from 1 to `count`, evenly spaced.
fn chosen(count: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..count.min(most)).map(move |i| 1 + i * count / count.min(most))
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_calls_where_they_are_few_else_some_from_the_first_on() {
        let chosen = |count, most| super::chosen(count, most).collect::<Vec<_>>();
        assert_eq!(chosen(3, 5), [1, 2, 3]);
        assert_eq!(chosen(10, 4), [1, 3, 6, 8]);
        assert_eq!(chosen(0, 4), []);
    }
}
