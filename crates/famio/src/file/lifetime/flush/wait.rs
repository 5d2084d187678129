//! How `famio flush` waits for the owners of files.

use crate::error::{Error, Result};
use crate::index::{Asked, Control, FlushRequest, Owner};
use crate::recovery::Progress;
use crate::sys::{monotonic_now, process_stat};
use core::time::Duration;
use std::path::Path;

/// After this many nanoseconds the user is told what is waited for.
pub(super) const LONG: u64 = 1_000_000_000;

/// How the wait for one file has ended.
pub(super) enum Waited {
    /// The owner has written back this many bytes.
    Flushed(u64),
    /// It has failed.
    Failed(Error),
    /// It did not answer.
    NoAnswer(Option<Owner>, Error),
    /// The session has ended meanwhile.
    Over,
}

/// Waits for the answer. `report`: called once if it takes long.
pub(super) fn wait(
    mut request: FlushRequest,
    file: &Path,
    others: &mut Others<'_>,
    report: &dyn Fn(&Path, Option<Owner>),
    progress: &dyn Progress,
) -> Waited {
    let begun = monotonic_now();
    others.clock.go_on_at(begun);
    let (mut seen, mut far, mut is_told) = (0, request.how_far(), false);
    loop {
        let asked = request.look();
        let has_begun = match asked {
            Asked::Done(0) => return Waited::Flushed(request.moved()),
            Asked::Done(errno) => return Waited::Failed(failed(&request, errno)),
            Asked::NobodyIsThere => {
                others.clock.since = monotonic_now();
                return Waited::Over;
            }
            Asked::Pending { begun, moved } => {
                if begun {
                    progress.advance(moved.saturating_sub(seen));
                    seen = moved;
                }
                begun
            }
        };
        let now = monotonic_now();
        let before = core::mem::replace(&mut far, request.how_far());
        let goes_on = others.go_on() || far != before;
        let Others { requests, clock } = &mut *others;
        let are_at_work = || requests.iter().any(|(other, _)| other.is_served() && is_at_work(other.control()));
        if clock.is_over(now, goes_on, || has_begun && is_at_work(request.control()) || are_at_work()) {
            let owner = request.control().owner();
            return Waited::NoAnswer(owner, no_answer(asked, owner, clock.patience));
        }
        if !is_told && now > begun + LONG {
            report(file, request.control().owner());
            is_told = true;
        }
    }
}

/// Why an owner has failed.
fn failed(request: &FlushRequest, errno: i32) -> Error {
    let who = request.control().owner().map_or("its owner".into(), |owner| owner.to_string());
    let what = match errno {
        // Of a journal in place (`Session::flush_in_place`).
        libc::EBUSY => format!("{who} has appended too much since its last SYNC, which the file has, too"),
        libc::EAGAIN | libc::EFBIG => format!(
            "what {who}, or another process, has written since the last SYNC is too much to be put aside, or mapped; try again after a SYNC"
        ),
        _ => format!("{who} could not write back what is committed; the journal keeps it"),
    };
    Error::with(errno, what)
}

/// How long files that are asked for at once are waited for. An owner looks at its files in turn, in an order of its
/// own: what it does for any of them counts for all.
pub(super) struct Clock {
    patience: u64,
    /// When something has last happened, and when that was last looked at.
    since: u64,
    looked: u64,
    /// Nothing is waited for after that: other processes may have stored any words in a page.
    end: u64,
}

impl Clock {
    pub fn new(now: u64, patience: Duration) -> Self {
        let patience = patience.as_nanos() as u64;
        Self { patience, since: now, looked: now, end: now.saturating_add(patience.saturating_mul(1000)) }
    }

    /// The time in which another file was recovered does not count as waiting for this one.
    pub fn go_on_at(&mut self, now: u64) {
        if now > self.looked + LONG {
            self.since = now;
        }
    }

    /// Whether to give up. `goes_on`: something has happened. `is_at_work`: one flush of a large file may take long.
    pub fn is_over(&mut self, now: u64, goes_on: bool, is_at_work: impl Fn() -> bool) -> bool {
        if goes_on || now > self.since + self.patience && is_at_work() {
            self.since = now;
        }
        self.looked = now;
        now > self.since + self.patience || now > self.end
    }
}

/// The other files that are asked for, and how far they were.
pub(super) struct Others<'a> {
    requests: Vec<(&'a FlushRequest, (u32, u32, u64))>,
    clock: &'a mut Clock,
}

impl<'a> Others<'a> {
    pub fn new(others: &'a [Result<Option<FlushRequest>>], clock: &'a mut Clock) -> Self {
        let requests = others.iter().filter_map(|other| other.as_ref().ok()?.as_ref());
        Self { requests: requests.map(|request| (request, request.how_far())).collect(), clock }
    }

    /// Whether anything has happened since the last call.
    fn go_on(&mut self) -> bool {
        let mut any = false;
        for (request, seen) in &mut self.requests {
            let now = request.how_far();
            any |= core::mem::replace(seen, now) != now;
        }
        any
    }
}

/// Whether the owner, which has begun, lives and is not stopped, as far as can be told.
fn is_at_work(control: &Control) -> bool {
    control.owner().and_then(Owner::pid_here).is_some_and(|pid| !is_stopped(pid))
}

/// What to do about a process that does not go on.
fn no_answer(asked: Asked, owner: Option<Owner>, patience: u64) -> Error {
    let who = owner.map_or("the processes that use it".into(), |owner| format!("its owner, {owner},"));
    let seconds = Duration::from_nanos(patience).as_secs_f64();
    let what = match asked {
        _ if owner.and_then(Owner::pid_here).is_some_and(is_stopped) => {
            format!("{who} is stopped: continue it (kill -CONT), and try again")
        }
        Asked::Pending { begun: true, .. } => {
            format!("{who} has begun, and not ended; try again, with a longer --timeout")
        }
        _ => format!(
            "{who} has not answered for {seconds} s: it may be busy with a slow disk, hang, or be of another version of Famio; try again, with a longer --timeout"
        ),
    };
    Error::with(libc::ETIMEDOUT, format!("{what}; nothing is lost, the journal keeps it"))
}

/// Whether a process is stopped, by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    process_stat(&pid.to_string()).is_some_and(|process| b"Tt".contains(&process.state))
}
