//! Names that the neighbour can guess or see, and what it puts there.

use super::attacker::{Attacker, say};
use super::files::{c, entries, is_small, journal_of, read_file, write_file};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// Creates files in `/dev/shm` under the names for the victim's files, and for files that may get the next inodes.
pub fn squat_shared_memory(attacker: &mut Attacker) {
    let victims = attacker.victims.clone();
    let Some(of) = attacker.pick(&victims) else { return };
    let Ok(stat) = std::fs::symlink_metadata(&of).or_else(|_| of.parent().unwrap_or(&of).metadata()) else { return };
    let inode = stat.ino().wrapping_add(if attacker.one_in(2) { 0 } else { attacker.random.below(12) });
    let key = format!("famio-{:x}-{inode:x}", stat.dev());
    let name = match attacker.random.below(6) {
        0 | 1 => format!("{key}.arena"),
        2 | 3 => format!("{key}.control"),
        4 => format!("{key}.epoch.{}", attacker.random.below(4)),
        _ => format!("{key}.shadow.{}", attacker.random.below(4)),
    };
    let path = Path::new("/dev/shm").join(name);
    if attacker.one_in(2) && path.symlink_metadata().is_err() {
        // As if the victim had just created it, readable and writable for all.
        say("put nothing, mode 666,", &path);
        write_file(&path, &[]);
        let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666));
        return;
    }
    put(attacker, &path);
}

/// Creates `.famio` itself, and files with the names of journals in it.
pub fn squat_folders(attacker: &mut Attacker) {
    let Some(folder) = attacker.pick(&["sticky", "shared", "victim", "hostile"]) else { return };
    let dot = attacker.scene.join(folder).join(".famio");
    match attacker.random.below(3) {
        0 => put(attacker, &dot),
        1 => {
            say("mkdir", &dot);
            if std::fs::create_dir(&dot).is_ok() {
                let mode = [0o777, 0o1777, 0o700, 0o000, 0o755][attacker.random.below(5) as usize];
                let _ = std::fs::set_permissions(&dot, std::fs::Permissions::from_mode(mode));
            }
        }
        _ => {
            let victims = attacker.victims.clone();
            if let Some(name) = attacker.pick(&victims).and_then(|of| journal_of(&of)) {
                put(attacker, &dot.join(name));
            }
        }
    }
}

/// Puts something where another process will look for its own file.
pub fn put(attacker: &mut Attacker, path: &Path) {
    let kinds = attacker.classes.has("kinds");
    let how = if kinds { attacker.random.below(12) } else { attacker.random.below(4) };
    if attacker.one_in(3) {
        let _ = std::fs::remove_file(path);
        let _ = std::fs::remove_dir(path);
    }
    let scene = attacker.scene.clone();
    let mode = [0o666, 0o666, 0o600, 0o444, 0o000, 0o777, 0o4777][attacker.random.below(7) as usize];
    match how {
        0..4 => {
            let length = [0, 1, 4096, 65536, 1 << 20][attacker.random.below(5) as usize];
            say(&format!("put {length} bytes, mode {mode:o},"), path);
            if path.symlink_metadata().is_ok() {
                return;
            }
            let bytes = noise(attacker, length);
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
            let Some(to) = attacker.pick(&to) else { return };
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
            let victims = attacker.victims.clone();
            if let Some(victim) = attacker.pick(&victims) {
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
            if let Some(from) = attacker.pick(&all) {
                say(&format!("copy of {} to", from.display()), path);
                if path.symlink_metadata().is_err() && is_small(&from) {
                    write_file(path, &read_file(&from));
                    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
                }
            }
        }
    }
}

/// Bytes: noise, zeros, ones, or small numbers.
pub fn noise(attacker: &mut Attacker, length: usize) -> Vec<u8> {
    let how = attacker.random.below(4);
    (0..length.div_ceil(8))
        .flat_map(|_| {
            match how {
                0 => 0u64,
                1 => u64::MAX,
                2 => attacker.random.below(16),
                _ => attacker.random.next_u64(),
            }
            .to_le_bytes()
        })
        .take(length)
        .collect()
}
