//! Transactions for Rust.

use super::AtomicFile;
use crate::error::Result;
use crate::file::UserBuf;
use crate::transaction::Transaction;
use core::marker::PhantomData;
use core::time::Duration;

/// A transaction on an [`AtomicFile`]: changes that are [committed](Self::commit) as a whole, or never happen. Dropped, it is aborted.
///
/// What it writes stays in memory until its commit; nobody else sees it. It reads what [`AtomicFile::read_at`] shows, with its own
/// writes over that. It holds no lock: any number may be open at once, in all threads and processes.
///
/// ```
/// # fn main() -> Result<(), famio::Error> {
/// # let path = format!("/dev/shm/famio-doc-tx-{}", std::process::id());
/// let file = famio::AtomicFile::options().create(true).open(&path)?;
/// file.write_at(&[100, 0], 0)?;
///
/// loop {
///     let mut tx = file.transaction()?;
///     tx.check()?; // fail, if what it reads has changed by the commit
///     let mut accounts = [0; 2];
///     tx.read_at(&mut accounts, 0)?;
///     tx.write_at(&[accounts[0] - 10], 0)?;
///     tx.write_at(&[accounts[1] + 10], 1)?;
///     match tx.commit() {
///         Err(e) if e.errno() == libc::EAGAIN => {} // somebody else was first: try again
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
/// - *Atomicity.* After a crash or a kill the file has all of a transaction or nothing of it. A read, by any thread or process, shows
///   all of it or nothing of it, too, unless the file is mapped for writing: then the ranges appear one after the other.
/// - *Durability.* When `commit` returns, what a [SYNC](AtomicFile::sync) survives the transaction survives. The commit is a SYNC of
///   the file: it also makes durable what was written to it without a transaction. Commits that run at the same time share SYNCs.
/// - *Isolation.* With [`check`](Self::check) transactions are serializable. Without it the last commit wins. A commit is visible to
///   others a moment before it is durable; who acts on it by a commit of their own is durable only together with it.
/// - *Space.* A commit makes room for all of it first: `ENOSPC` leaves the file as it was.
///
/// Transactions don't nest: one that is begun while another is open is independent of it.
///
/// Source: vNVML (CCF THPC 2020), sections 3 and 4; the check is that of optimistic concurrency control (Kung and Robinson, 1981).
pub struct Tx<'a> {
    transaction: Transaction,
    file: &'a AtomicFile,
    /// It is of one thread at a time.
    _not_shared: PhantomData<core::cell::Cell<()>>,
}

impl AtomicFile {
    /// Begins a transaction.
    ///
    /// # Errors
    /// `EBADF`: the file was opened for reading. `ECHILD`: in a forked child.
    pub fn transaction(&self) -> Result<Tx<'_>> {
        self.may_write()?;
        let transaction = Transaction::begin(&self.file, false)?;
        Ok(Tx { transaction, file: self, _not_shared: PhantomData })
    }
}

impl Tx<'_> {
    /// Its commit is to fail with `EAGAIN` if what it read or overwrote has been changed by somebody else. To be said before it reads or
    /// writes.
    ///
    /// "Changed" is told by blocks of 4096 bytes: by a transaction, since this one began; by a write without one, since this one first
    /// touched the block. A write by this thread without the transaction is somebody else's. Stores through maps count when a SYNC
    /// takes them up. A block that was only moved, and whatever happens to a file whose journal ends and begins anew meanwhile (it was renamed,
    /// or is changed in turn with a process that can't share it), counts as changed, too: a commit that fails is to be tried again.
    ///
    /// Reads of such a transaction are of one moment as far as transactions are concerned: one that would not be fails with `EAGAIN`.
    ///
    /// # Errors
    /// `EINVAL`: it has read or written already. Those of a first write ([`AtomicFile::write_at`]), since the file gets its journal here.
    pub fn check(&mut self) -> Result<()> {
        self.transaction.check()
    }

    /// One more file takes part: [`commit`](Self::commit) commits the changes of all of them, or none; after a crash, too, whichever file is
    /// opened first, and if one of them is gone. [`on`](Self::on) reads and writes it.
    ///
    /// The files lie in one pool (without a setting: in one folder), and have one owner, one group and the same permissions. It takes
    /// one flush more than the files' own SYNCs: the changes go to a record in the pool first.
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
    /// `EBADF`: the file was opened for reading. `EINVAL`: [`no_sync`](Self::no_sync) was called. `ETIMEDOUT`. `ECHILD`: in a forked child.
    pub fn join(&mut self, file: &AtomicFile) -> Result<()> {
        file.may_write()?;
        self.transaction.join(&file.file)
    }

    /// The part of a file that takes part.
    pub fn on<'t>(&'t mut self, file: &'t AtomicFile) -> TxFile<'t> {
        TxFile { transaction: &mut self.transaction, file }
    }

    fn own(&mut self) -> TxFile<'_> {
        TxFile { transaction: &mut self.transaction, file: self.file }
    }

    /// Its commit is not to be a SYNC: it becomes part of the open epoch, as a whole, and is durable with the next SYNC or commit.
    pub fn no_sync(&mut self) {
        self.transaction.set_durable(false);
    }

    /// It ends by itself when so much time has passed from now on: later calls fail with `ETIMEDOUT`, and what it has written is
    /// forgotten. `None`, as at its beginning: it does not.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.transaction.set_time_limit(limit);
    }

    /// Reads from `offset` on, with its own writes; fewer bytes than asked for at the end of the file.
    ///
    /// # Errors
    /// Those of [`AtomicFile::read_at`]. `EAGAIN`: it [checks](Self::check), and what it has read has changed. `ETIMEDOUT`. `ECHILD`: in a
    /// forked child.
    pub fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        self.own().read_at(bytes, offset)
    }

    /// Writes all of `bytes` at `offset`, in memory until the commit.
    ///
    /// # Errors
    /// `ENOMEM`. `EFBIG`: beyond what a file may have. `ETIMEDOUT`. `ECHILD`: in a forked child.
    #[inline]
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.transaction.write_slice(&self.file.file, offset, bytes).map_err(|e| self.file.file.named(e))
    }

    /// Makes the file so long, at the commit. What is new shows zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&mut self, len: u64) -> Result<()> {
        self.own().set_len(len)
    }

    /// The bytes that the file has, with its own changes.
    ///
    /// # Errors
    /// `ETIMEDOUT`. `ECHILD`: in a forked child.
    pub fn len(&mut self) -> Result<u64> {
        self.transaction.size(&self.file.file)
    }

    /// Whether the file has none.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    pub fn is_empty(&mut self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Commits it: when this returns it is durable as a whole, with all that was written to the file before.
    ///
    /// # Errors
    /// `EAGAIN`: it [checks](Self::check), and what it read or overwrote has changed. `ENOSPC`, `EDQUOT`, `EFBIG`, `ENOMEM`: there is no room
    /// for all of it. `ETIMEDOUT`. `ECHILD`: in a forked child. The file is as it was then. `EIO`: it can't be made durable; the file takes no
    /// more writes, and when it is opened again has all of it or nothing. `EOPNOTSUPP`: the file was handed back to the kernel. Of several
    /// files: `EXDEV`, they are not in one pool, or not of one owner, group and mode; `E2BIG`: more than 1 GiB.
    pub fn commit(self) -> Result<()> {
        self.transaction.commit()
    }
}

impl core::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tx").field("file", self.file).finish_non_exhaustive()
    }
}

/// What a [transaction](Tx) does to one of the files that take part in it.
///
/// # Errors
/// Of its methods: as those of [`Tx`]. `EXDEV`: the file has not [joined](Tx::join).
pub struct TxFile<'t> {
    transaction: &'t mut Transaction,
    file: &'t AtomicFile,
}

impl TxFile<'_> {
    /// As [`Tx::read_at`].
    ///
    /// # Errors
    /// See there.
    pub fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> Result<usize> {
        // SAFETY: a buffer of the caller's, which is borrowed.
        unsafe { self.transaction.read(&self.file.file, offset, UserBuf::of(bytes)) }
            .map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::write_at`].
    ///
    /// # Errors
    /// See there.
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.transaction.write_slice(&self.file.file, offset, bytes).map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::set_len`].
    ///
    /// # Errors
    /// See there.
    pub fn set_len(&mut self, len: u64) -> Result<()> {
        self.transaction.set_size(&self.file.file, len).map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::len`].
    ///
    /// # Errors
    /// See there.
    pub fn len(&mut self) -> Result<u64> {
        self.transaction.size(&self.file.file).map_err(|e| self.file.file.named(e))
    }

    /// As [`Tx::is_empty`].
    ///
    /// # Errors
    /// See there.
    pub fn is_empty(&mut self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }
}

impl core::fmt::Debug for TxFile<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TxFile").field("file", self.file).finish_non_exhaustive()
    }
}
