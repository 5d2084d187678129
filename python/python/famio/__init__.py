"""Files whose changes between two syncs are durable as a whole or, after a crash, gone as a whole.

``open()`` is like the built-in and gives files with a method ``sync()``, and ``transaction()`` for binary files that
are read and written; ``Region`` and ``memmap`` map files; ``recover()`` brings files to their last sync. ``python -m
famio run`` runs an unmodified program with atomic files.
"""

from __future__ import annotations

from ._famio import __version__
from ._files import AtomicBuffered, AtomicRaw, AtomicText, open
from ._recovery import Recovery, recover
from ._region import Region, memmap
from ._transactions import Transaction, TransactionFile

__all__ = [
    "AtomicBuffered",
    "AtomicRaw",
    "AtomicText",
    "Recovery",
    "Region",
    "Transaction",
    "TransactionFile",
    "__version__",
    "memmap",
    "open",
    "recover",
]
