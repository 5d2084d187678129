//! How much memory there is for this process: the machine's, or what its cgroup may have.

use super::{openat, read_whole};
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{CWD, Mode, OFlags, access};

/// Where cgroups of version 2 are mounted: alone, or together with those of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The same for the memory of version 1.
const MOUNT_OF_1: &str = "/sys/fs/cgroup/memory";

/// The memory in bytes that this process may use, as it was at the first call.
pub(crate) fn memory() -> u64 {
    static MEMORY: AtomicU64 = AtomicU64::new(0);
    match MEMORY.load(Ordering::Relaxed) {
        0 => {
            // Without a number for a descriptor, or /proc, it is asked for again the next time.
            let Some(limit) = limit_of_cgroup() else { return of_machine() };
            let memory = of_machine().min(limit);
            MEMORY.store(memory, Ordering::Relaxed);
            memory
        }
        memory => memory,
    }
}

fn of_machine() -> u64 {
    // SAFETY: plain words, filled in by the kernel.
    let info = unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        super::syscall(libc::SYS_sysinfo, [&raw mut info as usize, 0, 0, 0, 0, 0]);
        info
    };
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// The path of a file of this process's cgroup of version 2, if it has it.
pub(crate) fn in_cgroup(name: &str) -> Option<String> {
    let text = text_of("/proc/self/cgroup")?;
    let group = group_of(&text)?;
    let paths = MOUNTS.iter().map(|mount| format!("{mount}{}/{name}", group.trim_end_matches('/')));
    paths.into_iter().find(|path| access(path.as_str(), rustix::fs::Access::READ_OK).is_ok())
}

/// The number in a file of the kernel's.
pub(crate) fn number_in(path: &str) -> Option<u64> {
    text_of(path)?.trim().parse().ok()
}

fn text_of(path: &str) -> Option<String> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    String::from_utf8(read_whole(&file, 64 << 10)).ok()
}

/// The lowest limit of the cgroups of this process, of either version. `None`: that can't be told now.
fn limit_of_cgroup() -> Option<u64> {
    let text = text_of("/proc/self/cgroup")?;
    let mut least = u64::MAX;
    let mut note = |limit: Option<u64>| least = least.min(limit.unwrap_or(u64::MAX));
    for mount in MOUNTS {
        // Above `high` the kernel stops the process again and again.
        for file in ["memory.max", "memory.high"] {
            note(group_of(&text).and_then(|group| limit(mount, group, file)));
        }
    }
    note(group_of_1(&text).and_then(|group| limit(MOUNT_OF_1, group, "memory.limit_in_bytes")));
    Some(least)
}

/// The lowest limit of a group and those that contain it, as far as they can be seen.
fn limit(mount: &str, group: &str, file: &str) -> Option<u64> {
    let mut group = group.trim_end_matches('/');
    let mut least = None;
    loop {
        let here = number_in(&format!("{mount}{group}/{file}")); // "max": none
        least = here.into_iter().chain(least).min();
        match group.rfind('/') {
            Some(end) => group = &group[..end],
            None => return least,
        }
    }
}

/// This process's cgroup of version 2.
fn group_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The one of version 1 for memory.
fn group_of_1(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_each_version_is_found_beside_others() {
        let text = "9:name=systemd:/x\n4:cpu,memory:/a\n0::/user/1\n";
        assert_eq!((group_of(text), group_of_1(text)), (Some("/user/1"), Some("/a")));
        assert_eq!((group_of("4:memory:/a\n"), group_of_1("0::/\n")), (None, None));
    }

    #[test]
    fn the_lowest_limit_counts() {
        let folder = std::env::temp_dir().join(format!("famio-memory-{}", std::process::id()));
        let mount = folder.to_str().unwrap();
        std::fs::create_dir_all(folder.join("a/b/c")).unwrap();
        for (at, text) in [("a/b/c/max", "max\n"), ("a/b/max", "4096\n"), ("max", "8192\n")] {
            std::fs::write(folder.join(at), text).unwrap();
        }
        let of = |group| limit(mount, group, "max");
        assert_eq!((of("/a/b/c"), of("/a/b"), of("/a"), of("/")), (Some(4096), Some(4096), Some(8192), Some(8192)));
        assert_eq!(of("/somewhere/else"), Some(8192)); // a path of the host, seen in a container
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(of("/a/b"), None);
        assert!(memory() > 0);
    }

    #[test]
    fn numbers_of_the_kernels() {
        assert!(number_in("/proc/sys/vm/max_map_count").is_some_and(|maps| maps > 0));
        assert_eq!(number_in("/proc/self/cmdline"), None);
        assert_eq!(number_in("/proc/nothing"), None);
    }
}
