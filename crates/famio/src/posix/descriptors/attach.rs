//! An open descriptor becomes one of an atomic file.

use super::description::Handle;
use super::table;
use crate::error::Result;
use crate::file::{AtomicFile, OpenedBy};
use crate::posix::run::run_notes;
use crate::posix::runtime::say::{Once, say_once};
use crate::posix::selection::config::Config;
use crate::posix::selection::path_text;
use crate::thread::Held;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

/// Famio's own flag for `open`: makes the file atomic even if no glob selects it. The kernel does not know the flag
/// and would ignore it.
pub const O_ATOMIC: i32 = 1 << 30;

/// The library sees all calls of the program, so the program cannot tell twins from separate opens.
static TWINS_MAY_BE: AtomicBool = AtomicBool::new(false);

/// To be called once, by an interposer.
pub fn allow_twins() {
    TWINS_MAY_BE.store(true, Ordering::Relaxed);
}

/// Whether descriptions may be joined.
pub(in crate::posix) fn twins_may_be() -> bool {
    TWINS_MAY_BE.load(Ordering::Relaxed)
}

/// Makes `fd` a descriptor of an atomic file. `position`: `None` if other processes have it too and the position is
/// the kernel's.
pub(in crate::posix) fn attach(
    config: &Config,
    fd: RawFd,
    said: &CStr,
    flags: i32,
    kernel_access: i32,
    position: Option<u64>,
) -> Result<Handle> {
    attach_as(config, fd, path_text::path_of(fd, said), None, flags, kernel_access, position)
}

/// Says that the settings weaken durability, if they do: once in a process, and under `famio run` once in all of them.
pub(in crate::posix) fn warn_if_weakened(config: &Config) {
    if let Some(warning) = config.warning()
        && say_once(Once::Weakened)
        && run_notes::is_first_to_warn()
    {
        crate::sys::log::say_always(&[warning.as_bytes()]);
    }
}

/// As [`attach`]; `name`: that by which it was just opened.
pub(in crate::posix) fn attach_as(
    config: &Config,
    fd: RawFd,
    path: CString,
    name: Option<OpenedBy<'_>>,
    flags: i32,
    kernel_access: i32,
    position: Option<u64>,
) -> Result<Handle> {
    // One uninterrupted section for signal handlers: a handler that finds the file finds its description, too.
    let _held = Held::of_process();
    warn_if_weakened(config);
    // SAFETY: the descriptor is open, and stays so during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut settings = config.settings_of(&path);
    if flags & O_ATOMIC != 0 {
        settings.to_mut().require = true;
    }
    if let Some(group) = config.group_of(&path)? {
        settings.to_mut().group = Some(group);
    }
    let access = table::access(kernel_access);
    let is_new = name.is_some();
    let file: Arc<AtomicFile> = match name {
        Some(name) => AtomicFile::open_by_name(borrowed, access, &path, name, &settings)?,
        None => AtomicFile::open(borrowed, access, &path, &settings)?,
    };
    if twins_may_be() {
        file.is_opened(fd, is_new);
    }
    let flags = flags & !O_ATOMIC;
    let handle = Handle::new(file, path, flags, kernel_access, position);
    table::install(fd, handle.share());
    Ok(handle)
}
