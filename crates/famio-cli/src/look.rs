//! Opens files that any user may have created. Never waits: not for the writer of a FIFO, and at most a second for a
//! process with a lease (Famio gives its own up at once).

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Error};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Opens a regular file or a folder for reading.
pub fn open(path: &Path) -> io::Result<File> {
    let looked = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let kind = FileType::from_raw_mode(fstat(&looked)?.st_mode);
    if ![FileType::RegularFile, FileType::Directory].contains(&kind) {
        return Err(Error::other("neither a regular file nor a folder"));
    }
    // By its inode: the very file that was examined, whatever has the name by now.
    let link = format!("/proc/self/fd/{}", looked.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        match openat(CWD, &*link, flags, Mode::empty()) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            opened => return Ok(File::from(opened?)),
        }
    }
    Err(Error::new(io::ErrorKind::WouldBlock, "another process holds a lease on it; not waited for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), b"x").unwrap();
        rustix::fs::mkfifoat(CWD, path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        std::os::unix::fs::symlink("fifo", path("link")).unwrap();
        assert!(open(&path("file")).is_ok() && open(folder.path()).is_ok());
        for name in ["fifo", "link"] {
            assert!(open(&path(name)).unwrap_err().to_string().contains("neither"), "{name}");
        }
        let held = File::options().write(true).open(path("file")).unwrap();
        // SAFETY: the descriptor is open; a lease break must not end this process.
        unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            assert_eq!(libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK), 0);
        }
        let error = open(&path("file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
