"""Files are written whole or not at all."""

import os
import tempfile
from pathlib import Path

_pending: set[Path] = set()  # temporaries that a process which is told to stop must remove


def discard_pending() -> None:
    """Remove what is half-written: for handlers of signals that end the process at once."""
    for path in list(_pending):
        path.unlink(missing_ok=True)


class atomic:
    """A temporary path beside `target` that replaces it if the block ends well, and vanishes if not."""

    def __init__(self, target: Path):
        self._target = target

    def __enter__(self) -> Path:
        handle, name = tempfile.mkstemp(
            dir=self._target.parent or ".", prefix=f".{self._target.name}.", suffix=self._target.suffix
        )
        os.close(handle)
        self._temporary = Path(name)
        _pending.add(self._temporary)
        return self._temporary

    def __exit__(self, kind, error, trace) -> None:
        try:
            if kind is None:
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)  # mkstemp makes files private; the user asked for an ordinary one
                os.replace(self._temporary, self._target)
        finally:
            self._temporary.unlink(missing_ok=True)
            _pending.discard(self._temporary)
