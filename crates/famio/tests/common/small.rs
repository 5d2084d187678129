//! A small file system for one test, to be filled up.
#![allow(dead_code)] // each test uses a part

use crate::common::Scratch;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

/// A small file system, mounted until dropped.
pub struct Small {
    dir: Scratch,
}

impl Small {
    /// `None`, with a loud message, if this process may not mount.
    pub fn new(name: &str, on_tmpfs: bool, megabytes: usize) -> Option<Self> {
        Self::within(Scratch::on_disk(name), name, on_tmpfs, megabytes)
    }

    /// A file system on a RAM disk: its syncs take no time.
    pub fn in_memory(name: &str, megabytes: usize) -> Option<Self> {
        Self::within(Scratch::on_tmpfs(name), name, false, megabytes)
    }

    /// The smallest xfs: on a full one, there is no room even to remove a file's mark.
    pub fn xfs(name: &str) -> Option<Self> {
        Self::of_kind(Scratch::on_tmpfs(name), name, "xfs", 300)
    }

    /// An ext4 that keeps times in whole seconds.
    pub fn with_whole_seconds(name: &str) -> Option<Self> {
        Self::of_kind(Scratch::on_tmpfs(name), name, "ext4 -I 128", 64)
    }

    fn within(dir: Scratch, name: &str, on_tmpfs: bool, megabytes: usize) -> Option<Self> {
        Self::of_kind(dir, name, if on_tmpfs { "tmpfs" } else { "ext4" }, megabytes)
    }

    fn of_kind(dir: Scratch, name: &str, kind: &str, megabytes: usize) -> Option<Self> {
        // Mounted only for this thread and its children: the mount ends with them, however they end.
        // SAFETY: numbers.
        let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0 && run("mount", &["--make-rprivate", "/"]).is_ok();
        if !alone {
            eprintln!("NOT TESTED: {name} takes root, for a small file system of its own");
            return None;
        }
        let point = dir.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let done = if kind == "tmpfs" {
            let size = format!("size={megabytes}m");
            run("mount", &["-t", "tmpfs", "-o", &size, "famio-test", point.to_str().unwrap()])
        } else {
            let image = dir.path().join("image");
            File::create(&image).unwrap().set_len((megabytes as u64) << 20).unwrap();
            let image = image.to_str().unwrap();
            let made = match kind {
                "xfs" => run("mkfs.xfs", &["-q", image]),
                "ext4 -I 128" => run("mkfs.ext4", &["-q", "-F", "-I", "128", image]),
                _ => run("mkfs.ext4", &["-q", "-F", "-m", "0", image]),
            };
            made.and_then(|()| run("mount", &["-o", "loop", image, point.to_str().unwrap()]))
        };
        if let Err(e) = done {
            eprintln!("NOT TESTED: {name} takes a small file system of its own, and to mount one failed: {e}");
            return None;
        }
        Some(Self { dir })
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Mounts the image anew, by another loop device.
    pub fn mount_by_another_device(&self) {
        use std::os::unix::fs::MetadataExt;
        let device = || fs::metadata(self.path()).unwrap().dev();
        let (before, point, image) = (device(), self.path(), self.dir.path().join("image"));
        let other = self.dir.path().join("other");
        File::create(&other).unwrap().set_len(1 << 20).unwrap();
        let (point, image, other) = (point.to_str().unwrap(), image.to_str().unwrap(), other.to_str().unwrap());
        let mut taken = Vec::new();
        while device() == before {
            run("umount", &[point]).unwrap();
            taken.push(Command::new("losetup").args(["-f", "--show", other]).output().unwrap().stdout);
            run("mount", &["-o", "loop", image, point]).unwrap();
        }
        for device in taken {
            run("losetup", &["-d", String::from_utf8(device).unwrap().trim()]).unwrap();
        }
    }

    /// Mounts a copy of the image beside it, as a snapshot.
    pub fn mount_a_copy(&self) -> PathBuf {
        let [image, copy, point] = ["image", "copy", "copied"].map(|name| self.dir.path().join(name));
        run("sync", &["-f", self.path().to_str().unwrap()]).unwrap();
        fs::copy(image, &copy).unwrap();
        fs::create_dir(&point).unwrap();
        run("mount", &["-o", "loop", copy.to_str().unwrap(), point.to_str().unwrap()]).unwrap();
        point
    }

    /// Takes all the free space except this many bytes.
    pub fn fill(&self, leave: u64) -> PathBuf {
        let path = self.path().join("filler");
        let file = File::create(&path).unwrap();
        let mut step = 8 << 20;
        let mut size = 0u64;
        while step >= 4096 {
            use std::os::fd::AsRawFd;
            // SAFETY: a descriptor and numbers.
            if unsafe { libc::fallocate(file.as_raw_fd(), 0, size as i64, step as i64) } == 0 {
                size += step;
            } else {
                step /= 2;
            }
        }
        file.set_len(size.saturating_sub(leave)).unwrap();
        path
    }

    pub fn free(&self) -> u64 {
        rustix::fs::statvfs(self.path()).unwrap().f_bfree
    }

    /// Waits until there is as much free space as before: the background may use a file for a moment after it was
    /// closed, and maps take its space until then.
    pub fn wait_for(&self, free: u64) {
        let begun = std::time::Instant::now();
        while self.free() < free {
            assert!(begun.elapsed().as_secs() < 120, "the room of a file that is gone does not come back");
            std::thread::yield_now();
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
