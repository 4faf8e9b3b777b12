"""Derivatives of posterior means in the prior, the data, and powers of prior, likelihood and single
observations, against exact ones, beside plain covariances of the same draws.

A conjugate linear model has its means in closed form, as functions of prior and data. Regressions
with flat priors of the coefficients have exact covariances by one integral over the scale, and the
non-centred eight schools by an integral over two parameters. `data` is a folder with the models and
draws; small regressions with exact draws come with the benchmark.
"""

from __future__ import annotations

import json
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .harness import collect, print_table


class Case(NamedTuple):
    """Draws (chain, draw, d), their log density and values, functions of one draw; what
    `zv.sensitivity` is asked, and the exact derivatives (q, k) by part of the answer, in its order;
    and the exact jackknife covariance, if there is one."""

    draws: np.ndarray
    log_density: Callable[[Any], Any]
    values: Callable[[Any], Any]
    asked: dict[str, Any]
    exact: dict[str, np.ndarray]
    jackknife: np.ndarray | None = None


def powers(
    prior: Callable[[Any], Any],
    observations: Callable[[Any], Any],
    in_prior: np.ndarray,
    in_observations: np.ndarray,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What is asked, and the exact answers, in the powers of prior, likelihood and observations."""
    to = {
        "prior": prior,
        "likelihood": lambda x: observations(x).sum(),
        "observations": observations,
    }
    likelihood = in_observations.sum(axis=1, keepdims=True)
    exact = {"prior": in_prior[:, None], "likelihood": likelihood, "observations": in_observations}
    return {"to": to}, exact


class Conjugate:
    """y ~ N(Xβ, σ²) with β ~ N(m, σ² s²) and σ² inverse gamma: posterior means in closed form as
    functions of the prior and of the data."""

    SHAPE, RATE = 3.0, 2.0  # of the prior of 1/σ²

    def __init__(self) -> None:
        self.prior = {"m": 0.5, "s": 2.0}  # of β
        rng = np.random.default_rng(12)
        self.design = np.column_stack([np.ones(20), rng.normal(size=(20, 2))])
        self.y = self.design @ np.array([1.0, -0.5, 0.0]) + rng.normal(size=20)

    def posterior(self, m: Any, s: Any, y: Any) -> tuple[Any, Any, Any, Any]:
        """Mean of β, its covariance over σ², shape and rate of 1/σ²."""
        import jax.numpy as jnp

        d = self.design.shape[1]
        precision = self.design.T @ self.design + jnp.eye(d) / s**2
        mean = jnp.linalg.solve(precision, self.design.T @ y + m / s**2)
        rate = self.RATE + (y @ y + d * m**2 / s**2 - mean @ precision @ mean) / 2
        return mean, jnp.linalg.inv(precision), self.SHAPE + len(y) / 2, rate

    def means(self, m: Any, s: Any, y: Any) -> Any:
        """E[β] and E[σ²]."""
        import jax.numpy as jnp

        mean, _, shape, rate = self.posterior(m, s, y)
        return jnp.append(mean, rate / (shape - 1))

    def log_density(self, x: Any, m: Any, s: Any, y: Any) -> Any:
        """Of β and log σ²."""
        import jax.numpy as jnp

        beta, precision = x[:-1], jnp.exp(-x[-1])
        squares = jnp.sum((y - self.design @ beta) ** 2) + jnp.sum((beta - m) ** 2) / s**2
        count = len(self.y) + len(beta)
        prior = -self.SHAPE * x[-1] - self.RATE * precision - len(beta) * jnp.log(s)
        return -precision * squares / 2 - count * x[-1] / 2 + prior

    def case(self, n: int, seed: int) -> Case:
        import jax
        import jax.numpy as jnp

        at: dict[str, Any] = {**self.prior, "y": self.y}
        with jax.enable_x64(True):
            mean, covariance, shape, rate = (np.asarray(one) for one in self.posterior(**at))
            slopes = jax.jacobian(lambda at: self.means(**at))(at)
            exact = {name: np.asarray(one).reshape(len(one), -1) for name, one in slopes.items()}
        rng = np.random.default_rng(seed)
        variance = rate / rng.gamma(shape, size=n)
        noise = rng.normal(size=(n, len(mean))) @ np.linalg.cholesky(covariance).T
        draws = np.column_stack([mean + np.sqrt(variance)[:, None] * noise, np.log(variance)])
        return Case(
            draws[None],
            lambda x: self.log_density(x, **at),
            lambda x: jnp.append(x[:-1], jnp.exp(x[-1])),
            {"log_density": self.log_density, "at": at},
            exact,
        )


def conjugate(replicate: int, draws: int, data: Path | None) -> Case:
    """Exact draws of a conjugate linear model: three coefficients, 20 observations."""
    return Conjugate().case(draws, 2000 + replicate)


class Regression:
    """y ~ N(Xβ, σ²) with a flat prior of β, and of σ a Cauchy prior or none: given σ, β is normal
    about least squares."""

    def __init__(self, design: np.ndarray, y: np.ndarray, cauchy: float | None):
        self.design, self.y, self.cauchy = design, y, cauchy
        n, d = design.shape
        self.inverse = np.linalg.inv(design.T @ design)
        self.centre = self.inverse @ design.T @ y
        self.residuals = y - design @ self.centre
        middle = np.log(self.residuals.std())
        self.u = middle + np.linspace(-12, 12, 40_001) / np.sqrt(n)  # log σ
        rss = self.residuals @ self.residuals
        log_p = -(n - d) * self.u - rss / 2 * np.exp(-2 * self.u) + self.u
        p = np.exp(log_p + self.log_prior(self.u) - np.max(log_p + self.log_prior(self.u)))
        self.p = p / p.sum()

    def log_prior(self, u: Any, np: Any = np) -> Any:
        """Of log σ, without the Jacobian."""
        if self.cauchy is None:
            return 0.0 * u
        return -np.log1p((np.exp(u) / self.cauchy) ** 2)

    def draws(self, n: int, seed: int) -> np.ndarray:
        """Exact and independent, β and log σ."""
        rng = np.random.default_rng(seed)
        u = np.interp(rng.random(n), np.cumsum(self.p) - self.p / 2, self.u)
        root = np.linalg.cholesky(self.inverse)
        noise = rng.normal(size=(n, len(self.centre))) @ root.T
        return np.column_stack([self.centre + np.exp(u)[:, None] * noise, u])

    def case(self, draws: np.ndarray) -> Case:
        import jax.numpy as jnp

        def observations(x: Any) -> Any:
            scaled = (self.y - self.design @ x[:-1]) / jnp.exp(x[-1])
            return -(scaled**2) / 2 - x[-1] - np.log(2 * np.pi) / 2

        def covariance(f: np.ndarray, h: np.ndarray) -> np.ndarray:
            return (self.p * (f - self.p @ f)) @ (h - self.p @ h)

        sigma = np.exp(self.u)
        halves = -(self.residuals**2) / 2 / sigma[:, None] ** 2 - self.u[:, None]
        moments = self.inverse @ self.design.T * self.residuals
        in_observations = np.vstack([moments, covariance(sigma, halves)])
        in_prior = np.append(np.zeros(len(self.centre)), covariance(sigma, self.log_prior(self.u)))
        away = in_observations - in_observations.mean(axis=1, keepdims=True)
        return Case(
            draws,
            lambda x: jnp.sum(observations(x)) + self.log_prior(x[-1], jnp) + x[-1],
            lambda x: jnp.append(x[:-1], jnp.exp(x[-1])),
            *powers(lambda x: self.log_prior(x[-1], jnp), observations, in_prior, in_observations),
            away @ away.T,
        )

    def plain_jackknife(self, n: int, seed: int) -> np.ndarray:
        """The jackknife's variances by plain covariances of n draws, without what their noise adds:
        what they are off by, relative to the exact ones."""
        draws = self.draws(n, seed)
        sigma = np.exp(draws[:, -1:])
        h = -(((self.y - draws[:, :-1] @ self.design.T) / sigma) ** 2) / 2 - draws[:, -1:]
        f = np.column_stack([draws[:, :-1], sigma])
        f, h = f - f.mean(axis=0), h - h.mean(axis=0)
        found = f.T @ h / n
        away = found - found.mean(axis=1, keepdims=True)
        # Σ_i of the variances of ψ_i − ψ̄
        rows = h - h.mean(axis=1, keepdims=True)
        noise = ((f**2).T @ np.sum(rows**2, axis=1) / n - np.sum(away**2, axis=1)) / n
        exact = self.case(draws[None]).jackknife
        assert exact is not None
        return (np.sum(away**2, axis=1) - noise) / np.diag(exact) - 1


def small_regression() -> Regression:
    """Four coefficients, 60 observations with two outliers."""
    rng = np.random.default_rng(11)
    design = np.column_stack([np.ones(60), rng.normal(size=(60, 3))])
    y = design @ np.array([1.0, 0.5, -0.5, 0.0]) + rng.normal(size=60)
    y[:2] += 4
    return Regression(design, y, 2.5)


def small(replicate: int, draws: int, data: Path | None) -> Case:
    """Its exact draws."""
    model = small_regression()
    return model.case(model.draws(draws, 1000 + replicate)[None])


def _stored(name: str, replicate: int, draws: int, data: Path) -> np.ndarray:
    with np.load(data / "posteriors" / f"{name}.npz") as stored:
        return stored["x"][replicate : replicate + 1, :draws].astype(float)


def _read(name: str, data: Path) -> dict[str, np.ndarray]:
    found = json.loads((data / "models" / f"{name}.json").read_text(encoding="utf-8"))
    return {key: np.asarray(value, float) for key, value in found.items()}


def kidscore_model(data: Path) -> Regression:
    """kidscore_interaction: 434 observations."""
    own = _read("kidiq", data)
    school, iq = own["mom_hs"], own["mom_iq"]
    design = np.column_stack([np.ones_like(school), school, iq, school * iq])
    return Regression(design, own["kid_score"], 2.5)


def kidscore(replicate: int, draws: int, data: Path | None) -> Case:
    """Its stored draws."""
    assert data is not None
    return kidscore_model(data).case(_stored("kidscore_interaction", replicate, draws, data))


def mesquite(replicate: int, draws: int, data: Path | None) -> Case:
    """logmesquite: 46 observations, no prior."""
    assert data is not None
    own = _read("mesquite", data)
    keys = ("diam1", "diam2", "canopy_height", "total_height", "density")
    columns = [np.log(own[key]) for key in keys]
    design = np.column_stack([np.ones_like(columns[0]), *columns, own["group"]])
    model = Regression(design, np.log(own["weight"]), None)
    return model.case(_stored("logmesquite", replicate, draws, data))


def eight_schools(replicate: int, draws: int, data: Path | None) -> Case:
    """Non-centred: standardised effects, μ, log τ; values are the effects, μ and τ."""
    import jax.numpy as jnp

    assert data is not None
    own = _read("eight_schools", data)
    y, sigma = own["y"], own["sigma"]
    mu, log_tau = np.meshgrid(np.linspace(-32, 40, 1201), np.linspace(-14, 6, 2001), indexing="ij")
    mu, tau = mu.ravel()[:, None], np.exp(log_tau.ravel())[:, None]
    total = sigma**2 + tau**2
    hyper = -(mu**2) / 50 - np.log1p((tau / 5) ** 2)
    log_p = np.sum(-((y - mu) ** 2) / 2 / total - np.log(total) / 2, axis=1, keepdims=True)
    log_p = (log_p + hyper + np.log(tau))[:, 0]
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    share = tau**2 / total
    theta, spread = mu + share * (y - mu), sigma**2 * share
    f = np.column_stack([theta, mu, tau])
    h = np.column_stack([-((y - theta) ** 2 + spread) / 2 / sigma**2, hyper])
    outer = ((f - p @ f) * p[:, None]).T @ (h - p @ h)
    outer[:8, :8] += np.diag(p @ ((y - theta) * spread / sigma**2))

    def normal(x: Any, scale: Any) -> Any:
        return -((x / scale) ** 2) / 2 - jnp.log(scale) - np.log(2 * np.pi) / 2

    def observations(x: Any) -> Any:
        return normal(y - x[8] - jnp.exp(x[9]) * x[:8], sigma)

    def prior(x: Any) -> Any:
        return normal(x[8], 5.0) - jnp.log1p((jnp.exp(x[9]) / 5) ** 2)

    return Case(
        _stored("eight_schools_noncentered", replicate, draws, data),
        lambda x: jnp.sum(observations(x)) + prior(x) + x[9] + normal(x[:8], 1.0).sum(),
        lambda x: jnp.concatenate([x[8] + jnp.exp(x[9]) * x[:8], x[8:9], jnp.exp(x[9:])]),
        *powers(prior, observations, outer[:, 8], outer[:, :8]),
    )


CASES: dict[str, Callable[[int, int, Path | None], Case]] = {
    "conjugate": conjugate,
    "small regression": small,
    "kidscore_interaction": kidscore,
    "logmesquite": mesquite,
    "eight_schools_noncentered": eight_schools,
}
OWN = ("conjugate", "small regression")  # which need no data
MANY = 100_000  # plain draws, beside a thousand with control variates


class Outcome(NamedTuple):
    """Of one sample: by what is differentiated in, what derivatives are off by, their errors, the
    same of plain covariances, (q, k) each; of the jackknife's deviations the same, (4, q); seconds
    of the call and of `zv.summary`."""

    case: str
    parts: dict[str, np.ndarray]
    jackknife: np.ndarray | None
    seconds: float
    of_summary: float


def ask(name: str, replicate: int, draws: int, data: Path | None, beside: bool) -> Outcome:
    """One sample of one case."""
    import zerovar as zv

    warnings.simplefilter("ignore")
    case = CASES[name](replicate, draws, data)
    posterior = zv.from_log_density(case.log_density, case.draws, chain_axis=0)
    count = len(next(iter(case.exact.values())))
    values = {f"f{k}": (lambda x, k=k: case.values(x)[k]) for k in range(count)}
    start = time.perf_counter()
    found = zv.sensitivity(posterior, values, **case.asked)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    if beside:
        zv.summary(posterior)
    of_summary = time.perf_counter() - start
    exact = np.concatenate(list(case.exact.values()), axis=1)
    every = np.stack(
        [
            found.derivative - exact,
            found.std_error,
            found.plain_derivative - exact,
            found.plain_std_error,
        ]
    )
    ends = np.cumsum([one.shape[1] for one in case.exact.values()])
    parts = dict(zip(case.exact, np.split(every, ends[:-1], axis=2), strict=True))
    squares = None
    if case.jackknife is not None and found.jackknife is not None:
        own, true = found.jackknife, np.diag(case.jackknife)
        squares = np.stack(
            [
                np.diag(own.covariance) / true - 1,
                np.diag(own.std_error) / true,
                np.diag(own.plain) / true - 1,
                np.diag(own.plain_std_error) / true,
            ]
        )
    return Outcome(name, parts, squares, seconds, of_summary)


def _ask(job: tuple[str, int, int, Path | None, bool]) -> Outcome:
    return ask(*job)


def run(
    data: Path | None,
    replicates: int = 10,
    draws: int = 1000,
    only: Sequence[str] | None = None,
    processes: int | None = None,
    beside: bool = True,
) -> list[dict[str, Any]]:
    """Print a row for each case and what is differentiated in, and return them."""
    names = list(only or [name for name in CASES if data or name in OWN])
    jobs = [(name, k, draws, data, beside) for k in range(replicates) for name in names]
    outcomes = collect(_ask, jobs, processes)
    rows = []
    for name in names:
        own = [one for one in outcomes if one.case == name]
        for told in own[0].parts:
            rows.append(_row(name, told, np.stack([one.parts[told] for one in own]), own))
        squares = [one.jackknife for one in own if one.jackknife is not None]
        if squares:
            rows.append(_row(name, "jackknife", np.stack(squares)[..., None], own))
    kept = [row for row in rows if np.isfinite(row["gain"])]
    cells = [[row["case"], row["to"], *(f"{row[key]:.3g}" for key in _NUMBERS)] for row in kept]
    title = f"sensitivities, {draws} draws, {replicates} samples"
    print_table(title, ("case", "to", *_NUMBERS), cells)
    if beside:
        _print_many(names, outcomes, data, replicates)
    return kept


def _print_many(
    names: Sequence[str], outcomes: Sequence[Outcome], data: Path | None, replicates: int
) -> None:
    """How many plain draws the jackknife's variances would need: errors beside those of MANY plain
    draws, which fall with the root of their number."""
    models = {"small regression": small_regression}
    if data is not None:
        models["kidscore_interaction"] = lambda: kidscore_model(data)
    cells = []
    for name in (one for one in names if one in models):
        own = [one.jackknife for one in outcomes if one.case == name and one.jackknife is not None]
        model = models[name]()
        many = [model.plain_jackknife(MANY, 3000 + k) for k in range(replicates)]
        ours, plain, large = (
            float(np.sqrt(np.mean(np.square(one))))
            for one in ([one[0] for one in own], [one[2] for one in own], many)
        )
        numbers = (ours, plain, large, MANY * (large / ours) ** 2)
        cells.append([name, *(f"{one:.2g}" for one in numbers)])
    header = ("case", "with control variates", "plain", f"plain, {MANY} draws", "draws as good")
    print_table("relative errors of the jackknife's variances", header, cells)


_NUMBERS = ("gain", "reported", "within", "rms z", "plain within", "seconds", "summary")


def _row(name: str, told: str, every: np.ndarray, own: Sequence[Outcome]) -> dict[str, Any]:
    """Of samples (s, 4, q, k): gains in the median over q and k, realised and reported, of what is
    not zero by itself; and how many answers are within 1.96 errors."""
    off, error, plain, plain_error = (every[:, k] for k in range(4))
    moves = (plain_error > 0).all(axis=0)
    if not moves.any():
        return {"case": name, "to": told, "gain": np.nan}
    off, error, plain, plain_error = (one[:, moves] for one in (off, error, plain, plain_error))
    with np.errstate(divide="ignore"):
        gains = np.mean(plain**2, axis=0) / np.mean(off**2, axis=0)
    return {
        "case": name,
        "to": told,
        "gain": float(np.median(gains)),
        "reported": float(np.median(plain_error**2 / error**2)),
        "within": float(np.mean(np.abs(off) <= 1.96 * error)),
        "rms z": float(np.sqrt(np.mean((off / error) ** 2))),
        "plain within": float(np.mean(np.abs(plain) <= 1.96 * plain_error)),
        "seconds": float(np.median([one.seconds for one in own])),
        "summary": float(np.median([one.of_summary for one in own])),
    }


def measure(options: Namespace) -> dict[str, Any]:
    """Derivatives in powers of prior, likelihood and observations, where they are known."""
    if options.quick:
        rows = run(None, 1, 200, processes=1, beside=False)
    else:
        rows = run(options.data, processes=options.processes)
    return {"sensitivities": rows}
