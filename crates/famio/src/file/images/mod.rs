//! Before-images of a session that several processes use: each change first saves the bytes that it replaces, with
//! its writer, so that the changes of one process can be rolled back alone ([`crate::index::Images`]).

mod covered;

use crate::error::Result;
use crate::index::{Images, Membership, Position, Writer, WriterState, add_range};
use crate::thread::Mutex;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use covered::Covered;
use std::sync::Arc;

/// Changes of other processes in an open epoch that their death would still roll back.
pub(in crate::file) type Others = Arc<Mutex<Ranges>>;
/// Changed ranges, each with its writer.
pub(in crate::file) type Ranges = Vec<(Range<u64>, Writer)>;

/// What a session's owner knows about its images.
pub(in crate::file) struct Imaging {
    /// Says which member this process is.
    pub(in crate::file) membership: Arc<Membership>,
    pub(in crate::file) others: Others,
    /// Locked while an image is added, so that images are in the order in which changes read what they replace.
    pub(in crate::file) known: Mutex<Known>,
    /// The writer, instead of this process, of the changes being made: those of an epoch that is taken up.
    pub(in crate::file) in_place_of: Mutex<Option<Writer>>,
    /// There is no room for the next image, and some of the images are of other processes.
    pub(in crate::file) is_full: AtomicBool,
}

/// What a process knows about the images of one epoch.
#[derive(Default)]
pub(in crate::file) struct Known {
    /// The position of the next image, behind those that this process has seen.
    pub(in crate::file) position: Position,
    /// The changes of other processes.
    pub(in crate::file) others: Ranges,
    /// Its own.
    pub(in crate::file) covered: Covered,
    /// This process's member number when the rest was recorded.
    pub(in crate::file) me: u64,
}

impl Imaging {
    pub fn new(membership: Arc<Membership>, others: Others) -> Self {
        let (known, in_place_of) = (Mutex::default(), Mutex::new(None));
        Self { membership, others, known, in_place_of, is_full: AtomicBool::new(false) }
    }

    /// This process is about to change `range`: earlier changes there, by any process, are not rolled back any more.
    /// Called before the change: if a writer dies between the two, its bytes stay, and this process's bytes are never
    /// taken for its.
    pub fn end_tenures(&self, range: &Range<u64>) {
        let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
        let others = self.others.lock();
        let written_over = others.iter().filter(|(there, _)| touches(there));
        written_over.for_each(|&(_, writer)| self.membership.end_tenure_of(writer));
    }

    /// The one thread in the session makes changes on behalf of this writer; `None`: of this process again.
    pub fn set_writer(&self, writer: Option<Writer>) {
        *self.in_place_of.lock() = writer;
    }

    /// Whether the process in that slot is attached.
    pub fn is_there(&self, place: u32) -> bool {
        self.membership.lives(place as usize)
    }

    /// Whether a new session, without images, has to begin before the next change.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Reads the images that others have added to the open `epoch` since this process last owned the session. Returns
    /// the changes of other processes that their death would still roll back.
    ///
    /// # Errors
    /// `EIO`: the images are damaged.
    pub fn see_others(&self, images: Images<'_>, epoch: u64) -> Result<Ranges> {
        let mut known = self.known.lock();
        let me = self.membership.me().id;
        let Known { position, others, covered, me: known_as } = &mut *known;
        if position.epoch() != epoch || *known_as != me {
            (*position, *known_as) = (Position::default(), me);
            others.clear();
            covered.clear();
        }
        images.read_on(position, epoch, |range, writer| {
            if writer.id != me {
                covered.remove(&range);
                add_range(others, range, writer);
            }
        })?;
        let mut last: Option<(Writer, bool)> = None;
        others.retain(|&(_, writer)| match last {
            Some((same, is_over)) if same == writer => !is_over,
            _ => {
                let is_over = self.membership.writer_state(writer) == WriterState::Over;
                last = Some((writer, is_over));
                !is_over
            }
        });
        Ok(others.clone())
    }
}
