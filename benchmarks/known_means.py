"""Draws with known means: long tails, slow chains, repeated states, weights, few digits.

Targets and posteriors are in two halves: rules and constants are chosen by the one, and reported by
the other (`DECIDES`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.special import digamma, gamma, ndtr, ndtri

from .hierarchies import EXACT, FORMS, draw_in

Rng = np.random.Generator


class Draws(NamedTuple):
    """Draws and scores (chain, draw, d), integrands (chain, draw, q), their names and means, and
    the errors of these; and other coordinates that are known."""

    x: np.ndarray
    s: np.ndarray
    f: np.ndarray
    names: tuple[str, ...]
    means: np.ndarray
    errors: np.ndarray
    log_weights: np.ndarray | None = None
    coordinates: Mapping[str, Any] | None = None


def _one_chain(
    x: np.ndarray, s: np.ndarray, f: dict[str, tuple[np.ndarray, float]], log_weights=None
) -> Draws:
    values = np.stack([column for column, _ in f.values()], axis=1)
    means = np.array([mean for _, mean in f.values()])
    return Draws(x[None], s[None], values[None], tuple(f), means, 0 * means, log_weights)


def student(rng: Rng, n: int, freedom: int, d: int) -> Draws:
    x = rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(freedom, size=(n, 1)) / freedom)
    s = -(freedom + d) * x / (freedom + (x**2).sum(axis=1, keepdims=True))
    a = x[:, 0]
    density = lambda y: (1 + y * y / freedom) ** (-(freedom + 1) / 2)  # noqa: E731
    whole = quad(density, -np.inf, np.inf)[0]
    mean = {
        name: quad(lambda y, f=f: f(y) * density(y), -np.inf, np.inf)[0] / whole
        for name, f in _OF_STUDENT[freedom].items()
    }
    return _one_chain(x, s, {name: (f(a), mean[name]) for name, f in _OF_STUDENT[freedom].items()})


_OF_STUDENT: dict[int, dict[str, Callable]] = {
    2: {"|x|": np.abs, "log(1 + x²)": lambda y: np.log1p(y * y)},
    3: {"x²": np.square, "|x|": np.abs, "atan x": np.arctan},
    5: {"x²": np.square},
}


def log_gamma(rng: Rng, n: int) -> Draws:
    t = np.maximum(rng.gamma(0.3, size=n), 1e-300)
    x = np.log(t)[:, None]
    means = {
        "τ^−0.2": (t**-0.2, gamma(0.1) / gamma(0.3)),
        "τ": (t, 0.3),
        "log τ": (np.log(t), digamma(0.3)),
    }
    return _one_chain(x, 0.3 - t[:, None], means)


def normal(rng: Rng, n: int) -> Draws:
    x = rng.normal(size=(n, 2))
    a, b = x.T
    heavy = {
        "e^2x": (np.exp(2 * a), np.exp(2)),
        "e^x²/4": (np.exp(a * a / 4), np.sqrt(2)),
        "e^3x": (np.exp(3 * a), np.exp(4.5)),
    }
    light = {"x²": (a * a, 1.0), "e^x": (np.exp(a), np.exp(0.5)), "cos": (np.cos(b), np.exp(-0.5))}
    return _one_chain(x, -x, heavy | light)


def scale(rng: Rng, n: int, data: int) -> Draws:
    """(μ, log σ) of a normal sample with flat priors."""
    y = np.array([4.9, 1.2, 3.8, 0.4, 5.1, 2.7, 6.3, 2.2, 3.1, 4.4])[:data]
    squares = np.sum((y - y.mean()) ** 2)
    variance = squares / rng.chisquare(data - 1, size=n)
    mu = y.mean() + rng.normal(size=n) * np.sqrt(variance / data)
    x = np.stack([mu, np.log(variance) / 2], axis=1)
    pull = data * (mu - y.mean())
    s = np.stack([-pull / variance, -data + (squares + pull * (mu - y.mean())) / variance], axis=1)
    k = (data - 1) / 2
    sigma = np.sqrt(squares / 2) * gamma(k - 0.5) / gamma(k)
    return _one_chain(
        x,
        s,
        {
            "σ": (np.sqrt(variance), sigma),
            "μ": (mu, y.mean()),
            "σ²": (variance, squares / (data - 3)),
        },
    )


def mixture(rng: Rng, n: int) -> Draws:
    x = rng.normal(size=n) + np.where(rng.random(n) < 0.5, -2.0, 2.0)
    s = -(x - 2 * np.tanh(2 * x))
    means = {
        "x": (x, 0.0),
        "x²": (x * x, 5.0),
        "e^x/2": (np.exp(x / 2), np.exp(1 / 8) * np.cosh(1)),
    }
    return _one_chain(x[:, None], s[:, None], means)


def autoregression(rng: Rng, n: int, rho: float) -> Draws:
    x = rng.normal(size=(n, 2))
    for i in range(1, n):
        x[i] = rho * x[i - 1] + np.sqrt(1 - rho**2) * x[i]
    a, b = x.T
    return _one_chain(x, -x, {"x": (a, 0.0), "x²": (a * a, 1.0), "e^x": (np.exp(b), np.exp(0.5))})


def narrow_proposal(rng: Rng, n: int) -> Draws:
    x = 0.6 * rng.normal(size=(n, 1))
    a = x[:, 0]
    means = {"x⁴": (a**4, 3.0), "e^x": (np.exp(a), np.exp(0.5))}
    return _one_chain(x, -x, means, (0.5 * (a / 0.6) ** 2 - 0.5 * a**2)[None])


def funnel(rng: Rng, n: int) -> Draws:
    """v ~ N(0, 1.5²) and x | v ~ N(0, eᵛ), by Hamiltonian Monte Carlo."""
    spread = 1.5

    def slope(y: np.ndarray) -> np.ndarray:
        v, x = y
        return np.array([-v / spread**2 - 0.5 + 0.5 * x * x * np.exp(-v), -x * np.exp(-v)])

    def energy(y: np.ndarray, p: np.ndarray) -> float:
        return y[0] ** 2 / (2 * spread**2) + y[0] / 2 + y[1] ** 2 * np.exp(-y[0]) / 2 + p @ p / 2

    v = spread * rng.normal()
    y, draws = np.array([v, rng.normal() * np.exp(v / 2)]), np.empty((n, 2))
    for i in range(n):
        start = rng.normal(size=2)
        step, at, p = rng.uniform(0.05, 0.35), y, start
        with np.errstate(all="ignore"):  # what diverges is refused
            p = p + step / 2 * slope(at)
            for k in range(12):
                at = at + step * p
                p = p + (step if k < 11 else step / 2) * slope(at)
            y = at if np.log(rng.random()) < energy(y, start) - energy(at, p) else y
        draws[i] = y
    v = draws[:, 0]
    scores = np.stack([slope(y) for y in draws])
    return _one_chain(
        draws,
        scores,
        {"v²": (v * v, spread**2), "e^v/4": (np.exp(v / 4), np.exp(spread**2 / 32)), "v": (v, 0.0)},
    )


def metropolis(rng: Rng, n: int) -> Draws:
    """A normal in two dimensions by steps of which two thirds are refused: most states repeat."""
    x, step, at = np.empty((n, 2)), 2.5, rng.normal(size=2)
    for i in range(n):
        proposal = at + step * rng.normal(size=2)
        if np.log(rng.random()) < (at @ at - proposal @ proposal) / 2:
            at = proposal
        x[i] = at
    a, b = x.T
    means = {"x": (a, 0.0), "x²": (a * a, 1.0), "e^x/2": (np.exp(b / 2), np.exp(1 / 8))}
    return _one_chain(x, -x, means)


def single_precision(rng: Rng, n: int) -> Draws:
    """The mean of a normal sample, with scores that were summed in single precision."""
    y = np.random.default_rng(0).gamma(2.0, size=300).astype(np.float32)
    mean = float(np.mean(y, dtype=np.float64))
    x = mean + rng.normal(size=(n, 1)) / np.sqrt(len(y))
    s = np.zeros((n, 1), dtype=np.float32)
    for each in y:
        s += each - x.astype(np.float32)
    a = x[:, 0]
    stored = (73.3 + a).astype(np.float32).astype(float)
    means = {"μ": (a, mean), "μ²": (a * a, mean**2 + 1 / len(y)), "stored μ": (stored, 73.3 + mean)}
    return _one_chain(x, s.astype(float), means)


def few_digits(rng: Rng, n: int) -> Draws:
    """Normal draws that were written with two decimals, scores and values as well."""
    x = 0.7 * rng.normal(size=(n, 3))
    few, s = np.round(x, 2), np.round(-x / 0.49, 2)
    a = few[:, 0]
    coarse = np.round(5 + 0.003 * x[:, 1], 2)  # to more than their own deviation
    means = {"x": (a, 0.0), "x²": (np.round(x[:, 0] ** 2, 2), 0.49), "coarse": (coarse, 5.0)}
    return _one_chain(few, s, means)


def rare_event(rng: Rng, n: int) -> Draws:
    """An event that half of the samples of 400 draws do not show."""
    x = rng.normal(size=(n, 2))
    return _one_chain(x, -x, {"P(x > 2.9)": ((x[:, 0] > 2.9) * 1.0, ndtr(-2.9))})


def without_jacobian(rng: Rng, n: int) -> Draws:
    """(μ, log σ) of a normal sample with the scores of (μ, σ): a mistake that is often made."""
    found = scale(rng, n, 10)
    return found._replace(s=found.s - [0.0, 1.0])


def hierarchy(rng: Rng, n: int, name: str, form: str) -> Draws:
    """Exact draws of a normal hierarchy, in centred coordinates, in others, or with these known."""
    model = EXACT[name]
    x, s, f = draw_in(model, "centred" if form == "known" else form, rng, n)
    means, errors = model.means
    names = tuple(f"f{j}" for j in range(len(means)))
    known = {"non-centred": model.form("non-centred")} if form == "known" else None
    return Draws(x[None], s[None], f[None], names, means, errors, coordinates=known)


def cafes_by_nuts(rng: Rng, n: int) -> Draws:
    """The model of the cafés by NUTS, as it is written, read by `from_numpyro`: twice as many draws
    as asked for, 4 × 500 where other rows have 1000."""
    import zerovar as zv

    from .sampled_hierarchies import sample_centred

    model = EXACT["2 × 15 groups"]
    found = zv.from_numpyro(sample_centred(model, 2 * n, int(rng.integers(2**31))))
    assert isinstance(found.values, dict)
    names, means, errors = model.named_means
    f = np.stack([np.asarray(found.values[name], dtype=float) for name in names], axis=2)
    return Draws(found.draws, found.scores, f, names, means, errors, coordinates=found.coordinates)


def cut_normal(rng: Rng, n: int) -> Draws:
    """N(0, 1) without what lies above 2: the density ends with a jump, and its scores miss it."""
    a = ndtri(ndtr(2.0) * rng.random(n))
    edge = np.exp(-2.0) / np.sqrt(2 * np.pi) / ndtr(2.0)
    means = {"x": (a, -edge), "x²": (a * a, 1 - 2 * edge)}
    return _one_chain(a[:, None], -a[:, None], means)


def wrong_scores(rng: Rng, n: int, factor: float = 1.0, shift: float = 0.0) -> Draws:
    """A normal with scores that are slightly wrong, by less than `zv.check` can see."""
    found = normal(rng, n)
    kept = [found.names.index(name) for name in ("x²", "e^x", "cos")]
    names = tuple(found.names[k] for k in kept)
    f, means, errors = found.f[..., kept], found.means[kept], found.errors[kept]
    return found._replace(s=factor * found.s + shift, f=f, names=names, means=means, errors=errors)


class Target(NamedTuple):
    """How to draw from it, and the route that judges it: the default call, one family, draws on
    disk, or `integrate`, whose draws are its own; and the error of its scores that errors carry."""

    draws: Callable[[Rng, int], Draws]
    route: str = "default"
    pooled: bool = False  # one row for all integrands
    slow: int = 1  # times fewer replicates
    score_error: float | str = 0.0


TARGETS: dict[str, Target] = {
    "t5, d = 3": Target(partial(student, freedom=5, d=3)),
    "t3": Target(partial(student, freedom=3, d=1)),
    "t2": Target(partial(student, freedom=2, d=1)),
    "log Gamma(0.3)": Target(log_gamma),
    "normal": Target(normal),
    "normal sample of 10": Target(partial(scale, data=10)),
    "normal sample of 5": Target(partial(scale, data=5)),
    "two modes": Target(mixture),
    "AR(0.9)": Target(partial(autoregression, rho=0.9)),
    "AR(-0.9)": Target(partial(autoregression, rho=-0.9)),
    "weights, N(0, 0.6²)": Target(narrow_proposal),
    "funnel": Target(funnel),
    "repeated states": Target(metropolis),
    "single precision": Target(single_precision),
    "few digits": Target(few_digits),
    "rare event": Target(rare_event),
    "no Jacobian": Target(without_jacobian),
    "cut at 2": Target(cut_normal),
    "scores × 1.05": Target(partial(wrong_scores, factor=1.05)),
    "scores × 1.05, carried": Target(partial(wrong_scores, factor=1.05), score_error="verified"),
    "scores + 0.03": Target(partial(wrong_scores, shift=0.03)),
    "scores + 0.03, carried": Target(partial(wrong_scores, shift=0.03), score_error=0.03),
    "kernel: t5": Target(partial(student, freedom=5, d=2), "family"),
    "kernel: log Gamma(0.3)": Target(log_gamma, "family"),
    "kernel: two modes": Target(mixture, "family"),
    "kernel: single precision": Target(single_precision, "family"),
    "kernel: no Jacobian": Target(without_jacobian, "family"),
    "on disk: normal": Target(normal, "disk"),
    "on disk: single precision": Target(single_precision, "disk"),
    "on disk: few digits": Target(few_digits, "disk"),
    "integrate: log Gamma(0.3)": Target(log_gamma, "integrate", slow=4),
    "integrate: normal sample of 5": Target(partial(scale, data=5), "integrate", slow=4),
    "integrate: two modes": Target(mixture, "integrate", slow=4),
}
for _form, _names in FORMS.items():
    for _name in _names:
        TARGETS[f"hierarchies: {_name}, {_form}"] = Target(
            partial(hierarchy, name=_name, form=_form), pooled=True
        )
TARGETS["hierarchies: 2 × 15 groups, NumPyro"] = Target(cafes_by_nuts, pooled=True, slow=4)
# Constants and rules were chosen on these; the others report what came of it.
DECIDES = frozenset(
    (
        *("t5, d = 3", "t2", "log Gamma(0.3)", "normal sample of 10", "AR(0.9)", "funnel"),
        *("repeated states", "few digits", "rare event", "kernel: t5", "kernel: two modes"),
        *("kernel: no Jacobian",),
        *("on disk: normal", "on disk: few digits", "integrate: log Gamma(0.3)"),
        *(f"hierarchies: {name}, centred" for name in FORMS["centred"][::2]),
        *("arK", "eight_schools_noncentered", "gp_regr", "hmm_drive_0", "logmesquite"),
    )
)


def draws_of(target: str, n: int, replicate: int, data: Path | None) -> Draws:
    """Draws of a constructed target, or chains of a posterior in a folder with truth.json."""
    if target in TARGETS:
        seed = [zlib.crc32(target.encode()), n, replicate]
        return TARGETS[target].draws(np.random.default_rng(seed), n)
    assert data is not None
    folder = next(path.parent for path in sorted(data.glob(f"*/{target}.npz")))
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))[target]
    with np.load(folder / f"{target}.npz") as chains:
        count, length = chains["x"].shape[:2]
        these = [(replicate + j) % count for j in range(n // length)]
        x, s, f = (np.asarray(chains[key][these], dtype=float) for key in ("x", "score", "f"))
    return Draws(x, s, f, tuple(truth["names"]), np.array(truth["truth"]), np.array(truth["se"]))
