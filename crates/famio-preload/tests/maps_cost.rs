//! What calls on a mapped file cost, counted in system calls: as much as they change, however long file and map are.

mod common;

use common::counted::calls;
use common::{Folder, build, has_strace, succeed, under};

const SIZE: usize = 8 << 20;

/// The calls by which the library follows the program's maps.
const FOLLOWING: [&str; 5] = ["pread64(", "pwrite64(", "lseek(", "statx(", "ftruncate("];
/// What the program does a hundred times each, and the most of these calls in all. Some are for the library's own
/// files, now and then. A SYNC also looks for its journal, so only what it reads is counted.
const STEPS: [(&str, &[&str], usize); 5] = [
    ("write", &FOLLOWING, 60),
    ("read", &FOLLOWING, 10),
    ("append", &FOLLOWING, 300),
    ("grow", &FOLLOWING, 700),
    ("sync", &["pread64("], 10),
];

/// Whether the kernel finds stores by one call.
fn has_one_call() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

/// A write was a copy of 64 KiB by three system calls; a file that was made longer was copied, with its new zeros, page
/// by page, and the zeros took memory; a SYNC read eight bytes for each page of the map.
#[test]
fn calls_on_a_mapped_file_cost_what_they_change() {
    if !has_strace() {
        return;
    }
    let program = build("maps_cost");
    for folder in [Folder::new("maps-cost"), Folder::on_disk("maps-cost")] {
        std::fs::write(folder.path().join("atomic"), vec![1; SIZE]).unwrap();
        let trace = folder.path().join("trace");
        succeed(under(&folder, "strace").args(["-f", "-o"]).arg(&trace).arg(&program).arg("atomic"));
        let counts = calls(&trace, STEPS.map(|step| step.0), |step, call| {
            let names = STEPS.iter().find(|known| known.0 == step).map_or(&[][..], |known| known.1);
            call.is_programs && names.iter().any(|name| call.text.starts_with(name))
        });
        for ((step, _, most), count) in STEPS.into_iter().zip(counts) {
            println!("{step}: {count} system calls");
            assert!(count <= most || step == "sync" && !has_one_call(), "{step}: {count} system calls, and not {most}");
        }
    }
    let _ = std::fs::remove_file(program);
}
