//! What tests put in the place of the machine, for the thread that sets it: the medium, the domain that a file is found
//! in, the boot, and what is random otherwise. With it, a crash simulator has a file of any domain on a tmpfs, ends a boot
//! without ending it, and gets the same bytes for the same calls.

use super::{Domain, Medium};
use crate::settings::PolicyChoice;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

/// See the module. `None`, or false: as it really is.
#[doc(hidden)]
#[derive(Clone, Copy, Default)]
pub struct Lab {
    /// The medium of files that are attached, or recovered.
    pub medium: Option<&'static dyn Medium>,
    /// The domain of every file and folder; nothing is mapped with `MAP_SYNC`.
    pub domain: Option<Domain>,
    /// The domain of journals, if it is another one.
    pub journals: Option<Domain>,
    pub boot: Option<[u8; 16]>,
    /// New journals get the ids that follow this one.
    pub ids: Option<u64>,
    /// Bytes of the segments of new journals of records: the first, the second, the longest.
    pub segments: Option<[u64; 3]>,
    /// No moment is a quiet one, though nothing settles by itself: a write cache keeps what it may.
    pub busy: bool,
    /// A round of a pass takes so many blocks.
    pub blocks_a_round: Option<usize>,
    /// It logs again what it would write back, however much that is.
    pub logs_again: bool,
    /// Bytes of a file that may be mapped with a shadow.
    pub shadow_limit: Option<u64>,
    /// Shadows are a process's own, as without room in `/dev/shm`.
    pub own_shadow: bool,
    /// Maps are compared whole, as on a kernel that cannot say what was stored.
    pub unwatched: bool,
    /// Large files are refused to maps, as on a kernel that cannot say which pages were copied.
    pub unscanned: bool,
    /// This thread is taken for the program's only one.
    pub alone: bool,
    /// Nothing settles by itself; every moment is a quiet one, unless it is `busy`.
    pub still: bool,
    /// The policy from the next SYNC on.
    pub policy: Option<PolicyChoice>,
    /// Told the record of a joint commit when it is durable, before any of its files is changed.
    pub joint: Option<fn(&[u8])>,
}

/// Whether any thread has a lab: programs never do, and pay one load.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LAB: Cell<Lab> = const {
        Cell::new(Lab {
            medium: None,
            domain: None,
            journals: None,
            boot: None,
            ids: None,
            segments: None,
            busy: false,
            blocks_a_round: None,
            logs_again: false,
            shadow_limit: None,
            own_shadow: false,
            unwatched: false,
            unscanned: false,
            alone: false,
            still: false,
            policy: None,
            joint: None,
        })
    };
}

impl Lab {
    /// Puts this thread into the lab; the default takes it out again.
    pub fn enter(self) {
        ANY.store(true, Ordering::Relaxed);
        LAB.set(self);
    }

    /// This thread's.
    #[inline]
    pub fn current() -> Lab {
        if ANY.load(Ordering::Relaxed) { LAB.get() } else { Lab::default() }
    }

    /// The next of the ids that follow one another.
    pub(crate) fn next_id() -> Option<u64> {
        let lab = Self::current();
        let id = lab.ids?.wrapping_add(1);
        LAB.set(Lab { ids: Some(id), ..lab });
        Some(id)
    }
}

/// For tests: the medium of this thread from now on, whatever is asked for. A recorder records what files do that are
/// attached, or recovered, by the thread while it stands in.
#[doc(hidden)]
pub fn stand_in(medium: Option<&'static dyn Medium>) {
    Lab { medium, ..Lab::current() }.enter();
}
