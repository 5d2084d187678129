//! Recovery of a growing file, which has no journal: the overwrites in its mark are written to it, and bytes beyond its
//! committed size are cut off.

use crate::error::{Error, Result};
use crate::journal::live::durability_of;
use crate::journal::{BootId, GrowingMark, Identity, Marked, RangeHash, Stamp, mark};
use crate::pmem::{Domain, Medium, detect, medium};
use crate::recovery::{Options, Outcome};
use crate::settings::{Durability, Settings};
use crate::sys::{each_piece, read_at};
use core::fmt::Display;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// What is wrong with a growing file, as the text of a conflict; `None` if nothing is.
pub(in crate::recovery) fn conflict(
    mark: &GrowingMark,
    identity: &Identity,
    stamp: &Stamp,
    path: &Path,
) -> Result<Option<String>> {
    let what: &dyn Display = if mark.identity != identity.hash128() as u64 {
        &"the file carries the mark of another file: it is a copy of one that was being written, and may be half of it"
    } else if mark.boot.is_some() && mark.boot != Some(BootId::current()?) {
        &"what was committed of it was not made to survive the end of its boot, which has ended"
    } else if stamp.size < mark.base && !mark.is_found {
        return Ok(Some(cut_text(stamp.size, mark.base, path)));
    } else if stamp.changed().0 > i64::from(mark.until) && (stamp.size != mark.base || !mark.overwrites.is_empty()) {
        &"another program changed the file after the crash"
    } else {
        return Ok(None);
    };
    Ok(Some(conflict_text(what, path)))
}

/// The text of a conflict of a file without a journal.
fn conflict_text(what: impl core::fmt::Display, file: &Path) -> String {
    let file = file.display();
    format!(
        "{what} (file {file}); it is kept as it is: famio recover --use=journal {file} takes it back to its last SYNC, --use=file {file} keeps all"
    )
}

/// As [`conflict_text`], of a file that has lost committed bytes: nothing can take it back to its last SYNC.
fn cut_text(size: u64, committed: u64, file: &Path) -> String {
    let file = file.display();
    format!(
        "the file has {size} bytes, and {committed} were committed (file {file}); it is kept as it is: another program has cut it, and famio recover --use=file {file} keeps what is left"
    )
}

/// The committed size, given what the file holds now.
pub(in crate::recovery) fn committed(file: BorrowedFd<'_>, mark: &GrowingMark, size: u64) -> Result<u64> {
    let base = if mark.is_found { mark.base.min(size) } else { mark.base };
    if mark.new == mark.base || size < mark.new {
        return Ok(base);
    }
    Ok(if hash_of(file, mark.base, mark.new)? == Some(mark.hash) { mark.new } else { base })
}

/// The hash of a range. `None`: the file ends inside it.
pub(crate) fn hash_of(file: BorrowedFd<'_>, from: u64, to: u64) -> Result<Option<u128>> {
    let mut hash = RangeHash::default();
    let is_whole = each_piece(file, from..to, |_, piece| {
        hash.update(piece);
        Ok(())
    })?;
    Ok(is_whole.then(|| hash.get()))
}

/// Cuts the file to its committed size and removes the mark, as after a clean close. `keeps_all`: the file is
/// accepted as it is. Also returns the number of bytes cut off. `path`: the file's, for messages.
pub(in crate::recovery) fn recover(
    file: BorrowedFd<'_>,
    mark: &GrowingMark,
    settings: &Settings,
    options: Options,
    keeps_all: bool,
    path: &Path,
) -> Result<(Outcome, u64)> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    let committed = if keeps_all { size } else { committed(file, mark, size)? };
    if size < committed {
        return Ok((Outcome::Conflict(cut_text(size, committed, path)), 0));
    }
    if !options.dry_run {
        let mut mark = mark.clone();
        let found = detect(file, settings).map_or(Domain::PageCache, |found| found.domain);
        // What its process has made to survive a power cut stays so, whatever the settings are here.
        let durability = if mark.boot.is_none() { Durability::Power } else { durability_of(found) };
        let medium = medium(if durability == Durability::Power { Domain::PageCache } else { found }, false);
        if !keeps_all && !mark.overwrites.is_empty() {
            if durability == Durability::Power {
                medium.fsync(file)?; // after a kill, the mark may be in the kernel's cache only, and must not come later
            }
            write_overwrites(file, &mut mark, committed, medium)?;
        }
        if durability == Durability::Power {
            if mark.new > mark.base && committed >= mark.new {
                write_again(file, &mut mark, medium)?;
            }
            medium.fsync(file)?;
        }
        match end(file, &mark, (committed, size), durability, medium) {
            // A full disk, and one that needs room to remove a mark (xfs): this one says what is so.
            Err(e) if e.is_full() && is_left_with(file, committed) => {}
            ended => ended?,
        }
    }
    let outcome = match keeps_all {
        true => Outcome::Discarded,
        false if committed == size && mark.overwrites.is_empty() => Outcome::Clean,
        false => Outcome::Recovered,
    };
    Ok((outcome, size.saturating_sub(committed)))
}

/// Whether the file shows exactly the bytes that its mark alone says are committed.
pub(in crate::recovery) fn has_just_what_is_committed(file: BorrowedFd<'_>, mark: &GrowingMark) -> bool {
    let has_size = || rustix::fs::fstat(file).is_ok_and(|stat| stat.st_size as u64 == mark.base);
    let has_bytes = |at: u64, bytes: &[u8]| {
        let mut found = vec![0; bytes.len()];
        let is_same = read_at(file, at, &mut found)? == bytes.len() && found == bytes;
        if is_same { Ok(()) } else { Err(Error::new(libc::ENODATA)) }
    };
    mark.base == mark.new && !mark.is_found && has_size() && mark.overwrites.each(has_bytes).is_ok()
}

/// Whether the file shows just what the mark on it says is committed, so many bytes.
fn is_left_with(file: BorrowedFd<'_>, committed: u64) -> bool {
    matches!(mark::get_any(file), Ok(Some(Marked::Growing(mark)))
        if mark.base == committed && has_just_what_is_committed(file, &mark))
}

/// Writes the hashed bytes once more: if the kernel failed to write them, it still shows them and believes them
/// written. A crash in between must not count as a change by an outsider.
fn write_again(file: BorrowedFd<'_>, mark: &mut GrowingMark, medium: &dyn Medium) -> Result<()> {
    each_piece(file, mark.base..mark.new, |at, piece| {
        mark::renew_own_change_time(file, mark)?;
        medium.pwritev(file, &[piece], at)
    })?;
    Ok(())
}

/// Writes the overwrites of the mark to the file, of which `committed` bytes stay. A crash in between must not count as
/// a change by an outsider.
fn write_overwrites(file: BorrowedFd<'_>, mark: &mut GrowingMark, committed: u64, medium: &dyn Medium) -> Result<()> {
    let overwrites = mark.overwrites.clone();
    overwrites.each_within(0..committed, |at, bytes| {
        match mark::renew_own_change_time(file, mark) {
            Err(e) if e.is_full() => {} // they can be written all the same
            renewed => renewed?,
        }
        medium.pwritev(file, &[bytes], at)
    })
}

/// Makes what is shown of a growing file, or a copy of it, what the mark commits.
pub(in crate::recovery) fn apply(file: BorrowedFd<'_>, mark: &GrowingMark, medium: &dyn Medium) -> Result<()> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    let committed = committed(file, mark, size)?;
    mark.overwrites.each_within(0..committed, |at, bytes| medium.pwritev(file, &[bytes], at))?;
    if committed == size { Ok(()) } else { medium.ftruncate(file, committed) }
}

/// Ends a growing file of `size` bytes, at least `committed` of them durable, as one of `committed` bytes without a
/// mark. First the mark is reduced to the size: a mark with a hash must not reappear after other processes may have
/// overwritten the file.
pub(crate) fn end(
    file: BorrowedFd<'_>,
    mark: &GrowingMark,
    (committed, size): (u64, u64),
    durability: Durability,
    medium: &dyn Medium,
) -> Result<()> {
    if durability == Durability::Power && (!mark.is_plain() || mark.base != committed) {
        mark::set_growing(file, &mark.of_size(committed), false)?;
        // Also where there is no room: unlike that of a mark, such a failure is final.
        medium.fsync(file).map_err(|e| Error::with(libc::EIO, format!("the file cannot be flushed: {e}")))?;
    }
    if size > committed {
        medium.ftruncate(file, committed)?;
    }
    mark::remove(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::Scratch;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// A file of seven bytes: three are committed, the others have a hash. Long ago.
    fn file_and_mark(scratch: &Scratch) -> (File, GrowingMark, Identity) {
        let path = scratch.path("file");
        std::fs::write(&path, b"abcdefg").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let identity = Identity::of_path(&path).unwrap();
        let hash = hash_of(file.as_fd(), 3, 7).unwrap().unwrap();
        let identity_hash = identity.hash128() as u64;
        let mark = GrowingMark { new: 7, hash, until: 1000, ..GrowingMark::new(3, None, identity_hash) };
        mark::set_growing(file.as_fd(), &mark, true).unwrap();
        (file, mark, identity)
    }

    /// A recovery that had written the hashed bytes, and then ended, looked like an outsider's change to the next
    /// one.
    #[test]
    fn a_recovery_that_ends_early_is_no_change_by_somebody_else() {
        let scratch = Scratch::new();
        let (file, mut mark, identity) = file_and_mark(&scratch);
        let found = |file: &File| {
            let Some(Marked::Growing(mark)) = mark::get_any(file.as_fd()).unwrap() else { panic!("it has no mark") };
            conflict(&mark, &identity, &Stamp::of(file.as_fd()).unwrap(), Path::new("/f")).unwrap()
        };
        assert!(found(&file).is_some_and(|text| text.contains("another program changed")));
        write_again(file.as_fd(), &mut mark, medium(Domain::PageCache, false)).unwrap();
        assert_eq!(found(&file), None);
    }

    /// In the first seconds of the next boot, the file was accepted as it was.
    #[test]
    fn what_was_not_to_survive_the_boot_is_a_conflict_in_any_other() {
        let scratch = Scratch::new();
        let (file, mark, identity) = file_and_mark(&scratch);
        let stamp = Stamp::of(file.as_fd()).unwrap();
        let of = |boot| {
            let mark = GrowingMark { boot: Some(boot), until: u32::MAX, ..mark.of_size(3) };
            conflict(&mark, &identity, &stamp, Path::new("/f")).unwrap()
        };
        let current = BootId::current().unwrap();
        assert_eq!(of(current), None);
        assert!(of(BootId([1; 16])).is_some_and(|text| text.contains("the end of its boot")));
    }
}
