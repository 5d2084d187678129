//! The kernel's list of locks and leases.

use std::io::Read;

/// More than the kernel gives out at once.
const AT_ONCE: usize = 64 << 10;

/// The kernel's lines for a file, which must not change meanwhile: `1: POSIX ADVISORY WRITE 1234 00:19:5678 0 EOF`. It
/// gives out all files' lines in pieces of a page, or smaller ones if less is asked for, and passes over one if others
/// are released between two pieces: the longest of several lists is complete.
pub fn of_inode(inode: u64) -> Vec<String> {
    let end = format!(":{inode}");
    let look = |_| {
        let all = all();
        let lines = all.lines().filter(|line| line.split_whitespace().any(|word| word.ends_with(&end)));
        lines.map(String::from).collect::<Vec<_>>()
    };
    (0..8).map(look).max_by_key(Vec::len).unwrap_or_default()
}

/// The whole list. `read_to_string` would first ask for a few bytes, and get the first line alone.
fn all() -> String {
    let mut file = std::fs::File::open("/proc/locks").expect("/proc/locks");
    let (mut list, mut piece) = (Vec::new(), vec![0; AT_ONCE]);
    loop {
        match file.read(&mut piece).expect("/proc/locks") {
            0 => return String::from_utf8(list).expect("/proc/locks"),
            read => list.extend_from_slice(&piece[..read]),
        }
    }
}
