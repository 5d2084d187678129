//! Detects, before `exec`, programs that will start without the library, and notes them in the record of the run.
//! Allocates nothing, since it also runs in `vfork` children.

use super::exec::has_library;
use super::process;
use crate::posix::call::look::stat_of;
use crate::posix::raw;
use crate::posix::run::report;
use crate::posix::run::run_record::{MORE_LOST, OwnerSession, UNSEEN, joined};
use crate::posix::run::why::Why;
use crate::posix::runtime::state::in_vfork_child;
use crate::posix::selection::current::published_config;
use crate::posix::selection::environment;
use crate::posix::selection::path_text::{PathText, descriptor_path};
use crate::sys;
use core::ffi::c_char;
use core::sync::atomic::Ordering;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// A program that is about to start.
#[derive(Clone, Copy)]
pub enum Program {
    /// As `execveat` names it.
    At(RawFd, *const c_char),
    /// As `execvp` names it: a name without a slash is searched for in `PATH`.
    Named(*const c_char),
    /// As `fexecve` names it.
    Open(RawFd),
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
/// The loader of the C library for which the interposer is built.
#[cfg(target_arch = "x86_64")]
const LOADER: &[u8] = b"ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const LOADER: &[u8] = b"ld-linux-aarch64.so.1";
/// How many nested interpreters the kernel follows.
const DEEPEST: usize = 5;

/// Before this process becomes `program`, or starts it if not `replaces`: notes whether it will run without the
/// library. The main process of the run reports that now, since it cannot at its end, and does not go on if
/// protection is required.
///
/// # Safety
/// `program` as for `exec`; `environment` is null, or an array of C strings that ends with null.
pub unsafe fn note_program(program: Program, environment: *const *const c_char, replaces: bool) {
    let Some(joined) = joined() else { return };
    // SAFETY: the caller's promise.
    let (managed, run) = unsafe { (has_library(environment), find(environment, b"FAMIO_RUN=")) };
    // SAFETY: the caller's promise.
    let Some(fd) = (unsafe { open(program) }) else { return };
    let why = if managed { examine(fd) } else { Some(Why::Environment) };
    let mut path = PathText::new();
    let known = descriptor_path(fd, &mut path);
    // SAFETY: the descriptor is ours.
    unsafe { raw!(SYS_close, fd) };
    match why {
        Some(why) if known => lose(joined, why, path.get()),
        None if !joined.is_reached_by(run) => {
            joined.record.state.fetch_or(UNSEEN, Ordering::Relaxed);
        }
        _ => return,
    }
    if replaces && !in_vfork_child() {
        leave(joined, why.is_some());
    }
}

fn lose(joined: &OwnerSession, why: Why, path: &[u8]) {
    let record = joined.record;
    // Programs are told apart by a hash of their paths.
    let hash = path.iter().fold(1u64, |hash, &byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    if let Some(slot) = record.put(&record.lost, (hash, path.len() as u64), path, MORE_LOST) {
        slot.detail.store(why as u32, Ordering::Relaxed);
    }
}

/// This process continues as a program that takes no part in the run: it is `lost`, or has its own configuration,
/// user or root.
fn leave(joined: &OwnerSession, lost: bool) {
    if !joined.is_top() {
        return joined.leave();
    }
    let Some(config) = published_config() else { return };
    if lost && config.settings.require {
        // Also prints the report.
        process::end();
        sys::notice("--require: the program is not started; exit status 125");
        // SAFETY: ends the process.
        unsafe { raw!(SYS_exit_group, 125) };
    }
    report::at_end(config);
}

/// The value of the environment variable whose name and equals sign are given.
///
/// # Safety
/// As [`note_program`].
unsafe fn find<'a>(mut environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe {
        while !environment.is_null() && !(*environment).is_null() {
            if let Some(value) = CStr::from_ptr(*environment).to_bytes().strip_prefix(name) {
                return Some(value);
            }
            environment = environment.add(1);
        }
    }
    None
}

/// A descriptor of the program's file, if it exists and may be executed.
///
/// # Safety
/// As [`note_program`].
unsafe fn open(program: Program) -> Option<RawFd> {
    // SAFETY: the caller's promise.
    unsafe {
        match program {
            Program::Open(fd) => open_at(fd, c"".as_ptr()),
            Program::At(dirfd, path) => open_at(dirfd, path),
            Program::Named(name) if name.is_null() => None,
            Program::Named(name) if CStr::from_ptr(name).to_bytes().contains(&b'/') => open_at(libc::AT_FDCWD, name),
            Program::Named(name) => {
                let folders = environment::variable("PATH").unwrap_or(b"/bin:/usr/bin");
                folders.split(|&byte| byte == b':').find_map(|folder| {
                    let mut path = PathText::new();
                    let fits = path.push(if folder.is_empty() { b"." } else { folder })
                        && path.push(b"/")
                        && path.push(CStr::from_ptr(name).to_bytes());
                    if fits { open_at(libc::AT_FDCWD, path.c_str().cast()) } else { None }
                })
            }
        }
    }
}

/// # Safety
/// As [`note_program`].
unsafe fn open_at(dirfd: RawFd, path: *const c_char) -> Option<RawFd> {
    // SAFETY: the kernel checks the path. With these flags, opening neither reads nor waits.
    unsafe {
        let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
        if path.is_null() || raw!(SYS_faccessat2, dirfd, path, libc::X_OK, flags) < 0 {
            return None;
        }
        let by_path = *path != 0;
        let fd = if by_path {
            crate::posix::with_number(|| raw!(SYS_openat, dirfd, path, libc::O_PATH | libc::O_CLOEXEC, 0))
        } else {
            crate::posix::with_number(|| raw!(SYS_fcntl, dirfd, libc::F_DUPFD_CLOEXEC, 3))
        };
        if fd < 0 {
            return None;
        }
        let fd = fd as RawFd;
        let is_file = stat_of(fd).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG);
        if !is_file {
            raw!(SYS_close, fd);
        }
        is_file.then_some(fd)
    }
}

/// The reason why the loader will not load the library into this program, if there is one. Follows scripts to their
/// interpreter.
fn examine(program: RawFd) -> Option<Why> {
    let mut bytes = [0u8; 1024];
    let mut fd = program;
    for _ in 0..DEEPEST {
        if is_privileged(fd) {
            close_other(fd, program);
            return Some(Why::Privileged);
        }
        // A file that may be executed but not read: unknown.
        let length = read_start(fd, &mut bytes);
        close_other(fd, program);
        let text = &bytes[..length?];
        if text.starts_with(b"\x7fELF") {
            return examine_elf(text);
        }
        let line = text.strip_prefix(b"#!")?;
        let line = line.split(|&byte| byte == b'\n' || byte == 0).next()?.trim_ascii();
        let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
        let mut interpreter = PathText::new();
        if !interpreter.push(&line[..end]) {
            return None;
        }
        // SAFETY: a C string.
        fd = unsafe { open_at(libc::AT_FDCWD, interpreter.c_str().cast()) }?;
    }
    close_other(fd, program);
    None
}

fn close_other(fd: RawFd, program: RawFd) {
    if fd != program {
        // SAFETY: the descriptor is ours.
        unsafe { raw!(SYS_close, fd) };
    }
}

/// Reads the first bytes of the file, through a new descriptor, since `fd` may be `O_PATH`.
fn read_start(fd: RawFd, bytes: &mut [u8]) -> Option<usize> {
    let mut link = [0u8; 32];
    let link = crate::posix::selection::path_text::descriptor_name(fd, &mut link);
    // SAFETY: a C string; the descriptor is ours; the kernel writes at most the buffer's length.
    unsafe {
        let _passing = crate::posix::passing();
        let fd = crate::posix::with_number(|| {
            raw!(SYS_openat, libc::AT_FDCWD, link.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0)
        });
        if fd < 0 {
            return None;
        }
        let read = raw!(SYS_pread64, fd, bytes.as_mut_ptr(), bytes.len(), 0);
        raw!(SYS_close, fd);
        usize::try_from(read).ok()
    }
}

/// Whether the program gains privileges, so that its loader ignores `LD_PRELOAD`.
fn is_privileged(fd: RawFd) -> bool {
    // SAFETY: no memory is passed.
    let (uid, gid, no_new) = unsafe {
        (
            raw!(SYS_geteuid) as u32,
            raw!(SYS_getegid) as u32,
            raw!(SYS_prctl, libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
        )
    };
    let Ok(stat) = stat_of(fd) else { return false };
    let sets_user = stat.st_mode & libc::S_ISUID != 0 && stat.st_uid != uid;
    let sets_group = stat.st_mode & 0o2010 == 0o2010 && stat.st_gid != gid;
    if no_new {
        return false;
    }
    let mut link = [0u8; 32];
    let link = crate::posix::selection::path_text::descriptor_name(fd, &mut link);
    let name = c"security.capability";
    // SAFETY: C strings; no memory is written with a length of 0.
    let has_capabilities = uid != 0 && unsafe { raw!(SYS_getxattr, link.as_ptr(), name.as_ptr(), 0, 0) } > 0;
    sets_user || sets_group || has_capabilities
}

fn examine_elf(bytes: &[u8]) -> Option<Why> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if *bytes.get(4)? != 2 || *bytes.get(5)? != 1 || u16_at(18)? != MACHINE {
        return Some(Why::Foreign);
    }
    let (table, size, count) = (u64_at(32)?, u16_at(54)?, u16_at(56)?);
    for index in 0..u64::from(count) {
        // A damaged table, or an implausible number of headers: unknown.
        let entry = usize::try_from(table.checked_add(index * u64::from(size))?).ok()?;
        if bytes.get(entry..entry.checked_add(4)?)? == 3u32.to_le_bytes() {
            let (offset, length) = (u64_at(entry + 8)?, u64_at(entry + 32)?);
            let start = usize::try_from(offset).ok()?;
            let loader = bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)?;
            let loader = loader.split(|&byte| byte == 0).next()?;
            return (!loader.ends_with(LOADER)).then_some(Why::OtherLibc);
        }
    }
    Some(Why::Static)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::run::why::{ALL, reason};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    fn why(path: &std::path::Path) -> Option<Why> {
        examine(std::fs::File::open(path).unwrap().as_raw_fd())
    }

    #[test]
    fn programs_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("famio-lost-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let shell = std::fs::read("/bin/sh").unwrap();
        assert_eq!(why(&write("dynamic", &shell)), None);
        let mut narrow = shell.clone();
        narrow[4] = 1;
        let narrow = write("narrow", &narrow);
        assert_eq!(why(&narrow), Some(Why::Foreign));
        // Without its PT_INTERP.
        let mut fixed = shell.clone();
        let table = u64::from_le_bytes(fixed[32..40].try_into().unwrap()) as usize;
        let entry =
            (0..16).map(|index| table + 56 * index).find(|&at| fixed[at..at + 4] == 3u32.to_le_bytes()).unwrap();
        let offset = u64::from_le_bytes(fixed[entry + 8..entry + 16].try_into().unwrap()) as usize;
        let mut other = fixed.clone();
        fixed[entry] = 0;
        assert_eq!(why(&write("static", &fixed)), Some(Why::Static));
        let end = other[offset..].iter().position(|&byte| byte == 0).unwrap();
        other[offset + end - 1] = b'x';
        assert_eq!(why(&write("other", &other)), Some(Why::OtherLibc));
        let script = format!("#! {} -x\n", narrow.display());
        assert_eq!(why(&write("script", script.as_bytes())), Some(Why::Foreign));
        assert_eq!(why(&write("text", b"echo")), None);
        assert_eq!(why(&write("short", b"\x7fELF")), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_are_looked_for() {
        // SAFETY: C strings.
        let fd = unsafe { open(Program::Named(c"sh".as_ptr())) }.unwrap();
        assert_eq!(examine(fd), None);
        // SAFETY: as above; the descriptor is ours.
        unsafe {
            raw!(SYS_close, fd);
            assert!(open(Program::Named(c"no-such-program-here".as_ptr())).is_none());
            assert!(open(Program::At(libc::AT_FDCWD, c"/".as_ptr())).is_none());
            assert!(open(Program::At(libc::AT_FDCWD, core::ptr::null())).is_none());
        }
    }

    #[test]
    fn every_reason_has_words() {
        for why in ALL {
            assert_ne!(reason(why as u32), "unknown");
        }
    }
}
