"""The array of ``famio.memmap``; imported where numpy is there."""

from __future__ import annotations

from typing import Any

import numpy

from ._files import Settings, AnyPath
from ._region import PAGE, Region, _bytes, _size


class Array(numpy.ndarray[Any, Any]):
    """An array in an atomic file."""

    _region: Region | None
    filename: AnyPath | None
    offset: int
    mode: str

    @classmethod
    def _open(
        cls,
        filename: AnyPath,
        dtype: Any,
        mode: Any,
        offset: int,
        shape: int | tuple[int, ...] | None,
        order: Any,
        settings: Settings,
    ) -> Array:
        kind = numpy.dtype(dtype)
        if shape is None:
            if mode == "w+":
                raise ValueError("shape must be given if mode == 'w+'")
            whole, rest = divmod(_size(filename, writable=mode != "r", **settings) - offset, kind.itemsize)
            if rest:
                raise ValueError("size of available data is not a multiple of the data-type size")
            dimensions: tuple[int, ...] = (whole,)
        else:
            dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        start = offset // PAGE * PAGE
        length = offset - start + _bytes(dimensions, kind.itemsize)
        region = Region(filename, length, offset=start, mode=mode, **settings)
        array = numpy.ndarray.__new__(cls, dimensions, kind, memoryview(region), offset - start, order=order)
        array._region, array.filename, array.offset, array.mode = region, filename, offset, mode
        return array

    def __array_finalize__(self, other: Any) -> None:
        # A view of it flushes the same file; a copy has none.
        shares = isinstance(other, Array) and numpy.may_share_memory(self, other)
        self._region = other._region if shares else None
        self.filename = other.filename if shares else None
        self.offset = other.offset if shares else 0
        self.mode = other.mode if shares else ""

    def flush(self) -> None:
        """All that was stored is durable, as a whole, when this returns. Does nothing for a copy in memory."""
        if self._region is not None:
            self._region.flush()
