//! The simulator detects defects: a missing fence before the slot, a missing flush of the slot, and so on. `make
//! mutants` tries every barrier.

use famio_simulate::campaign::Scope;
use famio_simulate::explorer::Effort;
use famio_simulate::machine::Machine;
use famio_simulate::mutants;

#[test]
#[ignore = "takes minutes"]
fn a_library_without_its_fences_is_found_out() {
    let scope = Scope { machine: Some(Machine::Pmem), effort: Effort::QUICK, states: 20_000, threads: 2, seed: 1 };
    let mutants = mutants::run(&scope, 3000, "", |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(mutants.len() > 40, "{}", mutants.len());
    let survived: Vec<_> = mutants.iter().filter(|mutant| mutant.is_open()).map(|m| &m.name).collect();
    assert!(survived.is_empty(), "{survived:?}");
}

/// Barriers that take a history of their own: by another thread, of names in the pool, of a record that is visible
/// only.
#[test]
fn these_histories_find_what_others_do_not() {
    let found = [
        ("tiered/u: 2:w0+33000 s", "Fence: journal/tiered/area.rs"),
        ("tiered/u+pool: j100+60", "sync_dir < journal/joint/folder.rs"),
        ("tiered/u+pool: j100+60", "secure < recovery/formats/joint.rs"),
    ];
    for (history, part) in found {
        let (name, failure) = mutants::one(&history.parse().unwrap(), None, part).unwrap();
        assert!(failure.is_some(), "{history} without {name}");
    }
}
