"""Compiled programs that are kept between processes, for those who ask for it."""

import hashlib
import os
import platform
from pathlib import Path

import jax
import jaxlib

from ..arguments import PATH, takes

# Programs that take less to compile are compiled again: reading one from a file takes as long.
_WORTH_SECONDS = 0.03


@takes(folder=PATH)
def keep_compiled(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keep what JAX compiles in this process, and load what earlier processes kept: the first call
    then starts at once.

    folder: by default `zerovar` among the user's caches (`$XDG_CACHE_HOME`, or `~/.cache`). In it
        each version of JAX, platform and processor has a folder of its own, which nobody else may
        read or write, since programs in it are run.

    Returns that folder; delete it at any time. A program that cannot be read is compiled again.
    This changes JAX's settings for the whole process, so that your own programs are kept as well;
    where a folder is already set for JAX, that one is used.
    """
    given = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if given:
        return Path(given)
    base = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zerovar"
        if folder is None
        else Path(folder)
    )
    found = (
        base / f"jax-{jax.__version__}-{jaxlib.__version__}-{jax.default_backend()}-{_processor()}"
    )
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = found.stat()
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise PermissionError(
            f"{found} belongs to another user, or others may write to it, and what is in it would "
            "be run. Give another folder, or make it private: chmod 700"
        )
    jax.config.update("jax_compilation_cache_dir", str(found))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_SECONDS)
    return found


def _processor() -> str:
    """Return a short name of what the processor can do: programs for another one may stop with an
    illegal instruction."""
    try:
        lines = set(Path("/proc/cpuinfo").read_text().splitlines())
        kinds = ("flags", "Features", "model name", "CPU part")
        features = sorted(line for line in lines if line.startswith(kinds))
    except OSError:
        features = [platform.processor()]
    return f"{platform.machine()}-{hashlib.sha256(repr(features).encode()).hexdigest()[:12]}"
