"""Run a file eagerly on real tensors and record the type and shape of everything that its code binds.

Python itself says where each value goes: opcode events of `sys.settrace` and the position of every store instruction.
The names and functions at these positions come from `places`. A tensor stored where the syntax tree knows no binding
is an error, so that nothing can be left out unseen.
"""

from __future__ import annotations

import ast
import dis
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from tests.ground_truth.places import Place, places

DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
    torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip

Truth = dict[Place, Counter[Any]]


def describe(value: Any) -> Any:
    """A hashable form of a value: a tensor is (dtype, shape), containers nest, the rest is its type's name.

    A data class that holds tensors is a dict of its fields, as a model output is.
    """
    if isinstance(value, torch.Tensor):
        return (DTYPES[value.dtype], tuple(value.shape))
    if isinstance(value, Mapping):
        return ("dict", tuple((str(key), describe(inner)) for key, inner in value.items()))
    if isinstance(value, tuple | list):
        return ("tuple", tuple(describe(inner) for inner in value))
    if holds_tensor(value):
        return describe(_fields(value))
    return None if value is None else ("python", type(value).__name__)


def holds_tensor(value: Any) -> bool:
    """Is there a tensor in it, however deep?"""
    if isinstance(value, Mapping):
        return any(map(holds_tensor, value.values()))
    if isinstance(value, tuple | list):
        return any(map(holds_tensor, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(map(holds_tensor, _fields(value).values()))
    return isinstance(value, torch.Tensor)


def _fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name, None) for one in fields(value)}


@dataclass(slots=True)
class _Code:
    """What the instructions of one code object mean, by offset."""

    stores: dict[int, tuple[str, tuple[int, int]]] = field(default_factory=dict)
    returning: dict[int, Place] = field(default_factory=dict)
    ends: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Frame:
    stored: tuple[str, tuple[int, int]] | None = None
    returning: Place | None = None


#: Lines from here on are in no file.
_FAR = 1_000_000


class Recorder:
    """Records the frames of one file. `truth` is place -> how often each described value was seen there."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.source = path.read_text(encoding="utf-8")
        self.places = places(self.source)
        self.truth: Truth = {}
        self._lines: dict[int, int] = {}
        self._codes: dict[CodeType, _Code] = {}
        self._frames: dict[FrameType, _Frame] = {}

    def compiled(self) -> CodeType:
        """The file's code, in which each name that is bound has a line of its own.

        Since 3.13, Python merges bindings on one line into one instruction, with the position of one of them.
        """
        tree = ast.parse(self.source, self.path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                line = _FAR + len(self._lines)
                self._lines[line] = node.lineno
                node.lineno = node.end_lineno = line
        return compile(tree, self.path, "exec", dont_inherit=True)

    @contextmanager
    def recording(self) -> Any:
        """While inside, what the file's code does is recorded."""
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield self
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != self.path:
            return None
        frame.f_trace = self._on_event  # without it, Python 3.13 ignores the next line
        frame.f_trace_opcodes = True
        if frame.f_code.co_code[frame.f_lasti + 1] == 0:  # RESUME 0: the beginning, not a generator that goes on
            self._frames[frame] = _Frame()
            key = frame.f_code.co_firstlineno, frame.f_code.co_name
            for name, place in self.places.parameters.get(key, {}).items():
                if name in frame.f_locals:  # another lambda may begin in the same line
                    self._saw(place, frame.f_locals[name])
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        state = self._frames.setdefault(frame, _Frame())
        code = self._code(frame.f_code)
        if state.stored is not None:
            self._stored(frame, *state.stored)
            state.stored = None
        if event == "opcode":
            state.stored = code.stores.get(frame.f_lasti)
            state.returning = code.returning.get(frame.f_lasti, state.returning)
        elif event == "return" and frame.f_lasti in code.ends:
            if state.returning is not None:
                self._saw(state.returning, argument)
            del self._frames[frame]
        return self._on_event

    def _stored(self, frame: FrameType, name: str, at: tuple[int, int]) -> None:
        value = frame.f_locals[name] if name in frame.f_locals else frame.f_globals.get(name)
        if at in self.places.stores:
            self._saw(self.places.stores[at], value)
        elif holds_tensor(value):
            raise AssertionError(
                f"{self.path}:{at[0]}:{at[1]}: {name} holds a tensor, and the syntax tree binds nothing"
            )

    def _saw(self, place: Place, value: Any) -> None:
        if holds_tensor(value):
            self.truth.setdefault(place, Counter())[describe(value)] += 1

    def _code(self, code: CodeType) -> _Code:
        if code not in self._codes:
            self._codes[code] = self._read(code)
        return self._codes[code]

    def _read(self, code: CodeType) -> _Code:
        read = _Code()
        returns = self.places.returns.get((code.co_firstlineno, code.co_name), [])
        for step in dis.get_instructions(code):
            where = step.positions
            if where is None or where.lineno is None or where.col_offset is None:
                continue
            at = self._lines.get(where.lineno, where.lineno), where.col_offset
            if step.opname.startswith("STORE_") and step.opname.split("_")[1] in {"FAST", "NAME", "GLOBAL", "DEREF"}:
                read.stores[step.offset] = step.argval, at
            if step.opname.startswith("RETURN_") and step.opname != "RETURN_GENERATOR":
                read.ends.add(step.offset)
            for start, end, place in returns:
                if start <= at < end:
                    read.returning[step.offset] = place
        return read


def run_main(path: Path) -> Truth:
    """What `python FILE` binds, run as `__main__`."""
    recorder = Recorder(path)
    name, main = "__main__", sys.modules["__main__"]
    namespace = _module(recorder, name)
    try:
        with recorder.recording():
            exec(recorder.compiled(), namespace)
    finally:
        sys.modules[name] = main
    return recorder.truth


def run_with(path: Path, use: Callable[[dict[str, Any]], object]) -> Truth:
    """What the file binds while `use(its namespace)` builds and calls its model; imported, so not as `__main__`."""
    recorder = Recorder(path)
    name = f"truth_{path.stem}"
    namespace = _module(recorder, name)
    try:
        with recorder.recording():
            exec(recorder.compiled(), namespace)
            use(namespace)
    finally:
        del sys.modules[name]
    return recorder.truth


def _module(recorder: Recorder, name: str) -> dict[str, Any]:
    module = type(sys)(name)
    module.__file__ = recorder.path
    sys.modules[name] = module
    return vars(module)
