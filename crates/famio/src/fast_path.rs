//! The fast-path state that every call on a non-atomic file checks: one cache line. After a system call, little else
//! is cached, and a cache miss would cost such a call more than everything it does here.

use crate::name_prefilter::NamePrefilter;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

pub(crate) const NUMBERS: usize = 1 << 20;

#[repr(C, align(64))]
pub(crate) struct FastPath {
    /// Number of descriptors of atomic files, counted by `posix::descriptors::table`.
    pub descriptors: AtomicUsize,
    /// Number of the program's maps of atomic files, counted by `file::shadow`.
    pub maps: AtomicUsize,
    /// The configuration, while files are managed; never freed. Set by `posix::life::process`.
    pub config: AtomicPtr<()>,
    /// The lowest number that an internal descriptor has had; negative while one passes through any number. Set by
    /// `sys::internal`.
    pub internal: AtomicI32,
    /// The prefilter of selected names; accepts every name while nothing is known.
    pub name_prefilter: NamePrefilter,
}

pub(crate) static FAST_PATH: FastPath = FastPath {
    descriptors: AtomicUsize::new(0),
    maps: AtomicUsize::new(0),
    config: AtomicPtr::new(null_mut()),
    internal: AtomicI32::new(NUMBERS as i32),
    name_prefilter: NamePrefilter::any(),
};

impl FastPath {
    /// Whether any descriptor, or any map, is an atomic file's.
    #[inline]
    pub fn any(&self) -> bool {
        self.descriptors.load(Ordering::Relaxed) != 0 || self.maps.load(Ordering::Acquire) != 0
    }
}

const _: () = assert!(size_of::<FastPath>() == 64);
// The fronts of the preload library look at it.
const _: () = assert!(core::mem::offset_of!(FastPath, internal) == 24);
