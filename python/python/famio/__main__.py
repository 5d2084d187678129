"""``python -m famio``: the famio command that came with the package, or else the one of the PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def main() -> int:
    """Becomes the command."""
    own = Path(__file__).parent / "bin" / "famio"
    command = str(own) if own.exists() else shutil.which("famio")
    if command is None:
        print("famio: the command is not in this package, and not in the PATH: install Famio", file=sys.stderr)
        return 127
    os.execv(command, ["famio", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
