//! Persistence: what a store needs to survive. Knows nothing of journals.

#[cfg(target_arch = "aarch64")]
mod copy_arm;
#[cfg(target_arch = "x86_64")]
mod copy_x86;
pub mod cpu;
mod detect;
mod domain;
mod lines;
mod medium;
mod native;
pub mod record;

pub use cpu::CpuFeatures;
pub use detect::{Detected, detect};
pub use domain::Domain;
pub use lines::LINE;
pub use medium::Medium;
pub use native::medium;

/// A file without a name in `folder`, for tests.
#[cfg(test)]
pub(crate) fn test_file(folder: &str, size: u64) -> std::fs::File {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).unwrap());
    file.set_len(size).unwrap();
    file
}
