//! Copies between two descriptors that the kernel would make by itself: `copy_file_range`, `sendfile`, `splice`.

pub(super) mod copy;
pub(super) mod splice;
