//! Before-images: the bytes that changes of an open epoch replaced, each with its writer. Several processes write in
//! one epoch, and if a process is killed its changes are rolled back: undoing them from the end of the log keeps the
//! bytes of the others.
//!
//! The log lies in the arena, in chunks that each epoch uses again. An image is complete before its change begins, so
//! that a killed process never leaves a change without its image.

use super::dead::DeadArena;
use super::membership::Writer;
use crate::error::{Error, Result};
use crate::index::Arena;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a chunk, with its head.
const CHUNK: usize = 128 << 10;
const HEAD: usize = 64;
/// Bytes of an image's words.
const WORDS: usize = 48;
/// The most bytes of one image.
pub(crate) const IMAGE_MAX: usize = 32 << 10;
/// The most bytes of all images of an epoch: as much as a hand-over image may have.
const ALL_MAX: u64 = 256 << 20;
/// In the word of the slot: the image is of the size.
const OF_SIZE: u64 = 1 << 63;

/// The beginning of a chunk.
#[repr(C, align(64))]
struct Head {
    /// The epoch that its images belong to.
    epoch: AtomicU64,
    /// Bytes of complete images.
    used: AtomicU64,
    /// The next chunk; 0: none.
    next: AtomicU64,
}

/// What a change replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Of `len` changed bytes from `offset` on only the first existed before: `old`.
    Bytes { offset: u64, len: u64, old: Vec<u8> },
    /// The file had this size.
    Size(u64),
}

/// An image, and the writer of its change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub writer: Writer,
    pub before: Before,
}

/// Where the next image goes, if this process has seen or added all images before it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Position {
    epoch: u64,
    chunk: u64,
    used: usize,
    all: u64,
}

impl Position {
    /// The epoch; 0: none yet.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Why an image was not saved.
#[derive(Debug)]
pub(crate) enum NotSaved {
    /// The epoch has too many.
    TooMany,
    /// `ENOSPC`: no memory. Or it could not be read.
    Failed(Error),
}

impl From<Error> for NotSaved {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Saved = core::result::Result<(), NotSaved>;

/// The log of an arena.
#[derive(Clone, Copy)]
pub(crate) struct Images<'a> {
    arena: &'a Arena,
}

impl<'a> Images<'a> {
    pub fn of(arena: &'a Arena) -> Self {
        Self { arena }
    }

    fn head(self, chunk: u64) -> Result<&'a Head> {
        self.arena.at(chunk).ok_or_else(damaged)
    }

    /// Adds an image of `len` bytes at `offset` in the open `epoch`. Of these, `have` exist; `read` copies them to
    /// the given address. `position` is locked meanwhile, so that images have the order of the changes.
    pub fn add_bytes(
        self,
        position: &mut Position,
        (epoch, writer): (u64, Writer),
        (offset, len, have): (u64, u64, usize),
        read: impl FnOnce(*mut u8, usize) -> Result<()>,
    ) -> Saved {
        debug_assert!(have <= IMAGE_MAX);
        let words = [writer.place.into(), writer.id, writer.tenure, offset, len, have as u64];
        self.add(position, epoch, words, |to| read(to, have))
    }

    /// Adds an image of the size.
    pub fn add_size(self, position: &mut Position, (epoch, writer): (u64, Writer), size: u64) -> Saved {
        let words = [u64::from(writer.place) | OF_SIZE, writer.id, writer.tenure, size, 0, 0];
        self.add(position, epoch, words, |_| Ok(()))
    }

    fn add(
        self,
        position: &mut Position,
        epoch: u64,
        words: [u64; WORDS / 8],
        fill: impl FnOnce(*mut u8) -> Result<()>,
    ) -> Saved {
        let have = words[5] as usize;
        let size = WORDS + have.next_multiple_of(8);
        if position.epoch != epoch {
            self.begin(position, epoch)?;
        }
        if HEAD + position.used + size > CHUNK {
            self.go_on(position, epoch)?;
        }
        let at = self.arena.bytes(position.chunk + (HEAD + position.used) as u64, size).ok_or_else(damaged)?;
        fill(at.wrapping_add(WORDS))?;
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: within the chunk, in the arena's mapping, aligned to eight bytes; not read before `used` covers
            // it.
            unsafe { at.cast::<u64>().add(i).write(word) };
        }
        position.used += size;
        self.head(position.chunk)?.used.store(position.used as u64, Ordering::Release);
        Ok(())
    }

    /// The first image of an epoch, or the first by this owner, which then goes behind those that exist.
    fn begin(self, position: &mut Position, epoch: u64) -> Result<()> {
        let first = &self.arena.shared().first_image;
        if first.load(Ordering::Acquire) == 0 {
            first.store(self.arena.allocate(CHUNK)?, Ordering::Release);
        }
        let mut chunk = first.load(Ordering::Acquire);
        let head = self.head(chunk)?;
        if head.epoch.load(Ordering::Acquire) != epoch {
            head.used.store(0, Ordering::Release);
            head.epoch.store(epoch, Ordering::Release);
        }
        let mut all = 0;
        loop {
            let head = self.head(chunk)?;
            let used = head.used.load(Ordering::Acquire);
            all += CHUNK as u64;
            let next = head.next.load(Ordering::Acquire);
            let goes_on = next != 0 && self.head(next)?.epoch.load(Ordering::Acquire) == epoch;
            if !goes_on || all > ALL_MAX {
                *position = Position { epoch, chunk, used: (used as usize).min(CHUNK - HEAD), all };
                return Ok(());
            }
            chunk = next;
        }
    }

    fn go_on(self, position: &mut Position, epoch: u64) -> Saved {
        if position.all + CHUNK as u64 > ALL_MAX {
            return Err(NotSaved::TooMany); // more could not be handed over
        }
        let last = self.head(position.chunk)?;
        let mut next = last.next.load(Ordering::Acquire);
        let is_new = next == 0;
        if is_new {
            next = self.arena.allocate(CHUNK)?;
        }
        let head = self.head(next)?;
        head.used.store(0, Ordering::Release);
        head.epoch.store(epoch, Ordering::Release);
        if is_new {
            last.next.store(next, Ordering::Release);
        }
        (position.chunk, position.used) = (next, 0);
        position.all += CHUNK as u64;
        Ok(())
    }

    /// Removes all images: another session begins in this arena, and may have the same epoch numbers.
    pub fn forget(self) {
        let mut chunk = self.arena.shared().first_image.load(Ordering::Acquire);
        for _ in 0..=ALL_MAX as usize / CHUNK {
            let Ok(head) = self.head(chunk) else { return };
            head.epoch.store(0, Ordering::Release);
            chunk = head.next.load(Ordering::Acquire);
        }
    }

    /// The ranges changed in `epoch`, and their writers.
    ///
    /// # Errors
    /// `EIO`: the images are damaged.
    pub fn ranges(self, epoch: u64) -> Result<Vec<(Range<u64>, Writer)>> {
        let mut ranges = Vec::new();
        self.read_on(&mut Position::default(), epoch, |range, writer| add_range(&mut ranges, range, writer))?;
        Ok(ranges)
    }

    /// The ranges changed in `epoch` by images after `position`, and their writers. Moves the position behind them.
    ///
    /// # Errors
    /// As [`ranges`](Self::ranges).
    pub fn read_on(self, position: &mut Position, epoch: u64, mut visit: impl FnMut(Range<u64>, Writer)) -> Result<()> {
        *position = self.each(*position, epoch, |writer, before| {
            let range = match before {
                Raw::Size(size) => size..u64::MAX,
                Raw::Bytes { offset, len, .. } => offset..offset + len,
            };
            visit(range, writer);
            Ok(())
        })?;
        Ok(())
    }

    /// The images of `epoch`, in order.
    ///
    /// # Errors
    /// `EIO`: the images are damaged.
    pub fn all(self, epoch: u64) -> Result<Vec<Image>> {
        let mut images = Vec::new();
        self.each(Position::default(), epoch, |writer, raw| {
            images.push(raw.image(writer, &|at, to| self.read(at, to))?);
            Ok(())
        })?;
        Ok(images)
    }

    fn each(self, from: Position, epoch: u64, visit: impl FnMut(Writer, Raw) -> Result<()>) -> Result<Position> {
        let first = self.arena.shared().first_image.load(Ordering::Acquire);
        each_of(from, first, epoch, |at, to| self.read(at, to), visit)
    }

    fn read(self, at: u64, to: &mut [u8]) -> Result<()> {
        let from = self.arena.bytes(at, to.len()).ok_or_else(damaged)?;
        // SAFETY: in the arena's mapping; images do not change while they are in use.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
        Ok(())
    }
}

/// Adds a range to others that come in order.
pub(crate) fn add_range(ranges: &mut Vec<(Range<u64>, Writer)>, range: Range<u64>, writer: Writer) {
    match ranges.last_mut() {
        Some((last, whose)) if *whose == writer && last.end == range.start => last.end = range.end,
        _ => ranges.push((range, writer)),
    }
}

/// As [`Before`], with the place of the replaced bytes in the arena.
enum Raw {
    Bytes { offset: u64, len: u64, old: u64, have: usize },
    Size(u64),
}

impl Raw {
    fn image(self, writer: Writer, read: &dyn Fn(u64, &mut [u8]) -> Result<()>) -> Result<Image> {
        let before = match self {
            Self::Bytes { offset, len, old: at, have } => {
                let mut old = vec![0; have];
                read(at, &mut old)?;
                Before::Bytes { offset, len, old }
            }
            Self::Size(size) => Before::Size(size),
        };
        Ok(Image { writer, before })
    }
}

/// The images of `epoch` in the arena of a killed process.
///
/// # Errors
/// `EIO`: they are damaged.
pub(crate) fn images_of_dead(arena: &DeadArena, epoch: u64) -> Result<Vec<Image>> {
    let (mut images, first) = (Vec::new(), arena.shared().first_image.load(Ordering::Relaxed));
    let read = |at: u64, to: &mut [u8]| arena.read(at, to);
    each_of(Position::default(), first, epoch, read, |writer, raw| {
        images.push(raw.image(writer, &read)?);
        Ok(())
    })?;
    Ok(images)
}

/// Visits the images of `epoch` after `from`; returns where they end. `read` copies bytes of the arena. All that they
/// say is checked before it is used.
fn each_of(
    from: Position,
    first: u64,
    epoch: u64,
    read: impl Fn(u64, &mut [u8]) -> Result<()>,
    mut visit: impl FnMut(Writer, Raw) -> Result<()>,
) -> Result<Position> {
    let mut position = if from.epoch == epoch { from } else { Position::default() };
    let (mut chunk, mut at, mut all) = match position.chunk {
        0 => (first, 0, CHUNK as u64),
        chunk => (chunk, position.used, position.all),
    };
    while chunk != 0 {
        let [its, used, next] = words(&read, chunk)?;
        if its != epoch {
            break;
        }
        let used =
            usize::try_from(used).ok().filter(|&used| used <= CHUNK - HEAD && all <= ALL_MAX).ok_or_else(damaged)?;
        position = Position { epoch, chunk, used, all };
        while at < used {
            let begin = chunk + (HEAD + at) as u64;
            let data = Some(at + WORDS).filter(|&data| data <= used).ok_or_else(damaged)?;
            let [place, id, tenure, offset, len, have] = words(&read, begin)?;
            let end = usize::try_from(have).ok().and_then(|have| data.checked_add(have));
            let end = end.filter(|&end| end <= used).ok_or_else(damaged)?;
            let writer = Writer { place: (place & !OF_SIZE) as u32, id, tenure };
            let raw = if place & OF_SIZE != 0 {
                Raw::Size(offset)
            } else if have <= len && len <= i64::MAX as u64 && offset <= i64::MAX as u64 {
                Raw::Bytes { offset, len, old: begin + WORDS as u64, have: have as usize }
            } else {
                return Err(damaged());
            };
            visit(writer, raw)?;
            at = end.next_multiple_of(8);
        }
        (chunk, at, all) = (next, 0, all + CHUNK as u64);
    }
    Ok(position)
}

fn words<const N: usize>(read: &impl Fn(u64, &mut [u8]) -> Result<()>, at: u64) -> Result<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    read(at, bytes.as_flattened_mut())?;
    Ok(bytes.map(u64::from_ne_bytes))
}

fn damaged() -> Error {
    Error::with(libc::EIO, "the shared index is damaged: before-images")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Writer = Writer { place: 1, id: 5, tenure: 3 };
    const B: Writer = Writer { place: 63, id: 6, tenure: 1 };

    fn put(images: Images<'_>, position: &mut Position, epoch: u64, writer: Writer, offset: u64, len: u64, old: &[u8]) {
        let read = |to: *mut u8, len: usize| {
            // SAFETY: room for this many bytes.
            unsafe { to.copy_from_nonoverlapping(old.as_ptr(), len) };
            Ok(())
        };
        images.add_bytes(position, (epoch, writer), (offset, len, old.len()), read).unwrap();
    }

    fn bytes(writer: Writer, offset: u64, len: u64, old: &[u8]) -> Image {
        Image { writer, before: Before::Bytes { offset, len, old: old.to_vec() } }
    }

    #[test]
    fn come_back_in_order_over_chunks_and_owners_and_go_with_their_epoch() {
        let arena = Arena::for_test();
        let images = Images::of(&arena);
        let (mut first, mut second) = (Position::default(), Position::default());
        let mut expected = Vec::new();
        for i in 0..40u64 {
            let (position, writer) = if i % 3 == 0 { (&mut second, B) } else { (&mut first, A) };
            *position = Position::default(); // the other writer has written meanwhile
            let old = vec![i as u8; 9000 + i as usize];
            put(images, position, 7, writer, i * 4096, 10_000, &old);
            expected.push(bytes(writer, i * 4096, 10_000, &old));
        }
        first = Position::default();
        images.add_size(&mut first, (7, A), 99).unwrap();
        expected.push(Image { writer: A, before: Before::Size(99) });
        first = Position::default();
        assert_eq!(images.all(7).unwrap(), expected);
        assert!(images.all(6).unwrap().is_empty() && images.all(8).unwrap().is_empty());
        put(images, &mut first, 8, A, 0, 5, b"old");
        assert_eq!(images.all(8).unwrap(), [bytes(A, 0, 5, b"old")]);
        assert!(images.all(7).unwrap().is_empty());
    }

    #[test]
    fn what_finds_room_can_be_read_and_what_is_too_much_is_refused() {
        let arena = Arena::for_test();
        let (images, mut position) = (Images::of(&arena), Position::default());
        let read = |_: *mut u8, _| Ok(());
        let count = loop {
            match images.add_bytes(&mut position, (3, A), (0, IMAGE_MAX as u64, IMAGE_MAX), read) {
                Ok(()) => {}
                Err(NotSaved::TooMany) => break images.ranges(3).unwrap().len(),
                Err(NotSaved::Failed(e)) => panic!("{e}"),
            }
        };
        assert_eq!(count as u64, ALL_MAX / CHUNK as u64 * 3); // three of them in a chunk
        // Nor does the next owner add more.
        let by_another = images.add_bytes(&mut Position::default(), (3, B), (0, 1, IMAGE_MAX), read);
        assert!(matches!(by_another, Err(NotSaved::TooMany)));
    }

    #[test]
    fn words_of_others_lead_nowhere() {
        let arena = Arena::for_test();
        let (images, mut position) = (Images::of(&arena), Position::default());
        put(images, &mut position, 3, A, 4096, 3, b"abc");
        let chunk = arena.shared().first_image.load(Ordering::Relaxed);
        let head = images.head(chunk).unwrap();
        for used in [1, WORDS as u64 + 1, CHUNK as u64, u64::MAX] {
            head.used.store(used, Ordering::Relaxed);
            assert_eq!(images.all(3).unwrap_err().errno(), libc::EIO, "{used}");
        }
        head.used.store(WORDS as u64 + 8, Ordering::Relaxed);
        assert_eq!(images.all(3).unwrap().len(), 1);
        head.next.store(chunk, Ordering::Relaxed); // in a circle
        assert_eq!(images.all(3).unwrap_err().errno(), libc::EIO);
        head.next.store(u64::MAX - 63, Ordering::Relaxed);
        assert_eq!(images.all(3).unwrap_err().errno(), libc::EIO);
    }
}
