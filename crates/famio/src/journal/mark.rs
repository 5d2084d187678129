//! The mark: an extended attribute of a file that says that a journal is pending.
//!
//! (A growing file has another version of the mark: `growing_mark`.)
//!
//! The mark is durable before the first commit, and is removed last at a clean close. A copy that carries the
//! attribute along (`cp -a`, `rsync -X`) is detected by the identity in it. `fdatasync` does not make an attribute
//! durable; [`persist`] does.

use super::bytes::{bytes_at, hex, put, u32_at, u64_at, u128_at};
use super::growing_mark::{self, GrowingMark, VERSION_GROWING, VERSION_OVERWRITING};
use super::identity::Identity;
use crate::error::{Error, Result};
use crate::journal::pools::access;
use crate::pmem::{Medium, TestHooks};
use crate::rule::{Rule, holds};
use crate::settings::Durability;
use core::fmt;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The attribute's name.
pub const NAME: &CStr = c"user.famio";

/// The longest path of a pool that a mark holds.
pub const POOL_MAX: usize = 1024;

const MAGIC_BYTES: &[u8; 8] = b"FAMIOMRK";
const VERSION_NOW: u32 = 1;
const VERSION_CLOSING: u32 = 3;
const VERSION_COMMITTING: u32 = 5;

// On the medium.
const MAGIC: usize = 0;
const VERSION: usize = MAGIC + 8;
const POOL_LEN: usize = VERSION + 4;
const JOURNAL_ID: usize = POOL_LEN + 4;
const IDENTITY: usize = JOURNAL_ID + 16;
const CHECKSUM: usize = IDENTITY + 16;
const POOL: usize = CHECKSUM + 8;
const LEN_MAX: usize = if POOL + POOL_MAX > growing_mark::LEN_MAX { POOL + POOL_MAX } else { growing_mark::LEN_MAX };
/// Most marks are not longer.
const FEW: usize = 256;

/// The random name of one journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct JournalId(pub [u8; 16]);

impl JournalId {
    /// A new one.
    pub fn random() -> Result<JournalId> {
        let mut id = [0; 16];
        if let Some(next) = TestHooks::next_id() {
            id[..8].copy_from_slice(&xxh3_64(&next.to_le_bytes()).to_le_bytes());
            return Ok(JournalId(id));
        }
        let length = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
        if length == id.len() { Ok(JournalId(id)) } else { Err(Error::new(libc::EIO)) }
    }
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The content of a mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The journal that is pending.
    pub journal_id: JournalId,
    /// [`Identity::hash128`] of the file that was marked.
    pub identity: u128,
    /// The folder that holds the journal; `None`: `.famio/` beside the file.
    pub pool: Option<PathBuf>,
    /// Since another boot, the file has everything: this was durable no earlier than that.
    pub is_closing: bool,
    /// The journal's first commit has begun. Says the same as the mark before, but in other bytes: so the file system
    /// has something to make durable with it.
    pub is_committing: bool,
}

impl Mark {
    /// A mark for a file. The pool's path is made absolute, since the file may be opened from any folder.
    pub fn new(journal_id: JournalId, identity: &Identity, pool: Option<&Path>) -> Result<Mark> {
        if let Some(path) = pool {
            let length = path.as_os_str().len();
            if !path.is_absolute() || length > POOL_MAX {
                let text = format!("pool {}: needs an absolute path of at most {POOL_MAX} bytes", path.display());
                return Err(Error::with(libc::EINVAL, text));
            }
        }
        let (identity, pool) = (identity.hash128(), pool.map(Path::to_path_buf));
        Ok(Mark { journal_id, identity, pool, is_closing: false, is_committing: false })
    }

    /// As it lies in the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let pool = self.pool.as_deref().map_or(&[][..], |path| path.as_os_str().as_bytes());
        let mut out = vec![0; POOL + pool.len()];
        put(&mut out, MAGIC, MAGIC_BYTES);
        let version = match (self.is_closing, self.is_committing) {
            (true, _) => VERSION_CLOSING,
            (false, true) => VERSION_COMMITTING,
            (false, false) => VERSION_NOW,
        };
        put(&mut out, VERSION, &version.to_le_bytes());
        put(&mut out, POOL_LEN, &(pool.len() as u32).to_le_bytes());
        put(&mut out, JOURNAL_ID, &self.journal_id.0);
        put(&mut out, IDENTITY, &self.identity.to_le_bytes());
        put(&mut out, POOL, pool);
        let sum = checksum(&out);
        put(&mut out, CHECKSUM, &sum.to_le_bytes());
        out
    }

    /// Decodes the attribute's bytes; the error says what is wrong with them.
    pub fn decode(from: &[u8]) -> Result<Mark> {
        let wrong = |what: String| Error::with(libc::EIO, format!("the mark user.famio is damaged: {what}"));
        if from.len() < POOL {
            return Err(wrong(format!("{} bytes, at least {POOL} expected", from.len())));
        }
        if from[MAGIC..VERSION] != MAGIC_BYTES[..] {
            return Err(wrong("it does not begin with FAMIOMRK".into()));
        }
        let version = u32_at(from, VERSION);
        let (is_closing, is_committing) = (version == VERSION_CLOSING, version == VERSION_COMMITTING);
        if version != VERSION_NOW && !is_closing && !is_committing {
            let text = format!(
                "the mark user.famio has version {version}; this Famio knows 1 to {VERSION_COMMITTING}: recover the file with the version of Famio that made it"
            );
            return Err(Error::with(libc::EIO, text));
        }
        let length = u32_at(from, POOL_LEN) as usize;
        if length > POOL_MAX || from.len() != POOL + length {
            return Err(wrong(format!("{} bytes with a pool's path of {length}", from.len())));
        }
        if u64_at(from, CHECKSUM) != checksum(from) && holds(Rule::MarkHasCheck) {
            return Err(wrong("its checksum does not fit".into()));
        }
        let pool = (length > 0).then(|| PathBuf::from(OsStr::from_bytes(&from[POOL..])));
        if pool.as_deref().is_some_and(|path| !path.is_absolute() || path.as_os_str().as_bytes().contains(&0)) {
            return Err(wrong("the pool's path is not absolute".into()));
        }
        let (journal_id, identity) = (JournalId(bytes_at(from, JOURNAL_ID)), u128_at(from, IDENTITY));
        Ok(Mark { journal_id, identity, pool, is_closing, is_committing })
    }
}

/// What the attribute says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Marked {
    /// The file has a journal that is pending.
    Journal(Mark),
    /// The file grows without a journal.
    Growing(GrowingMark),
}

impl Marked {
    fn decode(from: &[u8]) -> Result<Marked> {
        let is_growing = from.len() >= VERSION + 4
            && from[MAGIC..VERSION] == MAGIC_BYTES[..]
            && [VERSION_GROWING, VERSION_OVERWRITING].contains(&u32_at(from, VERSION));
        if is_growing {
            GrowingMark::decode(from).map(Marked::Growing)
        } else {
            Mark::decode(from).map(Marked::Journal)
        }
    }

    /// The mark, if the file has a journal.
    pub fn journal(self) -> Option<Mark> {
        match self {
            Marked::Journal(mark) => Some(mark),
            Marked::Growing(_) => None,
        }
    }
}

/// Covers everything but the checksum itself.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&bytes[..CHECKSUM]);
    hash.update(&xxh3_64(&bytes[POOL..]).to_le_bytes());
    hash.digest()
}

/// Marks a file that has no mark. Durable after [`persist`].
///
/// # Errors
/// `EBUSY`: it has a mark, set by a process that uses another pool and so does not meet this one.
pub fn set(file: BorrowedFd<'_>, mark: &Mark) -> Result<()> {
    let bytes = mark.encode();
    match access::as_owner(file, || rustix::fs::fsetxattr(file, NAME, &bytes, XattrFlags::CREATE)) {
        Err(Errno::EXIST) => Err(Error::with(
            libc::EBUSY,
            "in use as an atomic file by a process with another pool, or under another name",
        )),
        set => set.map_err(|e| refused(e, "marked")),
    }
}

/// Replaces the mark of a file, by one as long. Durable after [`persist`].
pub fn replace(file: BorrowedFd<'_>, mark: &Mark) -> Result<()> {
    let bytes = mark.encode();
    let replaced = access::as_owner(file, || rustix::fs::fsetxattr(file, NAME, &bytes, XattrFlags::REPLACE));
    replaced.map_err(|e| refused(e, "marked"))
}

/// Marks a file as growing. `is_first`: it has no mark yet; otherwise its mark is replaced. Reaches the disk with the
/// file's size, or before.
///
/// # Errors
/// `EBUSY`: it has a mark, and should not.
pub(crate) fn set_growing(file: BorrowedFd<'_>, mark: &GrowingMark, is_first: bool) -> Result<()> {
    let (bytes, flags) = (mark.encode(MAGIC_BYTES), if is_first { XattrFlags::CREATE } else { XattrFlags::REPLACE });
    match access::as_owner(file, || rustix::fs::fsetxattr(file, NAME, &bytes, flags)) {
        Err(Errno::EXIST) => Err(Error::new(libc::EBUSY)),
        set => set.map_err(|e| refused(e, "marked")),
    }
}

/// Renews the time in the mark up to which changes of the growing file count as its process's own, if it is over: to
/// some seconds from now. Recovery takes later ones for an outsider's.
pub(crate) fn renew_own_change_time(file: BorrowedFd<'_>, mark: &mut GrowingMark) -> Result<()> {
    let before = mark.until;
    if mark.renew() {
        set_growing(file, mark, false).inspect_err(|_| mark.until = before)?;
    }
    Ok(())
}

/// The mark of a file's journal; `None` if the file has none, or grows without one.
pub fn get(file: BorrowedFd<'_>) -> Result<Option<Mark>> {
    Ok(get_any(file)?.and_then(Marked::journal))
}

/// The file's mark; `None` if it has none.
pub fn get_any(file: BorrowedFd<'_>) -> Result<Option<Marked>> {
    read(|bytes| access::as_owner(file, || rustix::fs::fgetxattr(file, NAME, &mut *bytes)))
}

/// As [`get_any`], on an `O_PATH` descriptor.
pub(crate) fn of_looked_at(file: BorrowedFd<'_>) -> Result<Option<Marked>> {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    read(|bytes| rustix::fs::getxattr(&*link, NAME, bytes))
}

/// Whether the file `name` in a folder has a mark, even a damaged one. One system call, which opens nothing.
pub(crate) fn is_on(folder: BorrowedFd<'_>, name: &CStr) -> Result<bool> {
    let mut path = format!("/proc/thread-self/fd/{}/", folder.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    match rustix::fs::lgetxattr(&*path, NAME, &mut [0u8; 0]) {
        Ok(_) | Err(Errno::RANGE) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT) => Ok(false),
        Err(e) => Err(refused(e, "asked for its mark")),
    }
}

/// Only a mark that names a pool, or has overwrites, is long. The stack may be small.
fn read(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Result<Option<Marked>> {
    let mut few = [0; FEW];
    match get(&mut few) {
        Err(Errno::RANGE) => {
            let mut many = vec![0; LEN_MAX];
            decoded(get(&mut many), &many)
        }
        length => decoded(length, &few),
    }
}

fn decoded(length: rustix::io::Result<usize>, bytes: &[u8]) -> Result<Option<Marked>> {
    match length {
        Ok(length) => Marked::decode(&bytes[..length]).map(Some),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(Errno::RANGE) => Err(Error::with(libc::EIO, "the mark user.famio is damaged: too long")),
        Err(e) => Err(refused(e, "asked for its mark")),
    }
}

/// Removes the mark; without a mark, does nothing. Durable after [`persist`].
pub fn remove(file: BorrowedFd<'_>) -> Result<()> {
    match access::as_owner(file, || rustix::fs::fremovexattr(file, NAME)) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        // Without the right to change it, this error comes even if there is no mark.
        Err(Errno::ACCESS | Errno::PERM) if matches!(get(file), Ok(None)) => Ok(()),
        Err(e) => Err(refused(e, "unmarked")),
    }
}

/// As [`remove`]. Some file systems need room for that (xfs): on a full disk, `give_room` frees some, and it is tried
/// again.
pub fn remove_with_room(file: BorrowedFd<'_>, give_room: impl FnOnce() -> Result<()>) -> Result<()> {
    match remove(file) {
        Err(e) if e.is_full() => give_room().and_then(|()| remove(file)),
        removed => removed,
    }
}

/// Whether this process may mark the file.
pub fn can_be_changed(file: BorrowedFd<'_>) -> bool {
    // Replacing an attribute that does not exist first checks the right to do so.
    let tried = access::as_owner(file, || rustix::fs::fsetxattr(file, c"user.famio.none", &[], XattrFlags::REPLACE));
    !matches!(tried, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::OPNOTSUPP))
}

/// Makes [`set`] and [`remove`] durable, by `fsync` where power loss matters.
pub fn persist(file: BorrowedFd<'_>, durability: Durability, medium: &dyn Medium) -> Result<()> {
    match durability {
        Durability::Power => medium.fsync(file),
        Durability::Process => Ok(()),
    }
}

fn refused(errno: Errno, what: &str) -> Error {
    let why = match errno {
        Errno::OPNOTSUPP => "its file system has no user attributes",
        Errno::ACCESS if what == "asked for its mark" => "only users who may read it may read its attributes",
        Errno::PERM | Errno::ACCESS => "only users who may write it may change its attributes",
        Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG => "no room for the attribute",
        Errno::ROFS => "read-only file system",
        _ => "the attribute user.famio",
    };
    Error::with(errno.raw_os_error(), format!("the file cannot be {what}: {why} (errno {})", errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scratch;
    use super::*;
    use crate::pmem::{Domain, medium};
    use std::fs::File;
    use std::os::fd::AsFd;

    fn sample(pool: Option<&str>) -> Mark {
        let pool = pool.map(PathBuf::from);
        let identity = 0x1234 << 64 | 0x5678;
        Mark { journal_id: JournalId([7; 16]), identity, pool, is_closing: false, is_committing: false }
    }

    #[test]
    fn the_layout_is_fixed() {
        assert_eq!([MAGIC, VERSION, POOL_LEN, JOURNAL_ID, IDENTITY, CHECKSUM, POOL], [0, 8, 12, 16, 32, 48, 56]);
        assert_eq!((POOL + POOL_MAX, LEN_MAX), (1080, 64 + (32 << 10)));
        assert_eq!(sample(None).encode().len(), 56);
    }

    #[test]
    fn is_set_read_and_removed() {
        let dir = Scratch::new();
        let file = File::create(dir.path("f")).unwrap();
        assert_eq!(get(file.as_fd()).unwrap(), None);
        let long = format!("/{}", "x".repeat(POOL_MAX - 1));
        let closing = Mark { is_closing: true, ..sample(Some("/a/pool")) };
        let committing = Mark { is_committing: true, ..sample(None) };
        assert_ne!(committing.encode(), sample(None).encode());
        for mark in [sample(None), sample(Some("/a/pool")), sample(Some(&long)), closing, committing] {
            set(file.as_fd(), &mark).unwrap();
            persist(file.as_fd(), Durability::Power, medium(Domain::PageCache, false)).unwrap();
            assert_eq!(set(file.as_fd(), &mark).unwrap_err().errno(), libc::EBUSY);
            assert_eq!(get(file.as_fd()).unwrap(), Some(mark));
            remove(file.as_fd()).unwrap();
        }
        remove(file.as_fd()).unwrap();
        assert_eq!(get(file.as_fd()).unwrap(), None);
    }

    #[test]
    fn a_pool_needs_an_absolute_path_that_fits() {
        let dir = Scratch::new();
        let identity = Identity::of_path(dir.root()).unwrap();
        let long = format!("/{}", "x".repeat(POOL_MAX));
        for bad in ["", "pool", "./pool", &long] {
            let error = Mark::new(JournalId::default(), &identity, Some(Path::new(bad))).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL, "{bad}");
        }
        Mark::new(JournalId::default(), &identity, Some(Path::new("/pool"))).unwrap();
    }

    #[test]
    fn damage_is_told() {
        let good = sample(Some("/pool")).encode();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(Mark::decode(&bad).unwrap_err().errno(), libc::EIO, "byte {at}");
            }
        }
        for length in 0..good.len() {
            Mark::decode(&good[..length]).unwrap_err();
        }
        let path = format!("/dev/shm/famio-test-mark-{}", std::process::id()); // others have no such long attributes
        let file = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for (length, what) in [(2000, "does not begin with"), (LEN_MAX + 1, "too long")] {
            rustix::fs::fsetxattr(&file, NAME, &vec![0; length], XattrFlags::empty()).unwrap();
            assert!(get(file.as_fd()).unwrap_err().to_string().contains(what), "{length}");
        }
    }

    #[test]
    fn no_attributes_is_said() {
        let file = File::open("/proc/version").unwrap();
        let error = set(file.as_fd(), &sample(None)).unwrap_err();
        assert!(error.to_string().starts_with("the file cannot be marked: "), "{error}");
        assert_eq!(get(file.as_fd()).unwrap(), None);
    }

    #[test]
    fn ids_are_random() {
        assert_ne!(JournalId::random().unwrap(), JournalId::random().unwrap());
    }
}
