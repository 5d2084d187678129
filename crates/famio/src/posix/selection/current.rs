//! The configuration that this process runs under.

use super::config::Config;
use crate::fast_path::FAST_PATH;
use crate::name_prefilter::NamePrefilter;
use core::ptr;
use core::sync::atomic::Ordering;

/// As `config_to_look`, without starting the library.
#[inline]
pub(in crate::posix) fn published_config() -> Option<&'static Config> {
    // SAFETY: null, or put there by `publish_config`, which never frees one.
    unsafe { FAST_PATH.config.load(Ordering::Acquire).cast::<Config>().as_ref() }
}

/// Publishes a configuration. A reader may still use the previous one, so that is never freed.
pub(in crate::posix) fn publish_config(config: &'static Config, prefilter: &NamePrefilter) {
    FAST_PATH.name_prefilter.set(prefilter);
    FAST_PATH.config.store(ptr::from_ref(config).cast_mut().cast(), Ordering::Release);
}

/// There is none any more.
pub(in crate::posix) fn withdraw_config() {
    FAST_PATH.config.store(ptr::null_mut(), Ordering::Release);
}
