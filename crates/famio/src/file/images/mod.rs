//! Before-images of a session that several processes use: each change first saves what it takes the place of, with its writer, so
//! that what one process wrote can be taken back alone ([`crate::index::Images`]).

mod covered;

use crate::error::Result;
use crate::index::{Door, Images, Position, Standing, Writer, add_range};
use crate::thread::Mutex;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use covered::Covered;
use std::sync::Arc;

/// What other processes have changed in an open epoch, and may still take back by dying.
pub(in crate::file) type Others = Arc<Mutex<Ranges>>;
/// Changed ranges, each with its writer.
pub(in crate::file) type Ranges = Vec<(Range<u64>, Writer)>;

/// What a session's owner knows of its images.
pub(in crate::file) struct Imaging {
    /// Tells who this process is.
    pub(in crate::file) door: Arc<Door>,
    pub(in crate::file) others: Others,
    /// Locked while an image is added, so that images are in the order in which changes read what they replace.
    pub(in crate::file) known: Mutex<Known>,
    /// Not this process, but this one's changes are being made: of an epoch that is taken up.
    pub(in crate::file) in_place_of: Mutex<Option<Writer>>,
    /// There is no room for the next image, and some of those that are there are of other processes.
    pub(in crate::file) is_full: AtomicBool,
}

/// What a process knows of the images, as long as the epoch is the same.
#[derive(Default)]
pub(in crate::file) struct Known {
    /// Where the next image goes, or what comes after those that this process has seen.
    pub(in crate::file) position: Position,
    /// Those of other processes.
    pub(in crate::file) others: Ranges,
    /// Its own.
    pub(in crate::file) covered: Covered,
    /// The number of this process at the control file when the rest was noted.
    pub(in crate::file) me: u64,
}

impl Imaging {
    pub fn new(door: Arc<Door>, others: Others) -> Self {
        let (known, in_place_of) = (Mutex::default(), Mutex::new(None));
        Self { door, others, known, in_place_of, is_full: AtomicBool::new(false) }
    }

    /// This process is about to change `range`: of whomever that was, it is not taken back any more. Before the change: whoever dies
    /// between the two has its bytes kept, and never those of this process taken for its own.
    pub fn end_tenures(&self, range: &Range<u64>) {
        let touches = |there: &Range<u64>| there.start < range.end.max(range.start + 1) && range.start < there.end;
        let others = self.others.lock();
        let written_over = others.iter().filter(|(there, _)| touches(there));
        written_over.for_each(|&(_, writer)| self.door.end_tenure_of(writer));
    }

    /// Changes are made in the place of this writer, by the one thread that is in the session; `None`: of this process again.
    pub fn set_writer(&self, writer: Option<Writer>) {
        *self.in_place_of.lock() = writer;
    }

    /// Whether the process with that place is at the file's door.
    pub fn is_there(&self, place: u32) -> bool {
        self.door.lives(place as usize)
    }

    /// Whether the session has to be begun anew, without images, before more can be changed.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Reads the images that others have added to the open `epoch` since this process was the owner. What other processes have changed
    /// in it, and may still take back.
    ///
    /// # Errors
    /// `EIO`: they are damaged.
    pub fn see_others(&self, images: Images<'_>, epoch: u64) -> Result<Ranges> {
        let mut known = self.known.lock();
        let me = self.door.me().id;
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
                let is_over = self.door.standing(writer) == Standing::Over;
                last = Some((writer, is_over));
                !is_over
            }
        });
        Ok(others.clone())
    }
}
