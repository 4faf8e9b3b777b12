"""Files are written whole or not at all; what is no file, such as a pipe, is written through."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_pending: set[Path] = set()  # temporaries that a process which is told to stop must remove


def discard_pending() -> None:
    """Remove what is half-written: for handlers of signals that end the process at once."""
    for path in list(_pending):
        path.unlink(missing_ok=True)


def destination(path: Path) -> tuple[Path, int | None]:
    """Return where writing to `path` ends, links followed, and the mode that the file will have:
    None for a pipe or device.

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


@contextmanager
def atomic(target: Path) -> Iterator[Path]:
    """Give a temporary path that replaces `target` if the block ends well, and vanishes if not.

    Links stay, and what they lead to is replaced; a file keeps its mode; a pipe or device is
    written through at the end.
    """
    end, mode = destination(target)
    # None: where the system has temporary files
    folder = None if mode is None else end.parent
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{end.name}.", suffix=target.suffix)
    os.close(handle)
    temporary = Path(name)
    _pending.add(temporary)
    try:
        yield temporary
        if mode is None:
            with open(temporary, "rb") as content, open(end, "wb") as node:
                shutil.copyfileobj(content, node)
        else:
            os.chmod(temporary, mode)  # mkstemp makes files private
            os.replace(temporary, end)
    finally:
        temporary.unlink(missing_ok=True)
        _pending.discard(temporary)
