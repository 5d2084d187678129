//! Containers and services that may have less memory than the machine.

mod common;

use common::{Folder, build, library};
use std::path::PathBuf;
use std::process::Command;

/// Where a group with a limit can be made, and the file for that limit: with either version of cgroups.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A memory cgroup, which goes away.
struct Group(PathBuf);

impl Group {
    /// `None`, with a loud message, if this process may not make one.
    fn new(name: &str, bytes: u64) -> Option<Self> {
        let made = MOUNTS.iter().find_map(|(mount, file)| {
            let group = Self(PathBuf::from(format!("{mount}/famio-{name}-{}", std::process::id())));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(file), bytes.to_string()).ok()?;
            Some(group)
        });
        if made.is_none() {
            eprintln!("NOT TESTED: no memory cgroup can be made here");
        }
        made
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The bytes of an open epoch lie in shared memory, which counts for the group: the kernel once killed the program,
/// which without Famio had no difficulty.
#[test]
fn an_epoch_larger_than_the_memory_goes_on_on_the_disk() {
    const EPOCH: usize = 192;
    let Some(group) = Group::new("epoch", 96 << 20) else { return };
    let folder = Folder::on_disk("memory-limit");
    let program = build("epoch");
    std::fs::write(folder.path().join("atomic"), vec![b'x'; EPOCH << 20]).unwrap();
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec env LD_PRELOAD={} FAMIO_ATOMIC='atomic*' \"$@\"",
        group.0.display(),
        library().display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(&program).args(["atomic", &EPOCH.to_string(), "A", "sync"]);
    let done = command.current_dir(folder.path()).output().unwrap();
    assert!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    let found = folder.read("atomic");
    assert!(found.len() == EPOCH << 20 && found.iter().skip(2048).step_by(4096).all(|&byte| byte == b'A'));
    let _ = std::fs::remove_file(program);
}
