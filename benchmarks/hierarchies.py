"""Hierarchies with known means, for `benchmarks.calibration` and `benchmarks.effects`.

python -m benchmarks calibration --only hierarchies
python -m benchmarks.hierarchies FOLDER [--chains 20] [--draws 1000]

*Exact.* Groups have one or two normal effects, correlated if two, and normal data. Given the scales
and the correlation all else is normal. So draws are independent and exact, and means are integrals
over at most four numbers. In centred coordinates the score of an effect is about ε/τ: where data
are weak and τ has positive density at zero, its variance or its mean does not exist.

*Sampled.* The second command samples three models with other likelihoods: NUTS moves in the
non-centred form z = (θ − μ)/τ; draws are mapped, and scores are those of the centred log density.
Means are those of a run a few hundred times as long. FOLDER/hierarchies gets a file of chains for
each model and truth.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from scipy.optimize import minimize
from scipy.stats import chi2, norm, qmc

from zerovar.io.atomic import atomic

Rng = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Exact:
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

    @functools.cached_property
    def proposal(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and root of a Student distribution with three degrees of freedom, near the
        marginal of `hyper`: its moments, by a few rounds of weighted points."""
        lost = lambda u: -self.marginal(u[None])[0][0]  # noqa: E731
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
        log_weight = np.concatenate([self.marginal(part)[0] for part in parts]) - log_proposal
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
            _, mean, _, _, at_zero, shrink = self.marginal(hyper)
            effects = at_zero + (shrink @ mean[..., None])[..., 0][:, None]
            values = self.values(mean, hyper, effects)
            found.append(weight @ values / weight.sum())
        return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))

    @property
    def named_means(self) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
        """Names in a NumPyro model with two effects, means and their errors."""
        effects = [f"effects[{j}, {k}]" for j in range(4) for k in range(2)]
        names = ("a", "b", "scales[0]", "scales[1]", "Rho[0, 1]", "sigma", *effects)
        return names, *self.means

    def values(self, mean: np.ndarray, hyper: np.ndarray, effects: np.ndarray) -> np.ndarray:
        """μ, scales, ρ and σ on their natural scales, and the effects of four groups."""
        natural = [mean, np.exp(hyper[:, : self.effects])]
        if self.effects == 2:
            natural += [np.tanh(hyper[:, 2:3]), np.exp(hyper[:, 3:])]
        return np.concatenate([*natural, effects[:, :4].reshape(len(mean), -1)], axis=1)

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
        """That of one draw in centred coordinates, up to a constant."""
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

    @property
    def non_centred(self) -> Any:
        """The map of centred coordinates to (μ, hyper, Σ^(−1/2) (β − μ))."""
        import zerovar as zv

        first = self.effects + self.hypers

        def location_and_scale(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            spread = self.covariance(x[self.effects : first], jnp)[0]
            each = (self.groups, self.effects, self.effects)
            location = jnp.tile(x[: self.effects], self.groups)
            return location, jnp.broadcast_to(jnp.linalg.cholesky(spread), each)

        block = range(first, first + self.groups * self.effects)
        return zv.Coupling([(block, location_and_scale)], backwards=True)


EXACT = {
    "8 groups, weak data": Exact(8, 1, 2.0, (1.0,)),
    "8 groups": Exact(8, 3, 1.0, (1.0,)),
    "15 groups": Exact(15, 4, 1.0, (1.0,)),
    "30 groups, weak data": Exact(30, 2, 2.0, (0.5,)),
    "30 groups, strong data": Exact(30, 5, 1.0, (1.0,)),
    "100 groups, weak data": Exact(100, 2, 2.0, (0.7,)),
    "2 × 15 groups": Exact(15, 8, 0.5, (1.0, 0.5)),  # the cafés of Statistical Rethinking
    "2 × 15 groups, strong data": Exact(15, 40, 0.5, (1.0, 0.8)),
    "2 × 40 groups, weak data": Exact(40, 4, 1.0, (0.7, 0.3)),
}
# The coordinates that draws and scores are given in; "known" are centred ones with a map to others
FORMS = {
    "centred": tuple(EXACT),
    "non-centred": (
        "8 groups",
        "30 groups, weak data",
        "2 × 15 groups",
        "2 × 40 groups, weak data",
    ),
    "known": ("8 groups", "100 groups, weak data", "2 × 15 groups", "2 × 40 groups, weak data"),
}


def sample_centred(model: Exact, draws: int, key: int) -> Any:
    """NUTS of a model with two effects, as a NumPyro user writes it: 4 chains, `draws` in all."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    centre, width = model.prior

    def cafes(design: jax.Array, observed: jax.Array) -> None:
        mu = [numpyro.sample("ab"[k], dist.Normal(centre[k], width[k])) for k in range(2)]
        scales = numpyro.sample("scales", dist.Exponential(1).expand([2]))
        sigma = numpyro.sample("sigma", dist.Exponential(1))
        covariance = jnp.outer(scales, scales) * numpyro.sample("Rho", dist.LKJ(2, 2))
        prior = dist.MultivariateNormal(jnp.stack(mu), covariance).expand([model.groups])
        effects = numpyro.sample("effects", prior)
        numpyro.sample("y", dist.Normal(effects @ design.T, sigma).to_event(2), obs=observed)

    mcmc = MCMC(
        NUTS(cafes, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=draws // 4,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    data = jnp.asarray(model.design), jnp.asarray(model.observed)
    mcmc.run(jax.random.key(key), *data, extra_fields=("z_grad",))
    return mcmc


_EFFECTS = 10  # that are integrands, besides μ, τ and the slope
# of the effects (groups,) and the slope
LogLikelihood = Callable[[jax.Array, jax.Array], jax.Array]


def normal(groups: int, rng: np.random.Generator) -> LogLikelihood:
    """Five observations a group, of known error, and a covariate."""
    covariate = rng.normal(size=(groups, 5))
    data = (
        (1 + 0.5 * rng.normal(size=groups))[:, None]
        + 0.3 * covariate
        + 2 * rng.normal(size=(groups, 5))
    )
    return lambda effects, slope: stats.norm.logpdf(
        data, effects[:, None] + slope * covariate, 2.0
    ).sum()


def poisson(groups: int, rng: np.random.Generator) -> LogLikelihood:
    covariate = rng.normal(size=(groups, 3))
    data = rng.poisson(np.exp((0.5 + 0.2 * rng.normal(size=groups))[:, None] + 0.3 * covariate))
    return lambda effects, slope: stats.poisson.logpmf(
        data, jnp.exp(effects[:, None] + slope * covariate)
    ).sum()


def logistic(groups: int, rng: np.random.Generator) -> LogLikelihood:
    covariate = rng.normal(size=(groups, 8))
    odds = (-0.5 + 0.4 * rng.normal(size=groups))[:, None] + 0.7 * covariate
    data = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))

    def log_likelihood(effects, slope):
        at = effects[:, None] + slope * covariate
        return jnp.where(data, jax.nn.log_sigmoid(at), jax.nn.log_sigmoid(-at)).sum()

    return log_likelihood


MODELS = {
    "normal, 10 groups": (normal, 10),
    "Poisson, 40 groups": (poisson, 40),
    "logistic, 100 groups": (logistic, 100),
}


def centred(log_likelihood: LogLikelihood) -> Callable[[jax.Array], jax.Array]:
    """The log density of (μ, log τ, slope, θ₁ …), with a half-normal prior of τ."""

    def log_density(y: jax.Array) -> jax.Array:
        mu, log_tau, slope, effects = y[0], y[1], y[2], y[3:]
        tau = jnp.exp(log_tau)
        prior = (
            stats.norm.logpdf(mu, 0, 5)
            + stats.norm.logpdf(slope, 0, 2)
            + stats.norm.logpdf(tau)
            + log_tau
        )
        return prior + stats.norm.logpdf(effects, mu, tau).sum() + log_likelihood(effects, slope)

    return log_density


def mapped(z: jax.Array) -> jax.Array:
    """From non-centred coordinates (μ, log τ, slope, z₁ …) to centred ones."""
    return jnp.concatenate([z[:3], z[0] + jnp.exp(z[1]) * z[3:]])


def chain(job: tuple[str, int, int]) -> np.ndarray:
    """Draws (draw, d) of one chain, in centred coordinates."""
    from numpyro.infer import MCMC, NUTS

    name, length, key = job
    jax.config.update("jax_enable_x64", True)
    log_density, groups = of(name)

    def potential(z: jax.Array) -> jax.Array:
        return -log_density(mapped(z)) - groups * z[1]

    mcmc = MCMC(
        NUTS(potential_fn=potential, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=length,
        progress_bar=False,
    )
    mcmc.run(
        jax.random.key(key),
        init_params=0.1 * jax.random.normal(jax.random.key(1000 + key), (groups + 3,)),
    )
    return np.asarray(jax.vmap(mapped)(mcmc.get_samples()))


def of(name: str) -> tuple[Callable[[jax.Array], jax.Array], int]:
    """Log density and number of groups."""
    model, groups = MODELS[name]
    return centred(model(groups, np.random.default_rng(groups))), groups


def made(name: str, every: np.ndarray, draws: int) -> dict[str, np.ndarray]:
    """Chains (chain, draw, …): the first `draws` of each. The rest give the means and the errors of
    these."""
    log_density, _ = of(name)
    values = np.concatenate(
        [every[:, :, :1], np.exp(every[:, :, 1:2]), every[:, :, 2 : 3 + _EFFECTS]], axis=2
    )
    means = values[:, draws:].mean(axis=1)
    return {
        "x": every[:, :draws],
        "score": np.asarray(jax.vmap(jax.vmap(jax.grad(log_density)))(every[:, :draws])),
        "f": values[:, :draws],
        "names": np.array(["mu", "tau", "slope", *(f"theta[{j}]" for j in range(_EFFECTS))]),
        "truth": means.mean(axis=0),
        "se": means.std(axis=0, ddof=1) / np.sqrt(len(means)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chains", type=int, default=20)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--times", type=int, default=200, help="draws behind the means, in chains")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    folder = options.folder / "hierarchies"
    folder.mkdir(parents=True, exist_ok=True)
    length = options.draws * (1 + options.times // options.chains)
    with get_context("spawn").Pool() as pool:
        found_chains = pool.map(
            chain,
            [(name, length, key) for name in MODELS for key in range(options.chains)],
            chunksize=1,
        )
    truths = {}
    for k, name in enumerate(MODELS):
        found = made(
            name,
            np.array(found_chains[k * options.chains : (k + 1) * options.chains]),
            options.draws,
        )
        with atomic(folder / f"{name}.npz") as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **{key: found[key] for key in ("x", "score", "f")})
        truths[name] = {key: found[key].tolist() for key in ("names", "truth", "se")}
    with atomic(folder / "truth.json") as temporary:
        Path(temporary).write_text(json.dumps(truths, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
