//! A file on tmpfs that is crashed, damaged and recovered repeatedly: one file, so that the journal's identity
//! matches.

use crate::atomic::Opened;
use core::mem::{Discriminant, discriminant};
use famio::Settings;
use famio::journal::header::{COPY_LEN, Header};
use famio::journal::{Identity, Mark, journal_name};
use famio::recovery::{Options, Outcome, Silent, Use, recover_path};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Longer files are compared by their length and first bytes.
const COMPARED: u64 = 1 << 20;

/// A file, its journal and its mark, as a crash left them.
#[derive(Clone, Default)]
pub struct Crashed {
    pub file: Vec<u8>,
    pub journal: Vec<u8>,
    pub mark: Option<Vec<u8>>,
    /// Time of its last change, which the mark of a growing file limits. `None`: irrelevant.
    pub modified: Option<SystemTime>,
    /// As of the last SYNC.
    pub committed: Vec<u8>,
}

impl Crashed {
    /// Its header.
    pub fn header(&self) -> Header {
        Header::read(&self.journal).expect("a sound header").0
    }

    /// Another header, in both copies.
    pub fn set_header(&mut self, header: &Header) {
        let bytes = header.encode();
        self.journal[..COPY_LEN].copy_from_slice(&bytes);
        self.journal[COPY_LEN..2 * COPY_LEN].copy_from_slice(&bytes);
    }
}

/// The folder with the file.
pub struct Stage {
    folder: PathBuf,
}

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

extern "C" fn remove_folders() {
    for folder in FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let _ = fs::remove_dir_all(folder);
    }
}

impl Stage {
    /// A new one on tmpfs, or below `parent`. Removed when the process exits normally.
    pub fn new(parent: &Path, name: &str) -> Self {
        let folder = parent.join(format!("famio-fuzz-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        if folders.is_empty() {
            // SAFETY: a function that takes nothing and returns.
            unsafe { libc::atexit(remove_folders) };
        }
        folders.push(folder.clone());
        let stage = Self { folder };
        fs::write(stage.file(), b"").expect("a file");
        stage
    }

    pub fn on_tmpfs(name: &str) -> Self {
        Self::new(Path::new("/dev/shm"), name)
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("file")
    }

    /// Its identity.
    pub fn identity(&self) -> Identity {
        Identity::of_path(&self.file()).expect("an identity")
    }

    /// Its journal.
    pub fn journal(&self) -> PathBuf {
        self.folder.join(".famio").join(journal_name(&self.identity()))
    }

    /// The state left by a program that is killed at the end of `history`. The journal is read before the file:
    /// whatever the background checkpoints in between, the older journal has it, too.
    pub fn crash(&self, initial: &[u8], settings: &Settings, history: impl FnOnce(&Opened) -> Vec<u8>) -> Crashed {
        self.clear();
        fs::write(self.file(), initial).expect("the file");
        let opened = Opened::new(&self.file(), settings).expect("opened");
        let committed = history(&opened);
        let journal = fs::read(self.journal()).unwrap_or_default();
        let file = opened.raw();
        let mark = self.mark();
        let modified = fs::metadata(self.file()).and_then(|stat| stat.modified()).expect("the file");
        opened.close().expect("closed");
        Crashed { file, journal, mark, modified: Some(modified), committed }
    }

    /// Turns another file's crash into one of this file.
    pub fn adopt(&self, crashed: &mut Crashed) {
        let mut header = crashed.header();
        header.identity = self.identity();
        header.path_hint = self.file();
        crashed.mark = Some(Mark::new(header.journal_id, &header.identity, None).expect("a mark").encode());
        crashed.set_header(&header);
    }

    /// Restores everything as the crash left it, without an arena.
    pub fn put(&self, crashed: &Crashed) {
        self.clear();
        fs::write(self.file(), &crashed.file).expect("the file");
        if let Some(modified) = crashed.modified {
            let file = fs::File::options().write(true).open(self.file()).expect("the file");
            file.set_modified(modified).expect("the file's time");
        }
        if let Some(mark) = &crashed.mark {
            let path = c_path(&self.file());
            // SAFETY: two strings and a buffer with its length.
            let done =
                unsafe { libc::setxattr(path.as_ptr(), c"user.famio".as_ptr(), mark.as_ptr().cast(), mark.len(), 0) };
            assert_eq!(done, 0, "setxattr");
        }
        if !crashed.journal.is_empty() {
            let journal = self.journal();
            fs::DirBuilder::new().mode(0o700).create(self.folder.join(".famio")).expect("a pool");
            let mut file =
                fs::File::options().write(true).create_new(true).mode(0o600).open(journal).expect("a journal");
            std::io::Write::write_all(&mut file, &crashed.journal).expect("a journal");
        }
    }

    /// Puts bytes where the killed process's arena would be.
    pub fn put_arena(&self, bytes: &[u8]) {
        let path = self.arena();
        fs::write(&path, bytes).expect("an arena");
    }

    fn arena(&self) -> PathBuf {
        let stat = fs::metadata(self.file()).expect("the file");
        PathBuf::from(format!("/dev/shm/famio-{:x}-{:x}.arena", stat.dev(), stat.ino()))
    }

    fn clear(&self) {
        let _ = fs::remove_dir_all(self.folder.join(".famio"));
        let _ = fs::remove_file(self.arena());
        let path = c_path(&self.file());
        // SAFETY: two strings.
        unsafe { libc::removexattr(path.as_ptr(), c"user.famio".as_ptr()) };
        fs::File::options().write(true).open(self.file()).and_then(|file| file.set_len(0)).expect("the file");
    }

    fn mark(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0u8; 64 << 10];
        let path = c_path(&self.file());
        // SAFETY: two strings and a buffer with its length.
        let n =
            unsafe { libc::getxattr(path.as_ptr(), c"user.famio".as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
        (n >= 0).then(|| {
            bytes.truncate(n as usize);
            bytes
        })
    }

    /// The file's length, and its first bytes.
    fn contents(&self) -> (u64, Vec<u8>) {
        let file = fs::File::open(self.file()).expect("the file");
        let length = file.metadata().expect("the file").len();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, COMPARED), &mut bytes).expect("the file");
        (length, bytes)
    }

    /// Recovers, whatever is there, and checks what must hold after any recovery. Returns the file's contents if it
    /// was recovered.
    pub fn recover(&self, crashed: &Crashed, settings: &Settings) -> Option<Vec<u8>> {
        let _ = famio::recovery::survey(&self.file(), settings);
        let _ = famio::recovery::check(&self.folder, settings);
        let below = famio::recovery::survey(&self.folder, settings).expect("the folder is there");
        assert!(self.mark().is_none() || !below.is_empty(), "a marked file was passed over");
        let one = self.recover_once(crashed, settings, 1);
        if let Some((first, _)) = &one {
            // The same again in other ways: with a dry run first, and with threads.
            self.put(crashed);
            let dry = Options { dry_run: true, ..Options::default() };
            let looked = recover_path(&self.file(), settings, &dry, &Silent).expect("a report").remove(0);
            assert!(discriminant(&looked.outcome) == *first, "a dry run finds {looked:?}");
            let two = self.recover_once(crashed, settings, 3);
            assert!(one == two, "two recoveries of one crash differ");
        }
        one.map(|(_, bytes)| bytes)
    }

    fn recover_once(
        &self,
        crashed: &Crashed,
        settings: &Settings,
        threads: usize,
    ) -> Option<(Discriminant<Outcome>, Vec<u8>)> {
        let options = Options { threads, ..Options::default() };
        let report = recover_path(&self.file(), settings, &options, &Silent).expect("a report").remove(0);
        match report.outcome {
            Outcome::Recovered | Outcome::Clean | Outcome::NothingToDo => {
                assert_eq!(self.mark(), None, "the mark is left after {report:?}");
                assert!(!self.journal().exists(), "the journal is left after {report:?}");
                let (length, bytes) = self.contents();
                let again = recover_path(&self.file(), settings, &options, &Silent).expect("a report").remove(0);
                assert!(matches!(again.outcome, Outcome::NothingToDo), "recovered twice: {again:?}");
                // It takes most of the time.
                if threads == 1 && length < COMPARED && length % 8 == 0 {
                    self.is_usable(settings);
                }
                Some((discriminant(&report.outcome), bytes))
            }
            Outcome::Conflict(_) => {
                self.is_untouched(crashed, "a conflict");
                self.is_dropped(settings);
                None
            }
            Outcome::Failed(error) => {
                // Damage is detected before anything is changed; another error may come later (an impossible file
                // size).
                if error.errno() == libc::EIO {
                    self.is_untouched(crashed, &error.to_string());
                }
                self.is_dropped(settings);
                None
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_untouched(&self, crashed: &Crashed, why: &str) {
        assert!(fs::read(self.file()).expect("the file") == crashed.file, "the file was touched: {why}");
        assert!(self.mark() == crashed.mark, "the mark was touched: {why}");
        let journal = fs::read(self.journal()).unwrap_or_default();
        assert!(journal == crashed.journal, "the journal was touched: {why}");
    }

    /// `--use=file` accepts the file in any state.
    fn is_dropped(&self, settings: &Settings) {
        let options = Options { on_conflict: Use::File, ..Options::default() };
        let report = recover_path(&self.file(), settings, &options, &Silent).expect("a report").remove(0);
        if let Outcome::Failed(error) = &report.outcome {
            panic!("--use=file fails: {error}");
        }
        assert_eq!(self.mark(), None, "the mark is left after {report:?}");
    }

    /// A recovered file can be written, committed, closed and read.
    fn is_usable(&self, settings: &Settings) {
        let opened = Opened::new(&self.file(), settings).expect("opened after recovery");
        opened.write(70, b"usable").expect("written after recovery");
        opened.sync().expect("committed after recovery");
        opened.close().expect("closed after recovery");
        assert!(fs::read(self.file()).expect("the file")[70..].starts_with(b"usable"));
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}
