"""Entries that a function of the user's asks for and that are not there.

Compiled, JAX takes the nearest entry in silence, or fills in NaN, whose gradient is zero. So
indices are looked at, at one draw, before a function is mapped over all of them. Where a function
gives a `fill_value` it has said what is meant. Where the nearest entry is taken by `mode="clip"` it
may have said so too, but `jax.vmap` of x[k] comes to the same.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

_READS = ("dynamic_slice", "gather")  # what JAX calls it when entries are read by number


class OutOfBounds(NamedTuple):
    """The first entry that is not there of all that are asked for without a word on what to do
    then; and if there is none, the first that is clipped. Empty for none."""

    mistake: str
    clipped: str


def find_out_of_bounds(function: Callable[[Any], Any], draw: Any) -> OutOfBounds:
    """Return what a function of one draw asks this draw, or an array of its own, for beyond the
    end."""
    try:
        # Through a function of its own: JAX keeps what it has traced, with arrays in the precision
        # of that time, as long as the function lives, and the user's does.
        program = jax.make_jaxpr(lambda x: function(x))(draw)
        reads = [each for each in _equations(program) if each.primitive.name in _READS]
        leaves = jax.tree.leaves(draw)
        mistake = _Check(lambda read: _clips(read) or _fills(read)).first(program, leaves, reads)
        if mistake or not any(map(_clips, reads)):
            return OutOfBounds(mistake, "")
        return OutOfBounds("", _Check(_fills).first(program, leaves, reads))
    except Exception:
        return OutOfBounds("", "")  # what cannot be traced is explained where it is evaluated


def _clips(read: Any) -> bool:
    return read.params.get("mode") is GatherScatterMode.CLIP


def _fills(read: Any) -> bool:
    """Return whether it has a value for what is not there; NaN is what JAX takes unasked."""
    value = read.params.get("fill_value")
    return not (value is None or np.isnan(value))


def _equations(program: Any) -> Iterator[Any]:
    """Give all equations of a program, those of loops and branches and calls too."""
    for equation in getattr(program, "jaxpr", program).eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                yield from _equations(inner)


def _is_program(entry: Any) -> bool:
    return hasattr(entry, "eqns")


@dataclasses.dataclass(frozen=True)
class _Check:
    """A look at all reads of a program but those that are spared. What is written beyond the end
    JAX drops, as those expect who pad."""

    spares: Callable[[Any], bool]

    def first(self, program: Any, leaves: list[Any], reads: list[Any]) -> str:
        """Return in words the first entry that is asked for beyond the end."""
        from jax.experimental import checkify

        if all(map(self.spares, reads)):
            return ""
        run = partial(self._evaluate, program)
        checked = checkify.checkify(run, errors=checkify.index_checks)
        # all that is no index is left out of the compiled program
        found = jax.jit(lambda *leaves: checked(*leaves)[0])(*leaves).get()
        return "" if found is None else found.splitlines()[0].strip(" .")

    def _evaluate(self, program: Any, *values: Any) -> list[Any]:
        jaxpr = program.jaxpr
        names = (*jaxpr.constvars, *jaxpr.invars)
        known = dict(zip(names, (*program.consts, *values), strict=True))

        def read(atoms: Any) -> list[Any]:
            return [atom.val if hasattr(atom, "val") else known[atom] for atom in atoms]

        for equation in jaxpr.eqns:
            found = self._apply(equation, read(equation.invars))
            known |= zip(equation.outvars, found, strict=True)
        return read(jaxpr.outvars)

    def _apply(self, equation: Any, values: list[Any]) -> list[Any]:
        """Evaluate an equation; loops, branches and calls by their own equations."""
        primitive, params = equation.primitive, equation.params
        if primitive.name == "scan":
            return self._scan(values, **params)
        if primitive.name == "while":
            return self._loop(values, **params)
        if primitive.name == "cond":
            branches = [partial(self._evaluate, branch) for branch in params["branches"]]
            return jax.lax.switch(values[0], branches, *values[1:])
        if primitive.name.startswith("scatter"):
            return values[:1]
        inner = params.get("call_jaxpr", params.get("jaxpr"))
        if hasattr(inner, "consts") and len(inner.jaxpr.invars) == len(values):
            return self._evaluate(inner, *values)
        if primitive.name in _READS and self.spares(equation):
            values[1] = _bring_inside(values[0], values[1], params)
        found = primitive.bind(*values, **params)
        return found if primitive.multiple_results else [found]

    def _scan(
        self, values: list[Any], jaxpr: Any, num_consts: int, num_carry: int, **options: Any
    ) -> list[Any]:
        given, carry = values[:num_consts], values[num_consts : num_consts + num_carry]

        def step(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
            out = self._evaluate(jaxpr, *given, *carry, *rows)
            return out[:num_carry], out[num_carry:]

        known = {name: options[name] for name in ("length", "reverse")}
        carry, rows = jax.lax.scan(step, carry, values[num_consts + num_carry :], **known)
        return [*carry, *rows]

    def _loop(
        self,
        values: list[Any],
        cond_jaxpr: Any,
        body_jaxpr: Any,
        cond_nconsts: int,
        body_nconsts: int,
    ) -> list[Any]:
        of_test, rest = values[:cond_nconsts], values[cond_nconsts:]
        of_body, start = rest[:body_nconsts], rest[body_nconsts:]
        return jax.lax.while_loop(
            lambda state: self._evaluate(cond_jaxpr, *of_test, *state)[0],
            lambda state: self._evaluate(body_jaxpr, *of_body, *state),
            start,
        )


def _bring_inside(operand: Any, indices: Any, params: dict[str, Any]) -> Any:
    axes = np.array(params["dimension_numbers"].start_index_map)
    last = np.array(operand.shape)[axes] - np.array(params["slice_sizes"])[axes]
    return jnp.clip(indices, 0, last.astype(indices.dtype))
