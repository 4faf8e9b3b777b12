"""What the paper says, sentence by sentence, with verdicts that are computed from the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import verdicts, verdicts_of_gains
from .harness import Row, markdown
from .verdicts import Verdict

Tables = dict[str, list[Row]]


class Claim(NamedTuple):
    text: str
    where: str
    study: str  # whose table and picture
    verdict: Callable[[list[Row]], Verdict]


CLAIMS = (
    Claim(
        "inf J over growing families is zero",
        "Propositions 1, 2",
        "propositions",
        verdicts.vanishes,
    ),
    Claim(
        "with α_t = β/(γ + t) the excess of J falls like 1/t",
        "Proposition 3",
        "propositions",
        verdicts.rate,
    ),
    Claim(
        "SGD is cheaper than a linear system",
        "Section 3, conclusion (i)",
        "costs",
        verdicts.cheaper,
    ),
    Claim(
        "SGD is linear in m and d, the solve is worse", "Figure 2, right", "costs", verdicts.orders
    ),
    Claim(
        "even the toy problem (m = 500) has significant speed-ups",
        "Figure 1",
        "polynomials",
        verdicts.faster(1000),
    ),
    Claim("with m = 5000 they are larger", "supplement", "polynomials", verdicts.faster(10_000)),
    Claim("SGD approaches the solve as t grows", "supplement", "polynomials", verdicts.approaches),
    Claim(
        "early stopping keeps the precision at less cost",
        "supplement",
        "polynomials",
        verdicts.early,
    ),
    Claim(
        "polynomials always have the largest error",
        "Table 1",
        "genz",
        verdicts.ordered("polynomial", last=True),
    ),
    Claim(
        "polynomial + kernel is consistently best",
        "Table 1",
        "genz",
        verdicts.ordered("polynomial + kernel", last=False),
    ),
    Claim("a substantial reduction in all cases", "Table 1", "genz", verdicts.reduction),
    Claim(
        "5 epochs are close to the linear system, in every dimension",
        "Tables 3, 4",
        "genz",
        verdicts.near_solve,
    ),
    Claim(
        "fitting with more than half of the draws may be preferable",
        "Table 5",
        "genz",
        verdicts.share,
    ),
    Claim(
        "kernels and networks reduce the error substantially in d = 1",
        "Figure 2",
        "gaussian_processes",
        verdicts_of_gains.line,
    ),
    Claim(
        "J^LS does better than J^V", "Figure 2", "gaussian_processes", verdicts_of_gains.objectives
    ),
    Claim(
        "networks do not degrade with d",
        "Figure 2",
        "gaussian_processes",
        verdicts_of_gains.degrade,
    ),
    Claim(
        "every family beats the plain mean", "Figure 3", "lotka_volterra", verdicts_of_gains.beaten
    ),
    Claim(
        "two kernels + polynomial, or the network, are best",
        "Figure 3",
        "lotka_volterra",
        verdicts_of_gains.best_two("n"),
    ),
    Claim(
        "the same on Sonar", "supplement", "logistic", verdicts_of_gains.best_two("m", set="sonar")
    ),
    Claim(
        "the same on Madelon",
        "Figure 4",
        "logistic",
        verdicts_of_gains.best_two("m", set="madelon"),
    ),
    Claim(
        "steps have about the error of the solve",
        "Figure 4",
        "logistic",
        verdicts_of_gains.comparable,
    ),
    Claim(
        "below m = 1000 networks are as good as the ensemble, from there it is better",
        "Figure 4, supplement",
        "logistic",
        verdicts_of_gains.crossover,
    ),
    Claim(
        "growing the depth of networks could improve them",
        "Figure 4",
        "logistic",
        verdicts_of_gains.deeper,
    ),
    Claim(
        "with their calibration networks cost much more than other families",
        "Figures 2, 4",
        "costs",
        verdicts.calibrated,
    ),
    Claim(
        "on LIDAR families differ significantly", "supplement", "lidar", verdicts_of_gains.varies
    ),
)


class Judged(NamedTuple):
    claim: Claim
    verdict: Verdict
    repetitions: str


def judged(tables: Tables) -> list[Judged]:
    """Of the claims whose tables are there."""
    return [
        Judged(
            claim,
            claim.verdict(tables[claim.study]),
            verdicts.repetitions(tables[claim.study]),
        )
        for claim in CLAIMS
        if claim.study in tables
    ]


def section(found: list[Judged]) -> str:
    rows = [
        [
            claim.text,
            claim.where,
            f"**{verdict.word}**",
            verdict.number,
            count,
            f"[{claim.study}](results/{claim.study}.png)",
        ]
        for claim, verdict, count in found
    ]
    return (
        "Each verdict is a share of cases, counted in the tables. Where errors are known a case is "
        "counted only if it is clear by two errors of the comparison, made on the same repetitions "
        "by leaving out one at a time; else it is a tie. *Holds*: all cases; *holds within "
        "errors*: all that are clear; *does not hold*: one tenth of these or less; *undecided*: "
        "more than a half are ties. Where nothing else is said, the paper's own recipe is judged, "
        "and nothing else is counted. Gains are ratios of mean squared errors, plain to "
        "controlled, on the same repetitions. *Open* claims have fewer than three repetitions.\n\n"
        + markdown(["the paper", "where", "verdict", "number", "repetitions", "picture"], rows)
    )
