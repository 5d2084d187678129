//! The configuration that this process runs under.

use super::config::Config;
use crate::edges::Edges;
use crate::near::NEAR;
use core::ptr;
use core::sync::atomic::Ordering;

/// As [`config_to_look`], and does not start anything.
#[inline]
pub(in crate::posix) fn config_nearby() -> Option<&'static Config> {
    // SAFETY: null, or put there by `put_nearby`, which never frees one.
    unsafe { NEAR.config.load(Ordering::Acquire).cast::<Config>().as_ref() }
}

/// A reader may still have the one before: it stays. `edges`: of the names that it means.
pub(in crate::posix) fn put_nearby(config: &'static Config, edges: &Edges) {
    NEAR.edges.set(edges);
    NEAR.config.store(ptr::from_ref(config).cast_mut().cast(), Ordering::Release);
}

/// There is none any more.
pub(in crate::posix) fn put_away() {
    NEAR.config.store(ptr::null_mut(), Ordering::Release);
}
