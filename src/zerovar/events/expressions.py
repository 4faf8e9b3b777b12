"""Arithmetic of named quantities, as users write it: "a - b", "exp(x)", "a > 0 and b > 0"."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..inputs.points import Matrix, Vector

FUNCTIONS = ("abs", "cos", "exp", "expm1", "log", "log1p", "sin", "sqrt", "tan", "tanh")
_TRUTHS = (ast.And, ast.Or, ast.Not, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_KNOWN = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, *_TRUTHS)
_NAMES = "add sub mul truediv pow neg pos and_ or_ invert lt le gt ge"  # as `operator` has them
_RUN: dict[Any, Any] = {
    one: getattr(operator, name) for one, name in zip(_KNOWN, _NAMES.split(), strict=True)
}
_PLAIN = re.compile(r"[^\W\d]\w*(\[[^\]]*\])?")  # a name that is no arithmetic of others


class Expression(NamedTuple):
    """A formula in some names; `joins` says whether it is true or false, and no number."""

    tree: ast.AST
    names: tuple[str, ...]
    joins: bool

    def __call__(self, columns: Any, of: Any = np) -> Any:
        """Evaluate it, by NumPy or by JAX, at a column for each name."""
        return _evaluate(self.tree, columns, of)


DIFFERENCE = Expression(ast.parse("_0_ - _1_", mode="eval").body, ("first", "second"), False)


class Combination(NamedTuple):
    """An expression as a function of points, of those that its names are."""

    expression: Expression
    parts: tuple[Any, ...]  # with gradients

    def __call__(self, points: Matrix, /) -> Vector:
        with np.errstate(all="ignore"):
            found = self.expression([part(points) for part in self.parts])
        return np.asarray(found, np.float64)

    def gradient(self, points: Matrix) -> Matrix:
        """Return the gradients at points (m, d)."""
        with jax.enable_x64(True):
            columns = np.stack([part(points) for part in self.parts], axis=1)
            slope = jax.grad(lambda row: jnp.asarray(self.expression(row, jnp), float))
            slopes = np.asarray(jax.vmap(slope)(columns))
        return sum(slopes[:, [k]] * part.gradient(points) for k, part in enumerate(self.parts))


def parse_expression(
    text: str, names: Sequence[str], refuse: Callable[[str], ValueError]
) -> Expression | None:
    """Return what a text says, or None where it is no expression in these names."""
    used: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if not _PLAIN.fullmatch(match[0]):
            raise refuse(
                f"where {match[0]!r} is the name of a value, and may be meant as arithmetic of "
                "others. Rename it"
            )
        return f"_{used.setdefault(match[0], len(used))}_"

    every = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    formula = re.sub(rf"(?<!\w)(?:{every})(?![\w(\[])", place, text) if every else text
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
        allowed = _is_allowed(tree, [f"_{k}_" for k in used.values()])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Expression(tree, tuple(used), _is_truth(tree)) if allowed else None


def _take_apart(node: ast.AST) -> tuple[list[ast.expr], list[Any]]:
    """What a node is made of, and by which operators; nothing if it is none of those known."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators], [type(one) for one in node.ops]
    if isinstance(node, ast.BoolOp):
        return node.values, [type(node.op)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right], [type(node.op)]
    if isinstance(node, ast.UnaryOp):
        return [node.operand], [type(node.op)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return (node.args if node.func.id in FUNCTIONS and len(node.args) == 1 else []), []
    return [], []


def _is_truth(node: ast.AST) -> bool:
    return any(one in _TRUTHS for one in _take_apart(node)[1])


def _is_allowed(node: ast.AST, names: list[str]) -> bool:
    """Whether a tree has nothing but numbers, names and what is listed above, with truths where
    truths must be and numbers elsewhere."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Name):
        return node.id in names
    parts, operators = _take_apart(node)
    joins = _is_truth(node) and not isinstance(node, ast.Compare)
    known = bool(parts) and all(one in _RUN for one in operators)
    return known and all(_is_truth(one) is joins and _is_allowed(one, names) for one in parts)


def _evaluate(node: ast.AST, columns: Any, of: Any) -> Any:
    if isinstance(node, ast.Constant):
        return np.float64(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return columns[int(node.id.strip("_"))]
    parts, operators = _take_apart(node)
    values = [_evaluate(part, columns, of) for part in parts]
    if isinstance(node, ast.Call):
        return getattr(of, node.func.id)(*values)  # type: ignore[attr-defined]
    if isinstance(node, ast.UnaryOp):
        return _RUN[operators[0]](*values)
    if isinstance(node, ast.Compare):  # a < b < c is a < b and b < c
        pairs = zip(operators, values, values[1:], strict=False)
        values, operators = [_RUN[one](a, b) for one, a, b in pairs], [ast.And]
    found = values[0]
    for value in values[1:]:
        found = _RUN[operators[0]](found, value)
    return found
