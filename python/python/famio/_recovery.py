"""Recovery of files, folders and pools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import _famio
from ._files import AnyPath

Outcome = Literal[
    "nothing to do", "clean", "recovered", "kept", "discarded", "conflict", "failed", "unexamined", "in use"
]


@dataclass(frozen=True)
class Recovery:
    """The result for one journal."""

    file: Path
    journal: Path | None
    """``None`` if no journal is known, as for a file that only grew."""
    outcome: Outcome
    epoch: int
    """The number of the last sync; 0 if there was none."""
    bytes: int
    """Bytes copied between the journal and the file."""
    why: str | None
    """The reason for ``conflict``, ``failed`` and ``unexamined``."""
    cut: int | None = None
    """For a file that grew without a journal: bytes after its last sync, which were cut off."""

    @property
    def ok(self) -> bool:
        """Whether nothing is left to do; in a dry run, whether the recovery would succeed."""
        return self.outcome not in ("conflict", "failed", "unexamined", "in use")


def recover(
    path: AnyPath,
    *,
    dry_run: bool = False,
    use: Literal["journal", "file"] | None = None,
    pool: AnyPath | None = None,
    shm: AnyPath | None = None,
) -> list[Recovery]:
    """Brings a file, or all below a folder or in a pool, to the last sync, and returns a result for each journal.

    ``dry_run``: changes nothing, and returns what would be done. ``use``: which side counts in a conflict, where the
    file was changed by another program after the crash; by default nothing is changed then. ``pool``, ``shm``: as in
    ``Settings``.

    Raises ``OSError`` if the path itself cannot be accessed; an error of a file is in its ``Recovery``. ``ValueError``
    for another ``use``.
    """
    found = _famio.recover(path, dry_run=dry_run, winner=use, pool=pool, shm=shm)
    return [
        Recovery(
            Path(entry["file"]),
            Path(entry["journal"]) if entry["journal"] is not None else None,
            entry["outcome"],
            entry["epoch"],
            entry["bytes"],
            entry["why"],
            entry["cut"],
        )
        for entry in found
    ]
