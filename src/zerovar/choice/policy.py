"""Every number of the automatic choice, and what set it."""

import dataclasses
from typing import Any

import numpy as np

from ..inference.cautions import DRAWS_PER_TERM

_NONE = "no measurement"


def _number(value: Any, meaning: str, measured: str = _NONE) -> Any:
    return dataclasses.field(default=value, metadata={"meaning": meaning, "measured": measured})


@dataclasses.dataclass(frozen=True)
class Policy:
    """The numbers of the automatic choice. `Policy().explained()` says what each is for, and which
    measurement set it or that none did.

    `zv.Automatic(policy=Policy(pilot=2000))` varies one of them, and `python -m benchmarks
    automatic --vary pilot=2000` measures what that does.
    """

    draws_per_term: float = _number(
        DRAWS_PER_TERM,
        "draws a term from which a polynomial is offered",
        "fits with fewer are over-confident",
    )
    degree_weights: tuple[float, ...] = _number(
        (400.0, 1.0, 0.02),
        "prior variances of degrees 1 to 3 where tuning starts: lines are not shrunk like hundreds "
        "of cubic terms",
        "medians of where it ends on eleven posteriors",
    )
    long: float = _number(
        7.0,
        "length-scale of inverse multiquadrics where tuning starts, over that of a Gaussian",
        "as for degree_weights",
    )
    streamed_terms: int = _number(
        600, "most terms of the polynomial for draws on disk: a pass costs their square"
    )
    streamed_draws_per_term: int = _number(20, "draws a term it needs there")
    slow_factor: int = _number(
        4,
        "how many times more of them a slow chain needs",
        "cubics on 600 Metropolis draws worth 60: errors half of what they should be",
    )
    fewest: int = _number(50, "effective draws from which hyper-parameters are tuned")
    slow_fewest: int = _number(
        100, "the same of a slow chain, whose tails are seen a few times only", "as for slow_factor"
    )
    spectral_time: float = _number(
        2.0, "autocorrelation time from which the spectral variance is an objective"
    )
    spectral_length: int = _number(200, "draws a chain from which it is")
    quartic: int = _number(
        800,
        "effective draws from which ridge functions are quartic, not cubic",
        "a sigmoid on 200 draws: errors 1.6 times too small; on 1000 right, and the smaller ones",
    )
    bent: float = _number(
        0.7,
        "part of its variance that functions of one direction must leave of a residual to be tried",
    )
    at_a_time: int = _number(10, "integrands that share the directions of ridge functions")
    directional_folds: int = _number(10, "folds by which they are cross-fitted")
    kinks: int = _number(
        3,
        "dimensions up to which a rough kernel is tried: draws are dense enough to see kinks and "
        "jumps",
    )
    smooth: float = _number(1e5, "gain from which an integrand needs no rough kernel")
    separate: int = _number(
        50, "dimensions up to which sums of functions of single coordinates are tried: cost"
    )
    separate_draws: int = _number(
        192,
        "draws that they are tuned on: each function sees all of them",
        "384 take two seconds more and gain half as much again on products of ten bumps, nothing "
        "on sums",
    )
    separate_degree: int = _number(
        5,
        "degree of the polynomials of single coordinates that point to such sums by less than half "
        "the variance of others",
    )
    hopeless: float = _number(
        1.5,
        "variances of others that these polynomials may have for such sums to be tried at all",
        "products of four to twenty bumps: at most 1; functions of pairs of coordinates: 2 and "
        "more, and sums gain nothing",
    )
    settled: float = _number(
        100.0,
        "how many times less variance than closed forms such a sum must have for nothing else to "
        "be tuned",
        "sums of functions of single coordinates: 300 and more",
    )
    little: float = _number(
        100.0,
        "gain up to which they are tried",
        "products of ten bumps: a gain of 60 where others have 3",
    )
    tuning_draws: int = _number(384, "draws that hyper-parameters are tuned on")
    tuning_fewest: int = _number(100, "and at least that many of a slow chain")
    tuning_steps: int = _number(
        20, "evaluations of that descent", "12 lose three quarters of the gain on eight schools"
    )
    renewed_steps: int = _number(
        6,
        "the same, from where a descent for other integrands of these draws ended",
        "squares after means on five posteriors: 1 loses up to three quarters, more draws or steps "
        "gain nothing",
    )
    behind: float = _number(
        0.1,
        "loss a draw behind the best from which a family is not tuned for other integrands, where "
        "it has been for some",
        "squares after means on nine posteriors: the one that begins best ends best on all",
    )
    in_front: int = _number(
        2,
        "most tuned families that go on with more draws, the best first",
        "one: gp_regr has a quarter",
    )
    ahead: float = _number(
        4.0,
        "variances ahead of closed forms that they must be for that",
        "real posteriors: 12 and more; sums of functions of single coordinates: behind, and 1.5 s "
        "saved",
    )
    close: float = _number(4.0, "variances from the best up to which the others go on with it")
    polished: int = _number(
        960, "draws that they go on with", "768: gp_regr has two thirds of the gain"
    )
    polishing_steps: int = _number(
        3, "evaluations of that", "4 gain nothing on eleven posteriors, none loses a third"
    )
    thorough: bool = _number(
        False,
        "whether smoother functions, which are tuned in few dimensions, are tuned in all",
        "nine posteriors in more than three dimensions gain nothing by them",
    )
    dense: int = _number(
        5000, "draws up to which a kernel is fitted to all of them: memory and time"
    )
    thinned: int = _number(4000, "draws that fit a kernel where there are more")
    kernel_dimensions: int = _number(
        75,
        "dimensions up to which kernels are tuned",
        "in 100 and more they gain 5 % for 30 times the time",
    )
    few_enough: int = _number(
        3000, "draws up to which every candidate is fitted to all of them: time"
    )
    pilot: int = _number(1000, "draws on which tuned candidates are compared where there are more")
    done: float = _number(1e12, "gain from which there is nothing left to learn")
    apart: float = _number(
        30.0,
        "ratio of gains from which integrands are too unlike to be tuned for together",
        "1000: a half more error on smooth functions of Genz that have a jump and a kink beside "
        "them",
    )
    doubt: float = _number(
        3.0,
        "standard errors of its variance that are held against a candidate in the stack",
        "gp_regr, whose tails few draws have seen: three times over-confident without; little "
        "changes elsewhere",
    )
    rare: float = _number(
        0.9,
        "share of an integrand's variance in a hundredth of the draws from which it is a rare "
        "event",
    )
    far: float = _number(
        4.5,
        "joint standard errors from the plain mean beyond which a candidate is not believed",
        "two modes of very different width and few draws: a kernel fits all of them and is wrong "
        "about the constant",
    )

    suspect: float = _number(
        3.0, "the same, beyond which the error of the answer is half the distance", "as for far"
    )
    corrected: float = _number(
        0.5,
        "share of the jackknife's correction for bias that is made, less what is noise; the rest "
        "bounds the error",
        "gains of 11 posteriors, 1000 draws: 0.7 to 2.1 times those without, geometric mean 1.1",
    )
    apart_in_errors: float = _number(
        2.0,
        "joint standard errors between the answer and a candidate from which the error is as many "
        "times larger",
        "t₅: 78 to 90 % covered, two real posteriors with exponential tails 70 to 80 and 90 to 93 "
        "%; medians of errors stay",
    )

    def harder(self) -> "Policy":
        """The numbers for who has time: longer descents, and all families to the end."""
        return dataclasses.replace(
            self,
            tuning_steps=2 * self.tuning_steps,
            in_front=3,
            close=np.inf,
            thorough=True,
            dense=2 * self.dense,
        )

    def explained(self) -> list[tuple[str, Any, str, str]]:
        """(name, value, what it is for, what measurement set it) of each number."""
        return [
            (
                field.name,
                getattr(self, field.name),
                field.metadata["meaning"],
                field.metadata["measured"],
            )
            for field in dataclasses.fields(self)
        ]
