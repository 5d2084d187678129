//! Forged journals and marks, in the neighbour's own folder.

use super::attacker::{Attacker, say};
use super::files::{c, entries, identity, write_file};
use super::names::{noise, put};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Changes a journal or a mark.
pub fn journals(attacker: &mut Attacker) {
    let folder = attacker.scene.join("hostile");
    let dot = folder.join(".famio");
    match attacker.random.below(7) {
        0..3 => {
            let from = attacker.originals.journals.clone();
            let Some((path, mut bytes)) = attacker.pick(&from) else { return };
            change(attacker, &mut bytes);
            // Sometimes in another file's place, with a changed identity.
            let path = if attacker.one_in(3) { another(attacker, &path, &mut bytes) } else { path };
            say("a changed journal", &path);
            let _ = std::fs::create_dir(&dot);
            if attacker.one_in(2) {
                let _ = std::fs::remove_file(&path);
            }
            write_file(&path, &bytes);
        }
        3 => {
            let from = attacker.originals.marks.clone();
            let Some((path, mut bytes)) = attacker.pick(&from) else { return };
            if attacker.one_in(2) {
                change_mark(attacker, &mut bytes);
            }
            let path = if attacker.one_in(4) { folder.join("plain") } else { path };
            if path.symlink_metadata().is_err() {
                write_file(&path, b"plain");
            }
            say("a changed mark", &path);
            // SAFETY: valid strings, and as many bytes as are said.
            unsafe { libc::setxattr(c(&path).as_ptr(), c"user.famio".as_ptr(), bytes.as_ptr().cast(), bytes.len(), 0) };
        }
        4 => {
            let name = format!("{:016x}{:016x}.journal", attacker.random.next_u64(), attacker.random.next_u64());
            put(attacker, &dot.join(name));
        }
        5 => {
            // Cut and extended while another process reads it.
            let from = attacker.originals.journals.clone();
            let Some((path, bytes)) = attacker.pick(&from) else { return };
            let Ok(file) = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path) else { return };
            if !file.metadata().is_ok_and(|stat| stat.is_file()) || !attacker.classes.has("truncate") {
                return;
            }
            say("cuts and grows", &path);
            for _ in 0..150 {
                let _ = file.write_at(&bytes, 0);
                // Time for another process to map it.
                std::thread::sleep(std::time::Duration::from_micros(attacker.random.below(150)));
                let _ = file.set_len([0, 4096, 8192, bytes.len() as u64 / 2][attacker.random.below(4) as usize]);
            }
            let _ = file.write_at(&bytes, 0);
        }
        _ => {
            if !attacker.classes.has("leases") {
                return;
            }
            let all = [entries(&dot), entries(&folder)].concat();
            let Some(path) = attacker.pick(&all) else { return };
            if !path.symlink_metadata().is_ok_and(|stat| stat.is_file()) {
                return;
            }
            let Ok(file) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path) else { return };
            // SAFETY: the descriptor is open.
            let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
            if done == 0 {
                say("lease of", &path);
                // Never given up.
                std::mem::forget(file);
            }
        }
    }
}

/// Changes some bytes, or a word of the header, with a valid checksum.
fn change(attacker: &mut Attacker, bytes: &mut Vec<u8>) {
    match attacker.random.below(8) {
        0 => bytes.truncate(attacker.random.below(bytes.len() as u64 + 1) as usize),
        1 => {
            let at = attacker.random.below(bytes.len().max(1) as u64) as usize;
            let length = 1 + attacker.random.below(500) as usize;
            let with = noise(attacker, length);
            let end = (at + length).min(bytes.len());
            bytes[at..end].copy_from_slice(&with[..end - at]);
        }
        2 => {
            for _ in 0..1 + attacker.random.below(16) {
                let at = attacker.random.below(bytes.len().max(1) as u64) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << attacker.random.below(8);
                }
            }
        }
        _ => {
            if bytes.len() < 4096 {
                return;
            }
            // Any word of the header's fields: kind, state, domain, identity, stamp, arena, geometry.
            for _ in 0..1 + attacker.random.below(3) {
                let at = [12, 16, 20, 24, 28, 32, 168, 200, 208, 352][attacker.random.below(10) as usize];
                let at = if attacker.one_in(2) { 224 + 8 * attacker.random.below(16) as usize } else { at };
                let value = match attacker.random.below(5) {
                    0 => u64::MAX,
                    1 => attacker.random.below(8),
                    2 => 1 << attacker.random.below(63),
                    3 => u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
                        .wrapping_add(attacker.random.below(5))
                        .wrapping_sub(2),
                    _ => attacker.random.next_u64(),
                };
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            if attacker.one_in(2) {
                let scene = attacker.scene.clone();
                let hints = [
                    "/dev/ptmx".into(),
                    "/dev/zero".into(),
                    scene.join("canary/secret"),
                    scene.join("victim/v-2"),
                    scene.join("victim/quiet"),
                    scene.join("hostile/fifo"),
                    scene.join("hostile/plain"),
                ];
                if let Some(hint) = attacker.pick(&hints) {
                    set_hint(bytes, &hint);
                }
            }
            seal(bytes);
        }
    }
}

/// Makes the journal claim to be another file's.
fn another(attacker: &mut Attacker, path: &Path, bytes: &mut [u8]) -> PathBuf {
    let mut all = attacker.victims.clone();
    all.extend(["canary/secret", "hostile/plain"].map(|name| attacker.scene.join(name)));
    let Some((of, identity)) = attacker.pick(&all).and_then(|of| identity(&of).map(|identity| (of, identity))) else {
        return path.to_path_buf();
    };
    if bytes.len() < 4096 {
        return path.to_path_buf();
    }
    for copy in [0, 2048] {
        bytes[copy + 72..copy + 168].copy_from_slice(&identity);
    }
    set_hint(bytes, &of);
    seal(bytes);
    path.with_file_name(format!("{:032x}.journal", xxh3_128(&identity)))
}

fn set_hint(bytes: &mut [u8], hint: &Path) {
    let text = hint.to_string_lossy().into_owned().into_bytes();
    for copy in [0, 2048] {
        bytes[copy + 352..copy + 360].copy_from_slice(&(text.len() as u64).to_le_bytes());
        bytes[copy + 360..copy + 1384].fill(0);
        bytes[copy + 360..copy + 360 + text.len()].copy_from_slice(&text);
    }
}

/// Makes both copies equal, with the right checksum.
pub fn seal(bytes: &mut [u8]) {
    let sum = xxh3_128(&bytes[..2032]).to_le_bytes();
    bytes[2032..2048].copy_from_slice(&sum);
    bytes.copy_within(0..2048, 2048);
}

fn change_mark(attacker: &mut Attacker, bytes: &mut Vec<u8>) {
    if bytes.len() < 56 {
        return;
    }
    match attacker.random.below(4) {
        0 => {
            bytes.truncate(56);
            let pools = [
                attacker.scene.join("canary"),
                attacker.scene.join("victim/.famio"),
                "/dev".into(),
                attacker.scene.join("hostile/fifo"),
            ];
            if let Some(pool) = attacker.pick(&pools) {
                let text = pool.to_string_lossy().into_owned();
                bytes[12..16].copy_from_slice(&(text.len() as u32).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
        1 => bytes.truncate(attacker.random.below(bytes.len() as u64) as usize),
        _ => {
            let at = attacker.random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << attacker.random.below(8);
        }
    }
    if bytes.len() >= 56 {
        let mut guarded = bytes[..48].to_vec();
        guarded.extend_from_slice(&xxh3_64(&bytes[56..]).to_le_bytes());
        let sum = xxh3_64(&guarded).to_le_bytes();
        bytes[48..56].copy_from_slice(&sum);
    }
}
