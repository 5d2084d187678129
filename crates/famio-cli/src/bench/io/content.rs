//! The data written. Bytes differ from write to write, since a journal leaves out unchanged bytes. Each piece says to
//! which write it belongs, so that it can be checked later; and making it costs two stores per write, so that the
//! loop measures the calls.
//!
//! A piece is a part of one random block of memory, at a position derived from its stamp, with the stamp in its first
//! 8 bytes.

/// Positions at which a piece can begin: one of this many rewrites changes only the stamp.
const PLACES: usize = 128;
const LINE: usize = 64;

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

/// The memory from which all pieces of one size come; the same in every process.
pub struct Content {
    pages: Vec<Page>,
    size: usize,
}

impl Content {
    pub fn new(size: u64) -> Self {
        let size = size as usize;
        let mut pages = vec![Page([0; 4096]); (size + PLACES * LINE).div_ceil(4096)];
        let mut random = fastrand::Rng::with_seed(0x5eed);
        pages.iter_mut().for_each(|page| random.fill(&mut page.0));
        Self { pages, size }
    }

    fn bytes(&self) -> *const u8 {
        self.pages.as_ptr().cast()
    }

    /// Makes the piece with this stamp, and calls `use_piece` with it.
    #[inline]
    pub fn with<T>(&mut self, stamp: u64, use_piece: impl FnOnce(*const u8) -> T) -> T {
        // SAFETY: each position is followed by at least `size` bytes, and aligned to a line.
        let place = unsafe { self.pages.as_mut_ptr().cast::<u8>().add(place(stamp)).cast::<u64>() };
        // SAFETY: as above.
        let before = unsafe { place.replace(stamp) };
        let result = use_piece(place.cast_const().cast());
        // SAFETY: as above. Other pieces overlap this one, and must not see its stamp.
        unsafe { place.write(before) };
        result
    }

    /// A copy of the piece of this stamp.
    pub fn piece(&mut self, stamp: u64) -> Vec<u8> {
        let size = self.size;
        // SAFETY: a piece is that long.
        self.with(stamp, |piece| unsafe { std::slice::from_raw_parts(piece, size) }.to_vec())
    }

    /// Whether these bytes are exactly the piece of their stamp.
    pub fn is_whole(&self, piece: &[u8]) -> bool {
        debug_assert_eq!(piece.len(), self.size);
        // SAFETY: within the pages, as in `with`.
        let wanted = unsafe { std::slice::from_raw_parts(self.bytes().add(place(stamp_of(piece))), self.size) };
        piece[8..] == wanted[8..]
    }
}

fn place(stamp: u64) -> usize {
    // The upper bits of a product: those of consecutive numbers differ without a pattern.
    (stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize * LINE
}

/// The stamp of a piece.
pub fn stamp_of(piece: &[u8]) -> u64 {
    piece.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// The stamp of write number `write` by thread `lane` in measurement number `measurement` of this file.
#[inline]
pub fn stamp(measurement: u32, lane: u32, write: u64) -> u64 {
    u64::from(measurement) << 48 | u64::from(lane) << 40 | write
}

/// The stamp of warm-up pass number `pass` over the file, before a measurement; no thread uses it.
pub fn warm_stamp(measurement: u32, pass: u64) -> u64 {
    stamp(measurement, 255, pass)
}

/// The stamp with which the file is created.
pub const FIRST: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_differ_in_every_line_and_are_known_again() {
        let mut content = Content::new(4096);
        let mut pieces = Vec::new();
        for write in 0..50 {
            pieces.push(content.piece(stamp(1, 2, write)));
        }
        for (write, piece) in pieces.iter().enumerate() {
            assert!(content.is_whole(piece));
            assert_eq!(stamp_of(piece), stamp(1, 2, write as u64));
        }
        let same = |a: &[u8], b: &[u8]| a.chunks(LINE).zip(b.chunks(LINE)).filter(|(a, b)| a == b).count();
        let unchanged = pieces.windows(2).filter(|pair| same(&pair[0], &pair[1]) > 0).count();
        assert!(unchanged <= 2, "{unchanged}");
        let mut torn = pieces[3].clone();
        torn[2048..].copy_from_slice(&pieces[4][2048..]);
        assert!(!content.is_whole(&torn));
    }
}
