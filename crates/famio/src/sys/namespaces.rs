//! The namespaces of this process, as numbers. A process id or a path that another process recorded means something
//! here only if these are the same.

use super::internal::undisturbed::Answer;
use core::convert::Infallible;
use core::sync::atomic::{AtomicU64, Ordering};

/// The PID namespace of this process, whose id in it is `me`; 0: unknown.
pub(crate) fn of_process(me: u32) -> u32 {
    /// The namespace in the high half, the process id for which it was asked in the low half.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if (known >> 32) as u32 == me && known as u32 != 0 {
        return known as u32;
    }
    let found = rustix::fs::stat(c"/proc/self/ns/pid").map_or(0, |stat| stat.st_ino as u32);
    KNOWN.store(u64::from(me) << 32 | u64::from(found), Ordering::Relaxed);
    found
}

/// The view in which this process's paths hold: its mount namespace, and its root folder in that. As text, without
/// spaces.
pub(crate) fn of_paths() -> String {
    static KNOWN: Answer<String> = Answer::new();
    KNOWN.get(|| Ok::<_, Infallible>(of_paths_now())).unwrap_or_default()
}

/// Device and inode of this process's root folder.
pub(crate) fn root_folder() -> (u64, u64) {
    static KNOWN: Answer<(u64, u64)> = Answer::new();
    KNOWN.get(|| rustix::fs::stat(c"/").map(|stat| (stat.st_dev, stat.st_ino))).unwrap_or_default()
}

fn of_paths_now() -> String {
    let mounts = rustix::fs::stat(c"/proc/thread-self/ns/mnt").map_or(0, |stat| stat.st_ino);
    let root = root_folder();
    format!("{mounts:x}-{:x}-{:x}", root.0, root.1)
}
