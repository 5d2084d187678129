//! How much memory the machine has.

/// Twice the memory of this machine, in GiB, as an argument of a program.
pub fn twice_the_memory() -> String {
    // SAFETY: plain words, filled in by the call.
    let info = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        libc::sysinfo(&raw mut info);
        info
    };
    (2 * info.totalram * u64::from(info.mem_unit)).div_ceil(1 << 30).to_string()
}
