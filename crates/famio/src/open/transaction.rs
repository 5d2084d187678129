//! Transactions for Rust.

use super::AtomicFile;
use crate::error::Result;
use crate::file::UserBuf;
use crate::transaction::Transaction;
use core::marker::PhantomData;
use core::time::Duration;

/// A transaction on an [`AtomicFile`]: changes that are [committed](Self::commit) as a whole, or never happen.
/// Dropping it aborts it.
///
/// Writes stay in memory until the commit and are invisible elsewhere. Reads show what [`AtomicFile::read_at`] shows,
/// overlaid with the transaction's own writes. A transaction holds no lock: any number may be open at once, in all
/// threads and processes.
///
/// ```
/// # fn main() -> Result<(), famio::Error> {
/// # let path = format!("/dev/shm/famio-doc-tx-{}", std::process::id());
/// let file = famio::AtomicFile::options().create(true).open(&path)?;
/// file.write_at(&[100, 0], 0)?;
///
/// loop {
///     let mut tx = file.transaction()?;
///     tx.check()?; // fail if what it reads has changed by the commit
///     let mut accounts = [0; 2];
///     tx.read_at(&mut accounts, 0)?;
///     tx.write_at(&[accounts[0] - 10], 0)?;
///     tx.write_at(&[accounts[1] + 10], 1)?;
///     match tx.commit() {
///         Err(e) if e.errno() == libc::EAGAIN => {} // another transaction was first: try again
///         committed => break committed?,
///     }
/// }
/// let mut accounts = [0; 2];
/// file.read_at(&mut accounts, 0)?;
/// assert_eq!(accounts, [90, 10]); // durable, both or none
/// file.close()?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// # What is promised
///
/// - *Atomicity.* After a crash or a kill, the file has all of a transaction or nothing of it. A read, by any thread
///   or process, also shows all or nothing of it, unless the file is mapped for writing: then its ranges appear one
///   after the other.
/// - *Durability.* When `commit` returns, the transaction survives whatever a [SYNC](AtomicFile::sync) survives. The
///   commit is a SYNC of the file: it also makes durable what was written to it without a transaction. Concurrent
///   commits share SYNCs.
/// - *Isolation.* With [`check`](Self::check), transactions are serializable. Without it, the last commit wins. A
///   commit is visible to other threads and processes a moment before it is durable; if one of them commits something
///   that depends on it, that becomes durable only together with it.
/// - *Space.* A commit first reserves space for all of it: after `ENOSPC`, the file is unchanged.
///
/// Transactions do not nest: a transaction that begins while another one is open is independent of it. A transaction
/// may move to another thread, but only one thread at a time uses it.
///
/// Source: vNVML (CCF THPC 2020), sections 3 and 4; the check is that of optimistic concurrency control (Kung and
/// Robinson, 1981).
pub struct Tx<'a> {
    transaction: Transaction,
    file: &'a AtomicFile,
    /// Used by one thread at a time.
    _not_shared: PhantomData<core::cell::Cell<()>>,
}

impl AtomicFile {
    /// Begins a transaction.
    ///
    /// # Errors
    /// `EBADF`: the file was opened for reading only. `ECHILD`: in a forked child.
    pub fn transaction(&self) -> Result<Tx<'_>> {
        self.may_write()?;
        let transaction = Transaction::begin(&self.file, false)?;
        Ok(Tx { transaction, file: self, _not_shared: PhantomData })
    }
}

impl Tx<'_> {
    /// Makes the commit fail with `EAGAIN` if anything that the transaction has read or overwritten was changed from
    /// outside it. Must be called before it reads or writes.
    ///
    /// Changes are detected per block of 4096 bytes: those by other transactions since this one began, and other
    /// writes since this one first touched the block. A write by this thread outside the transaction counts as well.
    /// Stores through maps count when a SYNC takes them up. Some blocks count as changed although their bytes are
    /// not: a block that was only moved, and all blocks of a file whose journal ends and begins again meanwhile (the
    /// file was renamed, or is changed in turn with a process that cannot share it). So repeat a commit that fails.
    ///
    /// As far as transactions are concerned, all reads of such a transaction show the file at one moment; a read that
    /// would not fails with `EAGAIN`.
    ///
    /// # Errors
    /// `EINVAL`: it has already read or written. Those of a first write ([`AtomicFile::write_at`]), since the file
    /// gets its journal here. `EOPNOTSUPP`: the file was demoted. `ETIMEDOUT`. `ECHILD`: in a forked child.
    pub fn check(&mut self) -> Result<()> {
        self.transaction.check()
    }

    /// Adds a file to the transaction: [`commit`](Self::commit) then commits the changes of all its files, or none;
    /// also after a crash, whichever file is opened first, and even if one of them no longer exists. [`on`](Self::on)
    /// reads and writes the file.
    ///
    /// The files must lie in one pool (without a setting: in one folder), and have the same owner, group and
    /// permissions. The commit takes one flush more than the files' own SYNCs: it first writes the changes to a
    /// record in the pool.
    ///
    /// ```
    /// # fn main() -> Result<(), famio::Error> {
    /// # let path = |name| format!("/dev/shm/famio-doc-join-{name}-{}", std::process::id());
    /// let mut options = famio::AtomicFile::options();
    /// options.create(true);
    /// let (orders, stock) = (options.open(path("orders"))?, options.open(path("stock"))?);
    ///
    /// let mut tx = orders.transaction()?;
    /// tx.join(&stock)?;
    /// tx.write_at(b"one chair", 0)?;
    /// tx.on(&stock).write_at(b"41 chairs", 0)?;
    /// tx.commit()?; // both or none
    /// # orders.close()?;
    /// # stock.close()?;
    /// # ["orders", "stock"].map(|name| std::fs::remove_file(path(name)).unwrap());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EBADF`: the file was opened for reading only. `EINVAL`: [`no_sync`](Self::no_sync) was called. `ETIMEDOUT`.
    /// `ECHILD`: in a forked child. If the transaction [checks](Self::check): those of a first write.
    pub fn join(&mut self, file: &AtomicFile) -> Result<()> {
        file.may_write()?;
        self.transaction.join(&file.file)
    }

    /// Access to a file of the transaction: its own, or one that has [joined](Self::join). For another file, each call
    /// fails with `EXDEV`.
    pub fn on<'t>(&'t mut self, file: &'t AtomicFile) -> TxFile<'t> {
        TxFile { transaction: &mut self.transaction, file }
    }

    fn own(&mut self) -> TxFile<'_> {
        TxFile { transaction: &mut self.transaction, file: self.file }
    }

    /// Makes the commit no SYNC: the changes become part of the open epoch, as a whole, and are durable after the
    /// next SYNC or commit. Impossible with several files (`EINVAL` from [`join`](Self::join) or the commit). Has no
    /// effect with [`Atomicity::Write`](crate::Atomicity::Write).
    pub fn no_sync(&mut self) {
        self.transaction.set_durable(false);
    }

    /// Ends the transaction this long from now: later calls fail with `ETIMEDOUT`, and its writes are dropped.
    /// `None`, the default: no limit.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.transaction.set_time_limit(limit);
    }

    /// Reads from `offset`, including the transaction's own writes; returns fewer bytes than asked for at the end of
    /// the file.
    ///
    /// # Errors
    /// Those of [`AtomicFile::read_at`]. `EAGAIN`: it [checks](Self::check), and what it has read has changed.
    /// `ETIMEDOUT`. `ECHILD`: in a forked child.
    pub fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        self.own().read_at(bytes, offset)
    }

    /// Writes all of `bytes` at `offset`; in memory until the commit.
    ///
    /// # Errors
    /// `ENOMEM`. `EFBIG`: beyond the largest possible file. `ETIMEDOUT`. `ECHILD`: in a forked child. If the
    /// transaction [checks](Self::check): those of a first write.
    #[inline]
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.transaction.write_slice(&self.file.file, offset, bytes).map_err(|e| self.file.file.named(e))
    }

    /// Sets the file's length, at the commit. New bytes are zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&mut self, len: u64) -> Result<()> {
        self.own().set_len(len)
    }

    /// The file's length, including the transaction's own changes.
    ///
    /// # Errors
    /// `ETIMEDOUT`. `ECHILD`: in a forked child.
    pub fn len(&mut self) -> Result<u64> {
        self.transaction.size(&self.file.file)
    }

    /// Whether the length is 0.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    pub fn is_empty(&mut self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Commits the transaction: on return it is durable as a whole, with everything that was written to the file
    /// before (unless [`no_sync`](Self::no_sync) was called).
    ///
    /// # Errors
    /// `EAGAIN`: it [checks](Self::check), and what it read or overwrote has changed. `ENOSPC`, `EDQUOT`, `EFBIG`,
    /// `ENOMEM`: there is no space for all of it. `EBUSY`: another process owns the file and does not hand it over.
    /// `EOPNOTSUPP`: the file was demoted. `ETIMEDOUT`. `ECHILD`: in a forked child. With several files: `EXDEV`: they
    /// are not in one pool, or differ in owner, group or mode; `E2BIG`: more than 1 GiB; `EINVAL`:
    /// [`no_sync`](Self::no_sync) was called; `EBADF`: one of them was closed; `EOPNOTSUPP`: one of them belongs to a
    /// [group](crate::Settings::group). After these, the file is unchanged. `EIO`: it cannot be made durable; the file
    /// takes no more writes, and, opened again, has all of the transaction or nothing of it. Or the SYNC of the file's
    /// group failed for another reason, which the message names: the transaction is part of the open epoch then.
    pub fn commit(self) -> Result<()> {
        self.transaction.commit()
    }
}

impl core::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tx").field("file", self.file).finish_non_exhaustive()
    }
}

/// Access to one of the files of a [transaction](Tx).
///
/// # Errors
/// Those of [`Tx`]. `EXDEV`: the file has not [joined](Tx::join).
pub struct TxFile<'t> {
    transaction: &'t mut Transaction,
    file: &'t AtomicFile,
}

impl TxFile<'_> {
    /// As [`Tx::read_at`].
    ///
    /// # Errors
    /// Those of [`Tx::read_at`].
    pub fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        // SAFETY: a buffer of the caller's, which is borrowed.
        unsafe { self.transaction.read(&self.file.file, offset, UserBuf::of(bytes)) }
            .map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::write_at`].
    ///
    /// # Errors
    /// Those of [`Tx::write_at`].
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.transaction.write_slice(&self.file.file, offset, bytes).map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::set_len`].
    ///
    /// # Errors
    /// Those of [`Tx::set_len`].
    pub fn set_len(&mut self, len: u64) -> Result<()> {
        self.transaction.set_size(&self.file.file, len).map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::len`].
    ///
    /// # Errors
    /// Those of [`Tx::len`].
    pub fn len(&mut self) -> Result<u64> {
        self.transaction.size(&self.file.file).map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::is_empty`].
    ///
    /// # Errors
    /// Those of [`Tx::is_empty`].
    pub fn is_empty(&mut self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }
}

impl core::fmt::Debug for TxFile<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TxFile").field("file", self.file).finish_non_exhaustive()
    }
}
