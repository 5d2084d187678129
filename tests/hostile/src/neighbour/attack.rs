//! Attacks on existing files.

use super::attacker::{Attacker, say};
use super::files::{c, entries, write_file};
use super::held::Held;
use super::names::noise;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Attacks a file in `/dev/shm`.
pub fn shared_memory(attacker: &mut Attacker) {
    let all = entries(Path::new("/dev/shm"));
    if let Some(path) = attacker.pick(&all) {
        one(attacker, &path);
    }
}

/// Attacks a file in a folder that other users use, or in `.famio` there.
pub fn folders(attacker: &mut Attacker) {
    let Some(folder) = attacker.pick(&["sticky", "sticky", "shared", "victim", "hostile"]) else { return };
    let mut folder = attacker.scene.join(folder);
    if !attacker.one_in(3) {
        folder = folder.join(".famio");
    }
    let all = entries(&folder);
    if let Some(path) = attacker.pick(&all) {
        one(attacker, &path);
    }
}

/// Does something to one file.
fn one(attacker: &mut Attacker, path: &Path) {
    // However it leads there: this is the neighbour's bait for others.
    if path.file_name().is_some_and(|name| name == "fifo") {
        return;
    }
    // By its name.
    match attacker.random.below(10) {
        0 => {
            say("unlink", path);
            let _ = std::fs::remove_file(path);
            return;
        }
        1 => {
            let to = path.with_file_name(format!("famio-moved-{}", attacker.random.below(9)));
            say("rename", path);
            let _ = std::fs::rename(path, to);
            return;
        }
        2 => {
            let mode = [0o666, 0o777, 0o000, 0o4755][attacker.random.below(4) as usize];
            say("chmod", path);
            let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
            return;
        }
        _ => {}
    }
    let write = !attacker.one_in(3);
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let opened = File::options().read(true).write(write).custom_flags(flags).open(path);
    let Ok(file) = opened.or_else(|_| File::options().read(true).custom_flags(flags).open(path)) else { return };
    let Ok(stat) = file.metadata() else { return };
    if !stat.is_file() {
        return;
    }
    if attacker.classes.has("readers") && attacker.one_in(2) {
        search(attacker, &file, path);
    }
    match attacker.random.below(9) {
        0 | 1 if attacker.classes.has("truncate") => {
            let to = [0, 1, 4096, stat.len() / 2, stat.len() + 4096, 64 << 20][attacker.random.below(6) as usize];
            say(&format!("truncate to {to}"), path);
            let _ = file.set_len(to);
            if attacker.one_in(2) {
                let _ = file.set_len(stat.len());
            }
        }
        2 | 3 => {
            let length = [8, 64, 4096, 65536][attacker.random.below(4) as usize];
            let bytes = noise(attacker, length);
            let at =
                if attacker.one_in(2) { attacker.random.below(8192) } else { attacker.random.below(stat.len().max(1)) };
            say(&format!("write {length} bytes at {at} to"), path);
            let _ = file.write_at(&bytes, at & !7);
        }
        4 if stat.len() > 0 => scribble(attacker, file, path, stat.len()),
        5 | 6 if attacker.classes.has("locks") => lock(attacker, file, path),
        7 if attacker.classes.has("leases") => lease(attacker, file, path),
        _ => {
            say("setxattr", path);
            let value = noise(attacker, 80);
            // SAFETY: valid strings, and as many bytes as are said.
            unsafe { libc::setxattr(c(path).as_ptr(), c"user.famio".as_ptr(), value.as_ptr().cast(), value.len(), 0) };
        }
    }
}

/// Stores to memory that other processes use.
fn scribble(attacker: &mut Attacker, file: File, path: &Path, length: u64) {
    let length = length.min(1 << 20) as usize;
    // SAFETY: a new map of a file.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return;
    }
    say("stores through a map to", path);
    for _ in 0..200 {
        // Another process may have cut the file: written by a call rather than by a store, which would end this
        // process.
        let offset =
            (attacker.random.below(length as u64 / 8 + 1) * 8).min(if attacker.one_in(2) { 8192 } else { u64::MAX });
        let word = if attacker.one_in(2) { attacker.random.next_u64() } else { attacker.random.below(1 << 20) };
        let _ = file.write_at(&word.to_le_bytes(), offset);
    }
    attacker.held.push(Held::new(file, Some((at, length))));
}

fn lock(attacker: &mut Attacker, file: File, path: &Path) {
    let kind = attacker.random.below(3);
    // SAFETY: zero is a value of the structure.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = if attacker.one_in(3) { libc::F_RDLCK } else { libc::F_WRLCK } as libc::c_short;
    let fd = file.as_raw_fd();
    // SAFETY: the descriptor is open and the structure alive.
    let done = unsafe {
        match kind {
            0 => libc::flock(fd, libc::LOCK_NB | if attacker.one_in(3) { libc::LOCK_SH } else { libc::LOCK_EX }),
            1 => libc::fcntl(fd, libc::F_SETLK, &range),
            _ => libc::fcntl(fd, libc::F_OFD_SETLK, &range),
        }
    };
    say(
        &format!(
            "{} {}",
            ["flock", "F_SETLK", "F_OFD_SETLK"][kind as usize],
            if done == 0 { "of" } else { "fails of" }
        ),
        path,
    );
    if done == 0 {
        attacker.held.push(Held::new(file, None));
    }
}

fn lease(attacker: &mut Attacker, file: File, path: &Path) {
    let kind = if attacker.one_in(2) { libc::F_RDLCK } else { libc::F_WRLCK };
    // SAFETY: the descriptor is open.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if done == 0 {
        say("lease of", path);
        attacker.held.push(Held::new(file, None));
    }
}

/// Drops some of what it keeps.
pub fn let_go(attacker: &mut Attacker) {
    while attacker.held.len() > 40 || (!attacker.held.is_empty() && attacker.one_in(3)) {
        let at = attacker.random.below(attacker.held.len() as u64) as usize;
        attacker.held.swap_remove(at);
    }
    attacker.children.retain_mut(|child| child.try_wait().is_ok_and(|status| status.is_none()));
}

fn search(attacker: &Attacker, file: &File, path: &Path) {
    let mut bytes = vec![0; 1 << 18];
    let mut at = 0;
    while let Ok(count) = file.read_at(&mut bytes, at) {
        if bytes[..count].windows(attacker.secret.len()).any(|window| window == attacker.secret) {
            println!("SECRET {}", path.display());
            return;
        }
        if count < 4096 || at > 8 << 20 {
            return;
        }
        at += count as u64 - attacker.secret.len() as u64;
    }
}

/// Searches all files and processes that it can open.
pub fn look_for_secret(attacker: &mut Attacker) {
    let mut places: Vec<PathBuf> =
        ["/dev/shm".into(), attacker.scene.join("sticky/.famio"), attacker.scene.join("shared/.famio")].into();
    places.extend(["sticky", "shared", "victim", "victim/.famio"].map(|name| attacker.scene.join(name)));
    let numbers: Vec<PathBuf> = entries(Path::new("/proc"))
        .into_iter()
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok_and(|id| id != std::process::id()))
        })
        .collect();
    if let Some(process) = attacker.pick(&numbers) {
        places.push(process.join("fd"));
        places.push(process.join("map_files"));
    }
    let Some(place) = attacker.pick(&places) else { return };
    for path in entries(&place) {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        if let Ok(file) = File::options().read(true).custom_flags(flags).open(&path)
            && file.metadata().is_ok_and(|stat| stat.is_file())
        {
            search(attacker, &file, &path);
        }
    }
    if attacker.one_in(4) {
        let mut text = String::new();
        let _ = File::open(place.join("environ")).map(|mut file| file.read_to_string(&mut text));
    }
}

/// Runs Famio as the neighbour's own user.
pub fn read_under_famio(attacker: &mut Attacker) {
    if attacker.children.len() >= 2 || !attacker.one_in(6) {
        return;
    }
    let Ok(me) = std::env::current_exe() else { return };
    let famio = me.with_file_name("famio");
    let victims = attacker.victims.clone();
    let Some(file) = attacker.pick(&victims) else { return };
    let mut command = Command::new(famio);
    match attacker.random.below(4) {
        0 => {
            say("famio recover", &file);
            command.arg("recover").arg(&file);
        }
        1 => {
            say("famio recover --use=file", &file);
            command.args(["recover", "--use=file"]).arg(&file);
        }
        _ => {
            say("famio run -- hold", &file);
            command.args(["run", "--atomic", "v-*", "--"]).arg(me).arg("hold").arg(&file);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    attacker.children.extend(command.spawn());
}

/// Exchanges names while other processes walk the folder.
pub fn swap(attacker: &mut Attacker) {
    let own = attacker.scene.join("hostile/walk");
    let (folder, link) = (own.join("folder"), own.join("link"));
    if !own.exists() {
        let _ = std::fs::create_dir(&own);
        let _ = std::fs::create_dir(&folder);
        let _ = std::fs::create_dir(folder.join(".famio"));
        write_file(&folder.join("v-9"), b"own");
        let target = attacker.pick(&["canary", "victim", "sticky"]).unwrap_or("canary");
        let _ = std::os::unix::fs::symlink(attacker.scene.join(target), &link);
        let _ = std::os::unix::fs::symlink(attacker.scene.join("canary/secret"), own.join("v-8"));
        write_file(&own.join("v-7"), b"own");
        attacker.originals.copy_to(&folder.join(".famio"));
        attacker.originals.copy_to(&own.join(".famio"));
    }
    say("exchanges", &own);
    for _ in 0..40 {
        for (a, b) in [(&folder, &link), (&own.join("v-7"), &own.join("v-8"))] {
            // SAFETY: valid strings.
            unsafe {
                libc::renameat2(libc::AT_FDCWD, c(a).as_ptr(), libc::AT_FDCWD, c(b).as_ptr(), libc::RENAME_EXCHANGE);
            }
        }
    }
}
