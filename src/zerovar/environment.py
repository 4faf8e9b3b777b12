"""The version of zerovar, its one place, and the machine that it runs on: what a report and a bug
report say of both."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator

__version__ = "0.1.0"

_REQUIRED = (
    "jax",
    "jaxlib",
    "equinox",
    "folx",
    "jaxtyping",
    "optax",
    "numpy",
    "scipy",
    "arviz-stats",
    "rich",
    "threadpoolctl",
)
_OPTIONAL = (
    "arviz",
    "blackjax",
    "dask",
    "matplotlib",
    "numpyro",
    "nutpie",
    "pandas",
    "pymc",
    "xarray",
    "zarr",
)
_IN_REPORTS = ("jax", "equinox", "optax", "numpy", "scipy", "arviz-stats")
# Variables of the shell that change what is computed, or how fast; no others are shown, as they may
# be private
_SETTINGS = (
    "JAX_ENABLE_X64",
    "JAX_PLATFORMS",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DISABLE_JIT",
    "XLA_FLAGS",
    "CUDA_VISIBLE_DEVICES",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)


def versions() -> dict[str, str]:
    """Return what a page that others read says of the software: zerovar, the packages it computes
    with, Python, the machine."""
    return {
        "zerovar version": __version__,
        **{f"{name} version": _version(name) for name in _IN_REPORTS},
        "Python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def describe_environment() -> str:
    """Return what a bug report needs, a line each: versions, platform, devices of JAX, threads of
    BLAS, settings of the shell."""
    lines = list(_lines())
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _lines() -> Iterator[tuple[str, str]]:
    import jax
    import scipy.linalg  # noqa: F401  its BLAS is loaded with it, and only then listed
    from threadpoolctl import threadpool_info

    yield "zerovar", __version__
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "platform", platform.platform()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "processors", f"{usable} of {os.cpu_count()}"
    for name in (*_REQUIRED, *_OPTIONAL):
        yield name, _version(name)
    devices = (f"{device.platform}:{device.id} ({device.device_kind})" for device in jax.devices())
    yield "devices", ", ".join(devices)
    single = "single by default (zerovar computes in double)"
    yield "precision", "double by default" if jax.config.read("jax_enable_x64") else single
    for pool in threadpool_info():
        yield (
            pool["user_api"],
            f"{pool['internal_api']} {pool['version'] or '(no version)'}, threads: "
            f"{pool['num_threads']}",
        )
    for name in _SETTINGS:
        if name in os.environ:
            yield name, os.environ[name]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except ImportError:
        return "not installed"
