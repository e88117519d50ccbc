"""Ways around a graph break: advice by what stands at its line, and edits of the source that may remove it.

An edit is a candidate only. `compiled` compiles the model with it, and offers it if the break is gone and the results
are the same; of a branch, those of both sides.
"""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from mase_server.protocol.records import Edit

_PRINTS = "Nothing can be printed or logged inside of a graph: do it only where the model is not compiled."
_SCALARS = "A number of Python needs the tensor's value, which a graph does not have: keep it a tensor."
_CHECKS = "The check depends on values: do it only where the model is not compiled."
_BRANCH = "The branch depends on values: compute both sides and choose with `torch.where`, or use `torch.cond`."
_SHAPES = "The size of the result depends on values: keep it fixed, for example with `torch.where` in place of a mask."
_OTHERS = "The call is not part of a graph: do it outside of the model, or where it is not compiled."
_ASKED = "The break is asked for: remove the call, or the decorator that keeps a function from being compiled."
_VARIABLE = "`Variable` has returned its tensor since PyTorch 0.4: use the tensor itself."
#: A part of PyTorch's reason or explanation -> advice, where nothing at the line tells more.
_BY_REASON = {
    "_LegacyVariableBase": _VARIABLE,
    "graph_break()": _ASKED,
    "disable": _ASKED,
    "Data-dependent branching": _BRANCH,
    "Dynamic shape": _SHAPES,
    "item()": _SCALARS,
    "tolist()": _SCALARS,
    "repr()": _SCALARS,
    "Data dependent operator": _SCALARS,
    "marked as skipped": _OTHERS,
}
_TELLING = frozenset({"print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log"})
_NUMBERS = {"float": ("", ".float()"), "int": (".long()", ".long()"), "bool": (".bool()", ".bool()")}
_LOGIC = {ast.And: "torch.logical_and", ast.Or: "torch.logical_or"}
#: How to choose between two values: a function, what stands before each, and what follows one that is a name alone.
_CHOICES = (("torch.where", "", ""), ("torch.cond", "lambda: ", ".clone()"))
_FLAG = "not torch.compiler.is_compiling()"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Edits that may remove a break. opposite: the edits of the text as it is, and those that mend it, with which the
    condition is the opposite, so that the other side of a branch runs; None where there is no branch."""

    title: str
    edits: list[Edit]
    opposite: tuple[list[Edit], list[Edit]] | None = None


_Rule = Callable[[ast.expr, Callable[[ast.AST], str]], str | None]


@dataclass(frozen=True)
class BreakScene:
    """The source around a break. line: from 1."""

    path: str
    text: str
    line: int

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def _around(self) -> list[ast.stmt]:
        """The statements that hold the line, the outermost first."""
        found: list[ast.stmt] = []
        for node in ast.walk(self._tree):  # level by level
            if isinstance(node, ast.stmt) and node.lineno <= self.line <= (node.end_lineno or 0):
                found.append(node)
        return found

    @property
    def column(self) -> int:
        """The column, from 0, of the first character on the line."""
        line = self._lines[self.line - 1]
        return len(line) - len(line.lstrip())

    def advise(self, reason: str, hints: Sequence[str]) -> str:
        """The advice that would avoid the break, in a sentence."""
        statement = self._around[-1] if self._around else None
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and _is_telling(statement.value):
            return _PRINTS
        if isinstance(statement, ast.Assert) or (
            isinstance(statement, ast.If) and all(map(_only_tells, statement.body))
        ):
            return _CHECKS
        found = next((advice for part, advice in _BY_REASON.items() if part in reason), None)
        return found or (hints[0] if hints else _OTHERS)

    def list_candidates(self) -> Iterator[Candidate]:
        """The edits to try, the best first."""
        if not self._around or not self._imports("torch"):
            return
        statement = self._around[-1]
        yield from self._hide(statement)
        yield from self._select(statement)
        yield from self._rewrite_values(statement, "Leave out `Variable`", _leave_out_variables)
        kept = [
            each
            for end in ("", ".float()")
            for each in self._rewrite_values(statement, "Keep it a tensor", self._rule(end))
        ]
        yield from (each for place, each in enumerate(kept) if each not in kept[:place])

    def _imports(self, name: str) -> bool:
        return any(
            alias.name == name and alias.asname is None
            for node in self._tree.body
            if isinstance(node, ast.Import)
            for alias in node.names
        )

    # Statements that a graph does not need.

    def _hide(self, statement: ast.stmt) -> Iterator[Candidate]:
        """Behind a flag, or away."""
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch._dynamo.graph_break":
            yield Candidate("Remove the graph break", [self._replace(statement, "pass")])
        elif isinstance(statement, ast.If) and all(map(_only_tells, statement.body)) and not statement.orelse:
            test = f"{_FLAG} and ({self._source(statement.test)})"
            yield Candidate("Check only where it is not compiled", [self._replace(statement.test, test)])
        elif (isinstance(call, ast.Call) and _is_telling(call)) or isinstance(statement, ast.Assert):
            indent = self._lines[statement.lineno - 1][: statement.col_offset]
            own = self._source(statement)
            if not indent.strip() and '"""' not in own and "'''" not in own:
                inner = own.replace("\n", "\n    ")
                edit = self._replace(statement, f"if {_FLAG}:\n{indent}    {inner}")
                yield Candidate(f"Put it behind `if {_FLAG}:`", [edit])

    # Branches on values: both sides, and a choice.

    def _select(self, statement: ast.stmt) -> Iterator[Candidate]:
        found = self._split_branch(statement)
        if found is None:
            return
        node, last, test, start, sides = found
        if isinstance(node, ast.stmt):
            start = (
                "".join(f"{comment}\n{' ' * node.col_offset}" for comment in self._list_comments(node, last)) + start
            )
        for (call, before, after), tensor in itertools.product(_CHOICES, ("", ".float()")):
            rule = self._rule(tensor)
            condition = self._rewrite(test, rule)
            first, second = (
                before + text + (after if text.isidentifier() else "")
                for text in (self._write_side(side, rule) for side in sides)
            )
            edit = self._replace(node, f"{start}{call}({condition}, {first}, {second})", last)
            other = self._replace(node, f"{start}{call}(torch.logical_not({condition}), {first}, {second})", last)
            asked = self._replace(test, f"not ({self._source(test)})")
            yield Candidate(f"Choose with `{call}`", [edit], ([asked], [other]))

    def _list_comments(self, node: ast.stmt, last: ast.expr | ast.stmt) -> Iterator[str]:
        """The comments from one statement to the end of another, which an edit would take away."""
        end = last.end_lineno or last.lineno, self._column(last.end_lineno or last.lineno, last.end_col_offset or 0)
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT and (node.lineno, 0) <= token.start < end:
                yield token.string

    def _split_branch(
        self, statement: ast.stmt
    ) -> tuple[ast.expr | ast.stmt, ast.expr | ast.stmt, ast.expr, str, tuple[ast.expr | str, ast.expr | str]] | None:
        """The replaced text, from one node to another, its condition, what stands before the choice, and both sides."""
        if not isinstance(statement, ast.If):
            choices = (node for node in ast.walk(statement) if isinstance(node, ast.IfExp))
            node = next((node for node in choices if node.lineno <= self.line <= (node.end_lineno or 0)), None)
            return None if node is None else (node, node, node.test, "", (node.body, node.orelse))
        match statement.body, statement.orelse:
            case [ast.Return(ast.expr() as first)], [ast.Return(ast.expr() as second)]:
                return statement, statement, statement.test, "return ", (first, second)
            case [ast.Return(ast.expr() as first)], []:
                if isinstance(after := self._find_next(statement), ast.Return) and after.value is not None:
                    return statement, after, statement.test, "return ", (first, after.value)
            case [ast.Assign([ast.Name(name)], first)], [ast.Assign([ast.Name(other)], second)] if name == other:
                return statement, statement, statement.test, f"{name} = ", (first, second)
            case [ast.Assign([ast.Name(name)], first)], []:
                return statement, statement, statement.test, f"{name} = ", (first, name)
            case [ast.AugAssign(ast.Name(name)) as change], []:
                whole = ast.unparse(ast.BinOp(ast.Name(name), change.op, change.value))
                return statement, statement, statement.test, f"{name} = ", (whole, name)
        return None

    def _find_next(self, statement: ast.stmt) -> ast.stmt | None:
        for node in ast.walk(self._tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and statement in body[:-1]:
                return body[body.index(statement) + 1]  # type: ignore[no-any-return]
        return None

    def _write_side(self, side: ast.expr | str, rule: _Rule) -> str:
        return side if isinstance(side, str) else self._rewrite(side, rule)

    # Numbers of Python and arrays of NumPy: tensors.

    def _rewrite_values(self, statement: ast.stmt, title: str, rule: _Rule) -> Iterator[Candidate]:
        own = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]
        edits = [self._replace(node, text) for node in own if (text := self._rewrite(node, rule)) != self._source(node)]
        if edits:
            yield Candidate(title, edits)
            if stacked := self._stack_instead(statement):
                yield Candidate(title, [*edits, *stacked])

    def _stack_instead(self, statement: ast.stmt) -> list[Edit]:
        """Where a list of numbers becomes a tensor, a list of tensors is stacked."""
        match statement:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"))):
                pass
            case _:
                return []
        function = next(each for each in reversed(self._around) if isinstance(each, ast.FunctionDef))
        return [
            self._replace(node, f"torch.stack({name})")
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and ast.unparse(node) == f"torch.tensor({name})"
        ]

    def _rule(self, tensor: str) -> _Rule:
        """How an expression is written without numbers. tensor: what follows that `float()` makes a number of."""

        def rewrite(node: ast.expr, inner: Callable[[ast.AST], str]) -> str | None:
            match node:
                case ast.Call(ast.Attribute(whole, "item" | "numpy"), []) | ast.Call(
                    ast.Attribute(ast.Name("torch"), "from_numpy"), [whole]
                ):
                    return inner(whole)
                case ast.Call(ast.Name("float" | "int" | "bool" as kind), [whole]) if not isinstance(
                    whole, ast.Constant
                ):
                    text = inner(whole)
                    end = tensor if kind == "float" else _NUMBERS[kind][0]
                    return f"{_in_parentheses(whole, text)}{end}" if end else text
                case ast.Call(ast.Attribute(ast.Name("torch"), "tensor"), [whole]) if (
                    text := inner(whole)
                ) != self._source(whole):
                    return f"{_in_parentheses(whole, text)}.clone()"
                case ast.Call(ast.Attribute(ast.Name("torch"), "equal"), [left, right]):
                    return f"({inner(left)} == {inner(right)}).all()"
                case ast.Call(ast.Attribute(ast.Name("torch"), "allclose"), [left, right]):
                    return f"torch.isclose({inner(left)}, {inner(right)}).all()"
                case ast.Call(ast.Attribute(ast.Name("copy"), "deepcopy"), [whole]):
                    return f"{_in_parentheses(whole, inner(whole))}.clone()"
                case ast.Call(ast.Attribute(ast.Name("math" | "np" | "numpy"), name), arguments) if hasattr(
                    torch, name
                ):
                    return f"torch.{name}({', '.join(map(inner, arguments))})"
                case ast.BoolOp(operator, [first, *rest]):
                    text = inner(first)
                    for each in rest:
                        text = f"{_LOGIC[type(operator)]}({text}, {inner(each)})"
                    return text
                case ast.UnaryOp(ast.Not(), whole):
                    return f"torch.logical_not({inner(whole)})"
            return None

        return rewrite

    # Text.

    def _rewrite(self, node: ast.AST, rule: _Rule) -> str:
        """The text of a node, in which the rule wrote the parts that it is about."""

        def write(inner: ast.AST) -> str:
            return self._rewrite(inner, rule)

        if isinstance(node, ast.expr) and (text := rule(node, write)) is not None:
            return text
        start, end = self._span(node)
        parts: list[str] = []
        for child in sorted(_list_parts(node), key=self._span):
            first, last = self._span(child)
            parts += [self.text[start:first], write(child)]
            start = last
        return "".join([*parts, self.text[start:end]])

    def _source(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.text[start:end]

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """The first and the last character in the text; `ast` counts columns in bytes."""
        place = [(getattr(node, f"{end}lineno"), getattr(node, f"{end}col_offset")) for end in ("", "end_")]
        first, last = (self._starts[line - 1] + self._column(line, column) for line, column in place)
        return first, last

    def _column(self, line: int, column: int) -> int:
        return len(self._lines[line - 1].encode()[:column].decode())

    def _replace(self, node: ast.expr | ast.stmt, text: str, last: ast.expr | ast.stmt | None = None) -> Edit:
        end = node if last is None else last
        line, end_line = node.lineno, end.end_lineno or end.lineno
        return {
            "file": self.path, "line": line, "column": self._column(line, node.col_offset),
            "end_line": end_line, "end_column": self._column(end_line, end.end_col_offset or 0), "new_text": text,
        }  # fmt: skip


def _leave_out_variables(node: ast.expr, inner: Callable[[ast.AST], str]) -> str | None:
    match node:
        case ast.Call(ast.Name("Variable") | ast.Attribute(attr="Variable"), [whole], given) if all(
            isinstance(each.value, ast.Constant) and not each.value.value for each in given
        ):  # it asks for no gradient
            return inner(whole)
    return None


def _list_parts(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions directly inside, those of keywords and the like included, but nothing inside of an f-string."""
    if isinstance(node, ast.JoinedStr):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.keyword | ast.comprehension):
            yield from _list_parts(child)


def _is_telling(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _TELLING


def _only_tells(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, ast.Raise) or (isinstance(value, ast.Call) and _is_telling(value))


def _in_parentheses(node: ast.AST, text: str) -> str:
    return text if isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"
