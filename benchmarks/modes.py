"""Answers on targets with several modes, long tails and slow chains, by lines and by scores.

Each target is sampled exactly, or is a chain whose law is known. All calls are asked on the same
draws, with polynomials alone (`effort="low"`). A cell is a target, a call and a way; an answer is
*said* to be in doubt if the call gave a warning, or an error in place of an answer.
"""

from __future__ import annotations

import functools
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special, stats

from .harness import collect, print_table, sizes_asked

SHARES = (0.05, 0.5, 0.95)
_APART = 6.0  # of two modes
_GRADIENTS = 2000  # of `integrate`
WAYS = ("lines", "scores")
CALLS = (
    *("probability", "quantile", "interval", "density", "sensitivity"),
    *("evidence", "integrate"),  # which have no form without the log density
)


class Target(NamedTuple):
    """A log density, normalised; draws of it; one number x[j] of each draw that is asked for, with
    its distribution function and density; levels of events; a slope ∂ log π / ∂α, with names of
    values and their derivatives; and what `integrate` starts from: the modes, where there are two,
    as a search that does not meet a narrow basin is another question."""

    log_density: Callable[[Any], Any]
    draws: np.ndarray
    asked: int
    cdf: Callable[[Any], Any]
    pdf: Callable[[Any], Any]
    levels: tuple[float, ...]
    slope: Callable[[Any], Any]
    derivatives: dict[str, float]
    starts: Any


def two(
    ratio: float, one: bool, mass: float, d: int, rng: np.random.Generator, n: int, apart: float
) -> Target:
    """A standard normal, and a normal `ratio` times as narrow in one coordinate or in all, with
    this `mass`."""
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    scale = np.ones(d)
    scale[: 1 if one else d] = 1 / ratio
    narrow = rng.random(n) < mass
    centre = np.zeros(d)
    centre[0] = apart
    z = rng.normal(size=(n, d))
    draws = np.where(narrow[:, None], centre + scale * z, z)
    half = d / 2 * np.log(2 * np.pi)

    def parts(x: Any) -> Any:
        wide = jnp.log1p(-mass) - jnp.sum(x**2) / 2 - half
        other = jnp.log(mass) - jnp.sum(((x - centre) / scale) ** 2) / 2
        return jnp.stack([wide, other - np.log(scale).sum() - half])

    first = scale[0]
    cdf = lambda t: (1 - mass) * special.ndtr(t) + mass * special.ndtr((t - apart) / first)  # noqa: E731
    density = stats.norm.pdf
    pdf = lambda t: (1 - mass) * density(t) + mass * density((t - apart) / first) / first  # noqa: E731
    swing = mass * (1 - mass)
    level = apart / 2 if apart else 0.3
    above = special.ndtr(-(level - apart) / first) - special.ndtr(-level)
    derivatives = {f"x[0] > {level}": swing * above}
    if apart:
        derivatives["x[0]"] = swing * apart
    return Target(
        lambda x: logsumexp(parts(x)),
        draws,
        0,
        cdf,
        pdf,
        (level, 1.0),
        lambda x: jnp.exp(parts(x)[1] - logsumexp(parts(x))),
        derivatives,
        np.stack([np.zeros(d), centre]),
    )


def _located(
    log_density: Any,
    draws: np.ndarray,
    asked: int,
    law: tuple[Any, Any],
    levels: tuple[float, ...],
) -> Target:
    """A target whose slope is that of its location along the coordinate that is asked for."""
    import jax

    cdf, pdf = law
    derivatives = {f"x[{asked}] > {level}": float(pdf(level)) for level in levels}
    slope = lambda x: -jax.grad(log_density)(x)[asked]  # noqa: E731
    return Target(log_density, draws, asked, cdf, pdf, levels, slope, derivatives, draws.shape[1])


def banana(rng: np.random.Generator, n: int) -> Target:
    """x₁ ~ N(2 (x₀² − 1), 1)."""
    import jax.numpy as jnp

    x = rng.normal(size=n)
    draws = np.stack([x, 2 * (x**2 - 1) + rng.normal(size=n)], axis=1)
    grid = np.linspace(-9, 9, 20_001)
    weight = stats.norm.pdf(grid) * (grid[1] - grid[0])
    centre = 2 * (grid**2 - 1)
    law = tuple(
        lambda t, f=f: f(np.asarray(t)[..., None] - centre) @ weight
        for f in (special.ndtr, stats.norm.pdf)
    )
    return _located(
        lambda x: -(x[0] ** 2) / 2 - (x[1] - 2 * (x[0] ** 2 - 1)) ** 2 / 2 - jnp.log(2 * jnp.pi),
        draws,
        1,
        law,
        (20.0, 3.0),
    )


def student(nu: float, rng: np.random.Generator, n: int) -> Target:
    """Two independent t distributions."""
    import jax
    import jax.numpy as jnp

    law = stats.t(nu)
    log_density = lambda x: jnp.sum(jax.scipy.stats.t.logpdf(x, nu))  # noqa: E731
    return _located(log_density, law.rvs((n, 2), rng), 0, (law.cdf, law.pdf), (1.0, 10.0))


def slow(rng: np.random.Generator, n: int) -> Target:
    """A chain of standard normals in two dimensions, correlated by 0.95 from draw to draw."""
    import jax.numpy as jnp

    steps = rng.normal(size=(n, 2))
    for k in range(1, n):
        steps[k] = 0.95 * steps[k - 1] + np.sqrt(1 - 0.95**2) * steps[k]
    log_density = lambda x: -jnp.sum(x**2) / 2 - jnp.log(2 * jnp.pi)  # noqa: E731
    return _located(log_density, steps, 0, (special.ndtr, stats.norm.pdf), (1.0, 2.0))


def _pairs() -> dict[str, Callable[[np.random.Generator, int], Target]]:
    found = {}
    for ratio, one, d in ((1, True, 2), *((r, o, 2) for r in (10, 200) for o in (True, False))):
        where = "" if ratio == 1 else (" in one" if one else " in all")
        for mass in (0.5, 0.05):
            name = f"1:{ratio}{where}, {mass:g}"
            found[name] = functools.partial(two, ratio, one, mass, d, apart=_APART)
    for one in (True, False):
        for mass in (0.5, 0.05):
            name = f"1:10 in {'one' if one else 'all'}, {mass:g}, d = 5"
            found[name] = functools.partial(two, 10, one, mass, 5, apart=_APART)
    return found


TARGETS: dict[str, Callable[..., Target]] = {
    **_pairs(),
    "spike and slab": functools.partial(two, 100, True, 0.5, 2, apart=0.0),
    "banana": banana,
    "t2": functools.partial(student, 2.0),
    "Cauchy": functools.partial(student, 1.0),
    "AR(0.95)": slow,
}


class Job(NamedTuple):
    target: str
    call: str
    way: str
    replicate: int
    draws: int


class Outcome(NamedTuple):
    """Numbers of one call on one sample, with what is known of each; NaN where there is no plain
    answer, and nothing but words where there is an error in place of an answer."""

    job: Job
    value: list[float]
    error: list[float]
    plain: list[float]
    plain_error: list[float]
    truth: list[float]
    words: list[str]


def ask(job: Job) -> Outcome | str:
    """One call on one sample; the words of an error that should not be."""
    import zerovar as zv

    replicate = [list(TARGETS).index(job.target), job.replicate]
    target = TARGETS[job.target](rng=np.random.default_rng(replicate), n=job.draws)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = zv.from_log_density(
            target.log_density, target.draws, transform=lambda x: {"x": x}
        )
        if job.way == "scores":
            posterior = zv.Posterior(
                posterior.draws, posterior.scores, posterior.values, posterior.names
            )
        try:
            found = _CALLS[job.call](target, posterior, zv.Automatic(effort="low"))
        except zv.NumericalError as error:
            return Outcome(job, [], [], [], [], [], [f"NumericalError: {error}"])
        except Exception as error:
            return f"{job}: {error!r}"
    words = [str(one.message) for one in caught if isinstance(one.message, zv.ZerovarWarning)]
    arrays = (np.ravel(one).astype(float).tolist() for one in found)
    return Outcome(job, *arrays, words)


def _root(target: Target, share: float) -> float:
    return float(optimize.brentq(lambda t: target.cdf(t) - share, -1e6, 1e6, xtol=1e-13))


def _of(found: Any, truth: Any) -> tuple[Any, ...]:
    return found.value, found.std_error, found.plain_value, found.plain_std_error, truth


def _probability(target: Target, posterior: Any, family: Any) -> tuple[Any, ...]:
    import zerovar as zv

    events = [f"x[{target.asked}] > {level}" for level in target.levels]
    truth = [1 - float(target.cdf(level)) for level in target.levels]
    return _of(zv.probability(posterior, events, family=family), truth)


def _quantile(target: Target, posterior: Any, family: Any) -> tuple[Any, ...]:
    import zerovar as zv

    found = zv.quantile(posterior, SHARES, var_names=f"x[{target.asked}]", family=family)
    return _of(found, [_root(target, share) for share in SHARES])


def _interval(target: Target, posterior: Any, family: Any) -> tuple[Any, ...]:
    import zerovar as zv

    found = zv.interval(posterior, 0.8, var_names=f"x[{target.asked}]", family=family)
    return _of(found, [_root(target, share) for share in (0.1, 0.9)])


def _density(target: Target, posterior: Any, family: Any) -> tuple[Any, ...]:
    import zerovar as zv

    found = zv.density(posterior, points=16, var_names=f"x[{target.asked}]", family=family)
    nothing = np.full(found.value.shape, np.nan)
    return found.value, found.std_error, nothing, nothing, target.pdf(found.grid)


def _sensitivity(target: Target, posterior: Any, family: Any) -> tuple[Any, ...]:
    import jax

    import zerovar as zv

    names = list(target.derivatives)
    given = {name: name if ">" in name else posterior.values[name] for name in names}
    slope = lambda u: target.slope(u["x"])  # noqa: E731
    if posterior.density is None:
        at_draws = jax.vmap(jax.vmap(target.slope))
        with jax.enable_x64(True):
            slope = np.asarray(at_draws(jax.numpy.asarray(posterior.draws)))
    found = zv.sensitivity(posterior, given, to={"alpha": slope}, family=family)
    plain = found.plain_derivative, found.plain_std_error
    return found.derivative, found.std_error, *plain, list(target.derivatives.values())


def _evidence(target: Target, posterior: Any, family: Any) -> tuple[Any, ...]:
    import zerovar as zv

    found = zv.evidence(posterior, family=family, progress=False)
    return found.log_z, found.std_error, found.plain_log_z, found.plain_std_error, 0.0


def _integrate(target: Target, posterior: Any, family: Any) -> tuple[Any, ...]:
    import zerovar as zv

    found = zv.integrate(
        target.log_density,
        target.starts,
        {"x": lambda x: x[target.asked]},
        probs=SHARES,
        gradients=_GRADIENTS,
        family=family,
        progress=False,
        seed=int(1e6 * abs(target.draws[0, 0])),
    )
    return _of(found, [_root(target, share) for share in SHARES])


_CALLS: dict[str, Callable[[Target, Any, Any], tuple[Any, ...]]] = {
    "probability": _probability,
    "quantile": _quantile,
    "interval": _interval,
    "density": _density,
    "sensitivity": _sensitivity,
    "evidence": _evidence,
    "integrate": _integrate,
}
_SURE = 1.96


class Judged(NamedTuple):
    """Numbers of calls: how many; shares of them within 1.96 errors or said to be in doubt, unsaid
    more than three errors off, and in doubt of those within; and the mean over numbers asked of the
    mean square over that of plain answers."""

    count: int
    within: float
    far: float
    alarms: float
    square: float

    @staticmethod
    def of(own: list[Outcome]) -> Judged:
        within, far, alarms = list[bool](), list[bool](), list[bool]()
        for one in own:
            if not one.value:  # an error in place of an answer
                within.append(True)
                far.append(False)
            z = np.abs(np.subtract(one.value, one.truth)) / np.maximum(one.error, 1e-300)
            inside, said = np.nan_to_num(z, nan=np.inf) <= _SURE, bool(one.words)
            within += list(inside | said)
            far += list(~(z <= 3) & (not said))
            alarms += [said] * int(inside.sum())
        return Judged(len(within), _mean(within), _mean(far), _mean(alarms), _square(own))


def _mean(each: list[Any]) -> float:
    return float(np.mean(each)) if each else np.nan


def _square(own: list[Outcome]) -> float:
    """The mean over numbers of mean square errors over plain ones, over all samples of a cell."""
    cells: dict[Any, list[np.ndarray]] = {}
    for one in own:
        away, plain = (np.subtract(each, one.truth) for each in (one.value, one.plain))
        for k in np.flatnonzero(np.isfinite(plain)):
            key = (one.job.target, one.job.call, one.job.way, int(k))
            cells.setdefault(key, []).append(np.array([away[k], plain[k]]))
    ratios = []
    for pairs in cells.values():
        ours, theirs = np.mean(np.square(pairs), axis=0)
        if theirs > 0:
            ratios.append(ours / theirs)
    return _mean(ratios)


def run(
    replicates: int = 20,
    draws: int = 500,
    only: tuple[str, ...] = (),
    calls: tuple[str, ...] = CALLS,
    ways: tuple[str, ...] = WAYS,
    processes: int | None = None,
) -> list[dict[str, Any]]:
    """Every call on every target, in processes of one thread."""
    jobs = [
        Job(target, call, way, replicate, draws)
        for target in TARGETS
        if not only or target in only
        for call in calls
        for way in (ways if call not in ("evidence", "integrate") else ("lines",))
        for replicate in range(replicates)
    ]
    found = collect(ask, jobs, processes)
    show(found)
    return [one.job._asdict() | one._asdict() | {"job": None} for one in found]


def show(found: list[Outcome]) -> None:
    """Tables: all targets together for each call, and every cell that misses its bound."""
    pooled, cells = [], []
    for call in CALLS:
        for way in WAYS:
            own = [one for one in found if (one.job.call, one.job.way) == (call, way)]
            if own:
                pooled.append((f"{call}, by {way}", *_shown(Judged.of(own))))
            for target in TARGETS:
                cell = [one for one in own if one.job.target == target]
                if cell:
                    judged = Judged.of(cell)
                    if judged.within < 0.75 or judged.square > 1.1 or judged.far > 0.02:
                        cells.append((f"{target}: {call}, by {way}", *_shown(judged)))
    columns = ("", "numbers", "within or said", "unsaid |z| > 3", "alarms", "mean square")
    print_table("All targets", columns, pooled)
    print_table("Cells below 75 % within, above 2 % unsaid or 1.1 of plain", columns, cells)


def _shown(judged: Judged) -> tuple[str, ...]:
    shares = (f"{100 * one:.1f} %" for one in judged[1:4])
    return (str(judged.count), *shares, f"{judged.square:.3g}")


def measure(options: Namespace) -> dict[str, Any]:
    """What `python -m benchmarks modes` measures."""
    if options.quick:
        only = ("1:200 in one, 0.5", "banana")
        return {"modes": run(2, 200, only, CALLS[:3], processes=options.processes)}
    only = tuple(options.only or ())
    return {"modes": run(**sizes_asked(options), only=only, processes=options.processes)}
