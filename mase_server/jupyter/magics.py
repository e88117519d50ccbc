"""The magics: `%mase MODEL` shows a model's layers, `%%mase` runs a cell and shows the shapes in it."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import Pretty, display

from mase_server.cli.reports import Report
from mase_server.jupyter.tracer import NotTraced, Tracer
from mase_server.lsp.wording import NAMES, describe_break, format_count, has_hint, hint_text, lens_text
from mase_server.protocol.snapshot import Problem
from mase_server.visible import escape_markup, reveal_lines

_USAGE = "%mase MODEL, %mase MODEL(inputs), %mase compiled MODEL(inputs), or %%mase above a cell; --graph draws; --help"
_DRAW, _HELP = "--graph", "--help"
_COMPILED = re.compile(r"compiled(:(?P<view>\w+))?")
#: Aliased because IPython has no annotations.
_show: Any = display
_text: Any = Pretty


@magics_class
class MaseMagics(Magics):
    """`%mase` in one shell. The workspace's daemon traces cells, or a daemon started for the first cell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell: Any = shell
        self._tracer: Tracer | None = None

    @line_cell_magic
    def mase(self, line: str, cell: str | None = None) -> Any:
        """Show the layers of a model, or the shapes in a cell.

        %mase net               the layers of a model, with inputs that are found
        %mase net(x)            with inputs of your own
        %mase --graph net(x)    as a drawing, in a terminal as a tree of its modules
        %mase compiled net(x)   where torch.compile breaks its graphs; compiled:inductor for a view, such as its code
        %%mase                  runs the cell as usual, and shows its shapes below it
        """
        if _HELP in line.split():
            _show(_text(inspect.getdoc(MaseMagics.mase)))
            return None
        words = [word for word in line.split() if word != _DRAW]
        if cell is not None:
            if words:
                raise UsageError(f"%%mase takes no words, not {line.strip()!r}; {_USAGE}")
            self._run_cell(cell)
            return None
        if not words:
            raise UsageError(_USAGE)
        if (asked := _COMPILED.fullmatch(words[0])) is not None and words[1:]:
            self._show_compiled(" ".join(words[1:]), asked["view"] or "")
            return None
        graph = self._evaluate_graph(" ".join(words))
        return Drawing(graph) if _DRAW in line.split() else graph

    def close(self) -> None:
        """End the daemon started for cells, if there is one."""
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None

    def _run_cell(self, cell: str) -> None:
        earlier = [self._as_python(source) for source in self._shell.user_ns.get("In", [])[:-1]]
        result = self._shell.run_cell(cell)
        if isinstance(result.error_before_exec, SyntaxError):
            return  # the shell has shown the error
        cell = self._as_python(cell)
        context = context_of(cell, earlier)
        if self._tracer is None:
            self._tracer = Tracer(os.getcwd())  # noqa: PTH109  (the daemon speaks in texts)
        try:
            _show(Shown(cell, self._tracer.trace(context + cell), context.count("\n") + 1))
        except NotTraced as error:
            _show(Shown(cell, str(error)))

    def _show_compiled(self, call: str, view: str) -> None:
        """Trace a call with the statements that define its names, and show what a compiler makes of its models."""
        earlier = [self._as_python(source) for source in self._shell.user_ns.get("In", [])]
        tracer = self._tracer = self._tracer or Tracer(os.getcwd())  # noqa: PTH109  (the daemon speaks in texts)
        try:
            tracer.trace(f"{context_of(call, earlier)}{call}\n", view or "dynamo")
        except NotTraced as error:
            raise UsageError(str(error)) from None
        if not tracer.compiled:
            raise UsageError(f"{call} calls no model that can be traced")
        for title, told in tracer.compiled.items():
            breaks = format_count(len(told["breaks"]), "break")
            _show(_text(reveal_lines(f"{title}: {format_count(told['graphs'], 'graph')}, {breaks}")))
            for one in told["breaks"]:
                _show(_text(reveal_lines(describe_break(one))))
            if view:
                _show(_text(reveal_lines(told["text"])))

    def _as_python(self, source: str) -> str:
        """Convert a cell to Python: drop the line of `%%mase`, turn other magics into calls, and keep the lines."""
        first, _, rest = source.partition("\n")
        source = rest if first.strip() == "%%mase" else source
        return str(self._shell.input_transformer_manager.transform_cell(source))

    def _evaluate_graph(self, text: str) -> Any:
        """The graph of an expression's value: a model, a graph, or a model called with inputs."""
        from torch import nn

        from mase_server.ir.graph import MaseGraph

        call = _parse_call(text)
        if call is not None and isinstance(model := self._evaluate_node(call.func), nn.Module):
            args = [self._evaluate_node(each) for each in call.args]
            kwargs = {each.arg: self._evaluate_node(each.value) for each in call.keywords if each.arg is not None}
            return MaseGraph(model, _bind_forward_arguments(model, args, kwargs))
        value = self._shell.ev(text)
        if isinstance(value, nn.Module):
            return MaseGraph(value)
        if isinstance(value, MaseGraph):
            return value
        raise UsageError(f"{text} is a {type(value).__name__}; %mase takes a torch.nn.Module or a MaseGraph")

    def _evaluate_node(self, node: ast.expr) -> Any:
        return self._shell.ev(ast.unparse(node))


def _parse_call(text: str) -> ast.Call | None:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"{text!r} is no expression: {error.msg}; {_USAGE}") from None
    is_plain = isinstance(node, ast.Call) and not any(isinstance(each, ast.Starred) for each in node.args)
    return node if is_plain and isinstance(node, ast.Call) else None


def _bind_forward_arguments(model: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Forward's arguments by name; UsageError if it does not accept them."""
    try:
        return dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise UsageError(f"{type(model).__name__} cannot be called so: {error}") from None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph as a picture in notebooks, and as a tree of its modules in terminals."""

    graph: Any

    def _repr_svg_(self) -> str:
        from mase_server.ir.draw import graph_svg

        return str(graph_svg(self.graph))

    def __repr__(self) -> str:
        from mase_server.ir.draw import graph_text_tree

        return str(graph_text_tree(self.graph))


# The source that a cell needs from the cells that ran before it, so that a separate process can trace the cell.

#: Statements that define names; other statements are not run for their side effects.
_MAKES = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign,
    ast.AugAssign, ast.If, ast.Try,
)  # fmt: skip
#: The name with which IPython writes its own statements in Python.
_SHELL = "get_ipython"


def context_of(cell: str, earlier: Sequence[str]) -> str:
    """The statements of earlier cells, in order, that define the names used by a cell; "" for none.

    earlier: the sources of the cells that ran, oldest first, as Python. A cell that does not parse contributes
    nothing.
    """
    wanted = _used_names(_parse_cell(cell))
    kept: list[str] = []
    for source in reversed(earlier):
        for statement in reversed(_parse_cell(source).body):
            made = set(_bound_names(statement))
            if made & wanted and isinstance(statement, _MAKES) and _SHELL not in _used_names(statement):
                wanted |= _used_names(statement)
                kept.append(_statement_text(source, statement))
    return "".join(f"{text}\n" for text in reversed(kept))


def _parse_cell(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _statement_text(source: str, statement: ast.stmt) -> str:
    """A statement with its decorators and indentation, in its original text."""
    decorators = getattr(statement, "decorator_list", ())
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    lines = source.splitlines()[first - 1 : statement.end_lineno]
    whole = "\n".join(lines)
    # If a line holds several statements, the text comes from the tree instead.
    return whole if len(_parse_cell(whole).body) == 1 else ast.unparse(statement)


def _used_names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement binds at the top level of a cell."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


# A cell with its hints, as HTML for notebooks and as text for terminals. All user text is escaped.

_BOX = "border-left: 3px solid #8aa; padding: 2px 0 2px 8px; margin: 2px 0"
_HINT = "color: #0a7ea4; font-style: italic"
_LENS = "opacity: 0.65"
_SEVERITY = {"error": "color: #c0392b", "warning": "color: #b9770e"}

#: A text and its style: "" for the user's own source.
Piece = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell with its shapes, or with the reason why it has none.

    first: the line of the traced text where the cell begins, from 1.
    """

    cell: str
    traced: Report | str
    first: int = 1

    def _repr_html_(self) -> str:
        lines = ["".join(_styled_html(*piece) for piece in line) for line in self.lines()]
        return f'<pre style="{_BOX}">' + "\n".join(lines) + "</pre>"

    def __repr__(self) -> str:
        return reveal_lines("\n".join("".join(text for text, _ in line) for line in self.lines()))

    def lines(self) -> Iterator[Sequence[Piece]]:
        """Each model's facts, the source with hints behind the names, and the problems."""
        texts, hints, lenses = self.cell.splitlines(), self._hints(), self._lenses()
        yield from ([(text, _LENS)] for text in lenses.pop(0, ()))
        for number, text in enumerate(texts, 1):
            indent = text[: len(text) - len(text.lstrip())]
            yield from ([(f"{indent}# {lens}", _LENS)] for lens in lenses.get(number, ()))
            yield list(_with_hints(text, sorted(hints.get(number, ()))))
        yield from ([(text, style)] for text, style in self._ends())

    def _ends(self) -> Iterator[Piece]:
        """The problems of the cell; if there are no shapes, at least the reason."""
        if isinstance(self.traced, str):
            yield self.traced, _SEVERITY["warning"]
            return
        problems = self.traced.told_problems
        yield from ((self._problem(each), _SEVERITY.get(each.severity, "")) for each in problems)
        if self.traced.told["python"] is None and not problems:
            status = self.traced.told["status"]
            yield (status and status["message"]) or "nothing of this cell could be traced", _LENS

    def _hints(self) -> dict[int, list[tuple[int, str]]]:
        """By line of the cell: the column behind which each hint stands, and its text."""
        found: dict[int, list[tuple[int, str]]] = {}
        lines = self.cell.splitlines()
        for site in self.traced.sites(NAMES) if isinstance(self.traced, Report) else ():
            line = site.end_line - self.first
            if has_hint(site) and 0 <= line < len(lines):
                text = hint_text(site, lines[line][site.end_column :])
                found.setdefault(line + 1, []).append((site.end_column, text))
        return found

    def _lenses(self) -> dict[int, list[str]]:
        """The facts of models by line of the cell; line 0 has those of other cells' models."""
        found: dict[int, list[str]] = {}
        for model in self.traced.lenses if isinstance(self.traced, Report) else ():
            line = max(0, model.line - self.first + 1)
            found.setdefault(line, []).append(f"{model.name}: {lens_text(model, False)}")
        return found

    def _problem(self, problem: Problem) -> str:
        line = problem.line - self.first + 1
        place = f"line {line}" if line >= 1 else "an earlier cell"
        return f"{place}: {problem.severity}: {problem.message}"


def _styled_html(text: str, style: str) -> str:
    return f'<span style="{style}">{escape_markup(text)}</span>' if style else escape_markup(text)


def _with_hints(text: str, hints: Sequence[tuple[int, str]]) -> Iterator[Piece]:
    start = 0
    for column, hint in hints:
        yield text[start:column], ""
        yield hint, _HINT
        start = column
    yield text[start:], ""
