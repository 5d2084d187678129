//! The report at the end of a run: globs that selected nothing, files that were synced without protection, programs
//! that ran without the library. One line each, once. Allocates nothing, since the end may come in a signal handler.

use super::run_record::{
    MORE_LOST, MORE_SELECTED, MORE_SYNCED, OwnerSession, PRINTED_DETAILS, PRINTED_GLOBS, PRINTED_LOST, PRINTED_SYNCED,
    PROTECTED, Slot, TOP_ENDED, UNSEEN, joined, may_say, room,
};
use super::why;
use crate::posix::selection::config::Config;
use crate::posix::selection::globs::NearMiss;
use crate::sys;
use core::sync::atomic::Ordering;

/// Most globs that get a line of their own.
const MOST_GLOBS: usize = 8;
/// The most files and programs named in a line.
const MOST_NAMED: usize = 3;

/// A line of text, without the heap. What does not fit is left out.
struct Line {
    bytes: [u8; 2048],
    length: usize,
}

impl Line {
    fn new() -> Self {
        Self { bytes: [0; 2048], length: 0 }
    }

    /// Adds Famio's or the user's text, without characters that would move the cursor.
    fn add(&mut self, text: &[u8]) -> &mut Self {
        for &byte in text.iter().take(self.bytes.len() - self.length) {
            self.bytes[self.length] = if byte < b' ' || byte == 0x7f { b'?' } else { byte };
            self.length += 1;
        }
        self
    }

    fn number(&mut self, number: usize) -> &mut Self {
        if number >= 10 {
            self.number(number / 10);
        }
        self.add(&[b'0' + (number % 10) as u8])
    }

    /// Adds the separator before item `index` of `count`.
    fn comma(&mut self, index: usize, count: usize) -> &mut Self {
        match index {
            0 => self,
            last if last + 1 == count => self.add(b" and "),
            _ => self.add(b", "),
        }
    }

    fn say(&self) {
        if !may_say() && !sys::log::is_elsewhere() {
            return;
        }
        sys::notice_parts(&[&self.bytes[..self.length]]);
    }
}

/// At the end of this process, or before it continues as a program without the library: prints the report. Returns
/// whether the run has failed, as `require` defines it.
pub(in crate::posix) fn at_end(config: &Config) -> bool {
    let Some(joined) = joined() else { return false };
    let record = joined.record;
    let is_top = joined.is_top();
    if is_top {
        record.state.fetch_or(TOP_ENDED, Ordering::AcqRel); // first, for a process that ends at the same time
    }
    joined.leave();
    let is_last = !joined.others_run();
    let state = record.state.load(Ordering::Acquire);
    let speaks = is_top || (is_last && state & TOP_ENDED != 0);
    if !speaks {
        return false;
    }
    let has_lost = say_lost(joined);
    // What unseen parts of the run have done is unknown.
    let mut is_unprotected = false;
    if state & UNSEEN == 0 {
        is_unprotected |= say_synced(joined, config);
        // A process that still runs may yet write a selected file.
        is_unprotected |= is_last && say_globs(joined, config);
    }
    say_details(joined, config, state);
    if is_last {
        joined.remove();
    }
    config.settings.require && (has_lost || is_unprotected)
}

/// Whether this is to be said now: once per run.
fn is_first(joined: &OwnerSession, what: u32) -> bool {
    joined.record.state.fetch_or(what, Ordering::AcqRel) & what == 0
}

fn say_lost(joined: &OwnerSession) -> bool {
    let slots = || joined.record.lost.iter().filter(|slot| slot.path(&mut room()).is_some());
    let count = slots().count();
    if count == 0 || !is_first(joined, PRINTED_LOST) {
        return count != 0;
    }
    let mut line = Line::new();
    line.add(b"a part of the run was without Famio: ");
    let named = count.min(MOST_NAMED);
    for (index, slot) in slots().take(named).enumerate() {
        let mut room = room();
        let path = slot.path(&mut room).unwrap_or_default();
        let why = why::reason(slot.detail.load(Ordering::Relaxed));
        line.comma(index, named + usize::from(count > named)).add(path).add(b" (").add(why.as_bytes()).add(b")");
    }
    let is_more = joined.record.state.load(Ordering::Relaxed) & MORE_LOST != 0;
    and_more(&mut line, count - named, is_more, b"program");
    line.say();
    true
}

fn and_more(line: &mut Line, more: usize, is_more: bool, what: &[u8]) {
    if more > 0 {
        line.add(b" and ").number(more).add(b" more ").add(what).add(if more > 1 { b"s" } else { b"" });
        line.add(if is_more { b" at least" } else { b"" });
    }
}

/// Whether a file was synced that no glob selects. (If a glob selects it, it was demoted, and that was reported.)
fn is_unselected(slot: &Slot, config: &Config) -> bool {
    let mut room = room();
    slot.path(&mut room).is_some_and(|path| config.globs.marks_of(path).is_empty())
}

fn say_synced(joined: &OwnerSession, config: &Config) -> bool {
    let record = joined.record;
    if record.state.load(Ordering::Relaxed) & PROTECTED != 0 {
        return false;
    }
    let slots = || record.synced.iter().filter(|slot| is_unselected(slot, config));
    let count = slots().count();
    if count == 0 || !is_first(joined, PRINTED_SYNCED) {
        return count != 0;
    }
    let mut line = Line::new();
    line.add(b"not protected: ");
    let named = count.min(MOST_NAMED);
    for (index, slot) in slots().take(named).enumerate() {
        let mut room = room();
        let path = slot.path(&mut room).unwrap_or_default();
        line.comma(index, named + usize::from(count > named)).add(path);
        let nearly = |glob: &usize| config.globs.near_miss(*glob, path).is_some();
        if let Some(glob) = (0..config.globs.count()).find(nearly) {
            line.add(b" (nearly ").add(joined.label(glob)).add(b")");
        }
    }
    and_more(&mut line, count - named, record.state.load(Ordering::Relaxed) & MORE_SYNCED != 0, b"file");
    line.add(if count > 1 { b" were" } else { b" was" }).add(b" written and synced, and no glob selects ");
    line.add(if count > 1 { b"any of them" } else { b"it" }).say();
    true
}

fn say_globs(joined: &OwnerSession, config: &Config) -> bool {
    let record = joined.record;
    let is_in = |words: &[core::sync::atomic::AtomicU64], glob: usize| {
        words.get(glob / 64).is_none_or(|word| word.load(Ordering::Relaxed) >> (glob % 64) & 1 != 0)
    };
    let unselected = record.synced.iter().any(|slot| is_unselected(slot, config));
    // A glob whose files were only read counts as good, unless the program has written files that no glob selects.
    let is_idle = |glob: &usize| !is_in(&record.written, *glob) && (!is_in(&record.opened, *glob) || unselected);
    let globs = || (0..config.globs.count()).filter(is_idle);
    let count = globs().count();
    if count == 0 || !is_first(joined, PRINTED_GLOBS) {
        return count != 0;
    }
    for glob in globs().take(MOST_GLOBS) {
        let mut line = Line::new();
        line.add(joined.label(glob)).add(b" selected no file that the program wrote");
        if is_in(&record.opened, glob) {
            line.add(b", only files that it read");
        }
        add_nearest(&mut line, joined, config, glob);
        line.say();
    }
    if count > MOST_GLOBS {
        let mut line = Line::new();
        line.number(count - MOST_GLOBS).add(b" more globs selected no file that the program wrote").say();
    }
    true
}

/// Adds the file that was nearly selected, for a user who has mistyped a glob.
fn add_nearest(line: &mut Line, joined: &OwnerSession, config: &Config, glob: usize) {
    for (wanted, text) in
        [(NearMiss::Case, &b", except for the case of letters"[..]), (NearMiss::Folder, b", in another folder")]
    {
        for slot in joined.record.synced.iter().filter(|slot| is_unselected(slot, config)) {
            let mut room = room();
            let path = slot.path(&mut room).unwrap_or_default();
            if config.globs.near_miss(glob, path) == Some(wanted) {
                line.add(b"; it nearly selected ").add(path).add(text);
                return;
            }
        }
    }
}

/// Prints the lines of `--verbose`; and with `require`, that a part of the run was not seen.
fn say_details(joined: &OwnerSession, config: &Config, state: u32) {
    let details = joined.details();
    let is_partial = state & UNSEEN != 0 && (details.is_some() || config.settings.require);
    if !(details.is_some() || is_partial) || !is_first(joined, PRINTED_DETAILS) {
        return;
    }
    if let Some(settings) = details {
        for text in settings.split(|&byte| byte == b'\n').filter(|text| !text.is_empty()) {
            Line::new().add(text).say();
        }
        say_selected(joined, state);
    }
    if is_partial {
        Line::new().add(b"a part of the run could not be watched: it has another user, root or configuration").say();
    }
}

fn say_selected(joined: &OwnerSession, state: u32) {
    for slot in &joined.record.selected {
        let mut room = room();
        let Some(path) = slot.path(&mut room) else { continue };
        let mut line = Line::new();
        line.add(b"selected: ").add(path).add(b" by ");
        line.add(joined.label(slot.detail.load(Ordering::Relaxed) as usize));
        line.add(if slot.is_written.load(Ordering::Relaxed) != 0 { b"" } else { b" (only read)" }).say();
    }
    if state & MORE_SELECTED != 0 {
        Line::new().add(b"selected: more files than are listed").say();
    }
}

impl Line {
    #[cfg(test)]
    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_put_together() {
        let mut line = Line::new();
        for (index, name) in ["a", "b\n\x1b[2J", "c"].iter().enumerate() {
            line.comma(index, 3).add(name.as_bytes());
        }
        line.number(1024);
        assert_eq!(line.text(), "a, b??[2J and c1024");
        and_more(&mut line, 2, true, b"file");
        assert!(line.text().ends_with(" and 2 more files at least"));
        line.add(&[b'x'; 4096]);
        assert_eq!(line.text().len(), 2048);
    }
}
