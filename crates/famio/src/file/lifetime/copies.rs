//! Copies of atomic files, with what killed processes left to be kept.

use crate::error::Result;
use crate::file::steps_to_keep;
use crate::recovery::{Backup, Restored, backup_by, restore_by};
use crate::settings::Settings;
use std::path::Path;

/// Copies the file at `from`, as of its last SYNC, to `to`, durably and by one rename: a file that had that name
/// stays until the copy is whole. If killed processes have left the file, the copy is as a recovery would leave it.
/// `replace`: a regular file may have that name, or be the target of a symbolic link of that name. The copy gets the
/// file's mode and owner, as far as this process may set them. If a process has a write lease on the file, the copy
/// waits until it ends: some milliseconds, or, if that process is stopped, up to `/proc/sys/fs/lease-break-time` seconds.
/// If that takes longer than a second, `waits` is called once, with the process id.
///
/// # Errors
/// `EEXIST`. `EAGAIN`: the file changes too fast to be copied. `EIO`: file and journal contradict each other.
/// `EBUSY`: `to` is an atomic file, or a process writes it. `EINVAL`: not a regular file, or both are the same file.
/// Others are the kernel's.
pub fn backup(
    from: &Path,
    to: &Path,
    replace: bool,
    settings: &Settings,
    waits: &dyn Fn(Option<u32>),
) -> Result<Backup> {
    backup_by(from, to, replace, settings, waits, &steps_to_keep)
}

/// Replaces the file `to`, which need not exist, by a copy of `from`, made as by
/// [`backup`](fn@crate::recovery::backup), with one rename. Owner, group and mode are those of the old file, as far as
/// this process may set them. Then the old file's journal is removed; if the file has another name,
/// after a recovery.
///
/// # Errors
/// `EBUSY`: a process has the file open. `EINVAL`: not a regular file, or both are the same file. Others are
/// [`backup`](fn@crate::recovery::backup)'s. After any error, the old file and its journal are unchanged, unless the
/// text says that it was restored.
pub fn restore(from: &Path, to: &Path, settings: &Settings, waits: &dyn Fn(Option<u32>)) -> Result<Restored> {
    restore_by(from, to, settings, waits, &steps_to_keep)
}
