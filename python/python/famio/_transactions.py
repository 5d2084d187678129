"""Transactions on atomic files."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from . import _famio


class _Flushed(Protocol):
    @property
    def closed(self) -> bool: ...
    def flush(self) -> None: ...


class _Joinable(_Flushed, Protocol):
    """What ``famio.open()`` returns for bytes with ``+`` in the mode, or without a buffer."""

    @property
    def _file(self) -> _famio.File: ...


class TransactionFile:
    """One of the files of a transaction. Offsets and sizes are in bytes.

    All calls raise ``OSError`` with ``ETIMEDOUT`` after the time limit, and ``ECHILD`` in a forked child;
    ``ValueError`` after the end of the transaction.
    """

    def __init__(self, transaction: _famio.Transaction, number: int = 0) -> None:
        self._transaction = transaction
        self._number = number

    def read(self, length: int, offset: int) -> bytes:
        """Reads at an offset; fewer bytes at the end of the file.

        Raises ``BlockingIOError`` with ``check``, if what it has read has changed.
        """
        return self._transaction.read(length, offset, self._number)

    def write(self, data: ReadableBuffer, offset: int) -> int:
        """Writes all of the data at an offset, at the commit; returns its length."""
        with memoryview(data).cast("B") as view:
            return self._transaction.write(view, offset, self._number)

    def truncate(self, size: int) -> int:
        """Sets the size of the file, at the commit."""
        self._transaction.set_size(size, self._number)
        return size

    @property
    def size(self) -> int:
        """Bytes of the file, with the transaction's own changes."""
        return self._transaction.size(self._number)


class Transaction(TransactionFile):
    """Changes of files that are committed as a whole or not at all; made by ``transaction()`` of an atomic file.

    As a context manager it commits at the end of the block, and aborts if the block raises. What it writes stays in
    memory until its commit, and no other reader sees it; it reads the contents of the files, with its own writes over
    them. Any number may be open at once. Source: vNVML (CCF THPC 2020), sections 3 and 4.
    """

    def __init__(self, transaction: _famio.Transaction, file: _Flushed) -> None:
        super().__init__(transaction)
        self._files = [file]

    def join(self, file: _Joinable) -> TransactionFile:
        """Adds a file of the same folder or pool, owner, group and permissions: the commit changes all or none.

        The result reads and writes that file. Raises ``OSError`` with ``EINVAL`` after ``sync=False``.
        """
        file.flush()
        number = self._transaction.join(file._file)
        self._files.append(file)
        return TransactionFile(self._transaction, number)

    @property
    def ended(self) -> bool:
        """Whether it was committed or aborted."""
        return self._transaction.ended

    def commit(self) -> None:
        """Commits: durable as a whole when this returns, with all that was written to the file before (unless
        ``sync=False``). What is still in the buffer of a file is written after the commit, and not durable yet.

        Raises ``BlockingIOError`` (``EAGAIN``) with ``check``, if what it read or overwrote has changed: try again.
        ``OSError`` with ``ENOSPC``, ``ETIMEDOUT`` and the like leaves the file as it was, and so does ``EXDEV`` if
        joined files differ in pool, owner, group or permissions; after ``EIO`` the file accepts no more writes, and,
        opened again, has all of the transaction or nothing.
        """
        self._flush()  # what was written before goes along
        self._transaction.commit()
        self._flush()  # what buffers have read ahead is of before

    def _flush(self) -> None:
        for file in self._files:
            if not file.closed:
                file.flush()

    def abort(self) -> None:
        """Discards its writes. Has no effect on a transaction that has ended."""
        self._transaction.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort()
        elif not self.ended:
            self.commit()
