//! Little-endian fields at fixed offsets of a buffer. The caller has checked its length.

/// The `N` bytes at `at`.
pub(crate) fn bytes_at<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&from[at..at + N]);
    out
}

/// The 32-bit word at `at`.
pub(crate) fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(from, at))
}

/// The 64-bit word at `at`.
pub(crate) fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(from, at))
}

/// The 128-bit word at `at`.
pub(crate) fn u128_at(from: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes_at(from, at))
}

/// Stores `bytes` at `at`.
pub(crate) fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0)
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use core::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String does not fail
        text
    })
}
