"""The infinitesimal jackknife: how posterior means would vary with other data of the same kind."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64

from ..output.sensitivities import Jackknife
from .covariances import Covariances, Estimates


def jackknife(
    found: Covariances, observed: Bool[np.ndarray, " k"], names: tuple[str, ...]
) -> Jackknife:
    """Return Σ_i (ψ_i − ψ̄)(ψ_i − ψ̄)ᵀ over the observations, ψ_i the covariances of the values with
    the log-likelihood of the i-th, less what errors of the ψ_i add to it, and its error."""
    value, error = _quadratic(found.controlled, found, observed)
    plain, plain_error = _quadratic(found.plain, found, observed)
    return Jackknife(names, int(observed.sum()), value, error, plain, plain_error)


def _quadratic(
    estimates: Estimates, found: Covariances, observed: Bool[np.ndarray, " k"]
) -> tuple[Float64[np.ndarray, "q q"], Float64[np.ndarray, "q q"]]:
    """C G Cᵀ by estimates C of covariances with components, and G the squares of how these are
    mixed. Its expectation is larger by the trace of G and the errors' covariance; the variance has
    a part that is linear in the errors, and one that is quadratic, as of normal ones."""
    mixing = found.basis.mixing[observed]
    mixing = mixing - mixing.mean(axis=0)
    rest, off = found.rest[:, observed], found.rest_error[:, observed]
    rest = rest - rest.mean(axis=1, keepdims=True)
    gram, joint = mixing.T @ mixing, estimates.covariance
    whole = estimates.value @ mixing.T + rest
    noise = np.einsum("rc,arbc->ab", gram, joint)
    value = whole @ whole.T - noise
    slope = whole @ mixing  # of C_a G C_b in C_a, and the other way round
    linear = np.einsum("br,arac,bc->ab", slope, joint, slope, optimize=True)
    linear = linear + linear.T
    linear += 2 * np.einsum("br,arbc,ac->ab", slope, joint, slope, optimize=True)
    spread = np.einsum("rs,asbt->arbt", gram, joint)
    quadratic = np.einsum("arat,btbr->ab", spread, spread, optimize=True)
    quadratic = quadratic + np.einsum("arbt,atbr->ab", spread, spread, optimize=True)
    beyond = 2 * (whole**2 @ off.T**2 + off**2 @ whole.T**2)
    return value, np.sqrt(np.maximum(linear + quadratic + beyond, 0.0))
