"""Neural networks as control variates: a Stein operator on any Equinox module.

A network with q outputs serves q integrands with one trunk. Under `Langevin` the outputs are vector
fields with an exact divergence, or, for training in high dimension, random probes vᵀ(∂u)v whose
mean it is; under `ScalarLangevin` they are potentials, and Laplacian and gradient come from one
forward pass (`folx`).
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..arguments import function, takes, where, whole
from ..io.archive import Storable, register_functions
from ..operators import OPERATOR, Diffusion, Langevin, Operator, ScalarLangevin, weigh
from ..spaces import Metric
from .base import Nd, Nk, NonlinearFamily

# Files name them by these keys. All but the last have a bounded second derivative, which is what a
# Laplacian needs.
ACTIVATIONS: dict[str, Callable] = {
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "swish": jax.nn.swish,
    "gelu": jax.nn.gelu,
    "sine": jnp.sin,
    "relu": jax.nn.relu,
}
register_functions(ACTIVATIONS)


def activation_name(function: Any) -> str | None:
    """Return the key of an activation, or None if it is not one of these."""
    return next((name for name, known in ACTIVATIONS.items() if known is function), None)


Layers = tuple[tuple[Any, ...], ...]  # (weight (in, out), bias (out,)) of each


class Architecture(Storable, eqx.Module):
    """A network before it knows its sizes: `build(d, outputs, rng)` gives the module with
    parameters, x (d,) → (outputs,)."""

    width: int = eqx.field(static=True, default=32)
    depth: int = eqx.field(static=True, default=2)
    activation: Callable = eqx.field(static=True, default=jax.nn.swish)
    layers: Layers = ()  # none before it is built

    @takes(
        width=whole(1),
        depth=whole(1),
        activation=function("a function such as jax.numpy.tanh"),
        layers=where(
            "pairs of a weight (in, out) and a bias (out,), or none",
            lambda layers: all(np.ndim(w) == 2 and w.shape[1:] == b.shape for w, b in layers),
            lambda value: tuple(tuple(layer) for layer in value),
        ),
    )
    def __init__(
        self, width: int = 32, depth: int = 2, activation: Callable = jax.nn.swish, layers: Any = ()
    ):
        self.width, self.depth, self.activation = width, depth, activation
        self.layers = layers

    @abstractmethod
    def hidden_layer(self, x: Float[Array, " d"]) -> Float[Array, " width"]:
        """Return the last hidden layer at one point."""

    @abstractmethod
    def sizes(self, d: int, outputs: int) -> list[tuple[int, int]]:
        """Return (in, out) of each layer."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " k"]:
        weight, bias = self.layers[-1]
        return self.hidden_layer(x) @ weight + bias

    def divergence(self, x: Float[Array, " d"]) -> Float[Array, " q"]:
        """Return the divergence of each of the q vector fields that the outputs (q · d,) are.

        Outputs are linear in the hidden units, so that slopes of those, (width, d), are enough:
        nothing of size q d² is made.
        """
        slopes = (jax.jacrev if self.width < len(x) else jax.jacfwd)(self.hidden_layer)(x)
        return jnp.einsum("kqi,ki->q", self.layers[-1][0].reshape(self.width, -1, len(x)), slopes)

    def build(self, d: int, outputs: int, rng: np.random.Generator) -> Architecture:
        """Draw unit-variance layers with spread-out biases, and an output layer of zeros: g starts
        at 0."""
        sizes = self.sizes(d, outputs)
        layers = [
            (rng.normal(size=size) / math.sqrt(size[0]), 0.5 * rng.normal(size=size[1]))
            for size in sizes
        ]
        layers[-1] = (np.zeros(sizes[-1]), np.zeros(sizes[-1][1]))
        return self.rebuild(tuple(layers))

    def rebuild(self, layers: Layers) -> Architecture:
        """Return the same architecture with these layers."""
        return type(self)(self.width, self.depth, self.activation, layers)

    def describe(self) -> str:
        """Return a short name for tables."""
        name = activation_name(self.activation)
        return (
            f"{type(self).__name__}({self.width} × {self.depth}, "
            f"{name or getattr(self.activation, '__name__', 'custom')})"
        )


class MLP(Architecture):
    """`depth` hidden layers of `width` units."""

    def sizes(self, d, outputs):
        inner = [d, *[self.width] * self.depth, outputs]
        return list(itertools.pairwise(inner))

    def hidden_layer(self, x):
        for weight, bias in self.layers[:-1]:
            x = self.activation(x @ weight + bias)
        return x


class ResNet(Architecture):
    """`depth` blocks h + W activation(h V + b), between a first hidden layer and the output."""

    def sizes(self, d, outputs):
        return [
            (d, self.width),
            *[(self.width, self.width)] * (2 * self.depth),
            (self.width, outputs),
        ]

    def hidden_layer(self, x):
        weight, bias = self.layers[0]
        x = self.activation(x @ weight + bias)
        for (into, inner), (back, outer) in zip(
            self.layers[1:-1:2], self.layers[2:-1:2], strict=True
        ):
            x = x + (self.activation(x @ into + inner) @ back + outer) / math.sqrt(self.depth)
        return x


def _output_shape(module: Any, d: int) -> tuple[int, ...]:
    return jax.eval_shape(
        module, jax.ShapeDtypeStruct((d,), jax.dtypes.canonicalize_dtype(np.float64))
    ).shape


class Network(NonlinearFamily):
    """Control variates L u with u a neural network on standardised coordinates, trained by `SGD`.

    `module` is an architecture (`MLP()`, `ResNet()`, sizes free) or any Equinox module x (d,) → u.
    Under `Langevin` (the default, and the more flexible one) u is a vector field for each of q
    integrands, shape (q, d), or (d,) for one; under `ScalarLangevin` a potential for each, (q,), or
    (). `probes=k` replaces the divergence by the mean of k random probes while training (two
    independent sets, so that squares stay unbiased); what is reported always uses the exact
    divergence. A module whose coordinates standardisation must not mix has a `keeps` of its own.
    """

    module: Any
    operator: Operator
    probes: int = eqx.field(static=True)

    @takes(
        module=function("MLP(), ResNet() or a callable Equinox module"),
        operator=OPERATOR,
        probes=whole(0),
    )
    def __init__(self, module: Any = None, operator: Operator | None = None, probes: int = 0):
        self.module = MLP() if module is None else module
        self.operator = Langevin() if operator is None else operator
        self.probes = probes
        if probes and not isinstance(self.operator, Langevin):
            raise ValueError(
                "Network: probes estimate the divergence of a vector field, so they need "
                "operator=Langevin(); the Laplacian of a potential is exact in one forward pass"
            )

    def describe(self):
        inside = (
            self.module.describe()
            if isinstance(self.module, Architecture)
            else type(self.module).__name__
        )
        name = self.operator.describe()
        under = "" if name == Langevin().describe() else f", {name}"
        return f"Network({inside}{under}{f', {self.probes} probes' if self.probes else ''})"

    @property
    def keeps(self):
        return getattr(self.module, "keeps", super().keeps)

    def check(self, d):
        if hasattr(self.module, "check"):
            self.module.check(d)

    def build(self, d: int, q: int, rng: np.random.Generator) -> Network:
        """Return this network with parameters in double precision, for q integrands in d
        dimensions, shape and smoothness checked."""
        module = self.module
        wanted = (q, d) if self.operator.on_fields else (q,)
        if isinstance(module, Architecture) and not module.layers:
            module = module.build(d, math.prod(wanted), rng)
        module = jax.tree.map(
            lambda leaf: np.asarray(leaf, dtype=np.float64) if eqx.is_inexact_array(leaf) else leaf,
            module,
        )
        try:
            shape = _output_shape(module, d)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{self.describe()}: the module cannot be called on a point of shape ({d},): "
                f"{error}"
            ) from error
        if math.prod(shape) != math.prod(wanted):
            short = "" if q > 1 else (f" or ({d},)" if self.operator.on_fields else " or ()")
            raise ValueError(
                f"{self.describe()}: the module returns shape {shape}; {q} integrand(s) in d = {d} "
                f"under {type(self.operator).__name__} need {wanted}{short}"
            )
        network = Network(module, self.operator.build(d, rng), self.probes)
        if isinstance(self.operator, ScalarLangevin) and not _is_smooth(module):
            network.perturb(rng)._check_curvature(d, rng)
        return network

    def perturb(self, rng: np.random.Generator) -> Network:
        """Return it with typical parameters: an output layer of zeros says nothing about
        derivatives, or about the size of g."""

        def move(leaf: Any) -> Any:
            if not eqx.is_inexact_array(leaf):
                return leaf
            return leaf + rng.normal(size=leaf.shape) * (
                1 / math.sqrt(leaf.shape[0]) if leaf.ndim > 1 else 0.3
            )

        trained, fixed = partition_arrays(self)
        return eqx.combine(jax.tree.map(move, trained), fixed)

    def __call__(self, x: Nd, s: Nk) -> Float[Array, "n q"]:
        """Return g at points x with scores s, exact."""
        return jax.vmap(self._one)(x, s)

    @property
    def starts_at_zero(self):
        """Whether g starts at zero, as that of a new architecture of ours does."""
        return isinstance(self.module, Architecture) and not any(
            np.any(leaf) for leaf in self.module.layers[-1]
        )

    def floats(self, d: int) -> int:
        """Return about how many numbers g at one point holds in memory at once."""
        outputs = math.prod(_output_shape(self.module, d))
        closed = isinstance(self.module, Architecture) and self._is_plain
        closed = closed and self.operator.on_fields
        return outputs + self.module.width * d if closed else outputs * d

    def probe(
        self, x: Nd, s: Nk, key: PRNGKeyArray
    ) -> tuple[Float[Array, "n q"], Float[Array, "n q"]]:
        """Return two independent unbiased estimates of g."""

        def one(point, score, key):
            field = self._field(len(point))
            D, drift = self.operator.prepare(point, score)

            def estimate(directions):
                images = jax.vmap(lambda v: jax.jvp(field, (point,), (weigh(D, v),))[1] @ v)(
                    directions
                )
                return jnp.mean(images, axis=0)

            signs = jax.random.rademacher(key, (2, self.probes, len(point)), dtype=point.dtype)
            mean = field(point) @ drift
            return mean + estimate(signs[0]), mean + estimate(signs[1])

        return jax.vmap(one)(x, s, jax.random.split(key, len(x)))

    @property
    def _is_plain(self) -> bool:
        """Whether its operator is one of Langevin's with D the identity."""
        return isinstance(self.operator, Diffusion) and self.operator.is_plain

    def _field(self, d: int) -> Callable:
        return lambda x: jnp.reshape(self.module(x), (-1, d))

    def _one(self, x, s):
        if self.operator.on_fields:
            field = self._field(len(x))
            if isinstance(self.module, Architecture) and self._is_plain:
                return self.module.divergence(x) + field(x) @ s
            return self.operator(field, x, s)
        if not self._is_plain:
            return self.operator(lambda point: jnp.ravel(self.module(point)), x, s)
        # imported here because it is only needed here, and takes a while
        from folx import forward_laplacian

        out = forward_laplacian(lambda point: jnp.ravel(self.module(point)))(x)
        return out.laplacian + s @ out.jacobian.dense_array

    def _check_curvature(self, d: int, rng: np.random.Generator) -> None:
        """Refuse piecewise linear networks: their Laplacian is zero almost everywhere, and L u has
        not mean zero."""

        @eqx.filter_jit
        def derivatives(module: Any, points: Any) -> Any:
            total = lambda x: jnp.sum(module(x))  # noqa: E731
            slopes = jax.vmap(jax.grad(total))(points)
            return jnp.ptp(slopes, axis=0).max(), jax.vmap(
                lambda x: jnp.abs(jax.hessian(total)(x)).max()
            )(points[:8]).max()

        bend, curvature = derivatives(self.module, 2 * rng.normal(size=(32, d)))
        if float(bend) > 0 and float(curvature) == 0:
            raise ValueError(
                f"{self.describe()}: a piecewise linear network (ReLU) cannot be a potential. Its "
                "Laplacian is zero almost everywhere, so L u has not mean zero (relu(x) under "
                "N(0, 1): −0.399). Use a smooth activation (tanh, softplus, swish, sine), or "
                "operator=Langevin()"
            )


def partition_arrays(network: Any) -> tuple[Any, Any]:
    """Return the arrays of a network that are trained, and the network without them: all but those
    that say where draws live."""

    def choose(node: Any) -> Any:
        if isinstance(node, Metric):
            return jax.tree.map(lambda _: False, node)
        return eqx.is_inexact_array(node)

    where = jax.tree.map(choose, network, is_leaf=lambda node: isinstance(node, Metric))
    return eqx.partition(network, where)


def _is_smooth(module: Any) -> bool:
    """Return whether it is an architecture of ours with an activation that is known to be
    smooth."""
    return isinstance(module, Architecture) and activation_name(module.activation) not in (
        None,
        "relu",
    )
