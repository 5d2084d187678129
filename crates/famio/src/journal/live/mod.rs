//! One journal that this process uses, from its creation to its clean end.

mod begin;
mod end;
mod keeper;
mod place;

use super::header::{GEOMETRY_WORDS, Header, Kind, LEN, State, first_bytes, is_blank};
use super::identity::Identity;
use super::lock;
use super::mark::{self, Mark};
use crate::error::{Error, Result};
use crate::journal::pools::pool::{Pool, journal_name};
use crate::journal::pools::shares::{Charge, Limit};
use crate::pmem::{Detected, Domain, Medium, TestHooks, keeps_order};
use crate::settings::{Durability, Settings};
use crate::sys::InternalFd;
use crate::sys::internal::InUse;
use crate::sys::namespaces::root_folder;
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicU8};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A journal that this process uses.
pub(crate) struct Live {
    file: InternalFd,
    header: Mutex<Header>,
    pool: Option<PathBuf>,
    name: String,
    path: PathBuf,
    /// Where it was last found; folders may be moved.
    place: Mutex<PathBuf>,
    /// This process's root folder when it was made: after a `chroot`, its path has no meaning.
    root: (u64, u64),
    /// The open pool, until the journal is active: undoing the creation must not depend on free descriptors.
    made_in: Mutex<Option<Pool>>,
    durability: Durability,
    medium: &'static dyn Medium,
    /// To how many bytes it may grow.
    limit: Limit,
    /// Beside its mark, on a file system that keeps the order of what it makes durable (`pmem::keeps_order`): what has
    /// to be durable before a change of the mark is only written before it.
    keeps_order: AtomicBool,
    /// What the next commit has to make durable besides its records.
    due: AtomicU8,
    /// It has ended, and stays, with or without its mark: the process lacked the right, or room, to remove them.
    is_left: AtomicBool,
}

/// Nothing.
const NOTHING: u8 = 0;
/// The mark, without which the journal, in state *as marked*, does not count.
const MARK: u8 = 1;
/// Nothing, but the commit after it [`ACTIVE`].
const FIRST: u8 = 2;
/// State *active*, by which a lost mark is noticed. Short sessions do without.
const ACTIVE: u8 = 3;
/// What cannot be had any more: a flush has failed, and the kernel may have dropped what it covered.
const FAILED: u8 = 4;

/// Durability of what lies in a domain: whether the kernel has to sync it.
pub(crate) fn durability_of(domain: Domain) -> Durability {
    match domain {
        Domain::Pmem | Domain::PageCache => Durability::Power,
        Domain::Process | Domain::Emulated => Durability::Process,
    }
}

/// A session would overwrite what the process `pid` writes.
fn demoted_by(pid: u32) -> Error {
    let what = format!("process {pid} could not protect it, and writes it as an ordinary file");
    Error::with(libc::EBUSY, what)
}

impl Drop for Live {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Live {
    /// Creates the journal of `file`, with only a header, in state *creating*; one of records gets its header with its first
    /// segment. `through_cache`: of a file, and with a journal, that are written through the page cache.
    pub fn create(
        file: BorrowedFd<'_>,
        settings: &Settings,
        kind: Kind,
        (domain, file_domain): (Domain, Domain),
        medium: &'static dyn Medium,
        through_cache: Option<&Detected>,
    ) -> Result<Arc<Self>> {
        let identity = Identity::of_fd(file)?;
        let name = journal_name(&identity);
        let create = || Pool::create_for(file, settings.pool.as_deref(), &name);
        let (pool, journal) = match create() {
            Err(e) if e.errno() == libc::EEXIST && remove_leftover(file, &identity, settings, &name)? => create()?,
            created => created?,
        };
        lock::begin(&journal);
        let charge = Charge::of(&pool, settings).inspect_err(|_| {
            let _ = pool.remove(&name); // nothing refers to it yet
        })?;
        let made = (&pool, journal, name, identity);
        let live = Self::new(file, settings, kind, (domain, file_domain), medium, through_cache, made, charge)?;
        // A log of records gives header and first segment their room in one piece, before anything is written: so their
        // removal is one request to a disk that is told what is freed.
        let has_begun = match kind {
            Kind::Records => Ok(()),
            Kind::InPlace | Kind::Tiered => live.reserve_header().and_then(|()| live.store(State::Creating)),
        };
        if let Err(e) = has_begun {
            let _ = pool.remove(&live.name); // nothing refers to it yet
            pool.remove_if_empty();
            return Err(e);
        }
        *live.made_in.lock() = Some(pool);
        Ok(live)
    }

    /// Not inlined: it is made on the stack, which is needed for other things before and afterwards, and may be small.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "it is a part of `create`")]
    fn new(
        file: BorrowedFd<'_>,
        settings: &Settings,
        kind: Kind,
        (domain, file_domain): (Domain, Domain),
        medium: &'static dyn Medium,
        through_cache: Option<&Detected>,
        (pool, journal, name, identity): (&Pool, InternalFd, String, Identity),
        charge: Option<Arc<Charge>>,
    ) -> Result<Arc<Self>> {
        let path = pool.path_of(&name);
        let header = Header::new(kind, domain, file_domain, identity, &super::path_of(file)?)?;
        // Under another name of the file, there may be another `.famio/`: the mark says which one counts.
        let stat = rustix::fs::fstat(file)?;
        let has_other_names = stat.st_nlink > 1;
        let test_hooks = TestHooks::current();
        let keeps_order = |detected: &Detected| match test_hooks.medium {
            Some(_) => test_hooks.keeps_order,
            None => keeps_order(file, detected) && keeps_order(journal.as_fd(), detected),
        };
        let keeps_order = durability_of(file_domain) == Durability::Power
            && rustix::fs::fstat(&journal)?.st_dev == stat.st_dev
            && through_cache.is_some_and(keeps_order);
        Ok(Arc::new(Self {
            file: journal,
            header: Mutex::new(header),
            pool: (settings.pool.is_some() || has_other_names).then(|| pool.path().to_path_buf()),
            name,
            place: Mutex::new(path.clone()),
            root: root_folder(),
            path,
            made_in: Mutex::new(None),
            durability: durability_of(file_domain),
            medium,
            limit: Limit::new(settings.journal_limit, charge),
            keeps_order: AtomicBool::new(keeps_order),
            due: AtomicU8::new(NOTHING),
            is_left: AtomicBool::new(false),
        }))
    }

    /// The journal of `file` in a session that another process began and this process now owns.
    ///
    /// # Errors
    /// `ENOENT`: it is not where other processes find it. `EACCES`: this process may not use it. `EIO`: it is not in
    /// use.
    pub fn attach(file: BorrowedFd<'_>, settings: &Settings, medium: &'static dyn Medium) -> Result<Self> {
        let identity = Identity::of_fd(file)?;
        let name = journal_name(&identity);
        let mark = mark::get(file)?;
        let setting = mark.as_ref().and_then(|mark| mark.pool.clone()).or_else(|| settings.pool.clone());
        let missing = || Error::new(libc::ENOENT);
        let pool = Pool::find(file, setting.as_deref())?.ok_or_else(missing)?;
        let journal = pool.open(&name, Some(file))?.ok_or_else(missing)?;
        let (bytes, length) = first_bytes(journal.as_fd())?;
        let (header, _) = Header::read(&bytes[..length])?;
        let is_marked = mark.is_some_and(|mark| mark.journal_id == header.journal_id && !mark.is_closing);
        let state = header.state;
        if header.identity != identity || ![State::Active, State::AsMarked].contains(&state) || !is_marked {
            return Err(Error::with(libc::EIO, format!("journal {}: not in use", pool.path_of(&name).display())));
        }
        let path = pool.path_of(&name);
        journal.set_name(path.as_os_str().as_bytes(), false)?;
        lock::begin(&journal);
        let limit = Limit::new(settings.journal_limit, Charge::of(&pool, settings)?);
        Ok(Self {
            file: journal,
            durability: durability_of(header.file_domain),
            header: Mutex::new(header),
            pool: setting.is_some().then(|| pool.path().to_path_buf()),
            name,
            place: Mutex::new(path.clone()),
            root: root_folder(),
            path,
            made_in: Mutex::new(None),
            medium,
            limit,
            keeps_order: AtomicBool::new(false), // the other process may have made it in another way
            due: AtomicU8::new(if state == State::AsMarked { MARK } else { NOTHING }),
            is_left: AtomicBool::new(false),
        })
    }

    /// Reserves room for both copies of the header: once the file is marked, a full disk must not keep it from being
    /// stored.
    fn reserve_header(&self) -> Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let reserve = |journal: &InUse<'_>| loop {
            match fallocate(journal.as_fd(), FallocateFlags::KEEP_SIZE, 0, LEN as u64) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                reserved => return Ok(reserved?),
            }
        };
        self.file.run(reserve).map_err(|e| e.context(format_args!("journal {}", self.path.display())))
    }

    /// Stores the header with a new state. Durable on return, but for a new journal, until it has begun.
    fn store(&self, state: State) -> Result<()> {
        let mut header = self.header.lock();
        header.state = state;
        self.file
            .run(|journal| header.store(journal, self.medium))
            .map_err(|e| e.context(format_args!("journal {}", self.path.display())))
    }

    /// Changes the format's own words in the header; stored with the next state.
    pub fn describe(&self, change: impl FnOnce(&mut [u64; GEOMETRY_WORDS])) {
        change(&mut self.header.lock().geometry);
    }

    /// What a SYNC survives.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Where it was last found.
    pub fn place(&self) -> PathBuf {
        self.place.lock().clone()
    }

    /// The pool that it lies in.
    pub fn find_pool(&self, file: BorrowedFd<'_>) -> Result<Pool> {
        Pool::at(self.place().parent().unwrap_or(Path::new("/")), Some(file))
    }

    /// Gives up the session's lock: from now on, any process may recover the journal. Closing the descriptor would
    /// not suffice, since a forked child may have a duplicate.
    pub fn leave(&self) {
        let _ = self.file.run(|journal| {
            lock::end(journal);
            Ok(())
        });
        self.limit.end();
    }

    /// The journal's file.
    pub fn file(&self) -> &InternalFd {
        &self.file
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To how many bytes it may grow, by its own limit, and in its pool.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The mark that names it.
    fn mark(&self) -> Result<Mark> {
        let header = self.header.lock();
        Mark::new(header.journal_id, &header.identity, self.pool.as_deref())
    }

    fn state(&self) -> State {
        self.header.lock().state
    }

    /// Its id.
    pub fn id(&self) -> super::JournalId {
        self.header.lock().journal_id
    }
}

/// Removes a journal that is in the way and holds nothing: a leftover of an earlier session whose end could not
/// remove it (its folder was being moved), or whose beginning failed. The caller owns the file. Returns whether there
/// was one.
fn remove_leftover(file: BorrowedFd<'_>, identity: &Identity, settings: &Settings, name: &str) -> Result<bool> {
    if mark::get(file)?.is_some() {
        return Ok(false);
    }
    let Some(pool) = Pool::find(file, settings.pool.as_deref())? else { return Ok(false) };
    let Some(journal) = pool.open_read_only(name, Some(file))? else { return Ok(true) };
    let (bytes, length) = first_bytes(journal.as_fd())?;
    // A journal in state *creating* was never used if there is no mark: the file is marked before the journal becomes
    // active.
    let holds_nothing = match Header::read(&bytes[..length]) {
        Ok((header, _)) => header.identity == *identity && !header.state.is_pending(false),
        Err(_) => is_blank(&bytes[..length]),
    };
    if holds_nothing {
        pool.remove(name)?;
    }
    Ok(holds_nothing)
}

#[cfg(test)]
mod tests;
