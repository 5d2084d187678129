//! Histories for what short sequences rarely reach: two alternating threads, exclusive mode, journals that grow and
//! shrink, files that were just created, named pools, failures and kills at the journal's ends.

use crate::campaign::Job;
use crate::case::Case;
use crate::explorer::Effort;
use crate::machine::Machine;
use famio::pmem::record::Call;

/// For a journal in place; `?` stands for each policy.
const IN_PLACE: [&str; 45] = [
    "?: w100+60 s c",
    "?: w100+60 s w200+60 s w100+60 w4000+200 s c",
    "?: w0+6000 s x100+60 x100+60 s",
    "?: x100+60 x128+64 n64+64 x64+192 c",
    "?: y100+60 ya300 y64+5000 c",
    "?: w0+6000 s y100+60 w200+60 y4000+200 g y0+4096 ya10",
    "?: 2:y100+60 y100+60 w8192+10 2:ya64 s",
    // By a thread in exclusive mode, by one that comes beside another, and with the journal's entries checkpointed.
    "?: w0+6000 s w0+64 s x64+256 x64+256 x64+256",
    "?: w0+6000 s 2:w0+64 x64+256 2:x64+256 w4096+64 x64+256",
    // Another thread's SYNC commits it.
    "?: w0+6000 s 2:n64+256 s",
    "?: w0+6000 s x64+256 g x64+256 w0+64 r x0+64",
    "?: w0+4096 s w64+4000 s w0+4096 s",
    "?: 2:w0+4096 s",
    "?: 2:w100+60 s c",
    "?: w0+4096 s 2:w64+2000 s w0+4096 s 2:w128+3000 s",
    "?: w100+60 2:w4096+60 w200+60 2:w4200+60 s c",
    "?: w100+60 2:w4096+60 w8192+60 s 2:w100+1 w4096+1 2:s",
    "?: 2:w6000+5000 s c",
    "?: w100+60 w4200+60 s g w100+60 w4200+60 s g w4200+60 w100+60 s",
    "?: w0+64 s w0+64 s w64+64 s w128+64",
    "?: w100+60 w4200+60 s g w4200+60 w100+60 s",
    // Each slot is used, and a recovery has two places to write to.
    "?: w0+64 w900+64 s w0+64 w900+64 s w0+64 w900+64 s w0+64 w900+64 s w0+64 w900+64 s w0+64 w900+64 s w0+64 w900+64 s",
    "?: w0+64 s t10 s w0+5 s",
    // The journal does not grow: nothing flushes the header's second copy between its two stores.
    "?: t3000 c",
    "?: w0+4096 s w0+4096 s w0+4096 2:s",
    // The first is in exclusive mode after its SYNCs; the second revokes it.
    "?: w100+60 s w100+60 s w200+2000 w4096+2000 2:w7000+8 2:s",
    "?: w100+60 s w100+60 s w4096+60 2:s",
    "?: w0+4096 s w0+4096 s w0+2048 2:w2048+2048 2:s 2:c",
    // Small writes to blocks in turn are deferred; another thread finds two of them.
    "?: w0+16384 s w0+16384 s w64+128 w4160+64 w8192+100 w64+64 w4096+4096 s w4096+512 w128+64 s",
    "?: w0+16384 s w0+16384 s w64+128 w4160+64 2:w8192+100 w64+64 2:s",
    "?: w0+16384 s w0+16384 s w64+128 w4160+64 t8000 w128+128 w4224+64 g s c",
    "?: a300 s t3000 s t5000 s w2990+20 s c",
    "?: t3000 w4000+10 s t100 t6000 s c",
    "?: w3000+3000 s t3001 s w100+10 g c",
    "?: w0+6000 s t200 s t6000 w5000+10 s g s",
    "?: w0+4096 s g w4096+1000 s g w100+60 s c",
    "?: w100+60 s w100+60 pr s w100+60 s pu w100+60 s pa w100+60 s c",
    "?+unsynced: w100+60 s c",
    "?+unsynced+pool: w100+60 s c",
    "?+pool: w100+60 s c w4096+100 s c",
    "?: w20000+100 s w5900+200 s c",
    "?: w0+8 s w8+8 s w16+8 s w24+8 s w32+8 s w40+8 s w48+8 s w56+8 s w64+8 s w72+8 s",
    // A flush beside an open epoch, which goes on, cuts or grows.
    "?: w0+6000 s w100+60 w4000+200 gf w110+100 s gf w64+64",
    "?: w0+6000 s w300+10 t200 gf t9000 w8000+10 gf s w0+64 gf",
    "?: w0+6000 s t9000 s a300 gf w64+64 s",
];

/// More blocks than a journal's first segment has entries: it grows, and shrinks again.
const LARGE: [&str; 2] = ["?: w0+290000 s w100+60 s c", "?: w0+290000 s w0+280000 s g w100+60 s"];

/// What these leave is damaged, byte by byte.
const LEFT_IN_PLACE: [&str; 3] =
    ["u: w100+60 s w100+60 w4200+10", "r: w100+60 w4200+60 s w300+10", "a: w0+64 s w0+64 s w64+64"];
const LEFT_RECORDS: [&str; 2] = ["u: w100+60 w4200+60 s w300+10 s", "u+pool: w0+4096 s w0+4096 s g w10+10 s w0+4096 s"];

const RECORDS: [&str; 27] = [
    // A flush of what the open epoch has overwritten, and has cut off; of a size alone; in the middle of a pass.
    "u: w0+6000 s w100+60 w4000+200 gf w110+100 s gf w64+64 s",
    "u: w0+6000 s w300+10 t200 gf t9000 w8000+10 gf s w0+64 gf s",
    "u: w0+9000 s g t2000 s t30000 s t9000 gf w8000+1500 s gf c",
    "u: w0+9000 s w0+64 gb w4096+64 s w4096+10 gf w0+10 s g w100+60 gf h s",
    "u: w100+60 s c",
    "u: w0+4096 s w4096+4096 s w0+4096 s g w100+60 s c",
    "u: x100+60 n64+300 x5000+700 g x100+60 c",
    "u: w0+6000 s x100+60 w0+64 r x64+64 s",
    "u: y100+60 ya300 y64+5000 g y0+4096 w10+10 ya10 c",
    "u: w0+6000 s w0+6000 s g w0+6000 s w0+6000 s g w0+6000 s w0+6000 s w0+6000 s c",
    "u: w0+6000 s w0+6000 s w0+6000 s w0+6000 s w0+6000 s w0+6000 s w0+6000 s g w100+10 s g w100+10 s c",
    "u: w0+12000 s w0+12000 s w0+12000 s w0+12000 s g w0+12000 s g w0+12000 s g s w10+10 s c",
    "u: w0+4096 s w0+4096 g s w0+4096 s w0+4096 g s w0+4096 s w0+4096 g w10+10 s g s w0+4096 s",
    "u: w0+6000 s t3000 g s t6000 s w5000+10 s g c",
    "u: w0+6000 s t100 w50+4000 g s g w0+6000 s c",
    "u: w0+9000 s t2000 t9000 s g w8000+100 s c",
    "u: 2:w0+4096 s w4096+60 2:s g c",
    "u: w0+6000 s g w10+10 s g w20+10 s t3000 g s",
    "u: w0+6000 s w0+6000 s w0+6000 s w0+6000 s g w100+10 s",
    "u: w0+4096 s w0+4096 s w0+4096 s w0+4096 s w0+64 g w8192+30000 s",
    "u: w0+6000 s w0+6000 s w0+6000 s w0+6000 g w8192+24000 s",
    "u: w0+6000 s w0+6000 s w0+6000 s w0+6000 s w0+6000 g w8192+24000 s",
    "u: w0+6000 s w0+6000 s w0+6000 s w0+6000 s w0+6000 s w0+6000 g w8192+24000 s",
    "u: a300 s g t3000 s g t5000 s g w2990+20 s c",
    "u+unsynced: w100+60 s c",
    "u+unsynced+pool: w100+60 s c",
    "u+pool: w100+60 s c w4096+100 s c",
];

/// For a journal of records alone.
const PAGES: [&str; 2] = [
    // A pass in two rounds, with a commit between them, and a pass after it: of a block that the open epoch has
    // overwritten in the meantime. Then a note, for want of room.
    "u+small: w0+64 w4096+64 w8192+64 w12288+64 s t20000 s t20001 s t20002 s t20003 s t20004 s t20005 s gb w0+64 s w12288+64 gb ge gb ge w16384+8192",
    // Two segments are made one after the other, and given back: the last owner's second copy of the header is not
    // durable when the next one stores it.
    "u: w0+20000 s w0+20000 s w0+20000 s w0+20000 s w0+20000 s w0+20000 s g h c",
];

/// For a tiered journal: in a pool its write cache is always full, and what was found not synced is logged again.
const TIERED: [&str; 32] = [
    // A block that the open epoch has overwritten, and a pass after the one that has left it.
    "u+pool: w0+4096 s w4096+30000 s w40000+64 s w0+64 g g",
    "u+pool: w0+4096 s w4096+30000 s w40000+64 s w0+64 g g s g",
    "u+unsynced+pool: w0+4096 s w4096+30000 s w40000+64 s w64+64 g s g s w40000+64 s",
    "u+unsynced+pool: w0+4096 s w4096+30000 s w40000+64 s w0+64 g t100 s g w0+9000 s",
    // Segments are reused.
    "u+pool: w0+20000 s w0+20000 s g w0+20000 s g w0+20000 s g w0+20000 s",
    "u: w0+20000 s w0+20000 s w0+20000 s g w0+20000 s w0+20000 s w0+20000 s",
    // None is free yet.
    "u: w0+20000 s w0+20000 s w0+20000 s w0+20000 s",
    // Another thread makes the segment that the first one writes to.
    "u: w0+20000 s 2:w0+30000 s",
    // Partial passes, several in an epoch, of what that has overwritten in part or wholly; what is logged again.
    "u+small: w0+16384 s w16384+16384 s w32768+8192 s w100+60 w4096+64 gb gb gb ge gb ge w300+5 s",
    "u+small: w0+16384 s w16384+16384 s w32768+8192 s w0+4096 s w4096+4096 gb gb gb ge gb s w0+20000 s",
    "u+small: w0+16384 s w16384+16384 s w32768+8192 s t9000 s t30000 s gb gb gb ge gb ge w0+64 s",
    "u+small: w0+8192 s w0+8192 s w0+8192 s w0+8192 s w8192+64 s gb s w0+64 s gb s w0+16384 s",
    // Blocks stored early, which the epoch writes over, cuts, or leaves to another thread's SYNC.
    "u: w0+4096 s w0+4096 s w0+4096 w100+60 s w0+4096 s",
    "u: w0+4096 s w0+4096 s w0+4096 s w0+4096 t4090 s t8192 s",
    "u: w0+4096 s w0+4096 s w4096+4096 2:w8192+10 2:s",
    "u: w0+4096 s w0+4096 s w0+4096 2:w100+60 2:s",
    // Blocks that lie in the journal: written in part later, logged again, flushed beside an open cut, overwritten by an
    // epoch that needs the whole journal, and handed over. In the end their segments are used again.
    "u: w0+4096 s w0+4096 s w4096+4096 s w100+60 s w4100+60 s g w100+60 s",
    "u+small: w0+4096 s w0+4096 s w4096+4096 s w0+4096 s w0+4096 s w0+4096 s w0+4096 s gb s w0+4096 s w0+4096 s w0+4096 s w0+4096 s gb s w0+4096 s w0+4096 s w0+4096 s w0+4096 s w0+4096 s w0+4096 s w0+4096 s w0+4096 s w4100+10 s",
    "u: w0+24000 s w0+4096 s w0+4096 s w4096+4096 s t9000 gf w12288+30000 s w12288+30000 s w12288+30000 s w12288+30000 s w4100+10 s",
    "u+tiny: w0+4096 s w0+4096 s w4096+4096 s w8192+4096 w12288+36000 s w4100+60 s",
    "u+tiny: w0+24000 s w0+4096 s w0+4096 s w4096+4096 s t9000 w12288+36000 s w4100+10 s g",
    "u: w0+4096 s w0+4096 s w4096+4096 s h w100+60 s w4100+60 s g",
    // The file has bytes that a committed cut takes: before a pass writes, and of a pass that has nothing to write.
    "u+small: w0+40960 s g t9000 s t30000 s w0+64 s g w0+64 s",
    "u+small: w0+20000 s g t2000 s t20000 s w0+16384 s w0+16384 s gb gb ge",
    // A flush in the middle of a partial pass, and while what is logged again waits for its commit.
    "u+small: w0+16384 s w16384+16384 s w32768+8192 s w100+60 w4096+64 gb gb gf w300+5 s gf w0+64 s",
    "u+small: w0+8192 s w0+8192 s w0+8192 s w0+8192 s w8192+64 s gb w0+64 gf s w0+64 gf s",
    // An epoch needs the whole journal: of what it has overwritten; of what it cuts off; and both after a committed
    // cut.
    "u+tiny: w0+24000 s w0+48000 s w100+60 s",
    "u+tiny: w0+24000 s t5000 w8000+40000 s g",
    "u+tiny: w0+24000 s t5000 s w4000+9000 s t3000 w8000+40000 s g s",
    "u+tiny: w0+24000 s t9000 s t20000 s w0+48000 g s",
    "u+tiny: w0+24000 s g t5000 s t24000 s t9000 w0+48000 s",
    "u+tiny: w0+24000 s g t5000 s w5000+9000 s t12000 w0+4000 w12288+36000 s g",
];

/// Stores in maps: by copies and through pointers, beyond the end, before a hand-over; `?` stands for each policy.
const MAPS: [&str; 7] = [
    "?: mc100+60 s",
    "?: mp4000+200 s",
    "?: mp100+60 c",
    "?: mp5990+100 t7000 s",
    // Only its note puts the copy into the second epoch: no page shows it.
    "?: mc100+60 s mc64+300 s",
    "?: m100+60 u h s",
    "?: m100+60 u s m64+8 u k m4096+8 s",
];

/// Transactions of several files: before and after others, of checkpointed data, with a cut, and beside an old
/// record; `?` stands for each policy.
const JOINT: [&str; 7] = [
    "?+pool: j100+60",
    "?+pool: w0+6000 s j100+60",
    "?+pool: w0+6000 s w300+10 j100+60 w200+60 s j4000+200 c",
    "?+pool: j100+60 w64+64 s g j64+64 s c",
    "?+pool: w0+6000 s g w0+64 j64+256 g j0+64 w10+5",
    "?+pool: w0+64 s j0+64/10 w0+5 s j0+64/9000 s",
    "?+pool: w100+60 s j64+64 o j64+64 w100+60 c",
];

/// Two files of a group: SYNCs of either, with and without something to commit in both, of checkpointed data, with
/// cuts and growth, stores in maps, transactions, and closes; `?` stands for each policy.
const GROUP: [&str; 9] = [
    "?+pool+group: w100+60 z s",
    "?+pool+group: w0+6000 z s w300+10 z w4000+200 s c",
    "?+pool+group: w0+6000 z s g w0+64 z t10 w0+5 s t9000 z s g w0+64 z s",
    "?+pool+group: w100+60 zs w64+64 z zs a300 z zs t3000 t7000 w6990+20 z s c",
    "?+pool+group: w100+60 z s o w64+64 z c w100+60 z o w0+64 z s",
    "?+pool+group: w0+64 s z s z w0+64 s w0+64 s",
    "?+pool+group: z x100+60 z y64+5000 z n0+64 s w10+5 z r z s",
    "?+pool+group: w100+60 z s mc132+40 z s mp90+30 z s u z c",
    "?+pool+group: w8192+20000 z s w20000+100 t100 t30000 z s g w5900+200 z s",
];

/// Fails at the flush of a record, which the process does not outlive.
const FAILED_RECORD: &str = "w1105+138 z w12288+4632 s r gf";

/// Parts that one of these histories tests, and few others do; with the effort that it takes.
const TELLING: [(&str, &str, Effort); 21] = [
    ("GroupHasRecord", "group: w100+60 z s", Effort::GLANCE),
    ("RecordBeforeFiles", "group: w100+60 z s", Effort::GLANCE),
    ("EntriesAreKept", "w0+6000 s j100+60", Effort::WHOLE),
    ("Fdatasync: recovery/formats/in_place.rs", "pmem/u+pool: w0+6000 s j100+60", Effort::CLOSE),
    ("Flush: recovery/formats/in_place.rs", "w900+64 s w0+64 w900+64 s", Effort::WHOLE),
    ("MirrorCountsBelowSize", "/r: w0+64 s t10 s w0+5 s", Effort::WHOLE),
    ("Fence: journal/tiered/area.rs", "w0+20000 s 2:w0+30000 s", Effort::GLANCE),
    ("TieredReuseAfterTail", "/u: w0+20000 s w0+20000 s w0+20000 s w0+20000 s", Effort::GLANCE),
    // Two entries that are freed change places.
    ("Flush: journal/inplace/entry.rs", "pmem/r: w100+60 w4200+60 s g w4200+60 w100+60 s", Effort::CLOSE),
    ("Fence: file/inplace/checkpoint.rs", "pmem/r: w100+60 w4200+60 s g w4200+60 w100+60 s", Effort::CLOSE),
    ("Fence: file/inplace/pieces.rs", "pmem/a: w0+6000 s 2:n64+256 s", Effort::CLOSE),
    ("LoggedAgainWhole", "w40000+64 s w64+64 g s g s", Effort::CLOSE),
    ("LoggedAgainMoves", "u+small: w0+4096 s w0+4096 s w4096+4096 s", Effort::CLOSE),
    ("ForcedMoves", "t9000 gf w12288+30000 s", Effort::CLOSE),
    ("OverwrittenStays", "page-cache/u+small: w0+64 w4096+64", Effort::GLANCE),
    ("HeaderFlushesWhatItRead", "s g h c", Effort::CLOSE),
    // The flush of the first commit fails.
    ("LastEpochIsWrittenAgain", "page-cache/u: w100+60 w5000+60 s w300+10 s c --fail Fdatasync:2", Effort::CLOSE),
    ("FailedFlushIsForGood", "page-cache/u: w100+60 w5000+60 s w300+10 s c --fail Fdatasync:2", Effort::CLOSE),
    ("RecordSizeIsSetAgain", "gf --fail Fdatasync:", Effort::WHOLE),
    ("HeaderGoesOnWithWeaker", "/u: t3000 c", Effort::CLOSE),
    // The second copy of *active* fails.
    ("HeaderGoesOnWithWeaker", "tiered/u: w100+60 w5000+60 s w300+10 s c --fail Fdatasync:5", Effort::CLOSE),
];

/// Whether a history was made for a part with this name: how closely it has to be examined.
pub fn tells(job: &Job, name: &str) -> Option<Effort> {
    let text = match job {
        Job::Crashes(case) => case.to_string(),
        Job::FailedCall(case, (call, nth)) => format!("{case} --fail {call:?}:{nth}"),
        Job::FailedCalls(..) | Job::Damaged(_) => return None,
    };
    let telling = TELLING.iter().find(|(part, history, _)| name.starts_with(part) && text.contains(history));
    telling.map(|(_, _, effort)| *effort)
}

/// The histories of a machine, and the same with calls that fail at the journal's ends.
pub fn all(machine: Machine) -> Vec<Job> {
    let mut cases = Vec::new();
    let mut add = |text: &str| match format!("{machine}/{text}").parse::<Case>() {
        Ok(case) => cases.push(case),
        Err(e) => panic!("{e}"),
    };
    if machine.has_policies() {
        for policy in ["u", "r", "a"] {
            IN_PLACE
                .iter()
                .chain(&MAPS)
                .chain(&JOINT)
                .chain(&GROUP)
                .for_each(|text| add(&text.replacen('?', policy, 1)));
        }
        for policy in ["u", "r"] {
            LARGE.iter().for_each(|text| add(&text.replacen('?', policy, 1)));
        }
    } else {
        RECORDS.iter().for_each(|text| add(text));
        let others = if machine == Machine::Tiered { &TIERED[..] } else { &PAGES[..] };
        others.iter().for_each(|text| add(text));
        MAPS.iter().chain(&JOINT).chain(&GROUP).for_each(|text| add(&text.replacen('?', "u", 1)));
        // Epochs of a page each fill a segment to its last page, which a note takes; then one that needs several
        // segments.
        for count in [11, 12] {
            let sizes: String = (1..=count).map(|i| format!("t{} s ", 6000 - i)).collect();
            add(&format!("u: {sizes}w0+10 g w4096+60000 s"));
        }
    }
    let mut jobs: Vec<Job> = cases.into_iter().map(Job::Crashes).collect();
    let left = if machine.has_policies() { &LEFT_IN_PLACE[..] } else { &LEFT_RECORDS[..] };
    let left = left.iter().map(|text| format!("{machine}/{text}").parse().unwrap_or_else(|e| panic!("{e}")));
    jobs.extend(left.map(Job::Damaged));
    // Two places in an epoch, so that half of it is noticed.
    let ends = if machine.has_policies() { "a: w100+60 s c" } else { "u: w100+60 w5000+60 s w300+10 s c" };
    let ends: Case = format!("{machine}/{ends}").parse().unwrap_or_else(|e| panic!("{e}"));
    let calls = [
        (Call::Pwritev, 12),
        (Call::Fdatasync, 14),
        (Call::Fsync, 6),
        (Call::Ftruncate, 3),
        (Call::WriteOut, if machine == Machine::Ordered { 4 } else { 0 }),
    ];
    for (call, most) in calls {
        jobs.extend((1..=most).map(|nth| Job::FailedCall(ends.clone(), (call, nth))));
    }
    // One of them is that of the record.
    let policy = if machine.has_policies() { "r" } else { "u" };
    let joint = format!("{machine}/{policy}+pool+group: {FAILED_RECORD}");
    let joint: Case = joint.parse().unwrap_or_else(|e| panic!("{e}"));
    jobs.extend((1..=5).map(|nth| Job::FailedCall(joint.clone(), (Call::Fdatasync, nth))));
    jobs
}
