//! What lies in `/dev/shm` for the files of a folder, according to its contents, since its names say nothing.
#![allow(dead_code)] // each test uses a part

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Arenas name the path of their file; control pages name their control file.
pub fn of_folder(folder: &Path) -> Vec<PathBuf> {
    let folder = [folder.canonicalize().unwrap().as_os_str().as_bytes(), b"/"].concat();
    let is_of_it = |text: &[u8]| text.windows(folder.len()).any(|part| part == folder);
    let all = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path());
    all.filter(|path| match path.extension().and_then(|end| end.to_str()) {
        Some("arena") => std::fs::read(path).is_ok_and(|bytes| is_of_it(&bytes[..bytes.len().min(4096)])),
        Some("epoch" | "shadow") => is_of_it(&signed(path)),
        _ => false,
    })
    .collect()
}

fn signed(path: &Path) -> Vec<u8> {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Vec::new() };
    let mut bytes = vec![0u8; 4096];
    let (to, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: two strings and a buffer with its length.
    let n = unsafe { libc::getxattr(path.as_ptr(), c"user.famio.control".as_ptr(), to, len) };
    bytes.truncate(n.max(0) as usize);
    bytes
}
