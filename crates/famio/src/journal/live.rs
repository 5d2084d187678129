//! The life of one journal, from its creation to its clean end.

use super::demotion_note;
use super::header::{GEOMETRY_WORDS, Header, Kind, LEN, State, first_bytes, is_blank};
use super::identity::Identity;
use super::lock;
use super::mark::{self, Mark};
use super::records::Keeper;
use crate::error::{Error, Result};
use crate::journal::pools::beside::beside_path;
use crate::journal::pools::pool::{Pool, is_beside_name, journal_name};
use crate::journal::pools::shares::{Charge, Limit};
use crate::pmem::{Detected, Domain, Medium, TestHooks, keeps_order};
use crate::rule::{Rule, holds, in_order};
use crate::settings::{Durability, Settings};
use crate::sys::internal::InUse;
use crate::sys::namespaces::root_folder;
use crate::sys::{InternalFd, read_at, write_at};
use crate::thread::Mutex;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often a journal is made again whose folder is removed meanwhile.
const MAKES: u32 = 16;

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
    /// Creates the journal of `file`, with only a header, in state *creating*. `through_cache`: of a file, and with a
    /// journal, that are written through the page cache.
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
        if let Err(e) = live.reserve_header().and_then(|()| live.store(State::Creating)) {
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

    /// Stores the header with a new state. Durable on return, but for *creating*.
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

    /// The journal is complete: makes it durable, with its name, marks the file, durably, and then stores state
    /// *active*. Commits, and stores to the file, may follow.
    ///
    /// A journal of records, whose file is not stored to before the first commit, becomes *as marked* instead. Where the
    /// order is kept, its first commit makes mark and journal durable, with its records.
    pub fn activate(&self, file: BorrowedFd<'_>) -> Result<()> {
        let (id, identity) = {
            let header = self.header.lock();
            (header.journal_id, header.identity)
        };
        let mark = Mark::new(id, &identity, self.pool.as_deref())?;
        let is_of_records = self.header().kind == Kind::Records && holds(Rule::MarkBeforeActive);
        if is_of_records {
            self.store(State::AsMarked)?;
        }
        // With the mark, the file becomes durable as it was found: from here on, a crash takes it back to that.
        let set_mark = || {
            let is_due = is_of_records && self.keeps_order.load(Ordering::Relaxed);
            if is_due {
                self.medium.write_out(file)?;
            }
            mark::set(file, &mark)?;
            // A process that notes this looks for a mark afterwards. So one of the two sees the other.
            if let Some(pid) = demotion_note::of_another_at_begin(file) {
                return Err(demoted_by(pid));
            }
            let due = match is_of_records {
                true if is_due => MARK,
                true => FIRST,
                false => NOTHING,
            };
            self.due.store(due, Ordering::Relaxed);
            if is_due { Ok(()) } else { mark::persist(file, self.durability, self.medium) }
        };
        in_order(
            Rule::MarkBeforeActive,
            || in_order(Rule::JournalBeforeMark, || self.persist_before_mark(), set_mark),
            || if is_of_records { Ok(()) } else { self.store(State::Active) },
        )?;
        *self.made_in.lock() = None;
        Ok(())
    }

    /// Whether the next commit has to make the mark durable.
    pub fn awaits_mark(&self) -> bool {
        self.due.load(Ordering::Relaxed) == MARK
    }

    /// Before a commit that is not an append to the journal: makes it count.
    pub fn make_mark_durable(&self, file: BorrowedFd<'_>) -> Result<()> {
        if !self.awaits_mark() {
            return Ok(());
        }
        let journal = || {
            if self.write_out()? {
                return Ok(());
            }
            // Its name is durable with the mark, or was so before the mark was set.
            self.file.run(|journal| self.medium.fsync(journal.as_fd()))
        };
        let mark = || mark::persist(file, self.durability, self.medium);
        in_order(Rule::RecordsBeforeMark, journal, mark)?;
        self.header.lock().was_flushed();
        self.due.store(ACTIVE, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a new journal and its name durable, where that matters: size, owner and mode, too. One flush of the disk
    /// takes most of it: the folders have nothing left where the file system commits all at once. Where the order is
    /// kept, the flush of the mark takes all of it.
    fn persist_before_mark(&self) -> Result<()> {
        if self.durability == Durability::Power && !self.write_out()? {
            self.file.run(|journal| self.medium.fsync(journal.as_fd()))?;
        }
        let is_written_out = self.keeps_order.load(Ordering::Relaxed);
        self.header.lock().has_begun(!is_written_out);
        if is_written_out {
            return Ok(());
        }
        self.made_in.lock().as_ref().map_or(Ok(()), |pool| pool.sync(self.durability, self.medium))
    }

    /// Where the file system keeps the order: writes the journal to the disk, so that it is there after a crash if a
    /// later change of the mark is. Returns whether it did; a sandbox may forbid it.
    fn write_out(&self) -> Result<bool> {
        if self.keeps_order.load(Ordering::Relaxed) {
            match self.file.run(|journal| self.medium.write_out(journal.as_fd())) {
                Err(e) if [libc::ENOSYS, libc::EPERM].contains(&e.errno()) => {
                    self.keeps_order.store(false, Ordering::Relaxed);
                }
                written => written?,
            }
        }
        Ok(self.keeps_order.load(Ordering::Relaxed))
    }

    /// Everything was written to the file: makes that durable; or, where the order is kept, writes it to the disk, and
    /// [`retire`](Self::retire) makes it durable.
    pub fn persist_before_end(&self, file: BorrowedFd<'_>) -> Result<()> {
        if self.keeps_order.load(Ordering::Relaxed) {
            match self.medium.write_out(file) {
                Err(e) if [libc::ENOSYS, libc::EPERM].contains(&e.errno()) => {
                    self.keeps_order.store(false, Ordering::Relaxed);
                }
                written => return written,
            }
        }
        self.medium.fdatasync(file)
    }

    /// Stores a state that is a leftover's once the mark is gone: durably, or as [`write_out`](Self::write_out) does.
    fn store_end_before_unmark(&self) -> Result<()> {
        if self.header().state == State::AsMarked {
            return Ok(()); // and so it was, durably, before the mark was
        }
        if !self.keeps_order.load(Ordering::Relaxed) {
            return self.store(State::Clean);
        }
        {
            let mut header = self.header.lock();
            header.state = State::AsMarked;
            self.file.run(|journal| header.store_one_copy(journal, self.medium))?;
        }
        if self.write_out()? { Ok(()) } else { self.file.run(|journal| self.medium.fdatasync(journal.as_fd())) }
    }

    /// Everything is in the file, as after [`persist_before_end`](Self::persist_before_end): stores state *clean*, or
    /// *as marked*, removes the mark from the file, durably, and with it all that the file has, and removes the journal.
    /// After an error, the journal takes no more commits, since recovery might not replay them.
    pub fn retire(&self, file: BorrowedFd<'_>) -> Result<()> {
        // A process that lacks the rights by now (it has dropped them, or the file has another owner), or for which a
        // full disk has no room even to remove a mark, leaves both: a clean journal is never replayed.
        let is_marked = core::cell::Cell::new(false);
        let unmark = || {
            let is_durable = self.mark_as_closing(file)?;
            match self.unmark(file) {
                Err(e) if e.is_denied() || e.is_full() => {
                    is_marked.set(true);
                    self.make_clean(file)
                }
                Ok(()) if is_durable => {
                    self.medium.changed_name();
                    Ok(()) // that it is gone need not be durable
                }
                removed => removed.and_then(|()| mark::persist(file, self.durability, self.medium)),
            }
        };
        let remove = || {
            let removed = if is_marked.get() { Ok(false) } else { self.remove(file).map(|()| true) };
            let is_removed = removed.or_else(|e| if e.is_denied() { Ok(false) } else { Err(e) })?;
            self.is_left.store(!is_removed, Ordering::Release);
            Ok(())
        };
        let ended = in_order(
            Rule::CleanBeforeMarkGoes,
            || self.store_end_before_unmark(),
            || in_order(Rule::MarkGoesBeforeJournal, unmark, remove),
        );
        self.leave();
        ended // not synced: a clean journal that reappears after a power cut is never replayed
    }

    /// Whether [`retire`](Self::retire) has left it, with or without its mark, for lack of rights or room.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Where the order is kept: changes the mark to one that counts for nothing after this boot, durably, and with it all
    /// that the file has. If the flush fails, what the file had may be lost, and the next open recovers it. Returns
    /// whether it did: not if it may not change the mark.
    #[inline(never)] // it has a name in the simulator's list of flushes
    fn mark_as_closing(&self, file: BorrowedFd<'_>) -> Result<bool> {
        if !self.keeps_order.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let (id, identity) = {
            let header = self.header.lock();
            (header.journal_id, header.identity)
        };
        let pending = Mark::new(id, &identity, self.pool.as_deref())?;
        match mark::replace(file, &Mark { is_closing: true, ..pending.clone() }) {
            Err(e) if e.is_denied() || e.is_full() || e.errno() == libc::ENODATA => {
                self.medium.fdatasync(file)?;
                return Ok(false);
            }
            replaced => replaced?,
        }
        if let Err(error) = mark::persist(file, self.durability, self.medium) {
            let _ = mark::replace(file, &pending); // another boot counts on the journal, too
            return Err(error);
        }
        Ok(true)
    }

    /// Where the mark stays, the state has to be *clean*, and nothing of the file only written to the disk.
    fn make_clean(&self, file: BorrowedFd<'_>) -> Result<()> {
        if self.header().state == State::Clean {
            return Ok(());
        }
        self.medium.fdatasync(file)?;
        self.store(State::Clean)
    }

    /// Removes the mark; the *clean* journal gives its room for that, unless it is mapped.
    fn unmark(&self, file: BorrowedFd<'_>) -> Result<()> {
        mark::remove_with_room(file, || match self.header().kind {
            Kind::Records => {
                self.make_clean(file)?;
                self.file.run(|journal| self.medium.ftruncate(journal.as_fd(), LEN as u64))
            }
            Kind::InPlace | Kind::Tiered => Err(Error::new(libc::ENOSPC)),
        })
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

    /// Removes the journal from where it was made, or else from where the file's pool is now: folders may have been
    /// moved.
    fn remove(&self, file: BorrowedFd<'_>) -> Result<()> {
        let own = self.file.identity();
        // By its path, which needs no descriptor: none may be left.
        let place = self.place();
        if remove_if(&place, own)? {
            return Ok(());
        }
        let made = self.path.parent().and_then(|folder| Pool::at(folder, None).ok());
        let now = || Pool::find(file, self.pool.as_deref()).ok().flatten();
        for pool in made.into_iter().chain(now()) {
            let found = pool.open_read_only(&self.name, None).ok().flatten();
            let found = found.and_then(|journal| rustix::fs::fstat(journal).ok());
            if found.is_some_and(|found| (found.st_dev, found.st_ino) == own) {
                pool.remove(&self.name)?;
                pool.remove_if_empty();
                return Ok(());
            }
        }
        Ok(()) // clean and out of reach: a leftover
    }

    /// Undoes a creation that failed before the file was changed: removes mark and journal.
    pub fn abandon(&self, file: BorrowedFd<'_>) {
        let was_creating = matches!(self.header().state, State::Creating | State::AsMarked);
        // A header that may say *active* must not outlive the mark. If it cannot be changed, both stay, and the next
        // open finds them: the file is as its first commit says.
        if self.store(State::Clean).is_err() && !was_creating {
            return;
        }
        // If the mark names another journal, that journal is in use.
        let is_ours = !matches!(mark::get(file), Ok(Some(mark)) if mark.journal_id != self.id());
        if !is_ours || self.unmark_abandoned(file, was_creating).is_ok() {
            match self.made_in.lock().take() {
                Some(pool) => {
                    let _ = pool.remove(&self.name);
                    pool.remove_if_empty();
                }
                None => {
                    let _ = self.remove(file);
                }
            }
        }
    }

    #[inline(never)] // as above
    fn unmark_abandoned(&self, file: BorrowedFd<'_>, was_creating: bool) -> Result<()> {
        match mark::remove(file) {
            Err(e) if was_creating && e.is_denied() => return Ok(()), // without the right to remove it, it was never set
            removed => removed?,
        }
        mark::persist(file, self.durability, self.medium)
    }

    /// A flush failed, so the journal takes no more commits.
    pub fn suspect(&self) {
        // Best effort: if this fails, too, the header is still right, since nothing more is committed.
        let mut header = self.header.lock();
        if header.state.can_become_suspect() {
            header.state = State::Suspect;
            let _ = self.file.run(|journal| header.store(journal, self.medium));
        }
    }

    /// Whether a recovery would find the journal by its name. If that cannot be checked (after a `chroot`, or without
    /// the rights), whether it has any name. `thorough`: also checks whether the file was moved away from it. `file`
    /// returns the file's path now, `names` the number of its names. Both may take locks under which other threads
    /// end the session, so no lock is held here while they are called.
    pub fn is_named(
        &self,
        thorough: bool,
        file: impl FnOnce() -> Option<PathBuf>,
        names: impl FnOnce() -> u64,
    ) -> bool {
        let own = self.file.identity();
        let leads_here = |path: &Path| {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            // Does not ask for times: see `sys::identity`.
            rustix::fs::statx(rustix::fs::CWD, path, flags, rustix::fs::StatxFlags::INO)
                .map(|stat| (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino) == own)
        };
        let place = self.place();
        let is_there = leads_here(&place) == Ok(true);
        if is_there && (self.pool.is_some() || !thorough) {
            return true;
        }
        let Some(file) = file() else { return is_there || self.has_a_name() };
        let pool = self.pool.clone().unwrap_or_else(|| beside_path(&file));
        let path = pool.join(&self.name);
        if is_there && path == place {
            return true;
        }
        let names = names();
        if names == 0 {
            return true; // without the file, there is nothing to find
        }
        if root_folder() != self.root {
            return is_there || self.has_a_name();
        }
        // Of several names, it is unknown which one counts.
        if is_there && (names > 1 || file.as_os_str().as_bytes().ends_with(b" (deleted)")) {
            return true;
        }
        match leads_here(&path) {
            Ok(true) => {
                let _ = self.file.set_name(path.as_os_str().as_bytes(), false);
                *self.place.lock() = path;
                true
            }
            Ok(false) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => false,
            Err(_) => self.has_a_name(),
        }
    }

    fn has_a_name(&self) -> bool {
        self.file.get().is_ok_and(|journal| rustix::fs::fstat(journal).is_ok_and(|stat| stat.st_nlink > 0))
    }

    /// Puts a copy of the journal into the pool under its name, and uses it.
    fn copy_to(&self, pool: &Pool, file: BorrowedFd<'_>) -> Result<()> {
        let unfinished = format!("{}.new", self.name);
        let made = pool.remove(&unfinished).and_then(|()| {
            let new = pool.create(file, &unfinished)?;
            lock::begin(&new);
            self.file.run(|old| copy(old, &new))?;
            if self.durability == Durability::Power {
                self.medium.fsync(new.as_fd())?;
            }
            pool.rename(&unfinished, &self.name)?;
            pool.sync(self.durability, self.medium)?;
            self.file.replace(new.as_fd())
        });
        if made.is_err() {
            let _ = pool.remove(&unfinished); // the error that is reported is the one before
        }
        made
    }

    /// The journal has lost its name: puts a complete and durable copy of it under that name, and uses it from now
    /// on. No thread writes to the journal meanwhile. `EIO`: there is no place for it, or another file is there.
    pub fn make_anew(&self, file: BorrowedFd<'_>) -> Result<()> {
        let failed = |e: Error| {
            Error::with(
                libc::EIO,
                format!("journal {} was removed, moved or replaced, and can't be made anew ({e})", self.path.display()),
            )
        };
        let own = self.file.identity();
        let mut tries = 0;
        let pool = loop {
            let pool = Pool::make(file, self.pool.as_deref()).map_err(failed)?;
            match self.copy_to(&pool, file) {
                Ok(()) => break pool,
                // The folder was removed once more.
                Err(e) if e.errno() == libc::ENOENT && tries < MAKES => tries += 1,
                Err(e) => return Err(failed(e)),
            }
        };
        self.keeps_order.store(false, Ordering::Relaxed); // it may be on another file system now
        let path = pool.path_of(&self.name);
        self.file.set_name(path.as_os_str().as_bytes(), false)?;
        let before = core::mem::replace(&mut *self.place.lock(), path);
        // The file was moved away from this journal. An error does not matter: no file finds the leftover.
        let _ = remove_if(&before, own);
        Ok(())
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

/// Removes the journal at this path if it is the right one, and then a `.famio/` that is empty.
fn remove_if(path: &Path, own: (u64, u64)) -> Result<bool> {
    if !rustix::fs::lstat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == own) {
        return Ok(false);
    }
    rustix::fs::unlink(path).map_err(|e| Error::from(e).context(format_args!("journal {}", path.display())))?;
    if let Some(folder) = path.parent().filter(|folder| folder.file_name().is_some_and(is_beside_name)) {
        let _ = rustix::fs::rmdir(folder); // unless it has other journals
    }
    Ok(true)
}

/// Copies a file to an empty one, with room for all of it.
fn copy(from: impl AsFd, to: impl AsFd) -> Result<()> {
    let size = rustix::fs::fstat(&from)?.st_size as u64;
    rustix::fs::fallocate(&to, rustix::fs::FallocateFlags::empty(), 0, size)?;
    let (mut piece, mut at) = (vec![0; 1 << 20], 0);
    while at < size {
        let got = read_at(&from, at, &mut piece)?;
        if got == 0 {
            return Err(Error::new(libc::EIO)); // cut meanwhile
        }
        write_at(&to, at, &piece[..got])?;
        at += got as u64;
    }
    Ok(())
}

impl Keeper for Live {
    fn journal(&self) -> &InternalFd {
        &self.file
    }

    fn header(&self) -> Header {
        self.header.lock().clone()
    }

    fn stores(&self) -> u64 {
        self.header.lock().stores()
    }

    fn read_again(&self) -> Result<()> {
        let mut header = self.header.lock();
        let (bytes, length) = self.file.run(|journal| first_bytes(journal.as_fd()))?;
        let (there, _) = Header::read(&bytes[..length])?;
        if there.journal_id != header.journal_id {
            return Err(Error::with(libc::EIO, format!("journal {}: it was replaced", self.path.display())));
        }
        *header = there;
        Ok(())
    }

    fn change(&self, journal: &dyn AsFd, change: &mut dyn FnMut(&mut Header)) -> Result<()> {
        let mut header = self.header.lock();
        change(&mut header);
        // Not durable for a new journal: `activate` makes all of that durable.
        header.store(journal, self.medium).map_err(|e| e.context(format_args!("journal {}", self.path.display())))
    }

    fn flush(&self, file: Option<BorrowedFd<'_>>) -> Result<()> {
        match (self.due.load(Ordering::Relaxed), file) {
            (MARK, Some(file)) => self.make_mark_durable(file),
            (ACTIVE, _) if self.header().state == State::AsMarked => {
                let mut header = self.header.lock();
                header.state = State::Active;
                let flush = |journal: BorrowedFd<'_>| self.medium.fdatasync(journal);
                self.file.run(|journal| header.store_with(journal, self.medium, flush))?;
                self.due.store(NOTHING, Ordering::Relaxed);
                Ok(())
            }
            (due, _) => {
                self.file.run(|journal| self.medium.fdatasync(journal.as_fd()))?;
                if due == FIRST {
                    self.due.store(ACTIVE, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
