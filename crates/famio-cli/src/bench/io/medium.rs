//! How much a process has written to a disk.

/// Bytes that this process has caused to be written to a disk, if the kernel counts them. A page that is changed again before it is
/// written counts once. What goes to tmpfs or to mapped persistent memory does not count.
pub fn bytes_to_disk() -> Option<u64> {
    written(&std::fs::read_to_string("/proc/self/io").ok()?)
}

fn written(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_is_found() {
        assert_eq!(super::written("rchar: 5\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n"), Some(8192));
        assert_eq!(super::written("rchar: 5\n"), None);
    }
}
