//! The configuration that this process runs under.

use super::config::Config;
use crate::fast_path::FAST_PATH;
use crate::name_prefilter::NamePrefilter;
use core::ptr;
use core::sync::atomic::Ordering;

/// As `config_to_look`, without starting the library.
#[inline]
pub(in crate::posix) fn config_nearby() -> Option<&'static Config> {
    // SAFETY: null, or put there by `put_nearby`, which never frees one.
    unsafe { FAST_PATH.config.load(Ordering::Acquire).cast::<Config>().as_ref() }
}

/// Publishes a configuration. A reader may still use the previous one, so that is never freed. `edges`: its name
/// prefilter.
pub(in crate::posix) fn put_nearby(config: &'static Config, edges: &NamePrefilter) {
    FAST_PATH.name_prefilter.set(edges);
    FAST_PATH.config.store(ptr::from_ref(config).cast_mut().cast(), Ordering::Release);
}

/// There is none any more.
pub(in crate::posix) fn put_away() {
    FAST_PATH.config.store(ptr::null_mut(), Ordering::Release);
}
