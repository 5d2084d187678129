//! The hand-over image: the writes since the last SYNC, as changes to the committed state, each with its writer, in a
//! file named by the control page. They are in order: a later change counts.

use crate::error::{Error, Result};
use crate::index::{Writer, WriterState};
use crate::sys::{read_at, write_at};
use core::ops::Range;
use std::os::fd::AsFd;

/// Equal bytes between two different ones up to which they are one change, if no other writer's bytes may lie between
/// them.
const GAP: usize = 32;
/// "FAMIOEP1".
const MAGIC: u64 = u64::from_le_bytes(*b"FAMIOEP1");
const HEAD: usize = 16;
const ENTRY: usize = 48;
/// A larger epoch is not handed over.
pub(in crate::file) const MOST: u64 = 256 << 20;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::file) enum What {
    /// The file was cut to `low`, then made `size` bytes long.
    Size { low: u64, size: u64 },
    /// Bytes were written.
    Bytes { offset: u64, data: Vec<u8> },
}

/// A change and its writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::file) struct Change {
    pub writer: Writer,
    pub what: What,
}

/// A hand-over image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::file) struct HandOverImage {
    pub changes: Vec<Change>,
}

/// The most that a session's open epoch may have changed: sizes, and whole pieces of the file.
#[derive(Debug)]
pub(in crate::file) struct OpenChanges {
    /// The lowest size during this ownership.
    pub low: u64,
    pub size: u64,
    /// In order, not overlapping.
    pub pieces: Vec<(u64, Vec<u8>)>,
    /// The lowest size in the whole epoch, whichever process set it.
    pub epoch_low: u64,
    /// A lock was released since the last change.
    pub is_released: bool,
    /// All changes of the epoch with their writers, if the session has before-images.
    pub by_writer: Option<Vec<Change>>,
}

impl OpenChanges {
    /// All changes of the epoch, whichever process made them.
    pub fn all(&self) -> impl Iterator<Item = What> {
        let size = What::Size { low: self.epoch_low, size: self.size };
        let bytes = self.pieces.iter().map(|(offset, data)| What::Bytes { offset: *offset, data: data.clone() });
        core::iter::once(size).chain(bytes)
    }
}

impl HandOverImage {
    /// Reads an image. `EIO`: it is damaged.
    pub fn load(file: impl AsFd) -> Result<Self> {
        Self::decode(&read_all(file)?).ok_or(Error::new(libc::EIO))
    }

    /// Writes the image to a new file. `ENOSPC`: no memory.
    pub fn store(&self, file: impl AsFd) -> Result<()> {
        write_at(file, 0, &self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = [MAGIC, self.changes.len() as u64].map(u64::to_le_bytes).concat();
        for Change { writer, what } in &self.changes {
            let (kind, at, len, data) = match what {
                What::Size { low, size } => (0, *low, *size, &[][..]),
                What::Bytes { offset, data } => (1u64, *offset, data.len() as u64, &data[..]),
            };
            for word in [kind, u64::from(writer.place), writer.id, writer.tenure, at, len] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(data);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?));
        if word(0)? != MAGIC {
            return None;
        }
        let (mut at, mut changes) = (HEAD, Vec::new());
        for _ in 0..word(8)? {
            let [kind, place, id, tenure, first, second] = {
                let mut words = [0; ENTRY / 8];
                for (i, to) in words.iter_mut().enumerate() {
                    *to = word(at + i * 8)?;
                }
                words
            };
            at += ENTRY;
            let what = match kind {
                0 => What::Size { low: first, size: second },
                _ => {
                    let end = at.checked_add(usize::try_from(second).ok()?)?;
                    let data = bytes.get(at..end)?.to_vec();
                    at = end;
                    What::Bytes { offset: first, data }
                }
            };
            changes.push(Change { writer: Writer { place: u32::try_from(place).ok()?, id, tenure }, what });
        }
        Some(Self { changes })
    }

    /// An image that is kept whichever process dies.
    pub fn kept(changes: impl IntoIterator<Item = What>) -> Self {
        Self { changes: changes.into_iter().map(|what| Change { writer: Writer::NOBODY, what }).collect() }
    }

    /// Whether a part is kept whichever process dies.
    pub fn is_kept(&self) -> bool {
        self.changes.iter().any(|change| change.writer == Writer::NOBODY)
    }

    /// Removes the changes of writers that died in the tenure of the change. Returns whether there were any.
    pub fn roll_back(&mut self, writer_state: impl Fn(Writer) -> WriterState) -> bool {
        let before = self.changes.len();
        self.changes.retain(|change| writer_state(change.writer) != WriterState::Dead);
        self.changes.len() != before
    }

    /// The file's size, if it was `committed` at the last SYNC.
    pub fn size(&self, committed: u64) -> u64 {
        self.changes.iter().fold(committed, |size, change| change.what.size_after(size))
    }

    /// Applies the changes to `piece`, which has the committed bytes from `offset` on. Returns the number of bytes up
    /// to the end of the file.
    pub fn show(&self, offset: u64, piece: &mut [u8], committed: u64) -> usize {
        let end = offset + piece.len() as u64;
        let zero_from = |piece: &mut [u8], from: u64| {
            let from = from.clamp(offset, end) - offset;
            piece[from as usize..].fill(0);
        };
        zero_from(piece, committed);
        let mut size = committed;
        for change in &self.changes {
            match &change.what {
                What::Size { low, .. } => zero_from(piece, *low),
                What::Bytes { offset: at, data } => {
                    let (from, to) = ((*at).max(offset), (*at + data.len() as u64).min(end));
                    if from < to {
                        piece[(from - offset) as usize..(to - offset) as usize]
                            .copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
                    }
                }
            }
            size = change.what.size_after(size);
        }
        size.saturating_sub(offset).min(piece.len() as u64) as usize
    }

    /// Adds the changes of `open_changes` by `writer`; `base` reads committed bytes, as many as there are.
    pub fn add(
        &mut self,
        writer: Writer,
        open_changes: &OpenChanges,
        committed: u64,
        base: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let before = self.size(committed);
        if open_changes.low < before || open_changes.size != before {
            self.changes.push(Change {
                writer,
                what: What::Size { low: open_changes.low.min(before), size: open_changes.size },
            });
        }
        let gap = if self.changes.iter().all(|change| change.writer.id == writer.id) { GAP } else { 0 };
        let mut old = Vec::new();
        let mut new = Vec::new();
        for (offset, data) in &open_changes.pieces {
            old.resize(data.len(), 0);
            base(*offset, &mut old)?;
            self.show(*offset, &mut old, committed);
            for run in differing(&old, data, gap) {
                let what = What::Bytes { offset: offset + run.start as u64, data: data[run].to_vec() };
                new.push(Change { writer, what });
            }
        }
        self.changes.append(&mut new);
        Ok(())
    }
}

impl What {
    fn size_after(&self, size: u64) -> u64 {
        match self {
            Self::Size { size, .. } => *size,
            Self::Bytes { offset, data } => size.max(offset + data.len() as u64),
        }
    }

    /// The range that it changes. A size changes everything from the lower one on.
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::Size { low, size } => *low.min(size)..u64::MAX,
            Self::Bytes { offset, data } => *offset..offset + data.len() as u64,
        }
    }
}

/// The ranges in which two pieces of the same length differ. Up to `gap` equal bytes between two differences are
/// included.
fn differing(old: &[u8], new: &[u8], gap: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..new.len()).filter(|&at| old[at] != new[at]) {
        match runs.last_mut() {
            Some(last) if at <= last.end + gap => last.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

fn read_all(file: impl AsFd) -> Result<Vec<u8>> {
    let size = rustix::fs::fstat(&file)?.st_size as u64;
    if size > 2 * MOST {
        return Err(Error::new(libc::EIO));
    }
    let mut bytes = vec![0; size as usize];
    let done = read_at(file, 0, &mut bytes)?;
    bytes.truncate(done);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Writer = Writer { place: 1, id: 7, tenure: 2 };
    const OTHER: Writer = Writer { place: 2, id: 8, tenure: 1 };

    fn seen(hand_over_image: &HandOverImage, file: &[u8], room: usize) -> Vec<u8> {
        let mut piece = file.to_vec();
        piece.resize(room, b'?');
        let n = hand_over_image.show(0, &mut piece, file.len() as u64);
        piece.truncate(n);
        piece
    }

    fn add(hand_over_image: &mut HandOverImage, writer: Writer, file: &[u8], low: u64, now: &[u8]) {
        let open_changes = OpenChanges {
            low,
            size: now.len() as u64,
            pieces: vec![(0, now.to_vec())],
            epoch_low: low,
            is_released: false,
            by_writer: None,
        };
        let base = |offset: u64, to: &mut [u8]| {
            let from = file.get(offset as usize..).unwrap_or(&[]);
            let n = from.len().min(to.len());
            to[..n].copy_from_slice(&from[..n]);
            Ok(())
        };
        hand_over_image.add(writer, &open_changes, file.len() as u64, base).unwrap();
    }

    #[test]
    fn what_two_wrote_side_by_side_is_told_apart() {
        let file = *b"aaaaaaaa";
        let mut both = HandOverImage::default();
        add(&mut both, OTHER, &file, 8, b"aXXaaaaa");
        add(&mut both, ME, &file, 8, b"aXXYYaaa");
        assert_eq!(seen(&both, &file, 20), b"aXXYYaaa");
        let mut mine = both.clone();
        assert!(mine.roll_back(|writer| if writer == OTHER { WriterState::Dead } else { WriterState::Open }));
        assert_eq!(seen(&mine, &file, 20), b"aaaYYaaa");
        assert!(both.roll_back(|writer| if writer == ME { WriterState::Dead } else { WriterState::Open }));
        assert_eq!(seen(&both, &file, 20), b"aXXaaaaa");
        assert!(!both.roll_back(|_| WriterState::Over));
    }

    #[test]
    fn sizes_travel_too() {
        let file = *b"abcdefgh";
        let mut epoch = HandOverImage::default();
        add(&mut epoch, ME, &file, 3, b"abc\0\0\0"); // cut to three, made longer
        assert_eq!((epoch.size(8), seen(&epoch, &file, 20)), (6, b"abc\0\0\0".to_vec()));
        add(&mut epoch, ME, &file, 6, b"abc\0\0\0XYZ"); // appended
        assert_eq!((epoch.size(8), seen(&epoch, &file, 20)), (9, b"abc\0\0\0XYZ".to_vec()));
        assert_eq!(seen(&epoch, &file, 4), b"abc\0");
    }

    #[test]
    fn comes_back_from_its_file_and_damage_shows() {
        let file = *b"abcdefgh";
        let mut epoch = HandOverImage::default();
        add(&mut epoch, ME, &file, 3, b"abcdXfghijk");
        add(&mut epoch, OTHER, &file, 8, b"abcdXfghijk!");
        let bytes = epoch.encode();
        assert_eq!(HandOverImage::decode(&bytes), Some(epoch));
        for cut in 0..bytes.len() {
            assert_eq!(HandOverImage::decode(&bytes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn gaps_are_taken_along_only_where_asked() {
        assert_eq!(differing(b"aaaaaa", b"aXaXaa", 0), [1..2, 3..4]);
        assert_eq!(differing(b"aaaaaa", b"aXaXaa", 1), std::iter::once(1..4).collect::<Vec<_>>());
        assert!(differing(b"aa", b"aa", 9).is_empty());
    }
}
