//! A file whose process was killed after a commit and further writes. A test that uses this has a test `crash_child`
//! that calls [`child`]: the test binary runs itself for it.

use famio::file::{Access, AtomicFile, UserBuf};
use famio::{JournalChoice, Settings};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const FILE: &str = "FAMIO_WALK_FILE";
const POOL: &str = "FAMIO_WALK_POOL";
const BLOCK: usize = 4096;

/// One commit, a write after it, and the end.
pub fn child() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let pool = std::env::var_os(POOL).map(PathBuf::from);
    let settings = Settings { pool, journal: JournalChoice::Always, ..Settings::default() };
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let atomic = AtomicFile::open(file.as_fd(), Access::Write, &name, &settings).unwrap();
    let write = |offset: u64, byte: u8| {
        let mut data = [byte; BLOCK];
        let buffer = [UserBuf { base: data.as_mut_ptr(), len: BLOCK }];
        // SAFETY: the buffer is alive and valid for its length.
        unsafe { atomic.write(offset, &buffer) }.unwrap();
    };
    write(0, b'b');
    atomic.sync().unwrap();
    write(0, b'c');
    // SAFETY: kills only this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// The file's place: on tmpfs.
pub struct Crashed {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Crashed {
    /// With a `.famio/` beside it.
    pub fn new() -> Self {
        Self::with("app.db", None)
    }

    /// `data/app.db`, with its journal in this pool.
    pub fn in_pool(pool: &str) -> Self {
        Self::with("data/app.db", Some(pool))
    }

    fn with(name: &str, pool: Option<&str>) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, [b'a'; BLOCK]).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crash_child", "--nocapture"]).env(FILE, &file).stdout(Stdio::null());
        if let Some(pool) = pool {
            std::fs::create_dir(folder.path().join(pool)).unwrap();
            command.env(POOL, folder.path().join(pool));
        }
        let status = command.status().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{status}");
        Self { folder, file }
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_path_buf()
    }

    pub fn file(&self) -> PathBuf {
        self.file.clone()
    }

    #[track_caller]
    pub fn is_committed(&self) {
        assert!(std::fs::read(&self.file).unwrap() == [b'b'; BLOCK]);
    }
}
