"""Models in the manner of NumPyro's and PyMC's own examples, in a few lines each and with small
data of our own: what users bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Example:
    """`make` gives a NumPyro model and its arguments, or a PyMC model and none; data are made with
    a fixed seed. `integrates` says that `zv.integrate` has an answer too. `several` modes, as those
    of a network, have no mean that two chains agree on."""

    make: Callable[[Rng], tuple[Any, tuple[Any, ...]]]
    integrates: bool = False
    several: bool = False

    def build(self) -> tuple[Any, tuple[Any, ...]]:
        """The model and its arguments."""
        return self.make(np.random.default_rng(1))


def counties(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Varying intercepts, indexed by codes as pandas gives them: NumPy's own integers."""
    import numpyro
    import numpyro.distributions as dist

    codes, floor = np.repeat(np.arange(6), 5), rng.integers(0, 2, 30)
    radon = rng.normal(1.0 + rng.normal(0, 0.5, 6)[codes] - 0.7 * floor, 0.6)

    def model(codes: Any, floor: Any, radon: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 2))
        spread = numpyro.sample("spread", dist.LogNormal(-1, 0.5))
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        noise = numpyro.sample("noise", dist.LogNormal(-0.5, 0.5))
        with numpyro.plate("counties", 6):
            county = numpyro.sample("county", dist.Normal(mean, spread))
        numpyro.sample("radon", dist.Normal(county[codes] + slope * floor, noise), obs=radon)

    return model, (codes, floor, radon)


def cafes(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Intercepts and slopes with a correlation, LKJ; the index is an 8-bit array of the module."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    cafe, late = np.repeat(np.arange(8), 6).astype(np.int8), np.tile([0.0, 1.0], 24)
    waits = rng.normal(rng.normal(3, 1, 8)[cafe] - rng.normal(1, 0.5, 8)[cafe] * late, 0.5)

    def model() -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 3).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.Exponential(1).expand([2]).to_event(1))
        root = numpyro.sample("root", dist.LKJCholesky(2, 2.0))
        tril = scale[:, None] * root
        both = numpyro.sample(
            "both", dist.MultivariateNormal(mean, scale_tril=tril).expand([8]).to_event(1)
        )
        numpyro.deterministic("correlation", (root @ root.T)[0, 1])
        wait = both[cafe, 0] + both[cafe, 1] * jnp.asarray(late)
        numpyro.sample("waits", dist.Normal(wait, 0.5), obs=waits)

    return model, ()


def grades(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Ordered answers, whose cut points have a flat prior over all that are in order."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.distributions import constraints

    taught = rng.normal(size=40)
    grade = np.digitize(taught + rng.logistic(size=40), [-1.0, 0.5, 2.0])

    def model(taught: Any, grade: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(0, 2))
        support = constraints.ordered_vector
        cuts = numpyro.sample("cuts", dist.ImproperUniform(support, (), event_shape=(3,)))
        numpyro.sample("grade", dist.OrderedLogistic(slope * taught, cuts), obs=grade)

    return model, (taught, grade)


def shares(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """A simplex: counts of four kinds, and the odds of the first."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    counts = rng.multinomial(30, [0.4, 0.3, 0.2, 0.1])

    def model(counts: Any) -> None:
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(4)))
        numpyro.deterministic("odds", share[0] / (1 - share[0]))
        numpyro.sample("counts", dist.Multinomial(30, share), obs=counts)

    return model, (counts,)


def clusters(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """A mixture whose labels are summed out; its centres are ordered."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    data = np.concatenate([rng.normal(-2, 0.7, 15), rng.normal(1.5, 0.7, 25)])

    def model(data: Any) -> None:
        weight = numpyro.sample("weight", dist.Dirichlet(2 * jnp.ones(2)))
        order = dist.transforms.OrderedTransform()
        start = dist.Normal(0, 2).expand([2]).to_event(1)
        centre = numpyro.sample("centre", dist.TransformedDistribution(start, order))
        width = numpyro.sample("width", dist.LogNormal(0, 0.5))
        with numpyro.plate("data", len(data)):
            label = numpyro.sample(
                "label", dist.Categorical(weight), infer={"enumerate": "parallel"}
            )
            numpyro.sample("obs", dist.Normal(centre[label], width), obs=data)

    return model, (data,)


def moods(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """A hidden Markov chain, enumerated in a scan that carries 32-bit integers."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    data = np.concatenate([rng.normal(0, 0.6, 12), rng.normal(3, 0.6, 12)])

    def model(data: Any) -> None:
        stay = numpyro.sample("stay", dist.Beta(6, 2).expand([2]).to_event(1))
        gap = numpyro.sample("gap", dist.LogNormal(1, 0.3))
        low = numpyro.sample("low", dist.Normal(0, 1))

        def step(carry: Any, y: Any) -> Any:
            state, count = carry
            up = jnp.where(state == 1, stay[1], 1 - stay[0])
            state = numpyro.sample("state", dist.Bernoulli(up), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Normal(low + gap * state, 0.6), obs=y)
            return (state, count + 1), None

        scan(step, (jnp.int32(0), jnp.int32(0)), data)

    return model, (data,)


def birds(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Capture and recapture: who lives is summed out step by step, and survival varies from year to
    year inside the scan."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import expit, logit
    from numpyro.contrib.control_flow import scan
    from numpyro.infer.reparam import LocScaleReparam

    alive, seen = np.ones(20, int), np.ones((6, 20), int)
    for year in range(1, 6):
        alive = alive * (rng.random(20) < 0.8)
        seen[year] = alive * (rng.random(20) < 0.6)

    def model(seen: Any) -> None:
        mean = numpyro.sample("mean", dist.Beta(2, 2))
        catch = numpyro.sample("catch", dist.Beta(2, 2))
        spread = numpyro.sample("spread", dist.LogNormal(-1, 0.5))

        def step(carry: Any, y: Any) -> Any:
            alive, count = carry
            with numpyro.handlers.reparam(config={"year": LocScaleReparam(0)}):
                year = numpyro.sample("year", dist.Normal(logit(mean), spread))
            with numpyro.plate("birds", 20):
                lives = dist.Bernoulli(dist.util.clamp_probs(expit(year) * alive * jnp.ones(20)))
                alive = numpyro.sample("alive", lives, infer={"enumerate": "parallel"})
                found = dist.Bernoulli(dist.util.clamp_probs(catch * alive))
                numpyro.sample("y", found, obs=y)
            return (alive, count + 1), None

        scan(step, (jnp.ones(20, jnp.int32), jnp.int32(0)), seen[1:])

    return model, (seen,)


def hares(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Hunters and hunted: an ordinary differential equation inside the model."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def path(rates: Any) -> Any:
        """Both counts in 12 years, by steps of Runge and Kutta."""

        def slope(z: Any) -> Any:
            return jnp.stack(
                [(rates[0] - rates[1] * z[1]) * z[0], (rates[2] * z[0] - rates[3]) * z[1]]
            )

        def step(z: Any, _: Any) -> Any:
            a = slope(z)
            b = slope(z + 0.1 * a)
            return z + 0.2 * slope(z + 0.1 * b), z

        return jax.lax.scan(step, jnp.array([3.0, 1.0]), None, length=60)[1][::5]

    counts = np.asarray(path(np.array([0.6, 0.3, 0.2, 0.7])))
    counts = counts * np.exp(0.2 * rng.normal(size=counts.shape))

    def model(counts: Any) -> None:
        unit = numpyro.sample("unit", dist.Normal(0, 1).expand([4]).to_event(1))
        middle = jnp.array([0.5, 0.3, 0.3, 0.5])
        rates = numpyro.deterministic("rates", middle * jnp.exp(0.4 * unit))
        noise = numpyro.sample("noise", dist.LogNormal(-1.5, 0.4))
        numpyro.sample("counts", dist.LogNormal(jnp.log(path(rates)), noise), obs=counts)

    return model, (counts,)


def levels(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """A time series: a smoothed level with a trend, by a scan."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    data = np.cumsum(rng.normal(0.2, 0.3, 30)) + rng.normal(0, 0.3, 30)

    def model(data: Any) -> None:
        share = numpyro.sample("share", dist.Beta(2, 2))
        trend = numpyro.sample("trend", dist.Normal(0, 1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))

        def step(level: Any, y: Any) -> Any:
            return level + trend + share * (y - level - trend), level + trend

        expected = jax.lax.scan(step, jnp.asarray(data[0]), jnp.asarray(data[1:]))[1]
        numpyro.sample("data", dist.Normal(expected, noise), obs=data[1:])

    return model, (data,)


def horseshoe(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Few of eight coefficients matter: scales with long tails, non-centred."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    x = rng.normal(size=(40, 8))
    y = x @ np.array([1.5, -1.0, 0, 0, 0, 0, 0, 0]) + rng.normal(size=40)

    def model(x: Any, y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfCauchy(0.3))
        own = numpyro.sample("own", dist.HalfCauchy(1).expand([8]).to_event(1))
        unit = numpyro.sample("unit", dist.Normal(0, 1).expand([8]).to_event(1))
        slope = numpyro.deterministic("slope", scale * own * unit)
        numpyro.sample("y", dist.Normal(jnp.asarray(x) @ slope, 1.0), obs=y)

    return model, (x, y)


def network(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Three hidden units, which may change places; what they give at a point is of interest."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    x = np.linspace(-2, 2, 20)
    y = np.sin(1.5 * x) + 0.2 * rng.normal(size=20)

    def model(x: Any, y: Any) -> None:
        inner = numpyro.sample("inner", dist.Normal(0, 1.5).expand([3, 2]).to_event(2))
        outer = numpyro.sample("outer", dist.Normal(0, 1).expand([3]).to_event(1))

        def at(z: Any) -> Any:
            return jnp.tanh(jnp.stack([z, jnp.ones_like(z)], axis=-1) @ inner.T) @ outer

        numpyro.deterministic("at one", at(jnp.array(1.0)))
        numpyro.sample("y", dist.Normal(at(jnp.asarray(x)), 0.2), obs=y)

    return model, (x, y)


def groups(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Two groups with outliers: the difference of their means in units of their spread."""
    import numpyro
    import numpyro.distributions as dist

    data = rng.standard_t(4, size=(2, 20)) * np.array([[1.0], [1.3]]) + np.array([[0.5], [0.0]])

    def model(data: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 3).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0, 0.7).expand([2]).to_event(1))
        normality = numpyro.sample("normality", dist.Gamma(2, 0.1))
        numpyro.deterministic("effect", (mean[0] - mean[1]) / scale.mean())
        for k in range(2):
            numpyro.sample(f"y{k}", dist.StudentT(normality, mean[k], scale[k]), obs=data[k])

    return model, (data,)


def schools(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Eight schools in PyMC, non-centred, with their names."""
    import pymc as pm

    effects, errors = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        unit = pm.Normal("unit", dims="school")
        theta = pm.Deterministic("theta", mu + tau * unit, dims="school")
        pm.Normal("y", theta, errors, observed=effects)
    return model, ()


def league(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Attack and defence of four teams in PyMC, from the points of all pairs."""
    import pymc as pm

    home, away = np.array([(i, j) for i in range(4) for j in range(4) if i != j]).T
    attack, defence = rng.normal(0, 0.4, (2, 4))
    points = rng.poisson(np.exp([2.8 + attack[home] - defence[away], 2.5 + attack[away]]))
    with pm.Model(coords={"team": ["north", "east", "south", "west"]}) as model:
        advantage, level = pm.Normal("advantage", 0, 1), pm.Normal("level", 3, 1)
        spread = pm.HalfNormal("spread", 1)
        attacks = pm.Normal("attacks", 0, spread, dims="team")
        defends = pm.Normal("defends", 0, 0.5, dims="team")
        at_home = pm.math.exp(level + advantage + attacks[home] - defends[away])
        pm.Poisson("home", at_home, observed=points[0])
        away_rate = pm.math.exp(level + attacks[away] - defends[home])
        pm.Poisson("away", away_rate, observed=points[1])
    return model, ()


def accidents(rng: Rng) -> tuple[Any, tuple[Any, ...]]:
    """Counts with more spread than Poisson's in PyMC: a negative binomial regression."""
    import pymc as pm

    rain = rng.normal(size=40)
    counts = rng.negative_binomial(4, 4 / (4 + np.exp(1.0 + 0.5 * rain)))
    with pm.Model() as model:
        level, slope = pm.Normal("level", 0, 2), pm.Normal("slope", 0, 1)
        shape = pm.Gamma("shape", 2, 0.5)
        rate = pm.math.exp(level + slope * rain)
        pm.NegativeBinomial("counts", mu=rate, alpha=shape, observed=counts)
    return model, ()


EXAMPLES = {
    "counties": Example(counties),
    "cafes": Example(cafes),
    "grades": Example(grades, integrates=True),
    "shares": Example(shares, integrates=True),
    "clusters": Example(clusters, integrates=True),
    "moods": Example(moods, integrates=True),
    "birds": Example(birds),
    "hares": Example(hares, integrates=True),
    "levels": Example(levels, integrates=True),
    "horseshoe": Example(horseshoe),
    "network": Example(network, several=True),
    "groups": Example(groups, integrates=True),
    "schools": Example(schools),
    "league": Example(league),  # of its exponential tails integrate warns, and is off by them
    "accidents": Example(accidents, integrates=True),
}
