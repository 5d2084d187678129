//! One operation of a path, and what several have in common.

/// Runs one operation; the argument is its number.
pub type Operation = Box<dyn FnMut(u32)>;

/// Multiples of 10 and 64: there is an `fsync` every 10 operations, and the library does some work for one operation
/// in 64.
pub const MANY: u32 = 3200;
pub const FEW: u32 = 640;

/// A block below `blocks` that depends only on the number.
pub fn random_block(number: u32, blocks: u64) -> u64 {
    (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_spread() {
        let mut hit = [false; 64];
        (0..1000).for_each(|number| hit[random_block(number, 64) as usize] = true);
        assert_eq!(hit, [true; 64]);
    }
}
