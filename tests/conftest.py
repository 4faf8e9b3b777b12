"""Fixtures that every test may use."""

import gc
import os
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

# Shapes and types in signatures are checked at every call while the tests run: of the inner modules, because at the public
# surface the messages under test are our own.
INNER = (
    *("base", "blocks", "coordinates", "dual", "exact", "lasso", "moments", "primal", "running", "terms", "trainer"),
    "whitening",
)
install_import_hook(
    [
        "zerovar.families.base",
        "zerovar.operators",
        "zerovar.std_errors",
        "zerovar.solvers.training",
        *(f"zerovar.solvers.{name}" for name in INNER),
    ],
    "beartype.beartype",
)


# Tracing makes many small objects that live long: looking for cycles among them takes a few hundredths of the time.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported lives to the end


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with `data/` (real data and posteriors) and `golden/` (values of the R package ZVCV)."""
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
    """JAX's precision is the user's global setting: zerovar works in double inside its own context only."""
    yield
    assert jax.config.jax_enable_x64 is False, "jax_enable_x64 was left on: zerovar must not change it globally"


@pytest.fixture
def x64():
    """Double precision for a test that calls JAX functions itself."""
    with jax.enable_x64(True):
        yield
