"""Files are written whole or not at all; what is no file, such as a pipe, is written through."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

_pending: set[Path] = set()  # temporaries that a process which is told to stop must remove


def discard_pending() -> None:
    """Remove what is half-written: for handlers of signals that end the process at once."""
    for path in list(_pending):
        path.unlink(missing_ok=True)


def destination(path: Path) -> tuple[Path, int | None]:
    """Where writing to `path` ends, links followed, and the mode that the file will have: None for
    a pipe or device.

    Raises an OSError if it cannot be written.
    """
    try:
        found = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        found = None
    is_file = found is None or stat.S_ISREG(found)
    # a pipe in /dev/fd has no other name than its link
    end = Path(os.path.realpath(path)) if is_file else path
    if not end.parent.is_dir() or not (
        is_file or stat.S_ISFIFO(found or 0) or stat.S_ISCHR(found or 0)
    ):
        raise FileNotFoundError(
            f"{path} cannot be written: it must be a file in a folder that exists"
        )
    # root has access to what is protected too
    open_to_us = found is None or (found & 0o222 and os.access(path, os.W_OK))
    if not open_to_us or (is_file and not os.access(end.parent, os.W_OK)):
        raise PermissionError(
            f"{path} cannot be written: it or its folder is write-protected; name another file"
        )
    if found is None:
        mask = os.umask(0)
        os.umask(mask)
        return end, 0o666 & ~mask
    return end, stat.S_IMODE(found) if is_file else None


class atomic:
    """A temporary path that replaces `target` if the block ends well, and vanishes if not.

    Links stay, and what they lead to is replaced; a file keeps its mode; a pipe or device is
    written through at the end.
    """

    def __init__(self, target: Path):
        self._target = target

    def __enter__(self) -> Path:
        self._end, self._mode = destination(self._target)
        # None: where the system has temporary files
        folder = None if self._mode is None else self._end.parent
        handle, name = tempfile.mkstemp(
            dir=folder, prefix=f".{self._end.name}.", suffix=self._target.suffix
        )
        os.close(handle)
        self._temporary = Path(name)
        _pending.add(self._temporary)
        return self._temporary

    def __exit__(self, kind, error, trace) -> None:
        try:
            if kind is None and self._mode is not None:
                os.chmod(self._temporary, self._mode)  # mkstemp makes files private
                os.replace(self._temporary, self._end)
            elif kind is None:
                with open(self._temporary, "rb") as content, open(self._end, "wb") as node:
                    shutil.copyfileobj(content, node)
        finally:
            self._temporary.unlink(missing_ok=True)
            _pending.discard(self._temporary)
