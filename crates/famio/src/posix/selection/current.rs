//! The configuration that this process runs under.

use super::config::Config;
use crate::edges::Edges;
use crate::near::NEAR;
use core::ptr;
use core::sync::atomic::Ordering;

/// As [`config_to_look`], without starting the library.
#[inline]
pub(in crate::posix) fn config_nearby() -> Option<&'static Config> {
    // SAFETY: null, or put there by `put_nearby`, which never frees one.
    unsafe { NEAR.config.load(Ordering::Acquire).cast::<Config>().as_ref() }
}

/// Publishes a configuration. A reader may still use the previous one, so that is never freed. `edges`: its name
/// prefilter.
pub(in crate::posix) fn put_nearby(config: &'static Config, edges: &Edges) {
    NEAR.edges.set(edges);
    NEAR.config.store(ptr::from_ref(config).cast_mut().cast(), Ordering::Release);
}

/// There is none any more.
pub(in crate::posix) fn put_away() {
    NEAR.config.store(ptr::null_mut(), Ordering::Release);
}
