"""Tensors that `.to(device)` leaves behind: plain attributes of a module, used in its forward where they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch import nn

from mase_server.ops.paths import attribute, named_tensors
from mase_server.snapshot import Problem
from mase_server.tracing.calls import Call, Run, references
from mase_server.tracing.errors import mends
from mase_server.worker.traced import Traced

#: The file moves models or tensors itself, so a device is more than the one that everything is made on.
_MOVES = re.compile(r"\.to\(\s*(device|\w*\.device|['\"]cuda)|\.cuda\(|accelerator|device_map")
#: Calls that bring a tensor to where another one is.
_MOVED_BY = frozenset({"to", "cuda", "type_as", "new_tensor", "expand_as"})


def left_behind(traced: Traced, path: str, text: str) -> Iterator[Problem]:
    """A warning at each assignment of such a tensor, with the buffer that it should be as its quick fix."""
    if not _MOVES.search(text):
        return
    file = mends.File(path, text)
    model = traced.session.model
    for owner, name in dict.fromkeys(_plain(traced.run, model)):
        module = attribute(model, owner)
        statement = _assignment(file.tree, type(module).__name__, name)
        if statement is not None:
            yield _problem(file, statement, name)


def _plain(run: Run, model: nn.Module) -> Iterator[tuple[str, str]]:
    """Owner and name of every tensor that is no parameter or buffer and that a call takes as it is."""
    kept = {path for path, _ in named_tensors(model)}
    for index, call in enumerate(run.calls):
        if call.kind == "get_attr" and isinstance(call.target, str) and call.target not in kept:
            takers = [other for other in run.calls[index:] if index in references((other.args, other.kwargs))]
            if takers and not all(map(_moves, takers)):
                owner, _, name = call.target.rpartition(".")
                yield owner, name


def _moves(call: Call) -> bool:
    name = call.target if isinstance(call.target, str) else getattr(call.target, "__name__", "")
    return name in _MOVED_BY


def _assignment(tree: ast.Module, kind: str, name: str) -> ast.Assign | None:
    """The only plain assignment of `self.<name>` in the constructor of a class of the file."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind]
    found = [
        node
        for each in classes
        for node in ast.walk(each)
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [f"self.{name}"]
    ]
    return found[0] if len(found) == 1 else None


def _problem(file: mends.File, statement: ast.Assign, name: str) -> Problem:
    line, column, end_line, end_column = file.places.span(statement)
    new = f'self.register_buffer("{name}", {file.source(statement.value)})'
    edit = {
        "file": file.path, "line": line, "column": column, "end_line": end_line, "end_column": end_column,
        "new_text": new,
    }  # fmt: skip
    text = (
        f"`self.{name}` is a plain tensor: `.to(device)` leaves it where it is,\nand the forward uses it with tensors"
        f" that are moved. Make it a buffer: `self.register_buffer(...)`."
    )
    fix = mends.fix(f"self.{name} = ... -> register_buffer", edit)
    return Problem(file.path, line, column, end_line, end_column, "warning", "device-mismatch", text, [], [fix])
