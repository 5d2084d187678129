//! Things that the neighbour leaves in folders: settings, deep trees, a thousand journals, link cycles.

use super::attacker::{Attacker, say};
use super::files::{c, write_file};
use super::forge::seal;
use super::names::put;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

/// `famio.toml` where root and the victim work.
pub fn settings(attacker: &mut Attacker) {
    let Some(folder) = attacker.pick(&["hostile", "sticky", "shared"]) else { return };
    let path = attacker.scene.join(folder).join("famio.toml");
    if attacker.one_in(3) {
        let _ = std::fs::remove_file(&path);
    }
    if attacker.one_in(3) {
        return put(attacker, &path);
    }
    let scene = attacker.scene.display().to_string();
    let texts = [
        "durability = \"process\"\n".to_owned(),
        "durability = \"maybe\"\n".to_owned(),
        format!("pool = \"{scene}/hostile/pool\"\n"),
        format!("pool = \"{scene}/canary\"\n"),
        "atomic = 5\n".to_owned(),
        "this is no setting\n".to_owned(),
        "policy = \"undo\"\n".repeat(100_000),
        "\u{0}\u{1}\u{2}".to_owned(),
    ];
    let Some(text) = attacker.pick(&texts) else { return };
    say(&format!("settings {:?} in", text.chars().take(30).collect::<String>()), &path);
    write_file(&path, text.as_bytes());
    if attacker.classes.has("leases") && attacker.one_in(3) {
        let Ok(file) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path) else { return };
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        std::mem::forget(file);
    }
}

/// A tree deeper than the longest path, a thousand invalid journals, link cycles: once each.
pub fn deep(attacker: &mut Attacker) {
    let folder = attacker.scene.join("hostile");
    match attacker.random.below(3) {
        0 if !folder.join("deep").exists() => {
            say("a deep tree", &folder);
            let _ = std::fs::create_dir(folder.join("deep"));
            let name = c(Path::new(&"d".repeat(200)));
            // SAFETY: valid strings; descriptors are closed once each.
            unsafe {
                let mut at = libc::open(c(&folder.join("deep")).as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
                for _ in 0..40 {
                    libc::mkdirat(at, name.as_ptr(), 0o755);
                    let next = libc::openat(at, name.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
                    libc::close(at);
                    at = next;
                }
                libc::close(at);
            }
        }
        1 if !folder.join("junk").exists() => {
            say("a thousand journals", &folder);
            let junk = folder.join("junk/.famio");
            let _ = std::fs::create_dir_all(&junk);
            let from = attacker.originals.journals.clone();
            let header =
                from.first().map_or_else(|| vec![7; 4096], |(_, bytes)| bytes[..bytes.len().min(8192)].to_vec());
            for number in 0..1000u64 {
                let mut bytes = header.clone();
                if number % 2 == 0 && bytes.len() >= 4096 {
                    bytes[72..80].copy_from_slice(&number.to_le_bytes());
                    seal(&mut bytes);
                }
                let name = match bytes.get(72..168) {
                    Some(identity) if number % 2 == 0 => format!("{:032x}.journal", xxh3_128(identity)),
                    _ => format!("{:016x}{number:016x}.journal", attacker.random.next_u64()),
                };
                write_file(&junk.join(name), &bytes);
            }
        }
        _ if !folder.join("circle").exists() => {
            say("links in a circle", &folder);
            let _ = std::fs::create_dir(folder.join("circle"));
            let _ = symlink("..", folder.join("circle/up"));
            let _ = symlink(".", folder.join("circle/.famio"));
            let _ = symlink("/", folder.join("circle/root"));
        }
        _ => {}
    }
}
