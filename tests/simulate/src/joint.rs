//! Transactions of several files: the other file, whose crashes are not examined, and the records, whose are.

use crate::oracle::Promise;
use famio::Settings;
use famio::file::{Access, AtomicFile, UserBuf};
use famio::pmem::TestHooks;
use famio::pmem::record::{Image, ObjectId, Recorder};
use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The records that a history wrote: their names, and their objects in the recording.
#[derive(Default)]
pub struct Records(Vec<(String, ObjectId)>);

impl Records {
    /// Their objects in the recording.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.0.iter().map(|&(_, object)| object)
    }

    /// Restores them to a pool as in an image.
    pub fn restore(&self, pool: &Path, image: &Image) -> io::Result<()> {
        for (name, object) in &self.0 {
            let Some(content) = image.content(*object) else { continue };
            let folder = folder_in(pool);
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let file = File::options().write(true).create_new(true).mode(0o600).open(folder.join(name))?;
            file.write_all_at(content.trimmed(), 0)?;
            file.set_len(content.size)?;
        }
        Ok(())
    }

    /// Tells a recording that begins with the restored image which objects they are.
    pub fn tell(&self, pool: &Path, recorder: &Recorder) -> Result<(), String> {
        for (name, object) in &self.0 {
            if let Ok(file) = File::open(folder_in(pool).join(name)) {
                recorder.is_object(file.as_fd(), *object).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

/// The folder of a pool's records.
pub fn folder_in(pool: &Path) -> PathBuf {
    pool.join("joint")
}

/// A commit under way, and its record.
struct UnderWay {
    recorder: &'static Recorder,
    pool: PathBuf,
    state: usize,
    records: Records,
}

thread_local! {
    static UNDER_WAY: RefCell<Option<UnderWay>> = const { RefCell::new(None) };
}

/// From now on the commit has happened.
fn is_durable(_record: &[u8]) {
    UNDER_WAY.with_borrow_mut(|under_way| {
        let Some(UnderWay { recorder, pool, state, records }) = under_way else { return };
        for entry in std::fs::read_dir(folder_in(pool)).expect("the folder of the records") {
            let entry = entry.expect("a record");
            let file = File::open(entry.path()).expect("a record");
            let object = recorder.object_of(file.as_fd()).expect("a record that was written");
            if records.objects().all(|known| known != object) {
                records.0.push((entry.file_name().to_string_lossy().into_owned(), object));
            }
        }
        recorder.mark(Promise::Kept(*state).mark());
    });
}

/// The other file, open.
pub struct Peer {
    file: File,
    atomic: Arc<AtomicFile>,
}

impl Peer {
    /// Its path, beside the file.
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join("peer")
    }

    /// Creates it, and begins its session, without a recorder.
    pub fn new(folder: &Path, settings: &Settings) -> Result<Self, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let path = Self::path_in(folder);
        let options = File::options().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&path).map_err(|e| text(&e))?;
        let name = CString::new(path.to_string_lossy().as_bytes()).map_err(|e| text(&e))?;
        let test_hooks = TestHooks::current();
        TestHooks { medium: None, ids: Some(1 << 48), ..test_hooks }.enter();
        let begun = AtomicFile::open(file.as_fd(), Access::Write, &name, settings).and_then(|atomic| {
            let bytes = [1; 100];
            let buf = [UserBuf { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
            // SAFETY: a live buffer.
            unsafe { atomic.write(0, &buf) }?;
            atomic.sync()?;
            Ok(atomic)
        });
        test_hooks.enter();
        Ok(Self { file, atomic: begun.map_err(|e| text(&e))? })
    }

    /// Commits pieces of `atomic`, after setting its size if given, together with some bytes of this file. As soon as
    /// the record is durable, `state` is promised.
    pub fn commit(
        &self,
        atomic: &Arc<AtomicFile>,
        pieces: &[(u64, &[u8])],
        size: Option<u64>,
        (recorder, pool, state): (&'static Recorder, &Path, usize),
        records: &RefCell<Records>,
    ) -> Result<(), String> {
        let under_way = UnderWay { recorder, pool: pool.to_owned(), state, records: records.take() };
        UNDER_WAY.set(Some(under_way));
        let test_hooks = TestHooks::current();
        TestHooks { joint: Some(is_durable), ..test_hooks }.enter();
        let done = atomic.commit_pieces_with(pieces, size, &self.atomic, &[state as u8; 80]);
        TestHooks { joint: None, ..TestHooks::current() }.enter();
        if let Some(UnderWay { records: known, .. }) = UNDER_WAY.take() {
            records.replace(known);
        }
        done.map_err(|e| e.to_string())
    }

    /// Closes it.
    pub fn close(self) -> Result<(), String> {
        self.atomic.remove_descriptor(self.file.as_raw_fd()).map_err(|e| e.to_string())
    }
}
