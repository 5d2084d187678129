//! Names that the neighbour can guess or see, and what it puts there.

use super::agent::{Mind, say};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// A path as a C string.
pub fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Creates files in `/dev/shm` under the names for the victim's files, and for files that may get the next inodes.
pub fn squat_shared_memory(mind: &mut Mind) {
    let victims = mind.victims.clone();
    let Some(of) = mind.pick(&victims) else { return };
    let Ok(stat) = std::fs::symlink_metadata(&of).or_else(|_| of.parent().unwrap_or(&of).metadata()) else { return };
    let inode = stat.ino().wrapping_add(if mind.one_in(2) { 0 } else { mind.random.below(12) });
    let key = format!("famio-{:x}-{inode:x}", stat.dev());
    let name = match mind.random.below(6) {
        0 | 1 => format!("{key}.arena"),
        2 | 3 => format!("{key}.door"),
        4 => format!("{key}.epoch.{}", mind.random.below(4)),
        _ => format!("{key}.shadow.{}", mind.random.below(4)),
    };
    let path = Path::new("/dev/shm").join(name);
    if mind.one_in(2) && path.symlink_metadata().is_err() {
        // As if the victim had just created it, readable and writable for all.
        say("put nothing, mode 666,", &path);
        write_file(&path, &[]);
        let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666));
        return;
    }
    put(mind, &path);
}

/// Creates `.famio` itself, and files with the names of journals in it.
pub fn squat_folders(mind: &mut Mind) {
    let Some(folder) = mind.pick(&["sticky", "shared", "victim", "hostile"]) else { return };
    let dot = mind.scene.join(folder).join(".famio");
    match mind.random.below(3) {
        0 => put(mind, &dot),
        1 => {
            say("mkdir", &dot);
            if std::fs::create_dir(&dot).is_ok() {
                let mode = [0o777, 0o1777, 0o700, 0o000, 0o755][mind.random.below(5) as usize];
                let _ = std::fs::set_permissions(&dot, std::fs::Permissions::from_mode(mode));
            }
        }
        _ => {
            let victims = mind.victims.clone();
            if let Some(name) = mind.pick(&victims).and_then(|of| journal_of(&of)) {
                put(mind, &dot.join(name));
            }
        }
    }
}

/// The name of a file's journal: the hash of its identity (docs/format.md), which every user can query.
pub fn journal_of(path: &Path) -> Option<String> {
    identity(path).map(|identity| format!("{:032x}.journal", xxh3_128(&identity)))
}

/// The file's identity, 96 bytes.
pub fn identity(path: &Path) -> Option<[u8; 96]> {
    let name = c(path);
    let mut bytes = [0; 96];
    // SAFETY: all structures are of the right size, alive, and filled by the calls before they are read.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        let mut stat: libc::statx = std::mem::zeroed();
        if libc::statfs(name.as_ptr(), &mut system) < 0
            || libc::statx(libc::AT_FDCWD, name.as_ptr(), libc::AT_SYMLINK_NOFOLLOW, libc::STATX_BTIME, &mut stat) < 0
        {
            return None;
        }
        let id: [u8; 8] = std::mem::transmute(system.f_fsid);
        bytes[..8].copy_from_slice(&id);
        if stat.stx_mask & libc::STATX_BTIME != 0 {
            bytes[8..16].copy_from_slice(&stat.stx_btime.tv_sec.to_le_bytes());
            bytes[16..20].copy_from_slice(&stat.stx_btime.tv_nsec.to_le_bytes());
        }
        #[repr(C)]
        struct Handle {
            length: u32,
            kind: i32,
            bytes: [u8; 128],
        }
        let mut handle = Handle { length: 128, kind: 0, bytes: [0; 128] };
        let mut mount = 0;
        let to = (&raw mut handle).cast::<libc::c_void>();
        if libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, name.as_ptr(), to, &mut mount, 0) < 0 {
            return None;
        }
        let length = (handle.length as usize).min(64);
        bytes[20..24].copy_from_slice(&handle.kind.to_le_bytes());
        bytes[24..28].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[32..32 + length].copy_from_slice(&handle.bytes[..length]);
    }
    Some(bytes)
}

/// Puts something where another process will look for its own file.
pub fn put(mind: &mut Mind, path: &Path) {
    let kinds = mind.classes.has("kinds");
    let how = if kinds { mind.random.below(12) } else { mind.random.below(4) };
    if mind.one_in(3) {
        let _ = std::fs::remove_file(path);
        let _ = std::fs::remove_dir(path);
    }
    let scene = mind.scene.clone();
    let mode = [0o666, 0o666, 0o600, 0o444, 0o000, 0o777, 0o4777][mind.random.below(7) as usize];
    match how {
        0..4 => {
            let length = [0, 1, 4096, 65536, 1 << 20][mind.random.below(5) as usize];
            say(&format!("put {length} bytes, mode {mode:o},"), path);
            if path.symlink_metadata().is_ok() {
                return;
            }
            let bytes = noise(mind, length);
            write_file(path, &bytes);
            let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        }
        4 => {
            say("mkfifo", path);
            // SAFETY: a valid string.
            unsafe { libc::mkfifo(c(path).as_ptr(), mode) };
        }
        5 | 6 => {
            let to = [
                scene.join("canary/secret"),
                scene.join("canary/made"),
                scene.join("canary"),
                scene.join("victim/v-2"),
                scene.join("victim/quiet"),
                scene.join("hostile"),
                path.to_path_buf(),
                "/dev/ptmx".into(),
                "/dev/zero".into(),
                "/dev/tty".into(),
                "/dev/full".into(),
                "/dev/shm".into(),
                "/proc/self/fd/0".into(),
                "/proc/self/mem".into(),
            ];
            let Some(to) = mind.pick(&to) else { return };
            say(&format!("symlink to {} as", to.display()), path);
            let _ = symlink(to, path);
        }
        7 => {
            say("mkdir", path);
            let _ = std::fs::create_dir(path);
            let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        }
        8 => {
            let own = scene.join("hostile/own");
            write_file(&own, b"own");
            say("link of his own file as", path);
            let _ = std::fs::hard_link(own, path);
        }
        9 => {
            let victims = mind.victims.clone();
            if let Some(victim) = mind.pick(&victims) {
                say(&format!("link of {} as", victim.display()), path);
                let _ = std::fs::hard_link(victim, path);
            }
        }
        10 => {
            say("socket", path);
            let _ = std::os::unix::net::UnixListener::bind(path);
        }
        _ => {
            // A link to what another user has put there under another name.
            let all = entries(path.parent().unwrap_or(path));
            if let Some(from) = mind.pick(&all) {
                say(&format!("copy of {} to", from.display()), path);
                if path.symlink_metadata().is_err() && is_small(&from) {
                    write_file(path, &read_file(&from));
                    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
                }
            }
        }
    }
}

/// Never waits: neither for the reader of a FIFO nor for its own lease.
pub fn write_file(path: &Path, bytes: &[u8]) {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    if let Ok(mut file) = File::options().write(true).create(true).truncate(true).custom_flags(flags).open(path) {
        let _ = file.write_all(bytes);
    }
}

/// All bytes of a file, without waiting.
pub fn read_file(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    if let Ok(mut file) = File::options().read(true).custom_flags(flags).open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    bytes
}

/// Whether it is a regular file that can be copied quickly.
pub fn is_small(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|stat| stat.is_file() && stat.blocks() < 16 << 10 && stat.len() < 64 << 20)
}

/// What is in a folder.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).take(300).collect()
}

/// Bytes: noise, zeros, ones, or small numbers.
pub fn noise(mind: &mut Mind, length: usize) -> Vec<u8> {
    let how = mind.random.below(4);
    (0..length.div_ceil(8))
        .flat_map(|_| {
            match how {
                0 => 0u64,
                1 => u64::MAX,
                2 => mind.random.below(16),
                _ => mind.random.next_u64(),
            }
            .to_le_bytes()
        })
        .take(length)
        .collect()
}
