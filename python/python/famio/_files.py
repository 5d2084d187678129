"""Atomic files as Python's own: raw, buffered and text."""

from __future__ import annotations

import errno
import io
import os
import threading
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from . import _famio
from ._transactions import Transaction

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Settings(TypedDict, total=False):
    """How a file is protected. The first open of a file in a process decides.

    ``durability``: ``"power"`` (the default) or ``"process"``: what a sync has to survive. ``policy``: ``"auto"`` (the
    default), ``"undo"``, ``"redo"`` (Libnvmmio) or ``"alternate"`` (LAWN): where writes go, in a journal in place.
    ``on_kill``: ``"rollback"`` (the default) or ``"keep"``: what happens to writes that no sync covers if the process
    is killed. ``pool``: the folder of the journals, by default ``.famio/`` beside the file. ``shm``: the folder on
    tmpfs in which processes share memory, by default ``/dev/shm``; one for a process. Any other value is a
    ``ValueError``.
    """

    durability: Literal["power", "process"]
    policy: Literal["auto", "undo", "redo", "alternate"]
    on_kill: Literal["rollback", "keep"]
    pool: AnyPath | None
    shm: AnyPath | None


class AtomicRaw(io.RawIOBase):
    """An atomic file without a buffer: the raw file below what ``open()`` gives."""

    def __init__(self, path: AnyPath, mode: str = "rb", *, permissions: int = 0o666, **settings: Unpack[Settings]) -> None:
        kinds = [kind for kind in mode if kind in "rwxa"]
        if len(kinds) != 1 or set(mode) - set("rwxab+") or len(set(mode)) != len(mode):
            raise ValueError(f"invalid mode: {mode!r}")
        (kind,) = kinds
        self.name = path
        self.mode = mode
        self._position = 0
        # The file's calls let other threads run: without it, two of these would write at one position. A signal handler may
        # interrupt its own thread in a call.
        self._moves = threading.RLock()
        self._readable = kind == "r" or "+" in mode
        self._writable = kind != "r" or "+" in mode
        self._appends = kind == "a"
        self._file = _famio.File(
            path,
            read_only=not self._writable,
            create=kind in "wa",
            exclusive=kind == "x",
            truncate=kind == "w",
            permissions=permissions,
            **settings,
        )
        if self._appends:
            self._position = self._file.size()

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(f"not {what}")

    def readable(self) -> bool:
        """Whether it was opened for reading."""
        self._check(True, "")
        return self._readable

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        self._check(True, "")
        return self._writable

    def seekable(self) -> bool:
        """Always true."""
        self._check(True, "")
        return True

    def fileno(self) -> int:
        """Raises ``io.UnsupportedOperation``: ``os.fsync`` would bypass the library. Use ``sync()``."""
        raise io.UnsupportedOperation("an atomic file has no descriptor to use; there is sync()")

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Reads into a buffer and returns the number of bytes."""
        self._check(self._readable, "readable")
        with memoryview(buffer).cast("B") as view, self._moves:
            done = self._file.read_into(view, self._position)
            self._position += done
        return done

    def readall(self) -> bytes:
        """Reads up to the end of the file."""
        self._check(self._readable, "readable")
        with self._moves:
            data = self._file.read(max(self._file.size() - self._position, 0), self._position)
            self._position += len(data)
        return data

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes all of the data; a crash before ``sync()`` undoes it."""
        self._check(self._writable, "writable")
        with memoryview(data).cast("B") as view, self._moves:
            if self._appends:
                self._position = self._file.append(view) + len(view)
                return len(view)
            done = self._file.write(view, self._position)
            self._position += done
        return done

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves the position."""
        self._check(True, "")
        with self._moves:
            base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size()}.get(whence)
            if base is None:
                raise ValueError(f"invalid whence: {whence!r}")
            if base + offset < 0:
                raise ValueError(f"negative seek position {base + offset}")
            self._position = base + offset
            return self._position

    def tell(self) -> int:
        """The position."""
        self._check(True, "")
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the size, by default to the current position. A crash before ``sync()`` undoes it."""
        self._check(self._writable, "writable")
        size = self._position if size is None else size
        if size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._file.set_size(size)
        return size

    def sync(self) -> None:
        """All writes so far are durable, as a whole, when this returns.

        Raises ``OSError`` with ``EIO`` if that fails: the file then takes no more writes, and, opened again, is as at
        this sync or the one before.
        """
        self._check(True, "")
        self._file.sync()

    def transaction(self, *, check: bool = False, sync: bool = True, timeout: float | None = None) -> Transaction:
        """Begins a transaction: changes that are committed as a whole or not at all.

        ``check``: its commit fails with ``BlockingIOError`` if another transaction or call has changed what it read or
        overwrote. ``sync=False``: its commit is not a sync of the file, and durable with the next. ``timeout``: seconds
        from now after which it is aborted (``ETIMEDOUT``); ``ValueError`` if negative.
        """
        self._check(self._writable, "writable")
        return Transaction(self._file.transaction(check=check, sync=sync, timeout=timeout), self)

    def close(self) -> None:
        """Closes the file. The last object or map of the file in this process syncs what was written.

        If other processes have the file open for writing, they sync it instead. Raises ``OSError`` (``EIO``) if it
        could not be synced; the file is closed all the same.
        """
        if not self.closed:
            try:
                super().close()
            finally:
                self._file.close()


class AtomicBuffered(io.BufferedRandom):
    """An atomic file of bytes, which is read and written."""

    raw: AtomicRaw

    @property
    def _file(self) -> _famio.File:
        return self.raw._file

    def sync(self) -> None:
        """All writes so far are durable, as a whole, when this returns."""
        self.flush()
        self.raw.sync()

    def transaction(self, *, check: bool = False, sync: bool = True, timeout: float | None = None) -> Transaction:
        """Begins a transaction: changes that are committed as a whole or not at all.

        The buffer is written to the file first. Arguments as for ``AtomicRaw.transaction``.
        """
        self.flush()
        raw = self.raw.transaction(check=check, sync=sync, timeout=timeout)
        return Transaction(raw._transaction, self)


class _Reader(io.BufferedReader):
    def sync(self) -> None:
        self.raw.sync()  # type: ignore[attr-defined]


class _Writer(io.BufferedWriter):
    def sync(self) -> None:
        self.flush()
        self.raw.sync()  # type: ignore[attr-defined]


class AtomicText(io.TextIOWrapper):
    """An atomic file of text."""

    def sync(self) -> None:
        """All writes so far are durable, as a whole, when this returns."""
        self.flush()
        self.buffer.sync()  # type: ignore[attr-defined]


@overload
def open(
    file: AnyPath,
    mode: Literal["r", "w", "x", "a", "r+", "w+", "x+", "a+", "rt", "wt", "xt", "at", "r+t", "w+t", "x+t", "a+t"] = ...,
    buffering: int = ...,
    encoding: str | None = ...,
    errors: str | None = ...,
    newline: str | None = ...,
    *,
    permissions: int = ...,
    **settings: Unpack[Settings],
) -> AtomicText: ...
@overload
def open(
    file: AnyPath,
    mode: Literal["r+b", "w+b", "x+b", "a+b", "rb+", "wb+", "xb+", "ab+"],
    buffering: Literal[-1] = ...,
    *,
    permissions: int = ...,
    **settings: Unpack[Settings],
) -> AtomicBuffered: ...
@overload
def open(
    file: AnyPath,
    mode: Literal["rb"],
    buffering: Literal[-1] = ...,
    *,
    permissions: int = ...,
    **settings: Unpack[Settings],
) -> _Reader: ...
@overload
def open(
    file: AnyPath,
    mode: Literal["wb", "xb", "ab"],
    buffering: Literal[-1] = ...,
    *,
    permissions: int = ...,
    **settings: Unpack[Settings],
) -> _Writer: ...
@overload
def open(
    file: AnyPath,
    mode: str,
    buffering: int = ...,
    encoding: str | None = ...,
    errors: str | None = ...,
    newline: str | None = ...,
    *,
    permissions: int = ...,
    **settings: Unpack[Settings],
) -> Any: ...
def open(
    file: AnyPath,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    permissions: int = 0o666,
    **settings: Unpack[Settings],
) -> Any:
    """Opens an atomic file: as the built-in ``open()``, with a method ``sync()`` of what it gives.

    All that is written between two ``sync()`` is durable as a whole, or gone as a whole after a crash. The last close
    in the process syncs. A journal that a crash left is recovered here. ``permissions``: those of a file that is made,
    less the umask. ``settings``: see ``Settings``.

    Text gives an ``AtomicText``; bytes with ``+`` an ``AtomicBuffered``, and without a buffer an ``AtomicRaw``: these
    two have ``transaction()``.

    Raises ``OSError``: as the built-in; ``EINVAL`` if it is not a regular file; ``EBUSY`` under ``famio run``, or if
    the file is to be emptied, and another process has it and keeps it; ``EIO`` if its journal cannot be used. The first
    write raises ``EOPNOTSUPP`` if the file system is not supported.
    """
    if isinstance(file, int):
        raise TypeError("an atomic file is opened by its path, not by a descriptor")
    binary, text = "b" in mode, "t" in mode
    if binary and text:
        raise ValueError("can't have text and binary mode at once")
    if binary and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    if buffering == 0 and not binary:
        raise ValueError("can't have unbuffered text I/O")
    # As the built-in, before the file is touched.
    if newline not in (None, "", "\n", "\r", "\r\n"):
        raise ValueError(f"illegal newline value: {newline!r}")
    raw = AtomicRaw(file, mode.replace("t", ""), permissions=permissions, **settings)
    if buffering == 0:
        return raw
    try:
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffered: IO[bytes]
        if "+" in mode:
            buffered = AtomicBuffered(raw, size)
        elif raw.writable():
            buffered = _Writer(raw, size)
        else:
            buffered = _Reader(raw, size)
        if binary:
            return buffered
        lines = AtomicText(buffered, io.text_encoding(encoding), errors, newline, line_buffering=buffering == 1)
        lines.mode = mode  # type: ignore[misc]
        return lines
    except BaseException:
        raw.close()
        raise
