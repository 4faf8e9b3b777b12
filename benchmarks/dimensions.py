"""Hundreds and thousands of parameters: plates of groups whose answers are known, and logistic
regressions.

A plate has normal observations in groups, μ, τ and σ unknown, in non-centred coordinates (μ, log τ,
log σ, z). Given τ and σ it is conjugate: draws are exact, by rejection in two dimensions, and so
are the means, by quadrature there.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import zerovar as zv
from zerovar.families import Family

from .harness import peak_begun_anew, peak_gigabytes, print_table, workers
from .samples import normal

_EACH = 8  # observations a group
_TAILS = 6  # degrees of freedom of the proposal
_PRIOR = {"mu": 5.0, "tau": 2.0, "sigma": 2.0}  # scales of a normal and two half-normal priors
Chosen = Family | zv.Automatic
FAMILIES: dict[str, Chosen] = {
    "linear": zv.Polynomial(1),
    "linear + squares": zv.SparsePolynomial(2, terms=0),
    "SparsePolynomial(2)": zv.SparsePolynomial(2),
    "SparsePolynomial(3)": zv.SparsePolynomial(3),
    "default call": zv.Automatic(progress=False),
}
_SLOWNESS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9)  # ρ of AR(1)


class Plate:
    """Data of `groups` groups made with a fixed seed, and its posterior."""

    def __init__(self, groups: int, tau: float = 0.8, sigma: float = 1.5):
        rng = np.random.default_rng(0)
        data = (1 + tau * rng.normal(size=groups))[:, None] + sigma * rng.normal(
            size=(groups, _EACH)
        )
        self.means = data.mean(axis=1)
        self.within = float(np.sum((data - self.means[:, None]) ** 2))
        self._centre, self._factor = self._laplace(np.log([tau, sigma]))
        line = np.linspace(-12, 12, 401)
        self._grid = np.stack([part.ravel() for part in np.meshgrid(line, line, indexing="ij")])
        density = self.log_density(self._centre[:, None] + self._factor @ self._grid)
        self._bound = float((density - self._proposal(self._grid)).max()) + 1e-3
        self._probabilities = np.exp(density - density.max())
        self._probabilities /= self._probabilities.sum()

    def log_density(self, scales: np.ndarray) -> np.ndarray:
        """Of log τ and log σ (2, …), the others integrated out."""
        tau2, sigma2 = np.exp(2 * scales)
        variance = tau2 + sigma2 / _EACH
        precision, mean = self._location(variance)
        groups = len(self.means)
        data = -0.5 * groups * np.log(variance) - 0.5 * np.log(precision)
        data += -0.5 * ((self.means @ self.means) / variance - precision * mean**2)
        data += -groups * (_EACH - 1) * scales[1] - 0.5 * self.within / sigma2
        return (
            data
            - 0.5 * tau2 / _PRIOR["tau"] ** 2
            - 0.5 * sigma2 / _PRIOR["sigma"] ** 2
            + scales.sum(axis=0)
        )

    def exact(self, groups: int) -> np.ndarray:
        """Means of μ, τ, σ and some group means."""
        scales = self._centre[:, None] + self._factor @ self._grid
        tau, sigma = np.exp(scales)
        variance = tau**2 + sigma**2 / _EACH
        mu, shrunk = self._location(variance)[1], tau**2 / variance
        found = [mu, tau, sigma, *(mu + shrunk * (mean - mu) for mean in self.means[:groups])]
        return np.array([self._probabilities @ value for value in found])

    def draws(self, n: int, seed: int, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Independent draws (n, d) and scores, and μ, τ, σ and some group means at them."""
        rng = np.random.default_rng(seed)
        kept = np.empty((2, 0))
        while kept.shape[1] < n:
            u = rng.normal(size=(2, 4 * n)) / np.sqrt(rng.chisquare(_TAILS, 4 * n) / _TAILS)
            scales = self._centre[:, None] + self._factor @ u
            taken = (
                np.log(rng.random(4 * n))
                < self.log_density(scales) - self._proposal(u) - self._bound
            )
            kept = np.concatenate([kept, scales[:, taken]], axis=1)
        log_tau, log_sigma = kept[:, :n]
        tau, sigma2 = np.exp(log_tau), np.exp(2 * log_sigma)
        precision, mean = self._location(tau**2 + sigma2 / _EACH)
        mu = mean + rng.normal(size=n) / np.sqrt(precision)
        sharp = 1 + _EACH * tau**2 / sigma2
        z = (_EACH * tau / sigma2 / sharp)[:, None] * (self.means - mu[:, None])
        z += rng.normal(size=z.shape) / np.sqrt(sharp)[:, None]
        effects = mu[:, None] + tau[:, None] * z
        pull = _EACH * (self.means - effects) / sigma2[:, None]
        errors = self.within + _EACH * np.sum((self.means - effects) ** 2, axis=1)
        scores = np.column_stack(
            [
                pull.sum(axis=1) - mu / _PRIOR["mu"] ** 2,
                tau * np.sum(pull * z, axis=1) - tau**2 / _PRIOR["tau"] ** 2 + 1,
                errors / sigma2 - _EACH * len(self.means) - sigma2 / _PRIOR["sigma"] ** 2 + 1,
                tau[:, None] * pull - z,
            ]
        )
        values = np.column_stack([mu, tau, np.sqrt(sigma2), effects[:, :groups]])
        return np.column_stack([mu, log_tau, log_sigma, z]), scores, values

    def _location(self, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precision and mean of μ given the scales."""
        precision = 1 / _PRIOR["mu"] ** 2 + len(self.means) / variance
        return precision, self.means.sum() / variance / precision

    def _laplace(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from scipy.optimize import minimize

        def loss(scales: np.ndarray) -> float:
            return -float(self.log_density(scales[:, None])[0])

        centre = minimize(
            loss, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}
        ).x
        step = 1e-3 * np.eye(2)
        curvature = [
            [
                sum(
                    a * b * loss(centre + a * step[i] + b * step[j])
                    for a in (-1, 1)
                    for b in (-1, 1)
                )
                / 4e-6
                for j in (0, 1)
            ]
            for i in (0, 1)
        ]
        return centre, np.linalg.cholesky(1.2 * np.linalg.inv(curvature))

    @staticmethod
    def _proposal(u: np.ndarray) -> np.ndarray:
        return -(_TAILS + 2) / 2 * np.log1p(np.sum(u**2, axis=0) / _TAILS)


class Found(NamedTuple):
    """Gains by the reported errors, the median over chains; how many answers lie within 1.96
    errors; seconds a call."""

    case: str
    chains: int
    median: float
    mu: float
    tau: float
    sigma: float
    covered: float | None
    seconds: float
    gigabytes: float


def plates(
    groups: int, families: dict[str, Chosen], chains: int, n: int = 4000, effects: int = 20
) -> Iterator[Found]:
    """Families on a plate, 4 chains of n/4 draws each time; whole calls, checks and R-hat
    included."""
    plate = Plate(groups)
    truth = plate.exact(effects)
    for name, family in families.items():
        gains, within, seconds, size = [], [], [], 0.0
        for seed in range(chains):
            x, s, f = (array.reshape(4, n // 4, -1) for array in plate.draws(n, seed, effects))
            peak_begun_anew()
            started = time.perf_counter()
            answer = zv.estimate(x, s, f, family=family)
            seconds.append(time.perf_counter() - started)
            size = max(size, peak_gigabytes())
            gains.append(answer.gain)
            within.append(np.abs(answer.value - truth) < 1.96 * answer.std_error)
        each = np.median(gains, axis=0)
        case = f"{groups} groups, {3 + effects} integrands, {name}"
        covered = float(np.mean(within))
        yield Found(
            case,
            chains,
            float(np.median(each)),
            *map(float, each[:3]),
            covered,
            float(np.median(seconds)),
            size,
        )


def regression(
    d: int, n: int, key: int = 0, observations: int = 1000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws (4, n/4, d) by NUTS and scores of a logistic regression with priors N(0, 1), and its
    coefficients and 20 probabilities at them; `key` is that of the chains."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    rng = np.random.default_rng(0)
    design = rng.normal(size=(observations, d)) / np.sqrt(d)
    labels = rng.random(observations) < 1 / (1 + np.exp(-design @ rng.normal(size=d) * 2))

    def potential(beta: jax.Array) -> jax.Array:
        odds = design @ beta
        return jnp.sum(jnp.logaddexp(0.0, odds) - labels * odds) + 0.5 * jnp.sum(beta**2)

    options = {
        "num_warmup": 300,
        "num_samples": n // 4,
        "num_chains": 4,
        "chain_method": "vectorized",
        "progress_bar": False,
    }
    mcmc = MCMC(NUTS(potential_fn=potential), **options)
    mcmc.run(jax.random.key(key), init_params=jnp.zeros((4, d)))
    draws = mcmc.get_samples(group_by_chain=True)
    posterior = zv.from_log_density(lambda beta: -potential(beta), np.asarray(draws), chain_axis=0)
    points = rng.normal(size=(20, d)) / np.sqrt(d)
    probabilities = 1 / (1 + np.exp(-posterior.draws @ points.T))
    return (
        posterior.draws,
        posterior.scores,
        np.concatenate([posterior.draws, probabilities], axis=-1),
    )


def regressions(sizes: tuple[tuple[int, int], ...]) -> Iterator[Found]:
    for d, n in sizes:
        x, s, f = regression(d, n)
        for name in ("linear", "SparsePolynomial(3)", "default call"):
            yield _timed(
                f"logistic, d = {d}, {n} draws, {d + 20} integrands, {name}",
                x,
                s,
                f,
                FAMILIES[name],
            )


def answers(job: tuple[int, int, int]) -> np.ndarray:
    """Of the plain mean, a linear control variate and the default call, (3, q), on draws with a key
    of their own."""
    x, s, f = regression(*job)
    linear, chosen = (
        zv.estimate(x, s, f, family=FAMILIES[name]) for name in ("linear", "default call")
    )
    return np.stack([chosen.plain_value, linear.value, chosen.value])


def realised(d: int, n: int, runs: int, processes: int | None = None) -> tuple[float, float]:
    """Medians over the integrands of a logistic regression: the gain of a linear control variate
    and of the default call, by the scatter of their answers over runs of NUTS."""
    with workers(processes) as pool:
        found = np.stack(pool.map(answers, [(d, n, key) for key in range(runs)], chunksize=1))
    plain, linear, chosen = found.var(axis=0, ddof=1)
    return float(np.median(plain / linear)), float(np.median(plain / chosen))


def slow_chains(d: int, n: int, slowness: tuple[float, ...]) -> Iterator[Found]:
    """The default call on four chains of AR(1) draws of N(0, I): gains must fall smoothly as chains
    get slower."""
    for rho in slowness:
        x = normal(np.random.default_rng(0), 4, n // 4, d, rho)
        yield _timed(
            f"AR({rho:g}), d = {d}, {n} draws, 10 of e^(x/2)",
            x,
            -x,
            np.exp(x[..., :10] / 2),
            FAMILIES["default call"],
        )


def _timed(case: str, x: np.ndarray, s: np.ndarray, f: np.ndarray, family: Chosen) -> Found:
    started = time.perf_counter()
    answer = zv.estimate(x, s, f, family=family)
    spent = time.perf_counter() - started
    return Found(case, 1, float(np.median(answer.gain)), *3 * (float("nan"),), None, spent, 0.0)


def rows(quick: bool) -> Iterator[Found]:
    """Every case, as it is done."""
    default = {"default call": FAMILIES["default call"]}
    if quick:
        yield from plates(20, {"SparsePolynomial(3)": FAMILIES["SparsePolynomial(3)"]}, 1, 400, 5)
        return
    yield from plates(300, FAMILIES, 5)
    yield from plates(300, default, 1, effects=300)
    for groups in (1000, 2000):
        yield from plates(groups, default, 1)
    yield from regressions(((100, 4000), (300, 2000)))
    yield from slow_chains(300, 4000, _SLOWNESS)


def measure(options: Namespace) -> dict[str, Any]:
    """Hundreds and thousands of parameters."""
    found = list(rows(options.quick))
    print_table(
        "Hierarchies and regressions of many parameters: gains by the reported errors, and how "
        "often 1.96 of them cover",
        (
            "case",
            "chains",
            "median gain",
            "μ",
            "τ",
            "σ",
            "± 1.96 covers",
            "seconds",
            "peak memory (GB)",
        ),
        [
            (
                row.case,
                row.chains,
                f"{row.median:.3g}",
                *(
                    "" if math.isnan(gain) else f"{gain:.3g}"
                    for gain in (row.mu, row.tau, row.sigma)
                ),
                "" if row.covered is None else f"{row.covered:.1%}",
                f"{row.seconds:.1f}",
                f"{row.gigabytes:.2f}" if row.gigabytes else "",
            )
            for row in found
        ],
    )
    return {"dimensions": [row._asdict() for row in found]}
