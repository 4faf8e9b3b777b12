"""Fixtures that every test may use."""

import gc
import os
from pathlib import Path

import jax
import pytest
from jaxtyping import config, install_import_hook

# Shapes and types in signatures are checked at every call while the tests run, but for the modules
# that users call: there the messages under test are our own.
SOURCE = Path(__file__).parent.parent / "src" / "zerovar"
SURFACE = {
    *(
        "",
        "__main__",
        "arguments",
        "cli",
        "inputs.coordinates",
        "estimation",
        "fitting",
        "inputs.integrands",
        "kernels",
        "objectives",
        "operators",
        "spaces.grid",
        "spaces.manifolds",
        "inputs.sample",
        "inference.splits",
        "distributions.calls",
        "evidences.calls",
        "evidences.feet",
        "evidences.ladders",
        "evidences.sampling",
        "probabilities",
        "sensitivities.asking",
        "sensitivities.calls",
        "summaries",
        "variables",
    ),
    *(
        "adapters",
        "chunked.arrays",
        "chunked.estimate",
        "choice.automatic",
        "choice.request",
        "diagnostics.checks",
        "integration.means",
        "io",
        "output",
        "tuning.criteria",
        "tuning.tuned",
    ),
    *(
        f"families.{name}"
        for name in (
            "anisotropic",
            "kernel",
            "metrics",
            "network",
            "polynomial",
            "ridge_functions",
            "sparse_polynomial",
            "wavelets",
        )
    ),
    *(
        f"solvers.{name}"
        for name in ("exact.centres", "exact.solver", "iterative.solver", "screening.solver")
    ),
    *(f"solvers.training.{name}" for name in ("schedules", "solver")),
}


def checked_modules() -> list[str]:
    """Every module of zerovar whose signatures are checked."""
    paths = [path.relative_to(SOURCE).with_suffix("") for path in sorted(SOURCE.rglob("*.py"))]
    names = [".".join(path.parts).removesuffix("__init__").removesuffix(".") for path in paths]
    surface = {
        name: any(name == part or (part and name.startswith(f"{part}.")) for part in SURFACE)
        for name in names
    }
    # a hook on one would be on all that is in it
    packages = {name.rpartition(".")[0] for name in names}
    return [f"zerovar.{name}" for name in names if not surface[name] and name not in packages]


install_import_hook(checked_modules(), "beartype.beartype")


# Tracing makes many small objects that live long: looking for cycles among them takes a few
# hundredths of the time.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported lives to the end


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with `data/` (real data and posteriors) and `golden/` (values of the R package
    ZVCV)."""
    name = os.environ.get("ZEROVAR_DATA")
    if not name:
        pytest.skip("set ZEROVAR_DATA to the folder that holds data/ and golden/ to run this test")
    folder = Path(name)
    # Whoever sets the variable means these tests to run: a wrong path must not pass as a skip.
    for needed in (folder, folder / "data", folder / "golden"):
        if not needed.is_dir():
            pytest.fail(f"ZEROVAR_DATA is {name!r}, but {needed} is not a folder")
    return folder


@pytest.fixture(autouse=True)
def _global_precision_untouched():
    """JAX's precision is the user's global setting: zerovar works in double inside its own context
    only."""
    yield
    assert jax.config.jax_enable_x64 is False, (
        "jax_enable_x64 was left on: zerovar must not change it globally"
    )


# Whole calls, and properties of many examples, again and again: they take up to twice as long with
# every signature checked, and the tests of single pieces check the same signatures
WHOLE_CALLS = {
    "automatic",
    "countable",
    "distributions",
    "docs",
    "estimate",
    "golden",
    "ladder",
    "paper",
    "posteriors",
    "regression",
    "rules",
    "summary",
    "tails",
}


@pytest.fixture(autouse=True)
def _whole_calls_are_not_checked(request):
    replicates = "calibrated" in request.node.name
    config.update(
        "jaxtyping_disable",
        replicates or request.module.__name__.removeprefix("test_") in WHOLE_CALLS,
    )
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def x64():
    """Double precision for a test that calls JAX functions itself."""
    with jax.enable_x64(True):
        yield
