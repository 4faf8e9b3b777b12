"""Where numbers live, how much memory there is to work in, and how fast the machine is."""

import os

import jax

# Of what is free on a host one array may take so much: the rest is for copies, and for other
# programs, as it is not ours alone.
_SHARE = 0.5
# Of what is free on an accelerator, which is ours alone: the rest is for copies.
_DEVICE_SHARE = 0.8
# Columns that a matrix is multiplied with at once: worth the call, and small. A sketch of as many
# knows a leverage to a fourth; padded to a multiple of them, folds share compiled programs.
COLUMNS = 32
# Draws that a mean square is estimated from, where all of them would be too many, or batches that a
# standard error is: it is then known to a few per cent.
SAMPLE = 4096
# What a core does a second (`benchmarks/scale.py`): flops of LAPACK, of skinny products, and
# entries of a Gram.
CORE = {"multiply": 1.5e10, "stream": 7e9, "pair": 4e7}
# What an accelerator does, by the same measurement.
ACCELERATOR = {"multiply": 3e13, "stream": 4e12, "pair": 1e10}


def on_host() -> bool:
    """Return whether JAX has no accelerator, so that its arrays and NumPy's share memory."""
    return jax.default_backend() == "cpu"


def room() -> int:
    """Return how many bytes one array may take on the default device."""
    stats = None if on_host() else jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(
            (stats["bytes_limit"] - stats.get("bytes_in_use", 0))
            * len(jax.local_devices())
            * _DEVICE_SHARE
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
