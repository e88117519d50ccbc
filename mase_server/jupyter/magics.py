"""The magics: `%mase MODEL` shows a model's layers, `%%mase` runs a cell and shows the shapes in it."""

from __future__ import annotations

import ast
import inspect
import os
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import SVG, display

from mase_server.jupyter.context import context_of
from mase_server.jupyter.shown import Shown
from mase_server.jupyter.tracer import NotTraced, Tracer

_USAGE = "%mase MODEL, %mase MODEL(inputs), or %%mase above a cell; --graph draws"
_DRAW = "--graph"
#: Without annotations in IPython.
_show: Any = display
_svg: Any = SVG


@magics_class
class MaseMagics(Magics):
    """`%mase` of one shell. Cells are traced by the workspace's daemon, or by one that is started for the first."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell: Any = shell
        self._tracer: Tracer | None = None

    @line_cell_magic
    def mase(self, line: str, cell: str | None = None) -> Any:
        """Show the layers of a model, or the shapes in a cell.

        %mase net               the layers of a model, of inputs that are found
        %mase net(x)            with inputs of your own
        %mase --graph net(x)    as a drawing
        %%mase                  runs the cell as ever, and shows its shapes under it
        """
        words = [word for word in line.split() if word != _DRAW]
        if cell is not None:
            if words:
                raise UsageError(f"%%mase takes no words, not {line.strip()!r}; {_USAGE}")
            self._run_cell(cell)
            return None
        if not words:
            raise UsageError(_USAGE)
        graph = self._graph(" ".join(words))
        return _svg(_drawn(graph)) if _DRAW in line.split() else graph

    def close(self) -> None:
        """End the daemon that was started for cells, if one was."""
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None

    def _run_cell(self, cell: str) -> None:
        earlier = [self._as_python(source) for source in self._shell.user_ns.get("In", [])[:-1]]
        result = self._shell.run_cell(cell)
        if isinstance(result.error_before_exec, SyntaxError):
            return  # the shell has shown it
        cell = self._as_python(cell)
        context = context_of(cell, earlier)
        if self._tracer is None:
            self._tracer = Tracer(os.getcwd())  # noqa: PTH109  (the daemon speaks in texts)
        try:
            _show(Shown(cell, self._tracer.trace(context + cell), context.count("\n") + 1))
        except NotTraced as error:
            _show(Shown(cell, str(error)))

    def _as_python(self, source: str) -> str:
        """Without the line of `%%mase`, other magics as the calls that they are; line by line as before."""
        first, _, rest = source.partition("\n")
        source = rest if first.strip() == "%%mase" else source
        return str(self._shell.input_transformer_manager.transform_cell(source))

    def _graph(self, text: str) -> Any:
        """The graph of what an expression gives: a model, a graph, or a model with inputs as if it were called."""
        from torch import nn

        from mase_server.ir.graph import MaseGraph

        call = _call(text)
        if call is not None and isinstance(model := self._value(call.func), nn.Module):
            args = [self._value(each) for each in call.args]
            kwargs = {each.arg: self._value(each.value) for each in call.keywords if each.arg is not None}
            return MaseGraph(model, _bound(model, args, kwargs))
        value = self._shell.ev(text)
        if isinstance(value, nn.Module):
            return MaseGraph(value)
        if isinstance(value, MaseGraph):
            return value
        raise UsageError(f"{text} is a {type(value).__name__}; %mase takes a torch.nn.Module or a MaseGraph")

    def _value(self, node: ast.expr) -> Any:
        return self._shell.ev(ast.unparse(node))


def _call(text: str) -> ast.Call | None:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"{text!r} is no expression: {error.msg}; {_USAGE}") from None
    is_plain = isinstance(node, ast.Call) and not any(isinstance(each, ast.Starred) for each in node.args)
    return node if is_plain and isinstance(node, ast.Call) else None


def _bound(model: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Forward's arguments by name; UsageError for what it does not take."""
    try:
        return dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise UsageError(f"{type(model).__name__} cannot be called so: {error}") from None


def _drawn(graph: Any) -> str:
    from mase_server.ir.draw import svg

    return str(svg(graph))
