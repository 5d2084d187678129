//! The arena of a killed process, read by the process that takes over. It is read piece by piece and never mapped: no
//! offset leads out of it, and if another process cuts it, that is an error, not a signal.

use crate::error::{Error, Result};
use crate::index::blocks::block::{BITS, BLOCK, FANOUT, LEVELS};
use crate::index::blocks::cell::Cell;
use crate::index::radix::{Leaf, Node, child};
use crate::index::shared::{MAGIC, Shared};
use crate::pmem::LINE;
use crate::sys::InternalFd;
use crate::sys::read_at;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of one of the buffers for deferred writes (`file::session::deferred`): a block, which begins anywhere in a cache
/// line.
pub(crate) const PLACE: usize = BLOCK + LINE;

/// See the module.
pub(crate) struct DeadArena {
    file: InternalFd,
    size: u64,
    shared: Box<Shared>,
}

/// Types for which any bytes are a valid value.
///
/// # Safety
/// Only atomic words, and arrays and structures of these.
pub(super) unsafe trait Words {}

// SAFETY: atomic words only.
unsafe impl Words for Shared {}
// SAFETY: as above.
unsafe impl Words for Node {}
// SAFETY: as above.
unsafe impl Words for Leaf {}
// SAFETY: as above.
unsafe impl Words for Cell {}

impl DeadArena {
    /// `None`: it is of another version, or its process was killed before it was complete.
    pub fn open(file: InternalFd) -> Result<Option<Self>> {
        let size = rustix::fs::fstat(&file)?.st_size as u64;
        if size < size_of::<Shared>() as u64 {
            return Ok(None);
        }
        let shared: Box<Shared> = read_words(file.as_fd(), size, 0)?;
        let is_complete = shared.magic.load(Ordering::Relaxed) == MAGIC;
        Ok(is_complete.then_some(Self { file, size, shared }))
    }

    /// The shared state, read once more.
    ///
    /// # Errors
    /// `EIO`: it was cut.
    pub fn shared_now(&self) -> Result<Box<Shared>> {
        read_words(self.file.as_fd(), self.size, 0)
    }

    /// The shared state, as it was last.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Reads the bytes at `at`.
    ///
    /// # Errors
    /// `EIO`: the arena has none there.
    pub fn read(&self, at: u64, to: &mut [u8]) -> Result<()> {
        if at == 0 || read_at(&self.file, at, to)? != to.len() {
            return Err(gone());
        }
        Ok(())
    }

    /// The cell of a block, if it has one.
    ///
    /// # Errors
    /// `EIO`: a part of the tree is missing.
    pub fn cell(&self, block: u64) -> Result<Option<Box<Cell>>> {
        let mut at = self.shared.root.load(Ordering::Relaxed);
        for level in (2..=LEVELS).rev() {
            if at == 0 {
                return Ok(None);
            }
            let mut word = [0; 8];
            self.read(at.checked_add(child(block, level) as u64 * 8).ok_or_else(gone)?, &mut word)?;
            at = u64::from_ne_bytes(word);
        }
        if at == 0 {
            return Ok(None);
        }
        let cell = offset_of!(Leaf, cells) + child(block, 1) * size_of::<Cell>();
        read_words(self.file.as_fd(), self.size, at.checked_add(cell as u64).ok_or_else(gone)?).map(Some)
    }

    /// Calls `visit` for every cell of blocks below `end`, in file order.
    ///
    /// # Errors
    /// `EIO`: the tree is damaged, or a part is missing. Those of `visit`.
    pub fn each_cell(&self, end: u64, mut visit: impl FnMut(u64, &Cell) -> Result<()>) -> Result<()> {
        // A tree has no more nodes than the arena has room for.
        let mut left = self.size / size_of::<Node>() as u64;
        let root = self.shared.root.load(Ordering::Relaxed);
        if root == 0 { Ok(()) } else { self.below(root, LEVELS, 0, end, &mut left, &mut visit) }
    }

    fn below(
        &self,
        at: u64,
        level: u32,
        first: u64,
        end: u64,
        left: &mut u64,
        visit: &mut dyn FnMut(u64, &Cell) -> Result<()>,
    ) -> Result<()> {
        *left = left.checked_sub(1).ok_or_else(gone)?;
        if level == 1 {
            let leaf: Box<Leaf> = read_words(self.file.as_fd(), self.size, at)?;
            let mut cells = (first..end).zip(&leaf.cells);
            return cells.try_for_each(|(block, cell)| visit(block, cell));
        }
        let node: Box<Node> = read_words(self.file.as_fd(), self.size, at)?;
        let blocks = 1 << (BITS * (level - 1));
        for (child, number) in node.iter().zip(0..FANOUT as u64) {
            let (child, first) = (child.load(Ordering::Relaxed), first + number * blocks);
            if child != 0 && first < end {
                self.below(child, level - 1, first, end, left, visit)?;
            }
        }
        Ok(())
    }
}

fn gone() -> Error {
    Error::with(libc::EIO, "part of its shared memory is gone or damaged")
}

pub(super) fn read_words<T: Words>(file: BorrowedFd<'_>, size: u64, at: u64) -> Result<Box<T>> {
    if at.checked_add(size_of::<T>() as u64).is_none_or(|end| end > size) {
        return Err(gone());
    }
    let mut words = Box::<MaybeUninit<T>>::new(MaybeUninit::zeroed());
    // SAFETY: the bytes of our own value, which are initialised.
    let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    if read_at(file, at, bytes)? != bytes.len() {
        return Err(gone());
    }
    // SAFETY: any bytes are a valid value of `T`.
    Ok(unsafe { words.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Arena, Index};
    use crate::sys::InternalFd;

    fn of(arena: &dyn Fn(&Arena), spoil: impl FnOnce(&InternalFd)) -> DeadArena {
        let memory = rustix::fs::memfd_create("famio-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let again = InternalFd::adopt(rustix::io::fcntl_dupfd_cloexec(&memory, 0).unwrap()).unwrap();
        let made = Arena::create(InternalFd::adopt(memory).unwrap(), std::path::Path::new("/nonexistent")).unwrap();
        arena(&made);
        spoil(&again);
        DeadArena::open(again).unwrap().unwrap()
    }

    fn fill(arena: &Arena) {
        for block in [0, 1, 511, 512, 1 << 18] {
            Index::new(arena).cell(block).unwrap().transaction.store(block + 1, Ordering::Relaxed);
        }
    }

    fn blocks(arena: &DeadArena, end: u64) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        arena.each_cell(end, |block, cell| {
            let word = cell.transaction.load(Ordering::Relaxed);
            assert!(word == 0 || word == block + 1);
            found.extend((word != 0).then_some(block));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn finds_the_cells() {
        let arena = of(&fill, |_| ());
        assert_eq!(blocks(&arena, u64::MAX).unwrap(), [0, 1, 511, 512, 1 << 18]);
        assert_eq!(blocks(&arena, 512).unwrap(), [0, 1, 511]);
        let writer = |block| arena.cell(block).unwrap().map(|cell| cell.transaction.load(Ordering::Relaxed));
        let found = [0, 1, 2, 511, 512, 1 << 18, 1 << 27].map(writer);
        assert_eq!(found, [Some(1), Some(2), Some(0), Some(512), Some(513), Some((1 << 18) + 1), None]);
    }

    #[test]
    fn what_is_gone_or_turns_in_circles_is_an_error() {
        let arena = of(&fill, |file| rustix::fs::ftruncate(file, 40 << 10).unwrap());
        assert_eq!(blocks(&arena, u64::MAX).unwrap_err().errno(), libc::EIO);
        let arena = of(&fill, |_| ());
        let root = arena.shared().root.load(Ordering::Relaxed);
        let links: Vec<u8> = (0..FANOUT).flat_map(|_| root.to_ne_bytes()).collect();
        crate::sys::write_at(&arena.file, root, &links).unwrap();
        assert_eq!(arena.each_cell(u64::MAX, |_, _| Ok(())).unwrap_err().errno(), libc::EIO);
    }
}
