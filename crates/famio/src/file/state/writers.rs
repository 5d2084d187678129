//! Finds the writers of an open epoch's changes by its before-images: undone one by one, from the last to the first,
//! each shows the bytes that it had changed.

use super::hand_over_image::{Change, HandOverImage, MOST, What};
use crate::error::{Error, Result};
use crate::index::{BLOCK, Before, Image, Writer};
use std::collections::BTreeMap;

/// The file's present bytes, as far as the epoch has changed them.
struct Bytes<'a> {
    /// Blocks by number. Others were not changed.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Reads a block that is not in `blocks` yet.
    read: &'a dyn Fn(u64, &mut [u8]) -> Result<()>,
    size: u64,
}

impl Bytes<'_> {
    fn block(&mut self, number: u64) -> Result<&mut Vec<u8>> {
        if !self.blocks.contains_key(&number) {
            let mut block = vec![0; BLOCK];
            (self.read)(number * BLOCK as u64, &mut block)?;
            self.blocks.insert(number, block);
        }
        self.blocks.get_mut(&number).ok_or(Error::new(libc::EIO))
    }

    fn each(&mut self, offset: u64, len: u64, mut visit: impl FnMut(&mut [u8], usize)) -> Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let start = (at % BLOCK as u64) as usize;
            let n = ((BLOCK - start) as u64).min(len - done);
            let block = self.block(at / BLOCK as u64)?;
            visit(&mut block[start..start + n as usize], done as usize);
            done += n;
        }
        Ok(())
    }

    /// The bytes of a range, as far as the file goes.
    fn get(&mut self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let len = len.min(self.size.saturating_sub(offset));
        let mut bytes = vec![0; len as usize];
        self.each(offset, len, |piece, at| bytes[at..at + piece.len()].copy_from_slice(piece))?;
        Ok(bytes)
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.each(offset, bytes.len() as u64, |piece, at| piece.copy_from_slice(&bytes[at..at + piece.len()]))
    }
}

impl HandOverImage {
    /// The changes of an epoch, each with its writer. `images`: all of them, in order. `size`: the file's now; `read`
    /// reads whole blocks, with zeros beyond the end.
    ///
    /// Changes of writers for which `is_gone` returns true are left out.
    ///
    /// # Errors
    /// Those of `read`. `EFBIG`: too many for a hand-over image.
    pub fn by_images(
        images: &[Image],
        size: u64,
        read: &dyn Fn(u64, &mut [u8]) -> Result<()>,
        is_gone: &dyn Fn(Writer) -> bool,
    ) -> Result<Self> {
        let mut now = Bytes { blocks: BTreeMap::new(), read, size };
        let (mut changes, mut all) = (Vec::new(), 0);
        for Image { writer, before } in images.iter().rev() {
            let what = match before {
                Before::Size(before) => {
                    let after = core::mem::replace(&mut now.size, *before);
                    What::Size { low: after.min(*before), size: after }
                }
                Before::Bytes { offset, len, old } => {
                    let data = if is_gone(*writer) { Vec::new() } else { now.get(*offset, *len)? };
                    now.put(*offset, old)?;
                    What::Bytes { offset: *offset, data }
                }
            };
            let is_nothing = matches!(&what, What::Bytes { data, .. } if data.is_empty()) || is_gone(*writer);
            all += if let What::Bytes { data, .. } = &what { data.len() as u64 } else { 0 };
            if all > MOST {
                return Err(Error::new(libc::EFBIG));
            }
            changes.extend((!is_nothing).then_some(Change { writer: *writer, what }));
        }
        changes.reverse();
        Ok(Self { changes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::WriterState;

    const A: Writer = Writer { place: 0, id: 1, tenure: 1 };
    const B: Writer = Writer { place: 1, id: 2, tenure: 1 };

    /// A file with its images, changed by several writers.
    #[derive(Default)]
    struct Epoch {
        file: Vec<u8>,
        images: Vec<Image>,
    }

    impl Epoch {
        fn write(&mut self, writer: Writer, offset: usize, bytes: &[u8]) {
            let end = offset + bytes.len();
            if end > self.file.len() {
                self.images.push(Image { writer, before: Before::Size(self.file.len() as u64) });
            }
            let have = self.file.len().clamp(offset, end) - offset;
            let old = self.file.get(offset..offset + have).unwrap_or(&[]).to_vec();
            let before = Before::Bytes { offset: offset as u64, len: bytes.len() as u64, old };
            self.images.push(Image { writer, before });
            self.file.resize(self.file.len().max(end), 0);
            self.file[offset..end].copy_from_slice(bytes);
        }

        fn cut(&mut self, writer: Writer, size: usize) {
            if size < self.file.len() {
                let old = self.file[size..].to_vec();
                let before = Before::Bytes { offset: size as u64, len: old.len() as u64, old };
                self.images.push(Image { writer, before });
            }
            self.images.push(Image { writer, before: Before::Size(self.file.len() as u64) });
            self.file.resize(size, 0);
        }

        fn changes(&self) -> HandOverImage {
            let read = |offset: u64, block: &mut [u8]| {
                let there = self.file.get(offset as usize..).unwrap_or(&[]);
                let n = there.len().min(block.len());
                block[..n].copy_from_slice(&there[..n]);
                Ok(())
            };
            HandOverImage::by_images(&self.images, self.file.len() as u64, &read, &|_| false).unwrap()
        }
    }

    fn seen(epoch: &HandOverImage, committed: &[u8]) -> Vec<u8> {
        let size = epoch.size(committed.len() as u64) as usize;
        let mut piece = committed.to_vec();
        piece.resize(size.max(committed.len()), 0);
        let n = epoch.show(0, &mut piece, committed.len() as u64);
        piece.truncate(n);
        piece
    }

    #[test]
    fn each_has_its_own_and_without_the_dead_ones_the_others_stay() {
        let committed = b"0123456789".repeat(1000);
        let mut epoch = Epoch { file: committed.clone(), images: Vec::new() };
        let mut without_a = Epoch { file: committed.clone(), images: Vec::new() };
        let mut both = |writer: Writer, offset: usize, bytes: &[u8]| {
            epoch.write(writer, offset, bytes);
            if writer == B {
                without_a.write(writer, offset, bytes);
            }
        };
        both(A, 5, b"aaaa");
        both(B, 4090, b"bbbbbbbbbbbb");
        both(A, 7, b"AAAAAA");
        both(A, 9000, &[b'a'; 900]);
        both(B, 100, b"b");
        let changes = epoch.changes();
        assert_eq!(seen(&changes, &committed), epoch.file);
        let mut rest = changes;
        assert!(rest.roll_back(|writer| if writer == A { WriterState::Dead } else { WriterState::Open }));
        assert_eq!(seen(&rest, &committed), without_a.file);
    }

    #[test]
    fn sizes_come_and_go() {
        let committed = b"abcdefgh".to_vec();
        let mut epoch = Epoch { file: committed.clone(), images: Vec::new() };
        epoch.write(A, 3, b"XY");
        epoch.write(B, 12, b"end"); // leaves a gap
        epoch.cut(B, 5);
        epoch.cut(B, 9);
        epoch.write(B, 8, b"more");
        let changes = epoch.changes();
        assert_eq!(seen(&changes, &committed), epoch.file);
        let (mut without_b, mut without_a) = (changes.clone(), changes);
        assert!(without_b.roll_back(|writer| if writer == B { WriterState::Dead } else { WriterState::Open }));
        assert_eq!(seen(&without_b, &committed), b"abcXYfgh");
        assert!(without_a.roll_back(|writer| if writer == A { WriterState::Dead } else { WriterState::Open }));
        assert_eq!(seen(&without_a, &committed), b"abcde\0\0\0more");
    }
}
