"""The numbers of the automatic choice that a user or a benchmark may vary, and what set each."""

import dataclasses
from typing import Any

import numpy as np


def _number(value: Any, meaning: str, measured: str) -> Any:
    return dataclasses.field(default=value, metadata={"meaning": meaning, "measured": measured})


@dataclasses.dataclass(frozen=True)
class Policy:
    """The numbers of the automatic choice. `Policy().explain()` says what each is for, and which
    measurement or which reason set it.

    `zv.Automatic(policy=Policy(pilot=2000))` varies one of them, and `python -m benchmarks
    automatic --vary pilot=2000` measures what that does.
    """

    slow_factor: int = _number(
        4,
        "how many times more draws a term a slow chain needs, and draws on disk, whose chains are "
        "not known beforehand",
        "cubics on 600 Metropolis draws worth 60: errors half of what they should be",
    )
    fewest: int = _number(
        50,
        "effective draws from which hyper-parameters are tuned",
        "about twice the hyper-parameters of a cubic and a kernel in ten dimensions",
    )
    streamed_terms: int = _number(
        600,
        "most terms of the polynomial for draws on disk",
        "a pass costs their square: a million draws take a minute on two cores",
    )
    degree_weights: tuple[float, ...] = _number(
        (400.0, 1.0, 0.02),
        "prior variances of degrees 1 to 3 where tuning starts: lines are not shrunk like "
        "hundreds of cubic terms",
        "medians of where it ends on eleven posteriors",
    )
    long: float = _number(
        7.0,
        "length-scale of inverse multiquadrics where tuning starts, over that of a Gaussian",
        "as for degree_weights",
    )
    bent: float = _number(
        0.7,
        "part of its variance that functions of one direction must leave of a residual for ridge "
        "functions to be tried",
        "they cost half of the time in a hundred dimensions, and gain nothing where this is more",
    )
    at_a_time: int = _number(
        10,
        "integrands that share the directions of ridge functions",
        "all of a hundred at once need as many draws a term as cubics do",
    )
    kinks: int = _number(
        3,
        "dimensions up to which a rough kernel is tried",
        "in more, a thousand draws are not dense enough to see kinks and jumps",
    )
    polished: int = _number(
        1,
        "dimensions up to which the family in front is tuned as long again",
        "on a line smooth functions of Genz have 0.3 to 0.8 of the error, in two and three 0.9 to "
        "1.1, in 1.2 to 1.5 times the time",
    )
    smooth: float = _number(
        1e5,
        "gain from which an integrand needs no rough kernel",
        "kinks in one dimension gain up to ten thousand without",
    )
    separate_degree: int = _number(
        5,
        "degree of the polynomials of single coordinates that point to sums of such functions",
        "sums that a kernel settles: the sign is below closed forms in all of them",
    )
    tuning_draws: int = _number(
        384,
        "draws that hyper-parameters are tuned on; half of them for sums, of which each function "
        "sees all",
        "a step costs their cube; twice as many gain a tenth on nine posteriors",
    )
    tuning_steps: int = _number(
        20,
        "evaluations of that descent",
        "12 lose three quarters of the gain on eight schools",
    )
    more_steps: int = _number(
        2,
        "the same, where a descent goes on, with more draws or for other integrands",
        "1 loses up to three quarters on nine posteriors; 3 and 4 gain nothing on ten, 0.99 and "
        "0.97 of the reported gain in the mean, in 1.2 and 1.4 times the time",
    )
    ahead: float = _number(
        4.0,
        "variances ahead of closed forms that a tuned family must be to go on with more draws",
        "real posteriors: 12 and more; sums of functions of single coordinates: behind",
    )
    behind: float = _number(
        4.0,
        "variances behind the one in front from which another does not go on with it",
        "30: a quarter more time, and the same median gains on eleven posteriors",
    )
    pilot: int = _number(
        1000,
        "draws on which tuned families are compared, and tuned further, where there are more",
        "768: gp_regr has two thirds of the gain",
    )
    dense: int = _number(
        4000,
        "draws up to which a kernel is fitted to all of them; of more, at most half",
        "memory and time: a fit to 4000 takes a second on two cores",
    )
    kernel_dimensions: int = _number(
        75,
        "dimensions up to which kernels are tuned",
        "in 100 and more they gain 5 % for 30 times the time",
    )
    apart: float = _number(
        30.0,
        "ratio of gains from which integrands are too unlike to be tuned for together; gain from "
        "which an additive kernel is not tried, and from which one that its sign pointed to leaves "
        "nothing for others to tune for",
        "1000: a half more error on smooth functions of Genz that have a jump and a kink beside "
        "them; sums of functions of single coordinates gain 300 and more, products of ten bumps 3 "
        "without an additive kernel",
    )
    corrected: float = _number(
        0.5,
        "share of the jackknife's correction for bias that is made, less what is noise; the rest "
        "bounds the error",
        "gains of 11 posteriors, 1000 draws: 0.7 to 2.1 times those without, geometric mean 1.1",
    )

    def intensify(self) -> "Policy":
        """The numbers for who has time: longer descents, denser kernels."""
        return dataclasses.replace(
            self,
            tuning_steps=2 * self.tuning_steps,
            ahead=1.0,
            behind=np.inf,
            dense=2 * self.dense,
        )

    def explain(self) -> list[tuple[str, Any, str, str]]:
        """(name, value, what it is for, which measurement or reason set it) of each number."""
        return [
            (
                field.name,
                getattr(self, field.name),
                field.metadata["meaning"],
                field.metadata["measured"],
            )
            for field in dataclasses.fields(self)
        ]
