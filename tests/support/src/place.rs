//! Temporary folders.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A folder that is removed when dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    keep: bool,
}

impl Place {
    /// A new folder in `parent`.
    pub fn new(parent: &Path, name: &str) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        PLACES.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Ok(Self { path, keep: false })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder as evidence.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A tmpfs that every Linux has.
pub fn memory() -> &'static Path {
    Path::new("/dev/shm")
}

/// A folder on the build's file system, which usually is on a disk.
pub fn disk() -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    me.parent().map(Path::to_path_buf).ok_or_else(|| "/proc/self/exe has no folder".into())
}

/// The type of the file system of `path`, by the longest mount point above it.
pub fn file_system(path: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut best = (0, "unknown".to_string());
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (words.next(), words.next()) else { continue };
        // Later mounts cover earlier ones.
        if path.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), kind.to_string());
        }
    }
    best.1
}

/// The folders of this process to be removed if it is interrupted.
static PLACES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Blocks SIGINT and SIGTERM in this thread and those that it starts; for `sigwait`.
pub fn block_interrupts() -> libc::sigset_t {
    // SAFETY: the set is initialised before it is used, and all pointers are valid during their calls.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGINT);
        libc::sigaddset(&mut signals, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        signals
    }
}

/// From now on, SIGINT and SIGTERM end the process only after its folders are removed. Must be called before there
/// are threads. Children are not affected: `Command` gives them an empty signal mask.
pub fn clean_up_on_interrupt() {
    let signals = block_interrupts();
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both are valid.
        unsafe { libc::sigwait(&signals, &mut signal) };
        let places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        for path in places.iter() {
            let _ = std::fs::remove_dir_all(path);
        }
        std::process::exit(128 + signal);
    });
}
