"""Every solver of the table against the exact fit, on a family with features and on one without,
and what each must say."""

import numpy as np
import pytest
from tables import FAMILIES, SOLVERS
from test_sgd import disagreement, fresh, problem

import zerovar as zv
from zerovar.solvers import FitStats, Result

OBJECTIVE = zv.LeastSquares(zv.Ridge(0.02))
X, S, F = problem()
SAMPLE = zv.Sample(X, S)
CELLS = [(solver, "polynomial") for solver in SOLVERS]
CELLS += [(solver, "polynomial and kernel") for solver, row in SOLVERS.items() if row.kernels]


@pytest.mark.parametrize(("solver", "name"), CELLS)
def test_every_solver_lands_where_exact_lands(solver, name):
    chosen, bound, _ = SOLVERS[solver]
    f = F + 0.3 * np.sign(X)  # misspecified, so that noise must be averaged away
    exact, found = (
        zv.fit(FAMILIES[name], SAMPLE, f, OBJECTIVE, one) for one in (zv.Exact(), chosen)
    )
    x, s, values = fresh()
    assert disagreement(found, exact, values + 0.3 * np.sign(x), x, s).max() < bound
    assert found.result is Result.OK
    assert isinstance(found.stats, FitStats)
    assert found.stats.unknowns > 0
    assert found.stats["draws"] == found.stats.draws == len(X)
    # one preparation serves other integrands, as a fit of their own would
    again, anew = (
        found.refit(np.cos(X)),
        zv.fit(FAMILIES[name], SAMPLE, np.cos(X), OBJECTIVE, chosen),
    )
    np.testing.assert_allclose(again.intercept, anew.intercept, rtol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_say_whether_they_leave_out(solver):
    chosen = SOLVERS[solver].solver
    fitted = zv.fit(zv.Polynomial(1), SAMPLE, F, OBJECTIVE, chosen)
    if chosen.leaves_out(OBJECTIVE):
        assert fitted.leave_out().shape == F.shape
        np.testing.assert_allclose(fitted.intercept_weights() @ F, fitted.intercept, rtol=1e-8)
    else:
        with pytest.raises(ValueError, match="no closed-form"):
            fitted.leave_out()


@pytest.mark.parametrize("name", FAMILIES)
def test_conjugate_gradients_take_every_family(name):
    """The iterative column of the table of families."""
    f = F + 0.3 * np.sign(X)
    exact, found = (
        zv.fit(FAMILIES[name], SAMPLE, f, OBJECTIVE, one)
        for one in (zv.Exact(), zv.CG(progress=False))
    )
    errors = np.linalg.norm(exact.intercept_weights()[:, None] * exact.leave_out(), axis=0)
    assert np.all(np.abs(found.intercept - exact.intercept) < 0.2 * errors)
    x, s, values = fresh()
    assert (
        disagreement(found, exact, values + 0.3 * np.sign(x), x, s).max()
        < SOLVERS["conjugate gradients"].bound
    )
