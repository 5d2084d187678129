//! The verdict at open: the only place where the states of mark and journal are weighed.

use super::boot::{BootClock, BootId};
use super::header::Header;
use super::identity::Identity;
use super::mark::Mark;
use super::stamp::Stamp;
use crate::error::Error;
use crate::pmem::Domain;
use crate::rule::{Rule, holds};
use std::path::Path;

/// What lies under the journal's name.
#[derive(Clone, Copy, Debug)]
pub enum Journal<'a> {
    /// Nothing.
    Absent,
    /// A file whose creation was interrupted ([`is_blank`](super::header::is_blank)).
    Blank,
    /// A file without a valid header, and what is wrong with it.
    Unreadable(&'a Error),
    /// A journal.
    Valid(&'a Header),
}

/// The facts.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The file, for messages.
    pub file_path: &'a Path,
    /// The journal's path, or where it should be; for messages.
    pub journal_path: &'a Path,
    /// The mark on the file.
    pub mark: Option<&'a Mark>,
    /// The journal.
    pub journal: Journal<'a>,
    /// The file's identity.
    pub identity: &'a Identity,
    /// The file's size and times now.
    pub stamp: Stamp,
    /// Size and times of the journal's file.
    pub journal_stamp: Stamp,
    /// This boot.
    pub boot_id: BootId,
    /// This boot, in the time of files.
    pub boot_clock: BootClock,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No mark, no journal: an ordinary file.
    Nothing,
    /// The journal holds nothing that the file lacks: remove the mark, if there is one, persist that, then remove the
    /// journal.
    Leftover,
    /// The journal is the file's, and the file is as the journal left it: recover.
    Recover,
    /// The file grows without a journal: cut it to its committed size.
    Growing,
    /// Stop; keep both. The message names both and says what to do.
    Conflict(String),
}

/// Weighs the facts; touches nothing.
pub fn verdict(facts: &Facts<'_>) -> Verdict {
    let own = facts.identity.hash128();
    if let Some(mark) = facts.mark
        && mark.identity != own
    {
        return facts.copied();
    }
    match (facts.mark, facts.journal) {
        (None, Journal::Absent) => Verdict::Nothing,
        // The mark is set only after the header is complete.
        (None, Journal::Blank) => Verdict::Leftover,
        (Some(mark), Journal::Absent) if mark.is_closing => Verdict::Leftover,
        (Some(_), Journal::Absent) => facts.journal_missing(),
        (Some(_), Journal::Blank) => facts.conflict("the file is marked as having a journal, which is empty"),
        (_, Journal::Unreadable(error)) => facts.unreadable(error),
        (mark, Journal::Valid(header)) => journal_verdict(facts, mark, header),
    }
}

fn journal_verdict(facts: &Facts<'_>, mark: Option<&Mark>, header: &Header) -> Verdict {
    if header.identity != *facts.identity {
        return facts.conflict(&format!("the journal is another file's ({:?})", header.identity));
    }
    if let Some(mark) = mark
        && mark.journal_id != header.journal_id
    {
        return facts
            .conflict(&format!("the file's mark names journal {}, this is {}", mark.journal_id, header.journal_id));
    }
    match header.state {
        state if !state.is_pending(mark.is_some()) => Verdict::Leftover,
        // Its boot made that durable. In the same boot, a failed flush may have lost what the file had then.
        _ if mark.is_some_and(|mark| mark.is_closing) && !facts.is_boot_of(header) => Verdict::Leftover,
        _ if mark.is_none() => facts
            .conflict("the journal is pending, but the file has no mark: it was restored, or its attributes were lost"),
        _ => pending_verdict(facts, header),
    }
}

fn pending_verdict(facts: &Facts<'_>, header: &Header) -> Verdict {
    let same_boot = header.boot_id == facts.boot_id;
    let volatile = |domain| matches!(domain, Domain::Process | Domain::Emulated);
    if !same_boot && (volatile(header.domain) || volatile(header.file_domain)) {
        return facts.conflict("the journal was not made to survive the end of its boot, which has ended");
    }
    // In the same boot, the file's times may be the dead process's own; what the arena knows is weighed later. In
    // another one, no process of the file has touched it.
    if !same_boot && facts.boot_clock.has_seen_change(facts.stamp, facts.journal_stamp) {
        return facts.conflict("another program changed the file after the crash");
    }
    Verdict::Recover
}

impl Facts<'_> {
    fn is_boot_of(&self, header: &Header) -> bool {
        header.boot_id == self.boot_id && holds(Rule::ClosingIsPendingInItsBoot)
    }

    /// The path only says where it was looked for: the file may have been moved since, and the journal lies where it
    /// was.
    fn journal_missing(&self) -> Verdict {
        let (file, journal) = (self.file_path.display(), self.journal_path.display());
        Verdict::Conflict(format!(
            "the file is marked as having a journal, which is not there: bring the journal back, or the pool, or the file to where it was \
             (file {file}; looked for {journal}); it is kept: famio recover --use=file keeps it as it is, without the journal"
        ))
    }

    fn copied(&self) -> Verdict {
        let file = self.file_path.display();
        Verdict::Conflict(format!(
            "the file carries the mark of another file: it is a copy of a file with a pending journal, and may be a mix of two commits \
             (file {file}); it is kept: delete it, and copy with famio backup; famio recover --use=file keeps it as it is"
        ))
    }

    /// Nothing can be read from it.
    fn unreadable(&self, error: &Error) -> Verdict {
        let (file, journal) = (self.file_path.display(), self.journal_path.display());
        Verdict::Conflict(format!(
            "{error} (file {file}, journal {journal}); both are kept: famio recover --use=file keeps the file as it is, without the journal"
        ))
    }

    fn conflict(&self, what: &str) -> Verdict {
        let (file, journal) = (self.file_path.display(), self.journal_path.display());
        Verdict::Conflict(format!(
            "{what} (file {file}, journal {journal}); both are kept: famio recover --use=journal {file} or --use=file {file} decides"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Kind, State};
    use super::super::testing::Scratch;
    use super::*;

    const BEFORE: Stamp = Stamp { size: 1, mtime: (90, 0), ctime: (90, 5) };
    const BOOT: BootClock = BootClock { started: (100, 0), now: (200, 0) };
    /// Its name or mode was changed since.
    const RENAMED: Stamp = Stamp { size: 1, mtime: (90, 0), ctime: (110, 5) };
    const AFTER: Stamp = Stamp { size: 1, mtime: (110, 0), ctime: (110, 5) };

    /// The expected verdict: `N`, `L`, `R`, or the words in a conflict's message.
    #[test]
    fn every_state_has_its_verdict() {
        use Domain::{PageCache, Pmem, Process};
        use State::{Active, AsMarked, Clean, Creating, Suspect};
        let dir = Scratch::new();
        let identity = Identity::of_path(dir.root()).unwrap();
        let header = Header::new(Kind::Records, PageCache, PageCache, identity, Path::new("/f")).unwrap();
        let make = |state, domain, same_boot: bool| {
            let mut h = header.clone();
            (h.state, h.domain) = (state, domain);
            h.boot_id.0[0] ^= u8::from(!same_boot);
            Some(h)
        };
        let mine = Mark::new(header.journal_id, &identity, None).unwrap();
        let (mut copied, mut older) = (mine.clone(), mine.clone());
        copied.identity ^= 1;
        older.journal_id.0[0] ^= 1;
        let marks = [None, Some(&mine), Some(&copied), Some(&older)];

        // (header, stamp of the file, expected without mark, with mark, with a copy's mark, with another journal's)
        let copy = "mark of another file";
        let other = "mark names journal";
        let lost = "has no mark";
        let table = [
            (make(Creating, PageCache, true), BEFORE, ["L", "L", copy, other]),
            (make(Clean, PageCache, true), AFTER, ["L", "L", copy, other]),
            (make(Clean, Process, false), AFTER, ["L", "L", copy, other]),
            (make(Active, PageCache, true), AFTER, [lost, "R", copy, other]),
            (make(Active, Pmem, false), BEFORE, [lost, "R", copy, other]),
            (make(Active, Pmem, false), AFTER, [lost, "another program changed", copy, other]),
            (make(Active, Pmem, false), RENAMED, [lost, "R", copy, other]),
            (make(Suspect, PageCache, true), BEFORE, [lost, "R", copy, other]),
            (make(Active, Process, true), AFTER, [lost, "R", copy, other]),
            (make(Active, Process, false), BEFORE, [lost, "end of its boot", copy, other]),
            (make(Suspect, Domain::Emulated, false), BEFORE, [lost, "end of its boot", copy, other]),
            (make(AsMarked, PageCache, true), AFTER, ["L", "R", copy, other]),
            (make(AsMarked, PageCache, false), BEFORE, ["L", "R", copy, other]),
            (make(AsMarked, PageCache, false), AFTER, ["L", "another program changed", copy, other]),
        ];
        let damage = Error::with(libc::EIO, "the header is damaged");
        let file = Path::new("/dir/file");
        let journal_path = Path::new("/dir/.famio/j");
        let check = |mark, journal, stamp, identity, expected: &str, row: &str| {
            let facts = Facts {
                file_path: file,
                journal_path,
                mark,
                journal,
                identity,
                stamp,
                journal_stamp: BEFORE,
                boot_id: header.boot_id,
                boot_clock: BOOT,
            };
            match verdict(&facts) {
                Verdict::Nothing => assert_eq!(expected, "N", "{row}"),
                Verdict::Leftover => assert_eq!(expected, "L", "{row}"),
                Verdict::Recover => assert_eq!(expected, "R", "{row}"),
                Verdict::Growing => panic!("{row}: no facts say so"),
                Verdict::Conflict(text) => {
                    assert!(text.contains(expected), "{row}: {text}");
                    assert!(text.contains("/dir/file"), "{text}");
                    assert!(expected == copy || text.contains("/dir/.famio/j"), "{text}");
                }
            }
        };
        for (i, (header, stamp, expected)) in table.iter().enumerate() {
            for (mark, expected) in marks.into_iter().zip(expected) {
                let journal = Journal::Valid(header.as_ref().unwrap());
                check(mark, journal, *stamp, &identity, expected, &format!("row {i}"));
            }
        }
        for (mark, expected) in marks.into_iter().zip(["N", "which is not there", copy, "which is not there"]) {
            check(mark, Journal::Absent, BEFORE, &identity, expected, "absent");
        }
        for (mark, expected) in marks.into_iter().zip(["L", "which is empty", copy, "which is empty"]) {
            check(mark, Journal::Blank, BEFORE, &identity, expected, "blank");
        }
        for (mark, expected) in marks.into_iter().zip(["is damaged", "is damaged", copy, "is damaged"]) {
            check(mark, Journal::Unreadable(&damage), BEFORE, &identity, expected, "unreadable");
        }
        let closing = Mark { is_closing: true, ..mine.clone() };
        let of_closing = [
            (AsMarked, true, "R"),
            (AsMarked, false, "L"),
            (Active, true, "R"),
            (Active, false, "L"),
            (Clean, true, "L"),
        ]
        .map(|(state, same_boot, expected)| (make(state, PageCache, same_boot).unwrap(), expected));
        for (header, expected) in &of_closing {
            check(Some(&closing), Journal::Valid(header), AFTER, &identity, expected, "closing");
        }
        check(Some(&closing), Journal::Absent, AFTER, &identity, "L", "closing, absent");
        // A journal under the file's name that names another file.
        let sub = dir.path("sub");
        std::fs::create_dir(&sub).unwrap();
        let stranger = Identity::of_path(&sub).unwrap();
        let active = make(Active, PageCache, true).unwrap();
        check(None, Journal::Valid(&active), BEFORE, &stranger, "is another file's", "stranger");
    }
}
