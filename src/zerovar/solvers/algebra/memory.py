"""Where numbers live, and how much memory there is to work in."""

import os

import jax

# of what is free that one array may take; other programs want the host's, too
_SHARE, _SHARE_OF_DEVICE = 0.5, 0.8


def on_host() -> bool:
    """Whether JAX has no accelerator, so that its arrays and NumPy's share memory."""
    return jax.default_backend() == "cpu"


def room() -> int:
    """Bytes that one array may take on the default device."""
    stats = None if on_host() else jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(
            (stats["bytes_limit"] - stats.get("bytes_in_use", 0))
            * len(jax.local_devices())
            * _SHARE_OF_DEVICE
        )
    return int(_free_on_host() * _SHARE)


def _free_on_host() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(
                1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (ValueError, OSError, AttributeError):
            return 4 * 2**30
