//! What `/proc` says of a process (`proc_pid_stat(5)`).

use super::{openat, read_at};
use rustix::fs::{CWD, Mode, OFlags};

pub(crate) struct ProcessStat {
    /// One letter.
    pub state: u8,
    pub threads: u64,
    /// When it began, in the kernel's ticks since the boot.
    pub start: u64,
}

/// `process`: a folder of `/proc`. `None`: there is none, or it may not be read.
pub(crate) fn process_stat(process: &str) -> Option<ProcessStat> {
    let path = format!("/proc/{process}/stat");
    let stat = openat(CWD, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let length = read_at(&stat, 0, &mut text).ok()?;
    // "4711 (name) S 1 ...": the name may have brackets.
    let name_ends = text[..length].iter().rposition(|&byte| byte == b')')?;
    let fields: Vec<_> = core::str::from_utf8(text.get(name_ends + 2..length)?).ok()?.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(ProcessStat { state: *fields.first()?.as_bytes().first()?, threads: number(17)?, start: number(19)? })
}
