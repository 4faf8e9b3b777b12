"""Stochastic optimisation for any family: mini-batches at a cost linear in the draws."""

import dataclasses
from os import PathLike
from typing import Any, ClassVar

from ...arguments import FLAG, PATH, POSITIVE, Requirement, number, takes, where, whole
from ...families import Family, LinearFamily, NonlinearFamily
from ...inputs.points import Points
from ...objectives import L1, L2, Magnitude, Objective, Ridge
from ..base import Prepared, Solver
from ..scope import Families, Scope
from ..windows import Windows


@takes(
    batch_size=whole(1),
    epochs=whole(1),
    learning_rate=where(
        "a positive number, or a schedule, a function of the step",
        lambda rate: callable(rate) or POSITIVE.read(rate) > 0,
    ),
    optimiser=where(
        "an Optax optimiser such as optax.adam(1e-3)",
        lambda found: callable(found.init) and callable(found.update),
    ),
    average=number("a share between 0 and 1", lambda x: 0 <= x <= 1),
    clip=Requirement("a positive number, the largest norm of a gradient", POSITIVE.read),
    resample=FLAG,
    validation=number("a share between 0 and 0.9", lambda x: 0 <= x <= 0.9),
    patience=whole(1),
    centres=whole(1),
    precondition=FLAG,
    hyper=FLAG,
    checkpoint=PATH,
    progress=FLAG,
)
@dataclasses.dataclass(frozen=True)
class SGD(Solver):
    """Train by mini-batch stochastic gradients, in one compiled loop over any Optax optimiser.

    Nothing needs to be tuned. Linear families are trained in whitened coordinates with steps of a
    size that is derived from the draws, batches drawn by leverage, and the average of the last half
    of the iterates: a few epochs land where `Exact` lands. Networks are trained by Adam under a
    cosine schedule, with the parameters that did best on held-out draws.

    batch_size: default 32, and 64 with a network.
    epochs: passes over the draws; default 25, and 400 with a network.
    learning_rate: a number, or a schedule: `schedules.InverseTime(beta, gamma)` (the paper's),
        `Cosine`, `StepDecay`, or any Optax schedule (a function of the step).
    optimiser: any Optax optimiser, with its own learning rate.
    average: the share of the last steps whose parameters are averaged (Polyak–Ruppert); default
        0.5, and 0 with a network.
    clip: largest global norm of a gradient.
    resample: draw batches independently instead of shuffling in each epoch.
    validation: share of the fitting draws held out; the parameters that did best on them are taken,
        and training ends after `patience` epochs without a better one (default: a fifth of
        `epochs`). Default 0.1 with a network, else 0.
    centres: number of kernel translates; default as many well-spread ones as the draws of the
        preconditioner determine (100 for 500 draws, 200 for 5000, 1024 from 26 000 on), without
        redundant ones.
    precondition: `False` trains plain features, as the paper does.
    hyper: train scales of kernels and weights of parts too, jointly with the coefficients in the
        same loop, on draws that the coefficients do not see; then train the coefficients with the
        family that was found.
    checkpoint: a folder; each fit writes its state there and resumes from it, to the same numbers.
    progress: a bar on a terminal; `False` for none.

    Of chunked draws, larger than memory, `validation` is a share of the pilot of about 33 000, and
    `epochs` defaults to as many as make a million visits of draws, four million with a network, and
    at least one.
    """

    scope: ClassVar[Scope] = Scope(
        Families.ANY,
        (Ridge, L2, L1, Magnitude),
        intercept=(Ridge, Magnitude),
        otherwise="Use solver=Exact()",
    )
    trains_on_windows: ClassVar[bool] = True
    batch_size: int | None = None
    epochs: int | None = None
    learning_rate: Any = None
    optimiser: Any = None
    average: float | None = None
    clip: float | None = None
    resample: bool = False
    validation: float | None = None
    patience: int | None = None
    centres: int | None = None
    precondition: bool = True
    hyper: bool = False
    checkpoint: str | PathLike[str] | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        if self.optimiser is not None and self.learning_rate is not None:
            raise ValueError(
                "SGD: give the learning rate to the optimiser itself, optax.adam(learning_rate), "
                "not to both"
            )
        if self.patience is not None and not self.validation and self.validation is not None:
            raise ValueError("SGD: patience needs held-out draws; give validation a positive share")

    def prepare(
        self, family: Family, objective: Objective, points: Points, seed: int = 0
    ) -> Prepared:
        return self.prepare_windows(family, objective, points, seed, None)

    def prepare_windows(
        self,
        family: Family,
        objective: Objective,
        points: Points,
        seed: int,
        windows: Windows | None,
    ) -> Prepared:
        # as it is needed: it is a tenth of what zerovar takes to import
        from .trainer import PreparedTraining

        linear, others = family.separate()
        networks = [part for part in others if isinstance(part, NonlinearFamily)]
        return PreparedTraining(self, linear, tuple(networks), objective, points, seed, windows)


@takes(batch_size=whole(1), epochs=whole(1), resample=FLAG, checkpoint=PATH, progress=FLAG)
@dataclasses.dataclass(frozen=True)
class DualSGD(Solver):
    """Train the coefficients of all draws' translates by random blocks, at a cost a step that does
    not depend on the number of features. Blocks are solved exactly: there is no learning rate to
    tune. Needs a linear family and a Ridge.

    batch_size: draws of a block.
    epochs: passes over the draws.
    resample, checkpoint, progress: as in `SGD`.
    """

    scope: ClassVar[Scope] = Scope(
        needs_ridge=True, intercept=(Ridge,), otherwise="Use solver=Exact() or SGD()"
    )
    batch_size: int = 128
    epochs: int = 50
    resample: bool = False
    checkpoint: str | PathLike[str] | None = None
    progress: bool = True

    def prepare(
        self, family: Family, objective: Objective, points: Points, seed: int = 0
    ) -> Prepared:
        from .dual import PreparedDualTraining

        assert isinstance(family, LinearFamily), "its scope has no others"
        return PreparedDualTraining(self, family, objective, points, seed)
