//! What a transaction's writes have overwritten in private regions: an abort puts it back.

use crate::error::{Error, Result};
use crate::file::{copy_in, copy_out};

/// The bytes that were there before each write, in order.
#[derive(Default)]
pub(super) struct Undo {
    bytes: Vec<u8>,
    /// Address and length.
    pieces: Vec<(usize, usize)>,
}

impl Undo {
    /// Saves what is about to be overwritten.
    ///
    /// # Errors
    /// `ENOMEM`. `EFAULT`: the memory cannot be read.
    ///
    /// # Safety
    /// The memory belongs to a region.
    pub unsafe fn save(&mut self, at: usize, len: usize) -> Result<()> {
        let no_memory = |_| Error::new(libc::ENOMEM);
        self.pieces.try_reserve(1).map_err(no_memory)?;
        self.bytes.try_reserve(len).map_err(no_memory)?;
        let from = self.bytes.len();
        // SAFETY: there is room; a fault at the source is an error.
        unsafe { copy_in(self.bytes.as_mut_ptr().add(from), at as *const u8, len) }?;
        // SAFETY: just stored.
        unsafe { self.bytes.set_len(from + len) };
        self.pieces.push((at, len));
        Ok(())
    }

    /// The write that was saved for last did not happen.
    pub fn forget_last(&mut self) {
        if let Some((_, len)) = self.pieces.pop() {
            self.bytes.truncate(self.bytes.len() - len);
        }
    }

    /// Puts everything back, the latest first, so that each byte gets its oldest value.
    ///
    /// # Safety
    /// The regions are still mapped.
    pub unsafe fn restore(&mut self) {
        while let Some((at, len)) = self.pieces.pop() {
            let from = self.bytes.len() - len;
            // Memory that cannot be stored to any more (an outsider has cut the file) has no bytes to restore.
            // SAFETY: our bytes; a fault at the target is an error.
            let _ = unsafe { copy_out(at as *mut u8, self.bytes[from..].as_ptr(), len) };
            self.bytes.truncate(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_gets_its_oldest_value() {
        crate::map::guard::install().unwrap();
        let mut memory = *b"0123456789";
        let at = memory.as_mut_ptr().expose_provenance();
        let mut undo = Undo::default();
        let write = |undo: &mut Undo, from: usize, bytes: &[u8]| {
            // SAFETY: within the array, which lives as long.
            unsafe {
                undo.save(at + from, bytes.len()).unwrap();
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), (at + from) as *mut u8, bytes.len());
            }
        };
        write(&mut undo, 2, b"abc");
        write(&mut undo, 3, b"ABC");
        write(&mut undo, 9, b"-");
        undo.forget_last(); // it did happen here, and so stays
        // SAFETY: as above.
        unsafe { undo.restore() };
        assert_eq!(&memory, b"012345678-");
        assert!(undo.bytes.is_empty());
    }
}
