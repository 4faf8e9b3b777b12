"""Effects in units of their own conditional scale: the other coordinates of a hierarchy that is
known by its scores alone.

Given the rest, an effect θ of a hierarchy is about normal: its prior has the precision A g, where g
is a power of a scale, and data add B. So its score is linear in θ, −(A g + B) θ + q, and z =
√p (θ − q/p) with p = A g + B is about standard normal whatever the scale is. Where data say nothing
that is the non-centred form, where they say all it is the centred one, and everything between.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float64, Int

from .sample import Sample, coordinate_name

# Powers of g in what an effect's location is made of: of a centred effect's prior, of a non-centred
# one's data, and of neither
POWERS = (1.0, 0.5, 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Effects:
    """z = √p (θ − θ₀ − q/p) in place of k coordinates θ, with p = A g + B and log g = `exponents` ·
    (x − their origin) along some other coordinates, the `parents`.

    precision (2, k): A and B, not negative, and A above zero.
    location (3, 1 + l, k): q is the sum over powers of g of `location` times 1 and the l other
        coordinates in `locations`, less their origins. None of these is among the effects.
    origin (d,): what is subtracted from each coordinate, θ₀ for effects.
    """

    effects: Int[np.ndarray, " k"]
    parents: Int[np.ndarray, " m"]
    exponents: Float64[np.ndarray, " m"]
    locations: Int[np.ndarray, " l"]
    precision: Float64[np.ndarray, "2 k"]
    location: Float64[np.ndarray, "3 l1 k"]
    origin: Float64[np.ndarray, " d"]

    def __call__(self, sample: Sample) -> Sample:
        draws, scores = self.map(sample.draws, sample.scores)
        return sample.replace(draws=draws, scores=scores)

    def map(
        self, draws: Float64[np.ndarray, "n d"], scores: Float64[np.ndarray, "n d"]
    ) -> tuple[Float64[np.ndarray, "n d"], Float64[np.ndarray, "n d"]]:
        """Return the new coordinates and their scores, those of `Coupling` in closed form."""
        x = draws - self.origin
        growth = np.exp(x[:, self.parents] @ self.exponents)[:, None]
        others = np.concatenate([np.ones((len(x), 1)), x[:, self.locations]], axis=1)
        prior = growth * self.precision[0]
        p = prior + self.precision[1]
        parts = [
            growth**power * (others @ own) for power, own in zip(POWERS, self.location, strict=True)
        ]
        middle = sum(parts) / p
        away, s = x[:, self.effects] - middle, scores[:, self.effects]
        # by log g: of log √p, of q/p, and of θ where z is held
        of_scale = prior / (2 * p)
        of_middle = sum(power * part for power, part in zip(POWERS, parts, strict=True)) / p
        of_middle = of_middle - 2 * of_scale * middle
        of_effect = of_middle - away * of_scale

        y, t = draws.copy(), scores.copy()
        root = np.sqrt(p)
        y[:, self.effects], t[:, self.effects] = root * away, s / root
        by_growth = np.sum(s * of_effect - of_scale, axis=1)
        t[:, self.parents] += by_growth[:, None] * self.exponents
        pull = s / p
        for power, own in zip(POWERS, self.location, strict=True):
            t[:, self.locations] += growth**power * (pull @ own[1:].T)
        return y, t

    def bare(self) -> Effects:
        """In units of the prior's scale alone, whatever data add."""
        only = (np.array(POWERS) == 1)[:, None, None]
        location, precision = self.location * only, self.precision * [[1.0], [0.0]]
        return dataclasses.replace(self, location=location, precision=precision)

    def describe(self, names: tuple[str, ...] | None) -> str:
        """In words, what was found."""
        count = len(self.effects)
        some = [coordinate_name(names, j) for j in self.effects[[0, -1][:count]]]
        many = f"{some[0]} to {some[1]} ({count} coordinates)" if count > 2 else " and ".join(some)
        rates = zip(-self.exponents / 2, self.parents, strict=True)
        power = " + ".join(_times(rate, coordinate_name(names, j)) for rate, j in rates)
        return f"the spread of {many} changes with exp({power})"


def _times(rate: float, name: str) -> str:
    number = f"{rate:.3g}"
    return name if number == "1" else f"−{name}" if number == "-1" else f"{number} {name}"
