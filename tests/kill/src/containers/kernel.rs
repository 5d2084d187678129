//! Calls of the kernel about processes.

/// Whether this is root, in its user namespace.
pub fn is_root() -> bool {
    // SAFETY: has no conditions.
    unsafe { libc::geteuid() == 0 }
}

/// The processes that a process with one thread has started.
pub fn children(id: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_ascii_whitespace().flat_map(str::parse).collect()
}

/// Sends SIGKILL to a child of a child of ours, which its parent may only just have reaped.
pub fn kill(id: i32) -> bool {
    // SAFETY: sends a signal.
    unsafe { libc::kill(id, libc::SIGKILL) == 0 }
}
