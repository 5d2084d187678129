"""Maps of atomic files: what is stored in them between two ``flush()`` is one unit."""

from __future__ import annotations

import math
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from . import _famio
from ._files import Settings, AnyPath

if TYPE_CHECKING:
    import numpy

PAGE = 4096


class Region(_famio.Map):
    """A map of an atomic file, with the buffer protocol: ``memoryview(region)``, ``numpy.frombuffer(region)``,
    ``region[a:b]``.

    ``length``: bytes to map; by default as far as the file goes. ``offset``: where in the file it begins, a multiple of
    4096. ``mode``: ``"r"``: for reading; ``"r+"``: for writing, which with a ``length`` creates the file if necessary;
    ``"w+"``: creates or empties the file. A file for writing is made as long as the region; one for reading has to be
    (``ValueError``). Other arguments, and ``OSError``, as for ``open()``.

    Stores are durable with the next ``flush()``, of this or another map, or ``sync()`` of the file. Closing, like the
    end of a ``with``, raises ``BufferError`` while an array or a ``memoryview`` uses the memory. To cut the file below
    the end of a region that is in use crashes the process, as with ``mmap``.
    """

    name: AnyPath
    offset: int

    def __new__(
        cls,
        path: AnyPath,
        length: int | None = None,
        *,
        offset: int = 0,
        mode: Literal["r", "r+", "w+"] = "r+",
        permissions: int = 0o666,
        **settings: Unpack[Settings],
    ) -> Self:
        if mode not in ("r", "r+", "w+"):
            raise ValueError(f"mode must be 'r', 'r+' or 'w+', not {mode!r}")
        if offset < 0 or offset % PAGE:
            raise ValueError(f"offset must be a multiple of {PAGE}")
        if length is not None and length <= 0:
            raise ValueError("length must be positive")
        writable = mode != "r"
        file = _famio.File(
            path,
            read_only=not writable,
            create=writable and (length is not None or mode == "w+"),
            truncate=mode == "w+",
            permissions=permissions,
            **settings,
        )
        try:
            end = offset + length if length is not None else file.size()
            if end <= offset:
                raise ValueError("cannot map an empty range: give a length")
            if end > file.size():
                if not writable:
                    raise ValueError("the region would end behind the file's end")
                file.set_size(end)
            self = super().__new__(cls, file.map(offset, end - offset, writable))
        finally:
            file.close()  # the map keeps it open
        self.name = path
        self.offset = offset
        return self

    def __getitem__(self, key: int | slice) -> Any:
        with memoryview(self) as view:
            found = view[key]
            return found if isinstance(found, int) else bytes(found)

    def __setitem__(self, key: int | slice, value: Any) -> None:
        with memoryview(self) as view:
            view[key] = value

    @property
    def buffer(self) -> _famio.Map:
        """The region itself, for programs from when only this attribute had the buffer protocol, before Python 3.12."""
        return self

    def flush(self) -> None:
        """All stores so far, and all writes to the file, are durable, as a whole, when this returns.

        Raises ``OSError`` as ``sync()`` of a file.
        """
        super().flush()

    sync = flush

    def close(self) -> None:
        """Gives up the map. If nothing else in the process has the file open, syncs what was stored."""
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()


def memmap(
    filename: AnyPath,
    dtype: Any = "uint8",
    mode: Literal["r", "r+", "w+"] = "r+",
    offset: int = 0,
    shape: int | tuple[int, ...] | None = None,
    order: Literal["C", "F"] = "C",
    **settings: Unpack[Settings],
) -> numpy.ndarray[Any, Any]:
    """An array in an atomic file: as ``numpy.memmap``, but ``flush()`` makes all that was stored durable as a whole.

    ``offset`` is any number of bytes. Without ``shape``: one dimension, as far as the file goes; ``ValueError`` with
    mode ``"w+"``, or if that is no whole number of items. ``mode`` and ``settings``: as for ``Region``.
    """
    from ._numpy import Array

    return Array._open(filename, dtype, mode, offset, shape, order, settings)


def _bytes(shape: tuple[int, ...], itemsize: int) -> int:
    return math.prod(shape) * itemsize


def _size(path: AnyPath, *, writable: bool, **settings: Unpack[Settings]) -> int:
    """Bytes of a file once it is recovered: a crash may have left more."""
    file = _famio.File(path, read_only=not writable, **settings)
    try:
        return file.size()
    finally:
        file.close()
