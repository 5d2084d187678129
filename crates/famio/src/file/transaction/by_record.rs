//! One commit of several files, with the gates of all of them closed: the changes of all are written durably to a
//! record in the pool, which is the commit point. Then each file commits its own as an epoch. After a crash, recovery
//! completes each file from the record if that was durable.

use crate::error::{Error, Result};
use crate::file::AtomicFile;
use crate::file::base::refusal::Answer;
use crate::file::engine::context::Context;
use crate::file::session::Session;
use crate::file::state::joint_records::{Records, Written};
use crate::journal::joint::Builder;
use crate::journal::records::Keeper;
use crate::pmem::TestHooks;
use crate::rule::{Rule, holds};
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// A file that takes part in such a commit, and its session.
#[derive(Clone, Copy)]
pub(super) struct Participant<'a> {
    pub file: &'a AtomicFile,
    pub session: &'a Session,
}

impl<'a> Participant<'a> {
    pub fn context(&self) -> Context<'a> {
        self.session.context(&self.file.fds)
    }

    /// Commits what is open in the file. Its gate is closed.
    pub fn commit(&self) -> Answer<()> {
        self.session.commit(&self.file.fds, false)?;
        self.file.ownership.committed(self.session.arena.shared());
        self.file.in_record.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// After a commit, with its gate closed: waits for the end of a backup.
    pub fn wait_for_thaw(&self) {
        self.session.arena.shared().totals.wait_for_thaw();
    }

    /// No reader in another process can follow a thread in exclusive mode.
    pub fn bar_exclusive_mode_if_read(&self) {
        if self.file.ownership.membership.is_read_along() {
            self.session.may_be_exclusive.store(false, Ordering::Relaxed);
        }
    }

    fn epoch(&self) -> u64 {
        self.session.engine.epoch_of_journal(self.context())
    }

    fn poison(&self) {
        self.session.arena.shared().poisoned.store(1, Ordering::Release);
    }
}

/// A record under construction.
pub(super) struct Draft {
    builder: Builder,
    records: Option<Arc<Records>>,
    /// What its files are the files of, for messages.
    what: &'static str,
}

/// A record, and where it goes.
pub(super) struct Complete {
    records: Arc<Records>,
    bytes: Vec<u8>,
}

impl Draft {
    /// An empty record. `room`: bytes of all steps, as far as known.
    ///
    /// # Errors
    /// As [`Builder::new`].
    pub fn new(room: usize, what: &'static str) -> Result<Self> {
        Ok(Self { builder: Builder::new(room)?, records: None, what })
    }

    /// Begins the part of a file; its steps go to the result.
    ///
    /// # Errors
    /// `EXDEV`: the record cannot be that of this file and of those before it.
    pub fn begin_part(&mut self, participant: &Participant<'_>) -> Result<&mut Builder> {
        let Participant { file, session } = participant;
        let journal = session.engine.journal();
        let found = file.fds.with(true, |fd| {
            let marked = journal.make_mark_durable(fd);
            // As when a SYNC fails: no more writes, in any process.
            marked.inspect_err(|_| participant.poison()).and_then(|()| file.joint.records(fd, journal))
        });
        let found = found.map_err(|e| file.named(e))?;
        if self.records.as_ref().is_some_and(|records| !Arc::ptr_eq(records, &found)) {
            let what = format!(
                "the files of {} have their journals in one pool (by default one folder), one owner, one group, and the same permissions",
                self.what
            );
            return Err(file.named(Error::with(libc::EXDEV, what)));
        }
        self.records = Some(found);
        let header = journal.header();
        self.builder.begin_part(&header.identity, header.journal_id, participant.epoch());
        Ok(&mut self.builder)
    }

    /// # Errors
    /// As [`Builder::finish`].
    pub fn finish(self) -> Result<Complete> {
        let records = self.records.ok_or(Error::new(libc::EINVAL))?;
        Ok(Complete { records, bytes: self.builder.finish()? })
    }
}

/// Writes the record durably, if there is one, and then has each file commit its part, which `copy`, called with its
/// number, makes that of its open epoch. `is_decided` is set once the commit has happened. No other thread is inside
/// the gates.
pub(super) fn commit_by_record(
    all: &[Participant<'_>],
    record: Option<Complete>,
    is_decided: &mut bool,
    copy: impl Fn(usize) -> Result<()>,
) -> Answer<()> {
    let epochs: Vec<u64> = all.iter().map(Participant::epoch).collect();
    let (first, last) = if holds(Rule::RecordBeforeFiles) { (record, None) } else { (None, record) };
    let mut written = first.map(|record| write(all, &record)).transpose()?;
    *is_decided = true;
    let mut result = Ok(());
    for (number, participant) in all.iter().enumerate() {
        let copied = copy(number);
        result = result.and(copied.and_then(|()| Ok(participant.commit()?)).map_err(|e| {
            participant.poison();
            let what =
                "the commit has happened, and could not be brought to this file, which gets it when it is opened again";
            participant.file.named(Error::with(libc::EIO, format!("{what} ({e})"))).into()
        }));
    }
    if let Some(record) = last {
        written = Some(write(all, &record)?);
    }
    if let Some(written) = written.filter(|_| result.is_ok()) {
        let has_moved = all.iter().map(Participant::epoch).zip(&epochs).all(|(now, before)| now != *before);
        if has_moved { written.end() } else { written.end_for_good() }
    }
    result
}

/// The commit point.
fn write(all: &[Participant<'_>], record: &Complete) -> Answer<Written> {
    // If the process is killed from here on, only committed changes are kept: its arena does not know of the record.
    let moving = |is_moving: u32| {
        let keeping = all.iter().filter(|participant| participant.session.keeps);
        keeping.for_each(|participant| participant.session.arena.shared().moving.store(is_moving, Ordering::Release));
    };
    moving(1);
    let tell = |is_durable: bool| TestHooks::current().joint.iter().for_each(|report| report(is_durable));
    tell(false);
    let Participant { file, session } = all[0];
    let written = file.fds.with(true, |fd| Ok(record.records.write(&record.bytes, fd, session.engine.journal())))?;
    if written.is_ok() {
        tell(true);
    }
    written.map_err(|failed| {
        moving(0);
        if failed.is_undecided {
            // It may be on the disk or not, which recovery will see. Until then no process goes on.
            all.iter().for_each(Participant::poison);
        } else if failed.refusal.is_session_ended() {
            all.iter().for_each(|participant| participant.file.joint.leave());
        }
        failed.refusal
    })
}
