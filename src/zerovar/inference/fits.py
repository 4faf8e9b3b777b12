"""Answers by a fit: in sample, with leave-out residuals, or out of fold."""

import dataclasses

import numpy as np

from ..fitting import Fitted, Method, fit_draws, interruption
from ..inputs.integrands import KEPT
from ..inputs.points import Keeps
from ..solvers import FitStats, Result, Solver, default_solver
from ..solvers.algebra.threads import limit_threads, map_on_threads, use_one_thread
from ..statistics.series import BLOCK_TIMES
from .answer import Answer, Outer, mean_answer
from .splits import OutOfFold, Split, blocks, cross_fit, in_sample
from .task import Task


def default_split(task: Task, method: Method) -> Split:
    """In sample if leave-out residuals come in closed form and are honest, else cross-fitting."""
    closed = _solver(task, method).leaves_out(method.complete(task.sample.space)[1])
    return in_sample() if closed and not method.family.sees_values else cross_fit()


def fit_answer(task: Task, method: Method, split: Split) -> Answer:
    """The answer by one family, fitted and estimated as the split says."""
    with limit_threads(len(task)):
        if isinstance(split, OutOfFold):
            return _out_of_fold(task, method, split)
        return _in_sample(task, method)


def _solver(task: Task, method: Method) -> Solver:
    """The solver of the method, or the default one."""
    family, objective, solver = method.complete(task.sample.space)
    if solver is not None:
        return solver
    return default_solver(family, len(task), task.seen, task.values.shape[1], objective)


def _in_sample(task: Task, method: Method) -> Answer:
    """The fitted intercept, with influences n w r, w its weights and r the leave-out residuals.

    Leaving draws out moves the intercept by Σ w r over them, exactly, so these are its influences:
    the weights matter where a rich family gives draws in the tails far more or less than 1/n. Their
    mean estimates the intercept's own bias.
    """
    if method.family.sees_values:
        raise ValueError(
            f"{method.family.describe()} chooses directions or terms by the integrands at all "
            "fitting draws, so that in_sample() has no honest standard error for it. Use "
            "split=cross_fit() or holdout()"
        )
    fitted = fit_draws(task.draws, task.values, method, task.seed, task.sample)
    length = int(np.ceil(BLOCK_TIMES * task.autocorrelation))
    # where states come again, blocks have them in common
    apart = task.is_slow and not task.draws.come_again
    groups = blocks(task.sample, length) if apart else None
    residuals = fitted.leave_out(groups)
    by_chain, q = task.sample.by_chain, task.values.shape[1]
    return Answer(
        fitted.intercept,
        by_chain(len(task) * fitted.intercept_weights()[:, None] * residuals),
        fitted.stats | {"left_out": "single draws" if groups is None else f"{len(groups)} blocks"},
        np.ones(q, dtype=bool),
        results=(fitted.result,),
        family=fitted.family,
        left_out=True,
        residuals=by_chain(len(task) * task.sample.probabilities[:, None] * residuals),
        outer=_without_tails(fitted, task),
    )


def _without_tails(fitted: Fitted, task: Task) -> Outer:
    """Residuals at the outermost draws of each tail, from the fit without these; from that without
    those of all tails where the family treats coordinates alike, so that what it sees at the end of
    one it knows of all."""
    sides, alike = len(task.tails), fitted.family.keeps is Keeps.SYMMETRY
    if task.sample.space.is_flat or not (sides and alike):
        each = [fitted.without(rows) for rows in task.tails]
        return np.reshape(each, (*task.tails.shape, task.values.shape[1]))
    # of both sides of a gap as many as else of one, and so that enough are left to fit
    many = min(task.tails.shape[1] // 2, len(task) // 4 // sides)
    fewer = task.tails[:, : max(many, 1)]
    together, place = np.unique(fewer, return_inverse=True)
    residuals = fitted.without(together)[place.reshape(fewer.shape)]
    return residuals[:, np.arange(task.tails.shape[1]) % fewer.shape[1]]


def _out_of_fold(task: Task, method: Method, split: OutOfFold) -> Answer:
    """The mean of f − g, each draw by a fit that did not see it."""
    sample, values = task.sample, task.values
    folds = split.folds(sample)
    residuals = np.empty_like(values)

    def fit_fold(fold: int, fitting: np.ndarray, rest: np.ndarray) -> tuple[Result, FitStats]:
        fit = fit_draws(task.part(fitting), values[fitting], method, task.seed)
        if fit.result is Result.INTERRUPTED and len(folds) > 1:
            raise interruption(fold, len(folds))
        residuals[rest] = values[rest] - fit.at(sample.draws[rest], sample.scores[rest])
        return fit.result, fit.stats

    jobs = [(fold, *rows) for fold, rows in enumerate(folds, 1)]
    # side by side they take the memory of several fits at once
    if len(folds) * sample.draws.size <= KEPT and _solver(task, method).silent:
        with use_one_thread():
            fits = map_on_threads(fit_fold, jobs)
    else:
        fits = [fit_fold(*job) for job in jobs]
    rows = np.sort(np.concatenate([estimating for _, estimating in folds]))
    series = residuals[rows].reshape(sample.num_chains, -1, values.shape[1])
    answer = mean_answer(series, sample.points(rows).probabilities, fits[-1][1])
    return dataclasses.replace(
        answer,
        results=tuple(result for result, _ in fits),
        family=method.family,
        rows=rows,
        outer=residuals[task.tails] - answer.value if len(rows) == len(task) else None,
    )
