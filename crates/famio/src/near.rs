//! What a call on a file that is not atomic looks at: one cache line. After a system call little else is near, and a line that is
//! not costs such a call more than all it does with it.

use crate::edges::Edges;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

#[repr(C, align(64))]
pub(crate) struct Near {
    /// Descriptors of atomic files: counted by `posix::table`.
    pub descriptors: AtomicUsize,
    /// The program's maps of atomic files: counted by `file::shadow`.
    pub maps: AtomicUsize,
    /// The configuration, while files are managed, and never freed: `posix::process`.
    pub config: AtomicPtr<()>,
    /// The lowest number that an internal descriptor has had; negative while one passes through any: `sys::internal`.
    pub internal: AtomicI32,
    /// Of the names that are meant: of any, as long as nothing is known.
    pub edges: Edges,
}

pub(crate) static NEAR: Near = Near {
    descriptors: AtomicUsize::new(0),
    maps: AtomicUsize::new(0),
    config: AtomicPtr::new(null_mut()),
    internal: AtomicI32::new(crate::sys::internal::NUMBERS as i32),
    edges: Edges::any(),
};

impl Near {
    /// Whether any descriptor, or any map, is an atomic file's.
    #[inline]
    pub fn any(&self) -> bool {
        self.descriptors.load(Ordering::Relaxed) != 0 || self.maps.load(Ordering::Acquire) != 0
    }
}

const _: () = assert!(size_of::<Near>() == 64);
// The fronts of the preload library look at it.
const _: () = assert!(core::mem::offset_of!(Near, internal) == 24);
