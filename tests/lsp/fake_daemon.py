"""A daemon without processes: it "traces" a file by reading what the file's own comments claim.

`x = f(y)  # => f32[B:2, 10]` says that x was bound to a tensor of shape (2, 10) whose first dimension is B;
` / ` separates what several runs saw, `;` the parameters of a `def`.
`# !! message` is an error on its line; `# !! message ~~ old -> new` has a fix; `# !! @other.py message` is an error at
the first character of the file beside it. `class Net:  # no text: why` is a model whose assumptions have no text form.
A file without `# model NAME` has no model. With `# nodes`, every claimed name of a call is a node
too. So a test's source says everything that the server has to show, and where.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import re
from pathlib import Path

from fake_passes import FakePasses
from fake_verilog import FakeVerilog

from mase_server import notebooks
from mase_server.daemon.status import Status
from mase_server.daemon.store import Entry, GraphSnapshot, Store
from mase_server.protocol.snapshot import COLUMNS, HEAD_KEYS, KINDS, Problem
from mase_server.telemetry.metrics import Metrics

_CLAIM = re.compile(r"# => (.*)$")
_PROBLEM = re.compile(r"# !! (.*?)(?: ~~ (.*) -> (.*))?$")
_TENSOR = re.compile(r"(\w+)\[(.*)\]$")


def value_of(text: str):
    """`f32[B:2, 10]` as a snapshot's value."""
    dtype, inside = _TENSOR.match(text.strip()).groups()
    pairs = [(part.strip().split(":") * 2)[:2] for part in inside.split(",") if part.strip()]
    return [dtype, [int(size) for _, size in pairs], [symbol for symbol, _ in pairs]]


def payload_of(path: str, text: str, generation: int = 1):
    """The payload that a trace of `text` would have sent, by the claims in its comments."""
    payload = {key: [] for key in HEAD_KEYS} | {name: {c: [] for c in columns} for name, columns in COLUMNS.items()}
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    payload |= {"schema": 1, "file": path, "sha256": sha256, "generation": generation, "seconds": 0.01}
    payload |= {"python": "3", "torch": "2", "complete": True, "fit": b"", "transforms": []}
    payload["files"] = [{"path": path, "sha256": sha256, "library": False}]
    lines = [line.rstrip("\r") for line in text.split("\n")]
    for node in ast.walk(ast.parse(text)):
        claim = _CLAIM.search(lines[node.lineno - 1]) if hasattr(node, "lineno") else None
        if claim:
            _add_sites(payload, node, claim.group(1), lines)
        if isinstance(node, ast.ClassDef):
            payload["models"].append(_model(node, lines[node.lineno - 1]))
    if "# nodes" in text:
        _add_nodes(payload, ast.parse(text), lines)
    payload["problems"] = [problem for number, line in enumerate(lines, 1) for problem in _problems(path, number, line)]
    return payload


def _add_sites(payload, node, claim, lines):
    if isinstance(node, ast.FunctionDef):
        names = [argument for argument in node.args.args if argument.arg != "self"]
        for argument, text in zip(names, claim.split(";"), strict=True):
            end = argument.col_offset + len(argument.arg.encode())
            _add(payload, "parameter", argument.arg, (argument.lineno, argument.col_offset, end), text, lines)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        place = (target.lineno, target.col_offset, target.end_col_offset)
        _add(payload, "binding", target.id, place, claim, lines)
        place = (node.value.lineno, node.value.col_offset, node.value.end_col_offset)
        _add(payload, "expression", "", place, claim, lines)
    elif isinstance(node, ast.Return):
        _add(payload, "return", "", (node.lineno, node.value.col_offset, node.value.end_col_offset), claim, lines)


def _add_nodes(payload, tree, lines):
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for model, owner in enumerate(classes):
        for node in ast.walk(owner):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and _CLAIM.search(lines[node.lineno - 1])
            ):
                call = node.value
                row = {"name": f"{owner.name}_{node.targets[0].id}", "op": "call_function", "target": call.func.attr,
                       "mase_op": call.func.attr, "mase_type": "module", "family": "", "model": model, "scope": -1,
                       "value": -1, "flops": 0, "file": 0, "line": call.lineno, "column": call.col_offset,
                       "end_line": call.end_lineno, "end_column": call.end_col_offset, "blob": b""}  # fmt: skip
                for column, cell in row.items():
                    payload["nodes"][column].append(cell)


def _add(payload, kind, name, place, claim, lines):
    line, *columns = place
    start, end = (len(lines[line - 1].encode()[:column].decode()) for column in columns)
    sites, rows = payload["sites"], payload["rows"]
    row = (0, line, start, line, end, name, KINDS.index(kind), "forward")
    for column, cell in zip(sites, row, strict=True):
        sites[column].append(cell)
    for text in claim.split(" / "):
        row = (len(sites["file"]) - 1, len(payload["values"]), 0 if payload["models"] else -1, 1, [], -1)
        payload["values"].append(value_of(text))
        for column, cell in zip(rows, row, strict=True):
            rows[column].append(cell)


def _model(node, line):
    start = node.col_offset + len("class ")
    place = {"file_index": 0, "line": node.lineno, "column": start, "end_line": node.lineno}
    facts = {"name": node.name, "arguments": {}, "inputs": {}, "inputs_from": "search", "arguments_from": "default"}
    numbers = {"nodes": 3, "parameters": 1010, "parameter_bytes": 4040, "flops": 2000, "seconds": 0.012}
    words = {
        "found": "inputs found by search: x = f32[2, 10]",
        "mode": "eval",
        "rung": "meta",
        "generic": True,
        "complete": True,
    }
    why = line.partition("# no text: ")[2]
    inputs = "mase: x: f32[B=2, 10]"
    comment = {"text": None if why else inputs, "why": why, "inputs": inputs}
    return {
        **place,
        "end_column": start + len(node.name),
        **facts,
        **numbers,
        **words,
        "symbols": {"B": 2},
        "fixed": [],
        "comment": {**comment, "line": node.lineno, "column": node.col_offset},
    }


def _problems(path, number, line):
    found = _PROBLEM.search(line)
    if found:
        message, old, new = found.groups()
        if message.startswith("@"):
            name, message = message[1:].split(" ", 1)
            place = {"file": str(Path(path).with_name(name)), "line": 1, "column": 0, "end_line": 1, "end_column": 1}
            yield {**place, "severity": "error", "code": "elsewhere", "message": message, "related": [], "fixes": []}
            return
        start = len(line) - len(line.lstrip())
        place = {"file": path, "line": number, "column": start, "end_line": number, "end_column": found.start()}
        at = line.find(old) if old else 0
        edit = place | {"column": at, "end_column": at + len(old or ""), "new_text": new}
        fixes = [{"title": f"Use {new}", "preferred": True, "edits": [edit]}] if old else []
        related = [place | {"line": 1, "column": 0, "end_line": 1, "end_column": 1, "message": "called from here"}]
        yield {**place, "severity": "error", "code": "shape-mismatch", "message": message, "related": related,
               "fixes": fixes}  # fmt: skip


class FakeDaemon:
    """The daemon's seam over `payload_of`. A file whose text holds `# hang` is traced until something else happens."""

    def __init__(self, listener, *, cache_dir, state_dir, settings_of, folder_of, trusts=lambda path: True):
        self.listener, self.settings_of, self.folder_of, self.trusts = listener, settings_of, folder_of, trusts
        self.store = Store()
        self.metrics = Metrics()
        self.passes = FakePasses(self.store, listener)
        self.verilog = self.simulations = FakeVerilog(self.store, listener)
        self.generation: dict[str, int] = {}
        self.traced: dict[str, str] = {}
        self.ends: dict[str, asyncio.Future] = {}
        #: Nobody asks for Inductor's code, or picks a device.
        self.kernels = self.run_costs = self.run_shown = lambda snapshot, title: None
        #: Texts that stand in for files, see `FollowingDaemon`.
        self.unsaved: dict[str, str] = {}

    async def start(self):
        pass

    def file(self, path):
        """What the real one has of a file beside its snapshot, which nobody asks of this one."""

    async def shutdown(self):
        pass

    def opened(self, path, options=None):
        self._trace(path)

    def saved(self, path):
        self._trace(path)

    def typing(self, path):
        pass

    async def typed(self, path, text, *, runs_module=False):
        """Nothing of this one follows typing: every text waits for its save."""
        return False

    def forget_text(self, path, by=None):
        self.unsaved.pop(path, None)

    def closed(self, path):
        self.generation.pop(path, None)

    def retrace(self, path, by="editor"):
        self.traced.pop(path, None)
        self._trace(path)

    def pick(self, path, root):
        self.store.pick(path, root)
        self.listener.views_changed(frozenset({path}))

    def environment_changed(self, folder):
        for path in list(self.generation):
            if folder in {None, self.folder_of(path)}:
                self.retrace(path)

    def cancel(self, path):
        self._end(path, "superseded", "cancelled")

    async def wait(self, path):
        return await asyncio.shield(self.ends[path])

    def _trace(self, path):
        text = self.unsaved.get(path) or notebooks.read_traced_bytes(path).decode()
        if self.traced.get(path) == text:
            return
        self.generation[path] = self.generation.get(path, 0) + 1
        self.ends[path] = asyncio.get_running_loop().create_future()
        if not self.trusts(path):
            self._end(path, "untrusted", "this folder is not trusted")
            return
        self.traced[path] = text
        self._tell(path, "queued", "")
        asyncio.get_running_loop().call_soon(self._finish, path, text)

    def _finish(self, path, text):
        self._tell(path, "tracing", "")
        self.listener.progress(path, "tracing", "looking for inputs")
        if "# hang" in text:
            return
        if "# model" not in text:
            self._end(path, "no_model", "no model in this file")
            return
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        shown = self.store.entry(path).shown
        try:
            traced = GraphSnapshot(payload_of(path, text, self.generation.get(path, 0)))
            snapshot = self.verilog.adopt(self.passes.adopt(traced))
            unsaved = frozenset({path} & self.unsaved.keys())
            entry = Entry(path, sha256, snapshot, False, snapshot.problems, unsaved)
        except SyntaxError as error:
            end = error.offset or 1
            problem = Problem(path, error.lineno, end - 1, error.lineno, end, "error", "syntax-error", error.msg)
            entry = Entry(path, sha256, shown, shown is not None, (problem,))
        self.listener.views_changed(self.store.put(entry))
        if entry.stale:
            self.verilog.outdate(path)
        state = "failed" if any(problem.severity == "error" for problem in entry.problems) else "ready"
        self._end(path, state, "")

    def _end(self, path, state, message):
        status = self._tell(path, state, message)
        if not self.ends[path].done():
            self.ends[path].set_result(status)

    def _tell(self, path, state, message):
        entry = self.store.entry(path)
        shown = entry.shown.sha256 if entry.shown else None
        sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        status = Status(path, state, self.generation.get(path, 0), sha256, shown, entry.stale, True, 0.0, message)
        self.listener.status_changed(status)
        return status


class FollowingDaemon(FakeDaemon):
    """The same, but every text that parses is traced as it is typed."""

    async def typed(self, path, text, *, runs_module=False):
        try:
            ast.parse(text)
        except SyntaxError:
            return False
        self.unsaved[path] = text.decode()
        self._trace(path)
        return True

    def forget_text(self, path, by=None):
        if self.unsaved.pop(path, None) is not None:
            self.retrace(path)
