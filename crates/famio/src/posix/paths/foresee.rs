//! What a call that changes names is going to do, as far as that can be told cheaply: an open file is not committed for
//! a call that fails, or that changes nothing. The kernel is asked in any case.

use crate::posix::raw;
use crate::posix::selection::path_text::PathText;
use core::ffi::{CStr, c_char};
use libc::statx as Statx;
use rustix::thread::CapabilitySet;

/// One of the names in a call: the folder that it is relative to, and the path.
pub(super) type Name = (i32, *const c_char);

/// What was foreseen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The call may succeed.
    Open,
    /// It fails.
    Fails,
    /// It succeeds: both names are the same file's, so that the kernel leaves them.
    ChangesNothing,
}

impl Outcome {
    fn fails_if(fails: bool) -> Self {
        if fails { Self::Fails } else { Self::Open }
    }
}

/// # Safety
/// `name` is a C string, or a pointer that the kernel refuses.
pub(super) unsafe fn unlink(name: Name) -> Outcome {
    // SAFETY: the caller's promise.
    Outcome::fails_if(unsafe { Seen::of(name) }.is_none_or(|seen| !seen.may_go()))
}

/// # Safety
/// As [`unlink`].
pub(super) unsafe fn rename(old: Name, new: Name, flags: u32) -> Outcome {
    const KNOWN: u32 = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
    let exchanges = flags & libc::RENAME_EXCHANGE != 0;
    if flags & !KNOWN != 0 || exchanges && flags != libc::RENAME_EXCHANGE {
        return Outcome::Fails;
    }
    // SAFETY: the caller's promise.
    let both = unsafe { (Seen::of(old), Seen::of(new)) };
    let (Some(old), Some(new)) = both else { return Outcome::Fails };
    let Some(moved) = &old.file else { return Outcome::Fails };
    let fits = match &new.file {
        Some(_) if flags & libc::RENAME_NOREPLACE != 0 => false,
        Some(replaced) if is_same(moved, replaced) => return Outcome::ChangesNothing,
        Some(replaced) => exchanges || is_folder(moved) == is_folder(replaced),
        None => !exchanges,
    };
    let is_refused = |seen: &Seen| !seen.may_go();
    Outcome::fails_if(!fits || !are_together(&old.folder, &new.folder) || is_refused(&old) || is_refused(&new))
}

/// `follow`: the flags with which the kernel looks `old` up.
///
/// # Safety
/// As [`unlink`].
pub(super) unsafe fn link(old: Name, follow: i32, new: Name, flags: i32) -> Outcome {
    if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return Outcome::Fails;
    }
    // SAFETY: the caller's promise.
    let (Ok(linked), Some(new)) = (unsafe { (look(old, follow), Seen::of(new)) }) else { return Outcome::Fails };
    let is_elsewhere = mount(&linked).zip(mount(&new.folder)).is_some_and(|(old, new)| old != new);
    Outcome::fails_if(is_fixed(&linked) || is_elsewhere || new.file.is_some() || !new.may_go())
}

/// What a name leads to.
struct Seen {
    /// `None`: nothing has this name.
    file: Option<Statx>,
    folder: Statx,
    may_write_folder: bool,
}

impl Seen {
    /// `None`: no call can change this name, whatever it leads to.
    ///
    /// # Safety
    /// As [`unlink`].
    unsafe fn of((dirfd, path): Name) -> Option<Self> {
        // SAFETY: the caller's promise.
        let file = match unsafe { look((dirfd, path), libc::AT_SYMLINK_NOFOLLOW) } {
            Ok(file) => Some(file),
            Err(libc::ENOENT) => None,
            Err(_) => return None,
        };
        // SAFETY: the kernel has read it to its end.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let mut folder = PathText::new();
        if !folder_of(path, file.as_ref().is_some_and(is_folder), &mut folder) {
            return None;
        }
        let folder = folder.c_str().cast();
        // SAFETY: a C string; no other memory is passed.
        let (looked, answer) = unsafe {
            let access = (libc::W_OK | libc::X_OK, libc::AT_EACCESS);
            let answer = raw!(SYS_faccessat2, dirfd, folder, access.0, access.1);
            (look((dirfd, folder), 0).ok()?, -answer as i32)
        };
        // Another error may come from a sandbox, or from an old kernel.
        let may_write_folder = ![libc::EACCES, libc::EROFS].contains(&answer);
        Some(Self { file, folder: looked, may_write_folder })
    }

    /// Whether the name may be given to another file or to none.
    fn may_go(&self) -> bool {
        let may_go = |file: &Statx| {
            !is_fixed(file)
                && file.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 == 0
                && self.folder.stx_attributes & libc::STATX_ATTR_APPEND as u64 == 0
                && !self.is_kept_by_sticky_bit(file)
        };
        self.may_write_folder
            && self.folder.stx_attributes & libc::STATX_ATTR_IMMUTABLE as u64 == 0
            && self.file.as_ref().is_none_or(may_go)
    }

    fn is_kept_by_sticky_bit(&self, file: &Statx) -> bool {
        if u32::from(self.folder.stx_mode) & libc::S_ISVTX == 0 {
            return false;
        }
        let me = rustix::process::geteuid().as_raw();
        let may_all =
            || rustix::thread::capabilities(None).is_ok_and(|all| all.effective.contains(CapabilitySet::FOWNER));
        me != file.stx_uid && me != self.folder.stx_uid && !may_all()
    }
}

/// # Safety
/// As [`unlink`].
unsafe fn look((dirfd, path): Name, flags: i32) -> Result<Statx, i32> {
    // SAFETY: the caller's promise. All-zero bytes are a valid statx; the kernel fills it in.
    unsafe {
        let mut seen: Statx = core::mem::zeroed();
        match raw!(SYS_statx, dirfd, path, flags, libc::STATX_BASIC_STATS | libc::STATX_MNT_ID, &raw mut seen) {
            0 => Ok(seen),
            error => Err(-error as i32),
        }
    }
}

/// Appends the path of the folder that holds the last name of `path`. False: there is no such name, or only a folder
/// could have it.
fn folder_of(path: &[u8], is_folder: bool, folder: &mut PathText) -> bool {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let begin = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let is_name = ![&b""[..], b".", b".."].contains(&&path[begin..end]);
    is_name && (end == path.len() || is_folder) && folder.push(if begin == 0 { b"." } else { &path[..begin] })
}

fn is_folder(seen: &Statx) -> bool {
    u32::from(seen.stx_mode) & libc::S_IFMT == libc::S_IFDIR
}

/// Whether it is immutable, or may only be appended to: then nobody may change its names.
fn is_fixed(seen: &Statx) -> bool {
    seen.stx_attributes & (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64 != 0
}

fn device(seen: &Statx) -> (u32, u32) {
    (seen.stx_dev_major, seen.stx_dev_minor)
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    (device(one), one.stx_ino) == (device(other), other.stx_ino)
}

/// The mount that it was reached by, from Linux 5.8 on.
fn mount(seen: &Statx) -> Option<u64> {
    (seen.stx_mask & libc::STATX_MNT_ID != 0).then_some(seen.stx_mnt_id)
}

/// Whether files may be moved from one folder to the other. (Only folders are compared: on overlayfs, files may be of
/// other devices than their folders.)
fn are_together(one: &Statx, other: &Statx) -> bool {
    device(one) == device(other) && mount(one).zip(mount(other)).is_none_or(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::{PathText, folder_of};

    #[test]
    fn the_folder_of_a_path() {
        let of = |path: &str, is_folder| {
            let mut folder = PathText::new();
            let found = folder_of(path.as_bytes(), is_folder, &mut folder);
            found.then(|| String::from_utf8(folder.get().to_vec()).unwrap())
        };
        for (path, folder) in [("a", "."), ("./a", "./"), ("/a", "/"), ("b//a", "b//"), ("../b/a", "../b/")] {
            assert_eq!(of(path, false).as_deref(), Some(folder), "{path}");
        }
        for path in ["", "/", ".", "..", "a/.", "a/..", "a/"] {
            assert_eq!(of(path, false), None, "{path}");
        }
        assert_eq!(of("b/a//", true).as_deref(), Some("b/"));
        assert_eq!(of(&"a".repeat(4096), false).as_deref(), Some("."));
        assert_eq!(of(&format!("{}/a", "b".repeat(4095)), false), None);
    }
}
