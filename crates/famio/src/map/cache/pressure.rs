//! The kernel's notices that memory runs short: at the cgroup's limit, and by stalls of tasks that wait for memory.

use crate::sys::{InternalFd, openat};
use core::ffi::CStr;
use rustix::fs::{CWD, Mode, OFlags, access};
use rustix::io::{read, write};

/// Where cgroups of version 2 are mounted: alone, or together with those of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Tasks waited 150 ms of 2 s for memory. Unprivileged processes may only ask for multiples of 2 s.
const STALL: &[u8] = b"some 150000 2000000\0";
/// Those 2 s, in nanoseconds.
pub(super) const WINDOW: u64 = 2_000_000_000;

/// The file that changes when this process's cgroup reaches one of its limits. Version 2 only; a cgroup without
/// limits has none.
pub(super) fn limit_events() -> Option<String> {
    in_cgroup("memory.events")
}

/// A descriptor that becomes ready when memory is short in the cgroup or, without one, on the machine.
pub(super) fn stalls() -> Option<InternalFd> {
    let own = in_cgroup("memory.pressure");
    own.iter().map(String::as_str).chain(["/proc/pressure/memory"]).find_map(|path| {
        let file = openat(CWD, path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
        write(&file, STALL).ok()?;
        Some(file)
    })
}

fn in_cgroup(name: &str) -> Option<String> {
    let text = text_of(c"/proc/self/cgroup")?;
    let group = group_of(&text)?;
    let paths = MOUNTS.iter().map(|mount| format!("{mount}{}/{name}", group.trim_end_matches('/')));
    paths.into_iter().find(|path| access(path.as_str(), rustix::fs::Access::READ_OK).is_ok())
}

/// This process's cgroup of version 2.
fn group_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The number in a file of the kernel's.
pub(super) fn number_in(path: &CStr) -> Option<u64> {
    text_of(path)?.trim().parse().ok()
}

fn text_of(path: &CStr) -> Option<String> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = vec![0; 8192];
    let len = read(&file, &mut text).ok()?;
    text.truncate(len);
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_version_2_is_found_beside_others() {
        assert_eq!(group_of("9:name=systemd:/x\n4:memory:/a\n0::/user/1\n"), Some("/user/1"));
        assert_eq!(group_of("4:memory:/a\n"), None);
    }

    #[test]
    fn numbers_of_the_kernels() {
        assert!(number_in(c"/proc/sys/vm/max_map_count").is_some_and(|maps| maps > 0));
        assert_eq!(number_in(c"/proc/self/cmdline"), None);
        assert_eq!(number_in(c"/proc/nothing"), None);
    }
}
