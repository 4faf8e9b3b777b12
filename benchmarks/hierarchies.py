"""Hierarchies with exact draws and known means, for `benchmarks.calibration`.

python -m benchmarks calibration --only hierarchies

Groups have one or two normal effects, correlated if two, or effects about the means of regions; and
normal data. Given the scales and the correlation all else is normal. So draws are independent and
exact, and means are integrals over at most four numbers. In centred coordinates the score of an
effect is about ε/τ: where data are weak and τ has positive density at zero, its variance or its
mean does not exist.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from scipy.optimize import minimize
from scipy.stats import chi2, norm, qmc

Rng = np.random.Generator


class Exact(abc.ABC):
    """A posterior of which all but the numbers `hyper` is normal, given these."""

    @property
    @abc.abstractmethod
    def hypers(self) -> int:
        """How many these are."""

    @abc.abstractmethod
    def weigh(self, hyper: np.ndarray) -> np.ndarray:
        """Their log density, at (k, hypers)."""

    @abc.abstractmethod
    def mean_values(self, hyper: np.ndarray) -> np.ndarray:
        """Means of `values` (k, q), given them."""

    @abc.abstractmethod
    def complete(self, hyper: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        """A draw (k, d) of all, given them, and `values` at it."""

    @abc.abstractmethod
    def log_density(self, x: jax.Array) -> jax.Array:
        """That of one draw in centred coordinates, up to a constant."""

    @functools.cached_property
    def proposal(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and root of a Student distribution with three degrees of freedom, near the
        marginal of `hyper`: its moments, by a few rounds of weighted points."""
        lost = lambda u: -self.weigh(u[None])[0]  # noqa: E731
        centre = minimize(lost, np.zeros(self.hypers), method="Nelder-Mead").x
        root = np.eye(self.hypers)
        for seed in range(6):
            points = qmc.Sobol(self.hypers + 1, seed=100 + seed).random_base2(12)
            hyper, log_weight = self.propose(points, (centre, root))
            weight = np.exp(log_weight - log_weight.max())
            centre, covariance = (
                np.average(hyper, axis=0, weights=weight),
                np.cov(hyper.T, aweights=weight),
            )
            root = np.linalg.cholesky(np.atleast_2d(covariance))
        return centre, root

    def propose(
        self, uniform: np.ndarray, proposal: tuple[np.ndarray, np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Points of the proposal and their log weights, from (k, hypers + 1) in the unit cube."""
        centre, root = proposal or self.proposal
        uniform = np.clip(uniform, 1e-12, 1 - 1e-12)
        z = norm.ppf(uniform[:, :-1]) * np.sqrt(3 / chi2.ppf(uniform[:, -1:], 3))
        log_proposal = -(3 + self.hypers) / 2 * np.log1p((z**2).sum(axis=1) / 3)
        hyper = centre + z @ root.T
        far = np.abs(hyper - centre).max(axis=1) > 12  # where matrices are singular to rounding
        parts = np.array_split(np.where(far[:, None], centre, hyper), 16)
        log_weight = np.concatenate([self.weigh(part) for part in parts]) - log_proposal
        return hyper, np.where(far, -np.inf, log_weight)

    @functools.cached_property
    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of `values` and their errors, by eight scrambled Sobol sequences."""
        found = []
        for seed in range(8):
            points = qmc.Sobol(self.hypers + 1, seed=seed).random_base2(13)
            hyper, log_weight = self.propose(points)
            weight = np.exp(log_weight - log_weight.max())
            hyper, weight = hyper[weight > 0], weight[weight > 0]
            values = self.mean_values(hyper)
            found.append(weight @ values / weight.sum())
        return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))

    def draw(self, rng: Rng, n: int, steps: int = 15) -> tuple[np.ndarray, np.ndarray]:
        """n independent draws (n, d) and `values` at them. Of `hyper`, n chains of independence
        Metropolis that begin at weighted proposals: three quarters of the steps are accepted."""
        every, log_weight = self.propose(rng.random((steps * n, self.hypers + 1)))
        every, log_weight = every.reshape(steps, n, -1), log_weight.reshape(steps, n)
        first = rng.choice(
            n, size=n, p=(w := np.exp(log_weight[0] - log_weight[0].max())) / w.sum()
        )
        hyper, now = every[0][first], log_weight[0][first]
        for step in range(1, steps):
            accept = np.log(rng.random(n)) < log_weight[step] - now
            hyper = np.where(accept[:, None], every[step], hyper)
            now = np.where(accept, log_weight[step], now)
        return self.complete(hyper, rng)


@dataclasses.dataclass(frozen=True)
class Groups(Exact):
    """y_ji = z_i · β_j + ε, ε ~ N(0, σ²), β_j ~ N(μ, Σ): `groups` j of `data` observations each.

    With one effect z = 1, σ is known and μ ~ N(0, 5²); with two, z = (1, 0) and (1, 1) in turn, σ
    and both scales are Exponential(1), the correlation is LKJ(2), and μ ~ N((5, −1), (2, ½)²). The
    unconstrained coordinates are (μ, log scales, atanh ρ, log σ, β), and `hyper` is all between μ
    and β.
    """

    groups: int
    data: int
    error: float
    scales: tuple[float, ...]

    @property
    def effects(self) -> int:
        return len(self.scales)

    @property
    def hypers(self) -> int:
        return 1 if self.effects == 1 else 4

    @functools.cached_property
    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of μ."""
        two = np.array([5.0, -1.0]), np.array([2.0, 0.5])
        return two if self.effects == 2 else (np.zeros(1), np.full(1, 5.0))

    @functools.cached_property
    def design(self) -> np.ndarray:
        columns = np.ones(self.data), np.arange(self.data) % 2.0
        return np.stack(columns[: self.effects], axis=1)

    @functools.cached_property
    def observed(self) -> np.ndarray:
        """Data (group, observation), made with a fixed seed."""
        rng = np.random.default_rng(self.groups)
        root = np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]])[: self.effects, : self.effects]
        root = root * np.array(self.scales)[:, None]
        means = np.array([3.5, -1.0]) if self.effects == 2 else np.ones(1)
        effects = means + rng.normal(size=(self.groups, self.effects)) @ root.T
        return effects @ self.design.T + self.error * rng.normal(size=(self.groups, self.data))

    def covariance(self, hyper: Any, xp: Any = np) -> tuple[Any, Any, Any]:
        """Σ (…, effects, effects), σ and the log density of the prior at `hyper` (…, hypers)."""
        scale = xp.exp(hyper[..., : self.effects])
        prior = (hyper[..., : self.effects] - scale).sum(-1)
        if self.effects == 1:
            return scale[..., None] ** 2, xp.full(hyper.shape[:-1], self.error), prior
        rho, sigma = xp.tanh(hyper[..., 2]), xp.exp(hyper[..., 3])
        prior = prior + 2 * xp.log1p(-(rho**2)) + hyper[..., 3] - sigma
        both = scale[..., 0] * scale[..., 1] * rho
        rows = xp.stack([scale[..., 0] ** 2, both], -1), xp.stack([both, scale[..., 1] ** 2], -1)
        return xp.stack(rows, -2), sigma, prior

    def marginal(self, hyper: np.ndarray) -> tuple[np.ndarray, ...]:
        """Log density of (k, hypers), without μ and effects; and given them the mean and precision
        of μ, the covariance of an effect, and its mean as (at zero μ, what it adds for μ)."""
        spread, sigma, log_density = self.covariance(hyper)
        square = (self.design.T @ self.design)[None] / sigma[:, None, None] ** 2
        pull = (self.observed @ self.design)[None] / sigma[:, None, None] ** 2  # (k, group, effect)
        shrink = np.linalg.inv(np.eye(self.effects) + spread @ square)
        inside = shrink @ spread
        centre, width = self.prior
        precision = np.diag(width**-2.0) + self.groups * square @ shrink
        right = centre / width**2 + np.einsum("kfe,kgf->ke", shrink, pull)
        mean = np.linalg.solve(precision, right[..., None])[..., 0]
        log_density = (
            log_density
            + np.einsum("kge,kef,kgf->k", pull, inside, pull) / 2
            + self.groups / 2 * np.linalg.slogdet(shrink)[1]
            - (self.observed**2).sum() / (2 * sigma**2)
            - self.observed.size * np.log(sigma)
            + np.einsum("ke,ke->k", right, mean) / 2
            - np.linalg.slogdet(precision)[1] / 2
        )
        at_zero = np.einsum("kef,kgf->kge", inside, pull)
        return log_density, mean, precision, inside, at_zero, shrink

    def values(self, mean: np.ndarray, hyper: np.ndarray, effects: np.ndarray) -> np.ndarray:
        """μ, scales, ρ and σ on their natural scales, and the effects of four groups."""
        natural = [mean, np.exp(hyper[:, : self.effects])]
        if self.effects == 2:
            natural += [np.tanh(hyper[:, 2:3]), np.exp(hyper[:, 3:])]
        return np.concatenate([*natural, effects[:, :4].reshape(len(mean), -1)], axis=1)

    @property
    def named_means(self) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
        """Names in a NumPyro model with two effects, means and their errors."""
        effects = [f"effects[{j}, {k}]" for j in range(4) for k in range(2)]
        names = ("a", "b", "scales[0]", "scales[1]", "Rho[0, 1]", "sigma", *effects)
        return names, *self.means

    def mean_values(self, hyper: np.ndarray) -> np.ndarray:
        _, mean, _, _, at_zero, shrink = self.marginal(hyper)
        effects = at_zero + (shrink @ mean[..., None])[..., 0][:, None]
        return self.values(mean, hyper, effects)

    def weigh(self, hyper: np.ndarray) -> np.ndarray:
        return self.marginal(hyper)[0]

    def complete(self, hyper: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        n = len(hyper)
        _, mean, precision, inside, at_zero, shrink = self.marginal(hyper)
        z = rng.normal(size=(n, self.groups + 1, self.effects))
        root = np.linalg.cholesky(np.linalg.inv(precision))
        mu = mean + (root @ z[:, 0, :, None])[..., 0]
        root = np.linalg.cholesky((inside + inside.transpose(0, 2, 1)) / 2)
        effects = at_zero + (shrink @ mu[..., None])[..., 0][:, None]
        effects += np.einsum("kef,kgf->kge", root, z[:, 1:])
        x = np.concatenate([mu, hyper, effects.reshape(n, -1)], axis=1)
        return x, self.values(mu, hyper, effects)

    def log_density(self, x: jax.Array) -> jax.Array:
        mu, hyper, effects = jnp.split(x, [self.effects, self.effects + self.hypers])
        effects = effects.reshape(self.groups, self.effects)
        spread, sigma, log_density = self.covariance(hyper, jnp)
        centre, width = self.prior
        rest = (self.observed - effects @ self.design.T) / sigma
        return (
            log_density
            + stats.norm.logpdf(mu, centre, width).sum()
            + stats.multivariate_normal.logpdf(effects, mu, spread).sum()
            - (rest**2).sum() / 2
            - rest.size * jnp.log(sigma)
        )

    def form(self, name: str) -> Any:
        """The map of centred coordinates to "non-centred" ones, (μ, hyper, Σ^(−1/2) (β − μ)), to
        "half centred" ones of a single scale τ, (β − μ)/√τ + μ/2, or to "softplus", x with
        τ = log(1 + eˣ) in place of log τ."""
        import zerovar as zv

        if name == "softplus":
            return _softplus(self.effects)
        first, share = self.effects + self.hypers, 0.5 if name == "half centred" else 1.0

        def location_and_scale(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            spread = self.covariance(x[self.effects : first], jnp)[0]
            each = (self.groups, self.effects, self.effects)
            location = jnp.tile(x[: self.effects], self.groups)
            if share == 1:
                return location, jnp.broadcast_to(jnp.linalg.cholesky(spread), each)
            scale = jnp.sqrt(spread[0, 0]) ** share
            return (1 - (1 - share) * scale) * location, jnp.broadcast_to(scale, location.shape)

        block = range(first, first + self.groups * self.effects)
        return zv.Coupling([(block, location_and_scale)], backwards=True)


def _softplus(at: int) -> Any:
    """log τ, at a place, to x with τ = log(1 + eˣ)."""
    import zerovar as zv

    def forward(x: jax.Array) -> jax.Array:
        tau = jnp.exp(x[at])
        return x.at[at].set(tau + jnp.log(-jnp.expm1(-tau)))

    def inverse(y: jax.Array) -> jax.Array:
        return y.at[at].set(jnp.log(jax.nn.softplus(y[at])))

    def log_det(x: jax.Array) -> jax.Array:
        return x[at] - jnp.log(-jnp.expm1(-jnp.exp(x[at])))

    return zv.Coordinates(forward, inverse=inverse, log_det=log_det)


@dataclasses.dataclass(frozen=True)
class Regions(Exact):
    """Two levels: y_rji ~ N(θ_rj, σ²), θ_rj ~ N(m_r, τ₂²), m_r ~ N(μ, τ₁²), μ ~ N(0, 5²), for
    `regions` r of `groups` j of `data` observations each; σ is known, and both scales are
    Exponential(1). The unconstrained coordinates are (μ, log τ₁, log τ₂, m, θ)."""

    regions: int
    groups: int
    data: int
    error: float
    scales: tuple[float, float]

    @property
    def hypers(self) -> int:
        return 2

    @functools.cached_property
    def observed(self) -> np.ndarray:
        """Means of the data (region, group), made with a fixed seed."""
        rng = np.random.default_rng(self.regions)
        middle = 1 + self.scales[0] * rng.normal(size=(self.regions, 1))
        effects = middle + self.scales[1] * rng.normal(size=(self.regions, self.groups))
        return effects + self.error / np.sqrt(self.data) * rng.normal(size=effects.shape)

    def weigh(self, hyper: np.ndarray) -> np.ndarray:
        mean, precision = self._given(hyper)
        pull = self.observed * self.data / self.error**2
        explained = (pull * mean[2]).sum((1, 2))
        many = 1, self.regions, self.regions * self.groups
        log_det = sum(count * np.log(one) for count, one in zip(many, precision, strict=True))
        log_det = log_det + 2 * many[1] * hyper[:, 0] + 2 * many[2] * hyper[:, 1]
        return np.sum(hyper - np.exp(hyper), axis=1) + (explained - log_det) / 2

    def _given(
        self, hyper: np.ndarray, noise: tuple[np.ndarray, ...] = (np.zeros(1),) * 3
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """μ (k,), m (k, region) and θ (k, region, group): their means, given the scales, or draws
        made of normal `noise`. And the precision (k,) of each without those below it, given what
        is above."""
        upper, lower = np.exp(-2 * hyper[:, 0]), np.exp(-2 * hyper[:, 1])
        data = self.data / self.error**2
        each = lower + data  # upwards, one level after another is summed out
        region = upper + self.groups * lower * data / each
        root = 5.0**-2 + self.regions * upper * (1 - upper / region)
        by_region = (lower / each * data)[:, None] * self.observed.sum(axis=1)
        of_root, of_region, of_group = noise
        mu = (upper / region * by_region.sum(axis=1)) / root + of_root / np.sqrt(root)
        m = (by_region + (upper * mu)[:, None]) / region[:, None]
        m = m + of_region / np.sqrt(region)[:, None]
        theta = (data * self.observed + (lower[:, None] * m)[..., None]) / each[:, None, None]
        theta = theta + of_group / np.sqrt(each)[:, None, None]
        return (mu, m, theta), (root, region, each)

    def mean_values(self, hyper: np.ndarray) -> np.ndarray:
        return self._values(hyper, *self._given(hyper)[0])

    def _values(self, hyper: np.ndarray, *levels: np.ndarray) -> np.ndarray:
        """μ, both scales, the means of two regions and the effects of four groups."""
        mu, m, theta = levels
        some = mu[:, None], np.exp(hyper), m[:, :2], theta.reshape(len(mu), -1)[:, :4]
        return np.concatenate(some, axis=1)

    def complete(self, hyper: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        n, r = len(hyper), self.regions
        shapes = (n,), (n, r), (n, r, self.groups)
        levels = self._given(hyper, tuple(rng.normal(size=shape) for shape in shapes))[0]
        mu, m, theta = levels
        x = np.concatenate([mu[:, None], hyper, m, theta.reshape(n, -1)], axis=1)
        return x, self._values(hyper, *levels)

    def log_density(self, x: jax.Array) -> jax.Array:
        middle, effects = x[3 : 3 + self.regions], x[3 + self.regions :]
        parents = jnp.repeat(middle, self.groups)
        return (
            jnp.sum(x[1:3] - jnp.exp(x[1:3]))
            + stats.norm.logpdf(x[0], 0, 5)
            + stats.norm.logpdf(middle, x[0], jnp.exp(x[1])).sum()
            + stats.norm.logpdf(effects, parents, jnp.exp(x[2])).sum()
            - self.data * jnp.sum((self.observed.ravel() - effects) ** 2) / (2 * self.error**2)
        )


EXACT: dict[str, Exact] = {
    "8 groups, weak data": Groups(8, 1, 2.0, (1.0,)),
    "8 groups": Groups(8, 3, 1.0, (1.0,)),
    "15 groups": Groups(15, 4, 1.0, (1.0,)),
    "30 groups, weak data": Groups(30, 2, 2.0, (0.5,)),
    "30 groups, strong data": Groups(30, 5, 1.0, (1.0,)),
    "100 groups, weak data": Groups(100, 2, 2.0, (0.7,)),
    "2 × 15 groups": Groups(15, 8, 0.5, (1.0, 0.5)),  # the cafés of Statistical Rethinking
    "2 × 15 groups, strong data": Groups(15, 40, 0.5, (1.0, 0.8)),
    "2 × 40 groups, weak data": Groups(40, 4, 1.0, (0.7, 0.3)),
    "5 regions of 4 groups": Regions(5, 4, 2, 1.0, (0.7, 0.5)),
    "20 regions of 3 groups": Regions(20, 3, 2, 2.0, (0.7, 0.5)),
}
# The coordinates that draws and scores are given in; "known" are centred ones with a map to others,
# half centred ones have the root of the scale for a unit, and softplus is that of log(1 + eˣ) for
# the scale
FORMS = {
    "centred": tuple(EXACT),
    "non-centred": (
        "8 groups",
        "30 groups, weak data",
        "2 × 15 groups",
        "2 × 40 groups, weak data",
    ),
    "known": ("8 groups", "100 groups, weak data", "2 × 15 groups", "2 × 40 groups, weak data"),
    "half centred": ("8 groups, weak data", "30 groups, weak data"),
    "softplus": ("8 groups, weak data", "30 groups, weak data"),
}


def draw_in(model: Exact, form: str, rng: Rng, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws and scores (n, d) in the coordinates of a form, and values (n, q)."""
    x, f = model.draw(rng, n)
    with jax.enable_x64(True):
        s = np.asarray(jax.jit(jax.vmap(jax.grad(model.log_density)))(x))
    if form != "centred":
        x, s = model.form(form).map(x, s)
    return x, s, f
