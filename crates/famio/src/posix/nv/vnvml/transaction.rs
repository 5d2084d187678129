//! An open transaction: its writes so far, in memory, and what they have overwritten in private regions.

use super::region::Region;
use super::undo::Undo;
use crate::error::{Error, Result};
use crate::file::{UserBuf, copy_out};
use crate::posix::runtime::file_size;
use crate::transaction::Transaction;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// Dropping it aborts it.
#[derive(Default)]
pub(super) struct Work {
    /// From the first write on.
    transaction: Option<Transaction>,
    /// The regions that it has written to, or tried to, with the bytes written.
    touched: Vec<(Arc<Region>, u64)>,
    undo: Undo,
    /// A write is in the transaction, and could not be shown in its region.
    is_broken: bool,
}

impl Work {
    /// From now on the region cannot be freed. The caller holds the lock of the list of regions.
    ///
    /// # Errors
    /// `EXDEV`: it is in another pool than the other regions of the transaction. `ENOMEM`.
    pub fn touch(&mut self, region: &Arc<Region>) -> Result<()> {
        if self.touched.iter().any(|(touched, _)| Arc::ptr_eq(touched, region)) {
            return Ok(());
        }
        if self.touched.first().is_some_and(|(first, _)| !first.has_pool_of(region)) {
            let what = "the regions of one transaction are in one pool: name one (nv_init), or put their files into one folder";
            return Err(region.file().named(Error::with(libc::EXDEV, what)));
        }
        self.touched.try_reserve(1).map_err(|_| Error::new(libc::ENOMEM))?;
        region.users.fetch_add(1, Ordering::Relaxed);
        self.touched.push((region.clone(), 0));
        Ok(())
    }

    /// Writes to a region that was [touched](Self::touch): to the transaction, and at once to the memory if that is
    /// private.
    ///
    /// # Errors
    /// `EFAULT`: a bad source. `EFBIG`, `ENOMEM`, `ECHILD`, `EBADF`. `ENOSPC`, `EIO`: the memory of the region cannot
    /// be used. Nothing was written then; or, if the memory was lost in between, the transaction can only be aborted.
    ///
    /// # Safety
    /// The buffer may be read; it may also be a bad address. `at` and its length lie in the region.
    pub unsafe fn write(&mut self, region: &Arc<Region>, at: usize, from: UserBuf) -> Result<()> {
        let offset = (at - region.range().start) as u64;
        if file_size::clip(offset, from.len)? < from.len {
            return Err(Error::new(libc::EFBIG)); // whole or not at all
        }
        if self.is_broken {
            return Err(region.fault());
        }
        let file = region.file();
        if self.transaction.is_none() {
            self.transaction = Some(Transaction::begin(file, false)?);
        }
        let Some(transaction) = &mut self.transaction else { return Err(Error::new(libc::EINVAL)) };
        transaction.join(file)?;
        if region.is_private() {
            // SAFETY: within the region.
            unsafe { self.undo.save(at, from.len) }
                .map_err(|error| if error.errno() == libc::ENOMEM { error } else { region.fault() })?;
        }
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { transaction.write(file, offset, from) } {
            if region.is_private() {
                self.undo.forget_last();
            }
            return Err(error);
        }
        if region.is_private() {
            // Not from the source, which another thread may have changed since.
            let bytes = transaction.last_written(file, from.len)?;
            // SAFETY: within the region; a fault there is an error.
            if unsafe { copy_out(at as *mut u8, bytes.as_ptr(), bytes.len()) }.is_err() {
                self.is_broken = true;
                return Err(region.fault());
            }
        }
        if let Some((_, bytes)) = self.touched.iter_mut().find(|(touched, _)| Arc::ptr_eq(touched, region)) {
            *bytes += from.len as u64;
        }
        Ok(())
    }

    /// Commits everything, durably. It ends in any case; after an error, private memory is as before.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn commit(mut self) -> Result<()> {
        if self.is_broken {
            return Err(Error::with(libc::EIO, "the memory of a region was lost while the transaction wrote there"));
        }
        self.transaction.take().map_or(Ok(()), Transaction::commit)?;
        self.undo = Undo::default();
        self.touched.iter().for_each(|(region, bytes)| region.has_committed(*bytes));
        Ok(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: the regions that were touched are not freed before.
        unsafe { self.undo.restore() };
        self.touched.iter().for_each(|(region, _)| {
            region.users.fetch_sub(1, Ordering::Release);
        });
    }
}
