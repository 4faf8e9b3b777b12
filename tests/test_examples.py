"""Models as users bring them, from NumPyro's and PyMC's samplers to the table, and without a
sampler (`benchmarks/example_models.py`). Here from kept runs; with `make whole` all from the
sampler on."""

import warnings

import numpy as np
import pytest

import zerovar as zv
from benchmarks.example_models import EXAMPLES
from benchmarks.examples import read_run, sample

SAMPLED = ("grades",)  # improper and ordered sites, from the sampler on: nearly all is compiling


def listened(run):
    """What a call gives, and what it warns of: nothing of numerics, which would mean that a model
    was not taken as it is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run()
    said = [warning.message for warning in caught]
    assert not [each for each in said if isinstance(each, zv.NumericalWarning)]
    assert not [each for each in said if isinstance(each, zv.ScoreWarning)]
    return found


def gains(posterior):
    table = listened(lambda: zv.summary(posterior, family=zv.Polynomial(1), round_to=None))
    assert np.isfinite(table["cv_mean"]).all()
    return table["gain"]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in SAMPLED])
def test_a_kept_run(name):
    """Of 2 × 100 draws, with the scores of the model and lines alone."""
    found = gains(read_run(name))
    if name not in ("horseshoe", "network"):  # there lines gain nothing
        assert found.median() > 1.2


@pytest.mark.parametrize("name", SAMPLED)
def test_a_short_run(name):
    assert gains(sample(EXAMPLES[name], 0, warmup=100, draws=100)).median() > 2


@pytest.mark.whole
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example(name):
    """The table of a short run, and means without a run: finite, from right scores, and no further
    apart than chance."""
    example = EXAMPLES[name]
    ran = sample(example, 0)
    table = listened(lambda: zv.summary(ran, round_to=None))
    assert np.isfinite(table[["cv_mean", "cv_mcse_mean"]]).all(axis=None)
    assert zv.check(ran).ok or example.several
    if not example.integrates:
        return
    model, args = example.build()
    data = {} if type(model).__module__.startswith("pymc") else {"args": args}
    options = {"gradients": 3000, "family": zv.Polynomial(2), "progress": False}
    with warnings.catch_warnings():  # of long tails, and of single precision in scans
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        answer = zv.integrate(model, **data, **options)
    assert set(answer.names) == set(table.index)
    table = table.loc[list(answer.names)]
    errors = np.hypot(answer.std_error, table["cv_mcse_mean"])
    assert np.all(np.abs(answer.value - table["cv_mean"]) < 5 * errors)


@pytest.mark.whole
def test_which_of_several_is_largest():
    """An event of all teams at once, against a long run: where its gain is one it is the count."""
    event = {"north attacks best": lambda draw: draw["attacks"].argmax() == 0}
    short, long = sample(EXAMPLES["league"], 0), sample(EXAMPLES["league"], 1, 1000, 2000, 4)
    attacks = [array for name, array in long.values.items() if name.startswith("attacks")]
    seen = np.argmax(attacks, axis=0) == 0
    error = seen.std() / np.sqrt(seen.size / 4)  # an autocorrelation time of four
    for effort in ("low", "normal"):
        answer = zv.estimate(short, values=event, family=zv.Automatic(effort))
        assert abs(answer.value[0] - seen.mean()) < 4 * np.hypot(answer.std_error[0], error)
        assert answer.gain[0] >= 1
        if answer.gain[0] == 1:
            assert answer.value[0] == answer.plain_value[0]
            assert answer.std_error[0] == answer.plain_std_error[0]
