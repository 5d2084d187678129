//! For the code that the build scripts of this library and of `famio-trace` generate.

/// The instruction that jumps to another function with all registers unchanged.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {}"
    };
}
