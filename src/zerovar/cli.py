"""The command line: zerovar demo | estimate FILE | integrate MODULE:FUNCTION | evidence FILE |
check FILE | info."""

import argparse
import dataclasses
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from .adapters.files import read
from .answer_files import as_output, check_outputs, print_answer, write_outputs
from .choice import Automatic
from .demonstration import eight_schools
from .distributions import interval, quantile
from .environment import __version__, describe_environment
from .errors import NumericalError, ZerovarWarning
from .estimation import check, estimate
from .evidences import evidence, read_ladder
from .families import Family, Kernel, Network, Polynomial
from .inference.splits import Split, cross_fit, holdout, in_sample
from .integration import integrate
from .io.atomic import destination, discard_pending
from .solvers import SGD, Exact, Solver
from .variables import select_variables

# The names say the degrees
FAMILIES: dict[str, Family] = {
    "linear": Polynomial(1),
    "quadratic": Polynomial(2),
    "cubic": Polynomial(3),
    "kernel": Kernel(),
    "quadratic+kernel": Polynomial(2, weight=np.inf) + Kernel(),
    "network": Network(),
}
SOLVERS: dict[str, Solver] = {"exact": Exact(), "sgd": SGD()}
SPLITS: dict[str, Split] = {
    "in-sample": in_sample(),
    "holdout": holdout(),
    "cross-fit": cross_fit(),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return 0 if all is well, 1 if a check failed, 2 for bad input, as
    argparse has it."""
    options = _parser().parse_args(arguments)
    in_charge = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _stop) if in_charge else None
    try:
        with warnings.catch_warnings():
            # they stand under the table, or go to standard error
            warnings.simplefilter("ignore", ZerovarWarning)
            return options.run(options)
    except (ValueError, NumericalError, OSError) as error:
        print(f"zerovar: {error}", file=sys.stderr)
        return 2
    finally:
        if in_charge:
            signal.signal(signal.SIGTERM, before)


def program() -> NoReturn:
    """Run the command of the shell."""
    try:
        status = main()
    except KeyboardInterrupt:
        _stop(signal.SIGINT)
    sys.exit(status)


def _stop(number: int, frame: FrameType | None = None) -> NoReturn:
    """End the process at once. After SIGTERM an exception could get lost in compiled code, and JAX'
    threads may be at work still and crash on the way out."""
    discard_pending()
    os.write(2, b"zerovar: stopped; no file was left half-written\n")
    os._exit(128 + number)


def _parser() -> argparse.ArgumentParser:
    about = "Means of integrands over Monte Carlo draws, made precise by control variates."
    parser = argparse.ArgumentParser(prog="zerovar", description=about)
    parser.add_argument("--version", action="version", version=f"zerovar {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo", help="the eight schools posterior that ships with zerovar: a table and a picture"
    )
    where = "where to save the picture (default: %(default)s)"
    demo.add_argument("--figure", type=Path, default=Path("zerovar-demo.png"), help=where)
    demo.set_defaults(run=_demo)

    run = _add_file_command(commands, "estimate", _estimate, "estimate from a file", _EXAMPLES)
    run.add_argument(
        "--var-names",
        nargs="+",
        metavar="NAME",
        help="which values: names, or ~NAME for those to leave out",
    )
    run.add_argument(
        "--quantiles",
        nargs="+",
        type=float,
        metavar="P",
        help="estimate quantiles in place of means, such as 0.05 0.5 0.95",
    )
    run.add_argument(
        "--solver",
        choices=SOLVERS,
        help="how to fit one family (default: exact, and sgd for networks)",
    )
    run.add_argument(
        "--split",
        choices=SPLITS,
        help="which draws fit and which estimate, for one family (default: in-sample)",
    )
    _add_shared(run)

    chainless = commands.add_parser(
        "integrate",
        help="means under a log density, without a chain",
        description="FUNCTION is a log density in JAX, of one unconstrained draw; MODULE is looked "
        "for in this folder too.",
        epilog="example: zerovar integrate posterior:log_density --dimensions 5 --values "
        "posterior:natural --json answer.json",
    )
    chainless.set_defaults(run=_integrate)
    chainless.add_argument("function", metavar="MODULE:FUNCTION")
    chainless.add_argument(
        "--dimensions", type=int, required=True, metavar="D", help="numbers in a draw"
    )
    chainless.add_argument(
        "--values",
        metavar="MODULE:FUNCTION",
        help="the integrands, of one draw (default: the draw)",
    )
    chainless.add_argument(
        "--gradients",
        type=int,
        default=5000,
        help="how many may be computed (default: %(default)s)",
    )
    _add_shared(chainless)

    normaliser = _add_file_command(
        commands,
        "evidence",
        _evidence,
        "log Z of the draws in a file, or of a ladder",
        "A .npz with inverse_temperatures, draws, log_likelihood and scores (or prior_scores and\n"
        "likelihood_scores) is a ladder of temperatures, and needs no log density.\n\nexamples:\n"
        "  zerovar evidence posterior.npz --log-density model:log_density\n"
        "  zerovar evidence ladder.npz --figure ladder.png",
    )
    normaliser.add_argument(
        "--log-density",
        metavar="MODULE:FUNCTION",
        help="in JAX, of one unconstrained draw, constants included",
    )
    _add_outputs(normaliser)

    tested = "test whether the scores in a file belong to its draws; exit status 1 if not"
    _add_file_command(commands, "check", _check, tested, "example: zerovar check posterior.npz")

    info = commands.add_parser(
        "info", help="what a bug report needs: versions, platform, devices, threads, settings"
    )
    info.set_defaults(run=_info)
    return parser


def _add_shared(parser: argparse.ArgumentParser) -> None:
    """Add what commands that estimate have in common."""
    parser.add_argument(
        "--family",
        choices=FAMILIES,
        help="control variates to use (default: chosen for each integrand)",
    )
    _add_outputs(parser)


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add what all commands with an answer have."""
    parser.add_argument(
        "--seed", type=int, default=0, help="for all that is random (default: %(default)s)"
    )
    for name, text in (
        ("--json", "write the answer as JSON ('-' for standard output)"),
        ("--csv", "write the table as CSV ('-' for standard output)"),
        ("--figure", "save a picture of plain against controlled estimates"),
        ("--report", "write a self-contained HTML page: table, pictures, diagnostics"),
    ):
        parser.add_argument(name, type=as_output, metavar="PATH", help=text)


_FILES = """FILE is one of
  .npz          arrays draws and scores, (n, d) or (chain, draw, d); optionally values, (n, q) or
                (chain, draw, q), names, q strings, and log_weights, (n,)
  .nc, .zarr    ArviZ's InferenceData or DataTree with unconstrained draws and gradients, as nutpie
                stores them
  .csv          a table of draws with a line of names (a column chain, if there are several), and
                --scores, one with the same columns; --values for other quantities
  .csv ...      CmdStan's diagnostic files, one a chain, and its output files for the natural
                parameters
Without values, the means of the draws are estimated."""
_EXAMPLES = """examples:
  zerovar estimate posterior.npz --json answer.json
  zerovar estimate trace.nc --var-names mu theta --report answer.html
  zerovar estimate trace.nc --var-names tau --quantiles 0.05 0.5 0.95
  zerovar estimate draws.csv --scores scores.csv --values values.csv --family quadratic --csv -
  zerovar estimate output_*.csv diagnostic_*.csv --seed 1"""


def _add_file_command(
    commands: Any, name: str, run: Callable[..., int], text: str, epilog: str
) -> argparse.ArgumentParser:
    """Add a command on files with draws."""
    parser = commands.add_parser(
        name,
        help=text,
        description=_FILES,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("file", type=Path, nargs="+", metavar="FILE")
    parser.add_argument(
        "--scores", type=Path, metavar="FILE.csv", help="the scores of a .csv table of draws"
    )
    parser.add_argument(
        "--values",
        type=Path,
        metavar="FILE.csv",
        help="the integrands at the draws of a .csv table",
    )
    return parser


def _demo(options: argparse.Namespace) -> int:
    destination(options.figure)  # what cannot be written is said before the work
    print(
        "Eight schools: effects of coaching, 4 chains of 1000 NUTS draws. Posterior means of mu, "
        "tau and the school effects:"
    )
    print()
    posterior = eight_schools()
    result = estimate(posterior, family=Automatic())
    print_answer(result)
    print(
        f"\nThe same draws, with errors as if there were {np.median(result.gain):.0f} times as "
        "many of them (median gain)."
    )
    print("\n95 % intervals of mu, tau and the first school, with the log density at hand:\n")
    names = ["mu", "tau", "theta[1]"]
    print_answer(interval(posterior, 0.95, var_names=names, family=Automatic(effort="low")))
    try:
        result.plot(options.figure)
        print(f"Picture: {options.figure}")
    except ImportError as error:
        print(f"No picture: {error}")
    return 0


def _estimate(options: argparse.Namespace) -> int:
    check_outputs(options)
    given = read(options.file, options.scores, options.values)
    if options.var_names:
        named = given.values
        if named is None:
            named = {f"x{j}": given.draws[..., j] for j in range(np.shape(given.draws)[-1])}
        given = dataclasses.replace(given, values=select_variables(named, options.var_names, None))
    origin = {"files": ", ".join(map(str, options.file))}
    if options.quantiles:
        if options.family or options.solver or options.split:
            raise ValueError("--quantiles chooses: leave --family, --solver and --split out")
        result = quantile(given, options.quantiles, seed=options.seed)
        return write_outputs(options, result, origin)
    result = estimate(
        given,
        family=FAMILIES.get(options.family),
        solver=SOLVERS.get(options.solver),
        split=SPLITS.get(options.split),
        seed=options.seed,
    )
    return write_outputs(options, result, origin)


def _integrate(options: argparse.Namespace) -> int:
    check_outputs(options)
    result = integrate(
        _import_function(options.function),
        options.dimensions,
        None if options.values is None else _import_function(options.values),
        gradients=options.gradients,
        family=FAMILIES.get(options.family),
        seed=options.seed,
    )
    return write_outputs(options, result, {"log density": options.function})


def _evidence(options: argparse.Namespace) -> int:
    check_outputs(options)
    ladder = read_ladder(options.file[0]) if len(options.file) == 1 else None
    if ladder is not None:
        return write_outputs(options, evidence(ladder), {})
    if options.log_density is None:
        raise ValueError(
            "files of draws do not have the log density itself: give --log-density "
            "MODULE:FUNCTION, or a ladder"
        )
    function = _import_function(options.log_density)
    given = read(options.file, options.scores, options.values)
    return write_outputs(options, evidence(given, function, seed=options.seed), {})


def _import_function(name: str) -> Callable[..., Any]:
    """Return the function that MODULE:FUNCTION names."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(
            f"{name!r} must be MODULE:FUNCTION, such as posterior:log_density for that function in "
            "posterior.py"
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"{name} must be a function of one draw; got {type(found).__name__}")
    return found


def _check(options: argparse.Namespace) -> int:
    verdict = check(read(options.file, options.scores, options.values))
    print(verdict)
    return 0 if verdict.ok else 1


def _info(options: argparse.Namespace) -> int:
    print(describe_environment())
    return 0
