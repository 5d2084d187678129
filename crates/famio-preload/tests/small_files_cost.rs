//! What a small file costs that is open for a moment, counted in system calls.

mod common;

use common::counted::calls;
use common::{Folder, build, has_strace, library, succeed};
use std::process::Command;

/// Files of each kind that are counted.
const FILES: usize = 20;
/// The kinds, and the most system calls for one file, by all threads of the process: on tmpfs, and on a disk. On a disk
/// the background takes part or comes too late: an existing file costs 219 to 224.
const STEPS: [(&str, [usize; 2]); 9] = [
    ("existing", [43, 226]),
    ("new", [25, 27]),
    ("synced", [28, 30]),
    ("replaced", [39, 41]),
    ("read", [18, 18]),
    ("mapped", [19, 19]),
    ("looked-at", [6, 6]),
    ("appended-to", [38, 40]),
    ("removed", [8, 8]),
];

/// Opened, overwritten and closed, an existing file of 4 KiB once cost 461 calls: each descriptor of the library was
/// confirmed before each use, also where nobody could have changed it. To map one privately cost 206, and files in
/// `.famio/`; to remove one by its folder's descriptor 69, to look at one so 27.
#[test]
fn a_small_file_costs_few_system_calls() {
    if !has_strace() {
        return;
    }
    let program = build("small_files_cost");
    for (place, folder) in [Folder::new("small-cost"), Folder::on_disk("small-cost")].iter().enumerate() {
        for number in 0..FILES + 10 {
            std::fs::write(folder.path().join(format!("existing-{number}.dat")), [b'.'; 4096]).unwrap();
        }
        let trace = folder.path().join("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-o"]).arg(&trace).arg("env").arg(format!("LD_PRELOAD={}", library().display()));
        command.arg("FAMIO_ATOMIC=*.dat").args(["FAMIO_DURABILITY=process", "FAMIO_LOG_LEVEL=error"]);
        succeed(command.arg(&program).arg(folder.path()));
        let counts = calls(&trace, STEPS.map(|step| step.0), |_, call| !call.is_resumed);
        for ((step, most), count) in STEPS.into_iter().zip(counts) {
            let (count, most) = (count / FILES, most[place]);
            println!("{step}: {count} system calls a file");
            assert!(count <= most, "{step}: {count} system calls a file, and not {most}");
        }
        assert!(!folder.names().iter().any(|name| name.starts_with(".famio")), "{:?}", folder.names());
    }
    let _ = std::fs::remove_file(program);
}
