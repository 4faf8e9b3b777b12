"""quantile(), interval() and density()."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..adapters.recognition import posterior_in_memory
from ..arguments import SHARE, one_of, several, takes, whole
from ..choice import CHOICE, LOW_EFFORT, Automatic, Request
from ..inputs.sample import require_reals
from ..output import Densities, Estimate
from ..probabilities import MOST_LINES
from ..session import Session
from ..variables import FILTER, VAR_NAMES, select_variables
from .curves import estimate_densities
from .highest_density import estimate_hdi
from .quantiles import estimate_quantiles


@takes(
    probs=several(SHARE, "numbers strictly between 0 and 1", empty=False),
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    family=CHOICE,
    seed=whole(0),
)
def quantile(
    data: Any,
    probs: float | Sequence[float] = (0.05, 0.5, 0.95),
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    family: Automatic | None = None,
    seed: int = 0,
) -> Estimate:
    """Estimate quantiles of the named values, with standard errors.

    data: what an adapter returns (`zv.from_numpyro(mcmc)`), NumPyro's MCMC itself, or an
        InferenceData or DataTree that has gradients.
    probs: which; 0.5 is the median.
    var_names, filter_vars: of which values, as in `zv.summary`.
    family, seed: as in `zv.estimate`.

    A quantile is the level whose probability is right. Probabilities come from control variates, as
    in `zv.probability`, and so does the density, which turns an error of the one into an error of
    the other. Where the quantile of the draws has less error it is reported; `plain_value` is that.
    """
    session, names = _open("zv.quantile", data, var_names, filter_vars)
    return session.say_left_out(
        estimate_quantiles(session, names, np.atleast_1d(probs), Request(family, seed=seed))
    )


@takes(
    prob=SHARE,
    kind=one_of("eti", "hdi"),
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    family=CHOICE,
    seed=whole(0),
)
def interval(
    data: Any,
    prob: float = 0.89,
    kind: str = "eti",
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    family: Automatic | None = None,
    seed: int = 0,
) -> Estimate:
    """Estimate the ends of credible intervals, with standard errors.

    prob: the probability of the interval.
    kind: "eti" for equal tails, "hdi" for the highest density, the shortest interval.
    data, var_names, filter_vars, family, seed: as in `zv.quantile`.

    The rows are called as ArviZ has them: tau eti89_lb, tau eti89_ub.
    """
    session, names = _open("zv.interval", data, var_names, filter_vars)
    request = Request(family, seed=seed)
    ends = [f"{kind}{100 * prob:g}_{end}" for end in ("lb", "ub")]
    if kind == "hdi":
        return session.say_left_out(estimate_hdi(session, names, prob, ends, request))
    shares = np.array([(1 - prob) / 2, (1 + prob) / 2])
    return session.say_left_out(estimate_quantiles(session, names, shares, request, ends))


@takes(
    points=whole(8, MOST_LINES),
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    family=CHOICE,
    seed=whole(0),
)
def density(
    data: Any,
    *,
    points: int = 64,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    family: Automatic | None = None,
    seed: int = 0,
) -> Densities:
    """Estimate marginal density curves, with standard errors at every point.

    points: of the grid, from where a thousandth of the draws is to where all but a thousandth are,
        and a little beyond.
    family: as in `zv.estimate`, by default `Automatic(effort="low")`.
    data, var_names, filter_vars, seed: as in `zv.quantile`.

    There is no bandwidth: the density at a level is itself a mean, of the conditional density along
    a line where the log density is known, and of an image of Stein's operator where a value is a
    function of one coordinate. For other values it is not known.
    """
    session, names = _open("zv.density", data, var_names, filter_vars)
    # a curve is for the eye: polynomials do, and kernels for hundreds of levels take minutes
    family = LOW_EFFORT if family is None else family
    found = estimate_densities(session, names, points, Request(family, seed=seed))
    return session.say_left_out(found)


def _open(
    what: str, data: Any, var_names: Any, filter_vars: str | None
) -> tuple[Session, list[str]]:
    """A session with draws to lay lines through, and the names of the values that are asked for;
    `what` is called."""
    posterior = posterior_in_memory(data)
    require_reals(posterior, what)
    session = Session.of(posterior).thin(MOST_LINES)
    return session, list(select_variables(session.values, var_names, filter_vars))
