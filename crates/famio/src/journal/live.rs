//! The life of one journal, from its creation to its clean end.

use super::header::{Header, Kind, State};
use super::identity::Identity;
use super::mark::{self, Mark};
use super::pool::{Pool, journal_name};
use super::records::Keeper;
use crate::error::Result;
use crate::pmem::{Domain, Medium};
use crate::rule::{Rule, in_order};
use crate::settings::{Durability, Settings};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A journal that this process has made and uses.
pub(crate) struct Live {
    file: OwnedFd,
    header: Mutex<Header>,
    pool: Option<PathBuf>,
    name: String,
    path: PathBuf,
    durability: Durability,
    medium: &'static dyn Medium,
}

/// Durability of what lies in a domain: whether the kernel has to sync it.
pub(crate) fn durability_of(domain: Domain) -> Durability {
    match domain {
        Domain::Pmem | Domain::PageCache => Durability::Power,
        Domain::Process | Domain::Emulated => Durability::Process,
    }
}

impl Live {
    /// Creates the journal of `file`, with a header that says *creating*. Nothing else of it is there yet.
    pub fn create(
        file: BorrowedFd<'_>,
        settings: &Settings,
        kind: Kind,
        (domain, file_domain): (Domain, Domain),
        medium: &'static dyn Medium,
    ) -> Result<Self> {
        let identity = Identity::of_fd(file)?;
        let name = journal_name(&identity);
        let (pool, journal) = Pool::create_for(file, settings.pool.as_deref(), &name)?;
        let path = pool.path_of(&name);
        let header = Header::new(kind, domain, file_domain, identity, &super::path_of(file)?)?;
        // By another of its names the `.famio/` may be another one: the mark says which.
        let has_other_names = rustix::fs::fstat(file)?.st_nlink > 1;
        let live = Self {
            file: journal,
            header: Mutex::new(header),
            pool: (settings.pool.is_some() || has_other_names).then(|| pool.path().to_path_buf()),
            name,
            path,
            durability: durability_of(file_domain),
            medium,
        };
        if let Err(e) = live.store(State::Creating).and_then(|()| pool.sync(live.durability, medium)) {
            let _ = pool.remove(&live.name); // nobody refers to it yet
            return Err(e);
        }
        Ok(live)
    }

    /// Stores the header with a new state. Durable on return.
    fn store(&self, state: State) -> Result<()> {
        let mut header = self.header.lock().unwrap_or_else(|poison| poison.into_inner());
        header.state = state;
        header
            .store(self.file.as_fd(), self.medium)
            .map_err(|e| e.context(format_args!("journal {}", self.path.display())))
    }

    /// The journal is complete: marks the file, durably, then says *active*. Commits and stores in the file may follow.
    pub fn activate(&self, file: BorrowedFd<'_>) -> Result<()> {
        let (id, identity) = {
            let header = self.header.lock().unwrap_or_else(|poison| poison.into_inner());
            (header.journal_id, header.identity)
        };
        // Its size, its owner and its mode. With the mark the file becomes durable as it was found: a crash takes it back to
        // that from here on.
        if self.durability == Durability::Power {
            self.medium.fsync(self.file.as_fd())?;
        }
        let mark = Mark::new(id, &identity, self.pool.as_deref())?;
        in_order(
            Rule::MarkBeforeActive,
            || mark::set(file, &mark).and_then(|()| mark::persist(file, self.durability, self.medium)),
            || self.store(State::Active),
        )
    }

    /// Everything is in the file, durably: says *clean*, takes the mark off the file, removes the journal. After an error the
    /// journal may say *clean* already, and takes no more commits: recovery would not replay them.
    pub fn retire(&self, file: BorrowedFd<'_>) -> Result<()> {
        let unmark = || mark::remove(file).and_then(|()| mark::persist(file, self.durability, self.medium));
        let remove = || self.remove(file);
        in_order(
            Rule::CleanBeforeMarkGoes,
            || self.store(State::Clean),
            || in_order(Rule::MarkGoesBeforeJournal, unmark, remove),
        )
        // Not synced: a clean journal that comes back after a power cut is a leftover, and never replayed.
    }

    /// Removes the journal from where it was made, or else from where the file's pool is now: folders may have been moved.
    fn remove(&self, file: BorrowedFd<'_>) -> Result<()> {
        let own = rustix::fs::fstat(&self.file)?;
        let made = self.path.parent().and_then(|folder| Pool::at(folder, None).ok());
        let now = || Pool::find(file, self.pool.as_deref()).ok().flatten();
        for pool in made.into_iter().chain(now()) {
            let found = pool.open_read_only(&self.name, None).ok().flatten();
            let found = found.and_then(|journal| rustix::fs::fstat(journal).ok());
            if found.is_some_and(|found| (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)) {
                pool.remove(&self.name)?;
                pool.remove_if_empty();
                return Ok(());
            }
        }
        Ok(()) // clean, and out of reach: a leftover
    }

    /// Undoes a creation that failed before the file was changed: no mark, no journal.
    pub fn abandon(&self, file: BorrowedFd<'_>) {
        let was_creating = self.header().state == State::Creating;
        // A header that may say *active* must not outlive the mark. Where it can't be taken back both stay, and the next
        // open finds them: the file is as its first commit says.
        if self.store(State::Clean).is_err() && !was_creating {
            return;
        }
        // A mark of another journal's stays: that one is in use.
        let is_ours = !matches!(mark::get(file), Ok(Some(mark)) if mark.journal_id != self.id());
        let unmark = || mark::remove(file).and_then(|()| mark::persist(file, self.durability, self.medium));
        if !is_ours || unmark().is_ok() {
            let _ = self.remove(file);
        }
    }

    /// The journal takes no more commits: a flush of it failed. One that has ended stays clean: it would be replayed over
    /// what came later.
    pub fn suspect(&self) {
        // Best effort: where even this fails, what the header says is still right, as nothing more is committed.
        let _ = self.change(self.file.as_fd(), &mut |header| {
            if header.state != State::Clean {
                header.state = State::Suspect;
            }
        });
    }

    /// The journal's file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its id.
    pub fn id(&self) -> super::JournalId {
        self.header.lock().unwrap_or_else(|poison| poison.into_inner()).journal_id
    }
}

impl Keeper for Live {
    fn journal(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn header(&self) -> Header {
        self.header.lock().unwrap_or_else(|poison| poison.into_inner()).clone()
    }

    fn change(&self, journal: BorrowedFd<'_>, change: &mut dyn FnMut(&mut Header)) -> Result<()> {
        let mut header = self.header.lock().unwrap_or_else(|poison| poison.into_inner());
        change(&mut header);
        header.store(journal, self.medium).map_err(|e| e.context(format_args!("journal {}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::first_bytes;
    use super::super::testing::Scratch;
    use super::*;
    use crate::pmem::medium;

    /// Whose folder was removed at that moment, by who closed another file beside it, a first write gave `ENOENT`.
    #[test]
    fn journals_come_and_go_beside_each_other() {
        let dir = Scratch::new();
        let medium = medium(Domain::PageCache, false);
        std::thread::scope(|scope| {
            for name in ["one", "two", "three"] {
                let path = dir.path(name);
                scope.spawn(move || {
                    std::fs::write(&path, b"x").unwrap();
                    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
                    let settings = Settings { durability: Durability::Process, ..Settings::default() };
                    for _ in 0..200 {
                        let domains = (Domain::Process, Domain::Process);
                        let live = Live::create(file.as_fd(), &settings, Kind::InPlace, domains, medium).unwrap();
                        live.activate(file.as_fd()).unwrap();
                        live.retire(file.as_fd()).unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn a_journal_that_has_ended_stays_clean() {
        let dir = Scratch::new();
        let path = dir.path("file");
        std::fs::write(&path, b"x").unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let medium = medium(Domain::PageCache, false);
        let domains = (Domain::PageCache, Domain::PageCache);
        let live = Live::create(file.as_fd(), &Settings::default(), Kind::Records, domains, medium).unwrap();
        live.activate(file.as_fd()).unwrap();
        let state = || {
            let (bytes, length) = first_bytes(live.file()).unwrap();
            Header::read(&bytes[..length]).unwrap().0.state
        };
        assert_eq!(state(), State::Active);
        live.retire(file.as_fd()).unwrap();
        live.suspect();
        assert_eq!(state(), State::Clean);
    }
}
