//! Two files of a group: on each machine, a file shows a SYNC of its group if and only if the record of that SYNC was
//! durable, also after recoveries that are crashed, and with calls that fail.

use famio::pmem::record::Call;
use famio_simulate::campaign::places;
use famio_simulate::case::Case;
use famio_simulate::explorer::{Effort, Explorer};
use famio_simulate::workload::letter;

const HISTORIES: [&str; 4] = [
    "w0+6000 z s w300+10 z w4000+200 zs c",
    "w0+6000 z s g w0+64 z t10 w0+5 s t9000 z s",
    "w100+60 z s o w64+64 z c",
    "w8192+9000 z s w12000+100 t100 t20000 z zs",
];

fn cases() -> impl Iterator<Item = Case> {
    places(None).into_iter().flat_map(|(machine, policy)| {
        HISTORIES.map(|steps| format!("{machine}/{}+pool+group: {steps}", letter(policy)).parse().unwrap())
    })
}

#[test]
fn each_file_shows_a_sync_once_its_record_is_durable_and_not_before() {
    for case in cases() {
        let mut explorer = Explorer::new(Effort { again: 40, kills: 4, ..Effort::GLANCE });
        explorer.explore(&case, None).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(explorer.counts.states > 20, "{case}: {}", explorer.counts);
    }
}

#[test]
fn a_call_that_fails_leaves_that_as_it_is() {
    for place in ["page-cache/u", "tiered/u", "pmem/r"] {
        let case: Case = format!("{place}+pool+group: w100+60 z s w300+10 z s w0+64 z s").parse().unwrap();
        let explore = |fail| {
            let explored = Explorer::new(Effort::GLANCE).explore(&case, fail);
            explored.unwrap_or_else(|failure| panic!("{failure}"))
        };
        let calls = Call::ALL
            .into_iter()
            .zip(explore(None))
            .filter(|(call, _)| [Call::Pwritev, Call::Fdatasync, Call::Fsync].contains(call));
        let fails: Vec<_> = calls.flat_map(|(call, count)| (1..=count.min(11)).map(move |nth| (call, nth))).collect();
        assert!(fails.len() >= 3, "{case}: {fails:?}");
        for fail in fails {
            explore(Some(fail));
        }
    }
}
