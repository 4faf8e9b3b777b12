"""With how many digits numbers came in, and the floor that leaves under an error."""

import numpy as np
import pytest
from problems import quadratic

from zerovar.statistics.rounding import Rounding

X = np.random.default_rng(0).normal(size=(400, 2))


def written(column, form):
    return np.array([float(format(x, form)) for x in column])


@pytest.mark.parametrize(
    ("column", "size", "single"),
    [
        (70 + X[:, 0], 0.0, False),
        ((70 + X[:, 0]).astype(np.float32), 2.0**-24 * 72, True),
        (written(70 + X[:, 0], ".4f"), 5e-5, False),
        (written(1e-5 * (70 + X[:, 0]), ".6g"), 5e-10, False),
        (
            written(np.exp(20 * X[:, 0]), ".7e"),
            10 ** np.floor(20 * X[:, 0].max() / np.log(10)) * 5e-8,
            False,
        ),
        (np.round(9 * X[:, 0]), 0.0, False),
        (X[:, 0] > 0, 0.0, False),
        (np.full(400, 0.1), 0.0, False),
        (written(X[:, 0], ".16g"), 0.0, False),
    ],
    ids=[
        "double",
        "single",
        "4 decimals",
        "6 digits",
        "8 digits",
        "integers",
        "events",
        "constant",
        "16 digits",
    ],
)
def test_digits_are_recognised(column, size, single):
    rounding = Rounding.of(np.asarray(column, np.float64)[:, None])
    np.testing.assert_allclose(rounding.size[0], size, rtol=0.1)
    assert rounding.single[0] == single


def test_errors_are_not_below_the_rounding_of_values():
    """f is linear, and known to rounding otherwise; in single precision and cut off, so that all
    errors have one sign."""
    double = 73.3 + X[:, 0]
    f = double.astype(np.float32)
    f = np.where(f > double, np.nextafter(f, np.float32(0)), f)
    answer = quadratic(X, -X, {"f": f})
    assert abs(answer.value[0] - 73.3) < 3 * answer.std_error[0]
    assert 4e-6 < answer.std_error[0] < 6e-6
    assert "f: the digits of the input limit it, for the values came in single precision" in str(
        answer
    )
    assert quadratic(X, -X, {"f": 73.3 + X[:, 0]}).std_error[0] < 1e-11, (
        "in double precision nothing binds"
    )


def test_few_digits_of_text_leave_calibrated_errors():
    """z of means of rounded values, draws and scores: a spread that is about 1, or less, over 60
    samples."""
    rng = np.random.default_rng(1)
    z = []
    for _ in range(60):
        x = 0.7 * rng.normal(size=(200, 3))
        few = np.round(x, 2)
        answer = quadratic(few, np.round(-x / 0.49, 2), few[:, 0])
        z.append(answer.value[0] / answer.std_error[0])
    assert 0.3 < np.std(z) < 1.4
    assert np.abs(z).max() < 4


def test_digits_of_draws_and_scores_bind_too():
    """Scores in single precision may all lean to one side; draws that were only stored so average
    out."""
    single = X.astype(np.float32)
    computed = quadratic(X, -single, X[:, 0])
    assert computed.error_reasons[0].startswith("the scores came in single precision")
    assert 5e-8 < computed.std_error[0] < 1e-6
    single = (0.7 * X).astype(np.float32).astype(np.float64)
    stored = quadratic(single, -single / 0.49, single[:, 0] / 3)
    assert stored.error_reasons[0].startswith("draws or scores came with few digits")
    assert stored.std_error[0] < computed.std_error[0] / 5
