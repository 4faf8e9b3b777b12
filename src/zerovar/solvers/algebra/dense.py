"""Small dense steps of LAPACK, and groups of rows that are left out of a fit together."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import scipy

from .memory import SAMPLE

EPS = np.finfo(np.float64).eps
# What a sum of so many products does not tell from zero, relative to its terms: directions of no
# more than that have no coefficient, and solutions are refined that know fewer digits.
ROUNDING = SAMPLE * EPS
# The smallest pivot, at unit diagonal, that a factor of second moments is used with. A solution by
# it is wrong by ε over the pivot, and one step of refinement squares that: here it is as small as
# the pivot again. What adds less to others counts as part of them.
SINGULAR = np.square(np.cbrt(EPS))
Groups = Sequence[np.ndarray]  # of row numbers


def gram_rounding(n: int, diagonal: float) -> float:
    """Return what rounding may do to the smallest eigenvalue of an n × n Gram with this mean
    diagonal, ten times over: a ridge that large always suffices."""
    return 10 * n * EPS * diagonal


def economic_qr(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return Q and R of columns brought to unit length first, and whether they are independent to
    rounding."""
    lengths = np.linalg.norm(columns, axis=0)
    orthonormal, triangle = scipy.linalg.qr(columns / lengths, mode="economic", check_finite=False)
    independent = np.abs(triangle.diagonal()).min() > len(columns) * EPS
    return orthonormal, triangle * lengths, bool(independent)


def pivoted_cholesky(matrix: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return R and the pivots of a Cholesky factorisation with complete pivoting, stopped where the
    rest is below the tolerance."""
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(
        np.asfortranarray(matrix), tol=tolerance, lower=0
    )
    return np.triu(factor[:rank, :rank]), pivots[:rank] - 1


def triangular_inverse(triangle: np.ndarray) -> np.ndarray:
    return scipy.linalg.lapack.dtrtri(triangle, lower=0)[0]


def solve_group(
    block: np.ndarray, right: np.ndarray, otherwise: np.ndarray, smallest: float = 0.0
) -> np.ndarray:
    """block⁻¹ right for the positive block of a group that is left out, or `otherwise` where it is
    singular.

    It is singular when the remaining draws do not determine the fit. Nothing can then be predicted
    for the group, and its residuals are those without a control variate, the honest large ones.
    """
    factor, info = scipy.linalg.lapack.dpotrf(block, lower=1)
    if info or factor.diagonal().min() ** 2 < smallest:
        return otherwise
    return scipy.linalg.lapack.dpotrs(factor, right, lower=1)[0]


def pack_groups(groups: Groups, most: int) -> Iterator[tuple[np.ndarray, list[slice]]]:
    """Yield whole groups together, up to `most` rows or one group: their row numbers, and where
    each group is among them."""
    waiting: list[np.ndarray] = []
    for k, group in enumerate(groups):
        waiting.append(group)
        if k + 1 == len(groups) or sum(map(len, waiting)) + len(groups[k + 1]) > most:
            ends = np.cumsum([0, *map(len, waiting)])
            yield np.concatenate(waiting), [slice(*pair) for pair in pairwise(ends)]
            waiting = []
