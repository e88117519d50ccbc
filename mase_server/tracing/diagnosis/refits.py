"""Quick fixes of layers: they follow the constructor argument that does not fit to the place where its number is
written."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mase_server.protocol.records import Edit, Fix
from mase_server.tracing.diagnosis.failure import Misfit
from mase_server.tracing.diagnosis.scenes import (
    File,
    Function,
    Raw,
    argument_of,
    function_at,
    last_name,
)

_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


@dataclass(frozen=True, slots=True)
class Made:
    """A module that was made by a call in the user's files.

    kind: its class's name.  count: the number of modules that this call made.  arguments: the arguments of its
    constructor, including defaults, by name.  file, raw: the call's place; None for a model made outside of the
    user's files.
    """

    file: File | None
    raw: Raw | None
    kind: str
    count: int = 1
    arguments: Mapping[str, Any] = ()  # type: ignore[assignment]


def refit_constructor(chain: Sequence[Made], misfit: Misfit) -> Fix | None:
    """Change a layer's constructor argument to the fitting value where it is written: in the call, or in one that
    passes it on.

    chain: the layer, then the modules around it, innermost first.
    """
    found = _Refit(chain).edit(0, misfit) if chain else None
    if found is None:
        return None
    return next(made.file for made in chain if made.file is not None and made.file.path == found["file"]).change(found)


def change_layer_class(chain: Sequence[Made], kind: str) -> Fix | None:
    """Replace a layer by another class of torch.nn, with the same arguments."""
    file, call = _written_in(chain[0]) if chain else (None, None)
    if file is None or call is None:
        return None
    new = file.source(call.func).removesuffix(chain[0].kind) + kind
    return file.change(file.edit(call.func, new))


def _written_in(made: Made) -> tuple[File | None, ast.Call | None]:
    """The file and the call that made a module, if that call names its class."""
    call = None if made.file is None or made.raw is None else made.file.at(made.raw)
    fits = isinstance(call, ast.Call) and last_name(call.func) == made.kind
    return (made.file, call) if fits else (None, None)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class _Refit:
    chain: Sequence[Made]

    def edit(self, depth: int, misfit: Misfit) -> Edit | None:
        made = self.chain[depth]
        file, call = _written_in(made)
        if file is None or call is None:
            return self._edit_default(depth, misfit) if depth and made.file is None else None
        argument = argument_of(call, misfit.parameter, misfit.index)
        if argument is None:
            return self._edit_default(depth, misfit) if depth else None
        if _is_same_value(evaluate_constant(argument), misfit.was):
            # One line that made several layers (a loop, a class used twice) cannot be changed for only one of them.
            return file.edit(argument, _write_value_like(misfit.should, argument)) if made.count == 1 else None
        if isinstance(argument, ast.Name):
            return self._edit_named_value(depth, file, call, argument, misfit)
        return self._edit_formula(made, file, argument, misfit)

    def _edit_named_value(
        self, depth: int, file: File, call: ast.Call, argument: ast.Name, misfit: Misfit
    ) -> Edit | None:
        made = self.chain[depth]
        around = function_at(file.tree, call.lineno)
        value = None if around is None else _only_value(around, argument.id)
        if value is not None and _is_same_value(evaluate_constant(value), misfit.was):
            return file.edit(value, _write_value_like(misfit.should, value)) if made.count == 1 else None
        if around is None or not self._is_parameter(depth, around, argument.id):
            return None
        alone = len(_find_mentions(around, argument.id)) == 1
        other = None if alone else self._find_fitting_parameter(depth, argument.id, misfit.should)
        if other is not None:
            return file.edit(argument, other)
        if (handed := self._follow_parameter(depth, around, argument.id, misfit, alone=alone)) is not None:
            return handed
        return self._edit_formula(made, file, argument, misfit)

    def _is_parameter(self, depth: int, around: Function, name: str) -> bool:
        return depth + 1 < len(self.chain) and around.name == "__init__" and name in _list_parameter_names(around)

    def _find_fitting_parameter(self, depth: int, name: str, should: Any) -> str | None:
        """The only other parameter of the constructor around that has the value that fits."""
        values = dict(self.chain[depth + 1].arguments)
        found = [other for other, value in values.items() if other != name and type(value) is int and value == should]
        return found[0] if len(found) == 1 else None

    def _follow_parameter(self, depth: int, around: Function, name: str, misfit: Misfit, *, alone: bool) -> Edit | None:
        """Follow a parameter to the call that made the module around, or to its default."""
        index = _list_parameter_names(around).index(name) - 1
        handed = replace(misfit, parameter=name, index=index)
        _, call = _written_in(self.chain[depth + 1])
        given = None if call is None else argument_of(call, name, index)
        if given is None and not alone:
            return None
        return self.edit(depth + 1, handed)

    def _edit_default(self, depth: int, misfit: Misfit) -> Edit | None:
        """Change the default of a parameter that the call of the module around does not give."""
        inner = self.chain[depth - 1]
        if inner.file is None or inner.raw is None:
            return None
        around = function_at(inner.file.tree, inner.raw[0])
        if around is None:
            return None
        names, defaults = [each.arg for each in (*around.args.posonlyargs, *around.args.args)], around.args.defaults
        pairs = dict(zip(reversed(names), reversed(defaults), strict=False))
        pairs |= {a.arg: d for a, d in zip(around.args.kwonlyargs, around.args.kw_defaults, strict=True) if d}
        default = pairs.get(misfit.parameter)
        if default is None or not _is_same_value(evaluate_constant(default), misfit.was):
            return None
        return inner.file.edit(default, _write_value_like(misfit.should, default))

    def _edit_formula(self, made: Made, file: File, argument: ast.expr, misfit: Misfit) -> Edit | None:
        """Change a factor or summand of the expression that computes the number."""
        was, should = misfit.was, misfit.should
        if isinstance(was, tuple) and len(was) == 1:
            was, should = was[0], should[0]
        if type(was) is not int or type(should) is not int:
            return None
        for rule in (_change_factor, _change_summand, _write_multiple):
            text = rule(file, argument, was, should)
            if text is not None:
                return file.edit(argument, text)
        return file.edit(argument, str(should)) if made.count == 1 else None


def _change_factor(file: File, node: ast.expr, was: int, should: int) -> str | None:
    """`2 * dim` for `dim`: the only number of a product, changed or removed."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return None
    for number, rest in ((node.left, node.right), (node.right, node.left)):
        value = evaluate_constant(number)
        if type(value) is int and evaluate_constant(rest) is None and (value * should) % was == 0:
            new = value * should // was
            return file.source(rest) if new == 1 else file.source(node).replace(file.source(number), str(new), 1)
    return None


def _change_summand(file: File, node: ast.expr, was: int, should: int) -> str | None:
    """`dim` for `dim + 1`."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)):
        return None
    value, sign = evaluate_constant(node.right), 1 if isinstance(node.op, ast.Add) else -1
    if type(value) is not int or evaluate_constant(node.left) is not None or abs(should - was) > max(2, value):
        return None
    new = sign * value + should - was
    left = file.source(node.left)
    return left if new == 0 else f"{left} {'+' if new > 0 else '-'} {abs(new)}"


def _write_multiple(file: File, node: ast.expr, was: int, should: int) -> str | None:
    """`hidden * 2` for `hidden`: a small multiple of a named value."""
    if was <= 0 or should % was or not 2 <= should // was <= 8:
        return None
    text = file.source(node)
    text = text if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({text})"
    return f"{text} * {should // was}"


def _list_parameter_names(function: Function) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _find_mentions(function: Function, name: str) -> list[ast.Name]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]


def _only_value(around: Function, name: str) -> ast.expr | None:
    """The value of a local name that the function assigns once and uses only here.

    In another use, the same number may be right.
    """
    values = [
        node.value
        for node in ast.walk(around)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and last_name(node.targets[0]) == name
    ]
    return values[0] if len(values) == 1 and len(_find_mentions(around, name)) == 2 else None


def evaluate_constant(node: ast.expr) -> Any:
    """The value of a number, a tuple of numbers or arithmetic on numbers; None for anything else."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(evaluate_constant(part) for part in parts)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = evaluate_constant(left), evaluate_constant(right)
            compute: Callable[[int, int], int] | None = _ARITHMETIC.get(type(op))
            sound = isinstance(a, int) and isinstance(b, int) and (b != 0 or not isinstance(op, ast.FloorDiv))
            return compute(a, b) if compute is not None and sound else None
    return None


def _is_same_value(written: Any, value: Any) -> bool:
    return bool(written == value or (isinstance(value, tuple) and (written,) == value))


def _write_value_like(value: Any, like: ast.expr) -> str:
    if not isinstance(value, tuple):
        return str(value)
    if not isinstance(like, ast.Tuple | ast.List):
        return str(value[0]) if len(value) == 1 else str(value)
    return str(list(value)) if isinstance(like, ast.List) else str(value)
