//! All figures.

use super::declared::Declared;
use super::{famio, lawn, libnvmmio, map_ahead, vnvml};

/// All of them, by paper.
pub fn all_figures() -> Vec<Declared> {
    [famio::figures(), libnvmmio::figures(), vnvml::figures(), lawn::figures(), map_ahead::figures()]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::declared::Work;
    use super::super::extent::Extent;
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_figure_has_a_name_of_its_own_and_can_be_run() {
        let figures = all_figures();
        let mut names: Vec<_> = figures.iter().map(|figure| figure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), figures.len());
        for figure in figures {
            let paper = figure.paper.to_possible_value().unwrap();
            assert!(figure.name.starts_with(paper.get_name()), "{}", figure.name);
            if let Work::Apps { cells, .. } = figure.work {
                let (whole, quick) = (cells(&Extent::WHOLE), cells(&Extent::QUICK));
                assert!(!whole.is_empty() && whole.len() == quick.len());
            }
            if let Work::Calls { sides, cells, .. } = figure.work {
                assert!(sides().len() > 1);
                for cell in cells() {
                    assert!(cell.workload.check(64 << 20).is_ok(), "{} {}", figure.name, cell.x);
                    // What works without calls has one thread.
                    let is_bare = sides().iter().any(|side| side.bare().is_some());
                    assert!(!is_bare || cell.workload.lanes() == 1, "{} {}", figure.name, cell.x);
                }
            }
        }
    }
}
