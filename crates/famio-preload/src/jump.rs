//! For what the build scripts of this library and of `famio-trace` make.

/// The instruction that goes on to another function with everything left in place.
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
