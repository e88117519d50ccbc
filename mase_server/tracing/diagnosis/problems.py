"""Turning an exception of the user's code into a diagnostic at the user's own line, with a next step."""

from __future__ import annotations

import ast
import difflib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from mase_server.ops.paths import attribute, named_modules
from mase_server.ops.types import TensorType
from mase_server.protocol.records import Extent, Fix, Related
from mase_server.protocol.snapshot import NOBODY, Problem
from mase_server.reading import is_file, is_folder
from mase_server.tracing.diagnosis import scenes
from mase_server.tracing.diagnosis.explainers import explain_call
from mase_server.tracing.diagnosis.failure import (
    Call,
    Complaint,
    Convert,
    Failure,
    Misfit,
    Option,
    OtherKind,
    Rename,
    Swap,
)
from mase_server.tracing.diagnosis.refits import Made, change_layer_class, refit_constructor
from mase_server.tracing.diagnosis.scenes import Scene, describe_need, get_raw_position
from mase_server.tracing.diagnosis.slips import explain_slip
from mase_server.tracing.importing.missing import find_refusing_base, find_version_lack
from mase_server.tracing.importing.packages import install_advice
from mase_server.tracing.importing.placeholders import MissingPackageError, find_placeholder_error
from mase_server.tracing.importing.source import Span
from mase_server.tracing.recording.positions import Position, resolve_mark
from mase_server.tracing.recording.rules import OutOfRangeError
from mase_server.tracing.recording.shadow import ValueDependentError
from mase_server.tracing.recording.values import NestedTensorError
from mase_server.visible import hide_addresses

#: The most further places that are shown.
MAX_RELATED = 20

_MEND_IMPORT = ' Fix it, or put it under `if __name__ == "__main__":` if no model needs it.'
_BELOW = " The cells below are traced without its results."
_MEND_CONSTRUCTOR = " Fix it, or give other arguments in a comment above the class: `# mase: {model}(...)`."
#: phase -> code of an error without a more special one, its sentence, and the next step.
_PHASES = {
    "import": ("import-error", "Importing this file raised {raised}", _MEND_IMPORT),
    "cell": ("import-error", "This cell raised {raised}", _BELOW),
    "construct": ("constructor-error", "Constructing {model} raised {raised}", _MEND_CONSTRUCTOR),
    "forward": ("forward-error", "Running {model} raised {raised}", ""),
}
#: phase -> the next step after `sys.exit`.
_EXITS = {
    "import": "The code below it is traced nonetheless.",
    "cell": "The cells below are still traced.",
    "construct": "{model} cannot be constructed: raise another exception, or remove it.",
    "forward": "Code after it is not traced: raise another exception, or return.",
}
#: phase -> the next step after something from outside is missing.
_SUPPLY = {
    "import": ' Supply it, or put this line under `if __name__ == "__main__":` if no model needs it.',
    "cell": _BELOW,
    "construct": " Supply it, or give other arguments in a comment above the class: `# mase: {model}(...)`.",
    "forward": "",
}
#: Codes of what is not the code's own mistake: an outcome that only numbers decide, and what is missing from outside.
_NO_MISTAKES = frozenset({"value-dependent", "missing-resource"})
_VALUE_DEPENDENT = (
    "cannot be called on meta tensors", "run this operator with Meta tensors", "Cannot copy out of meta tensor",
    "data-dependent",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of an exception.

    path: the file being edited.  roots: folders of the workspace.  phase: import | cell | construct | forward.
    model: the class's name.  where: the place in `path` if no frame of the workspace is in the traceback (the
    class's name).  constructions: for each module of the model, by id, where it was made: (file, line, end_line,
    column, end_column), columns in UTF-8 bytes as in `co_positions`.  symbols: see `failure.Call`.  root: the
    model. arguments: the arguments of a module's constructor, including defaults, by name.
    """

    path: str
    roots: Sequence[str] = ()
    phase: str = "forward"
    model: str = "the model"
    where: Span = (1, 0, 1, 0)
    constructions: Mapping[int, tuple[str, int, int, int, int]] = field(default_factory=dict)
    symbols: Mapping[TensorType, Sequence[str]] = field(default_factory=dict)
    root: nn.Module | None = None
    arguments: Callable[[nn.Module], Mapping[str, Any]] = lambda module: {}

    def owns(self, path: str) -> bool:
        """Is the file the edited one or another file of the workspace?"""
        inside = any(path.startswith(os.path.abspath(root).rstrip(os.sep) + os.sep) for root in self.roots)  # noqa: PTH100
        return path == self.path or (inside and "site-packages" not in Path(path).parts)


def explain_error(
    error: BaseException, failure: Failure | None, context: Context, complaint: Complaint | None = None
) -> Problem:
    """The diagnostic for an exception that user code raised, at the innermost frame in the edited file.

    failure: the torch call that raised it, if the recorder saw one; ignored if it raised another exception.
    complaint: the explanation, if the caller has a better one than the exception.
    """
    mine = failure is not None and failure.error is error and not isinstance(error, RecursionError)
    return _Explanation(error, failure if mine else None, context).problem(complaint)


def is_certain(error: BaseException, failure: Failure | None, context: Context) -> bool:
    """Is the exception certainly the code's own, wherever its numbers came from?"""
    return _Explanation(error, failure if failure and failure.error is error else None, context).is_certain()


class _Explanation:
    def __init__(self, error: BaseException, failure: Failure | None, context: Context) -> None:
        self.error = error = find_placeholder_error(error)
        self.failure = failure
        self.context = context
        self.lack = str(find_version_lack(error, context.owns) or "")
        made = context.phase != "forward"
        if made and not self.lack and (package := find_refusing_base(error, context.owns)):
            self.lack = f"{package} of {sys.executable} raised {describe_error(error).rstrip('.')}"
        self.scene = Scene(error, failure)
        self.frames = self.scene.frames

    def is_certain(self) -> bool:
        """Does the call itself, or the variables around it, show what is wrong?"""
        owned = bool(self.frames) and self.context.owns(self.frames[0].file)
        return owned and (self._from_call() is not None or explain_slip(self.scene) is not None)

    def problem(self, given: Complaint | None = None) -> Problem:
        """Make the diagnostic: code and message as given, else by the kind of error; place by the frames."""
        complaint, fixes = (given, list[Fix]()) if given is not None else self._choose_complaint()
        own = [frame for frame in self.frames if self.context.owns(frame.file)]
        if isinstance(self.error, RecursionError):
            # The innermost frame is at an arbitrary depth of the stack; the one before it made the call. From outside,
            # each place comes first where it is first reached, however much of the stack this process had left.
            own = [*dict.fromkeys(reversed(own[1:] or own))][::-1]
        primary = next((frame for frame in own if frame.file == self.context.path), own[0] if own else None)
        file, span = (self.context.path, self.context.where)
        if primary is not None:
            file, span = primary.file, self.scene.span(primary)
        related = [self._relate_frame(frame) for frame in _drop_duplicate_frames(own) if frame is not primary]
        if isinstance(self.error, SyntaxError) and self.error.filename:
            place = self._syntax_place(self.error)
            if primary is None:
                file, span = self.error.filename, place
            else:
                related.insert(0, _make_related_place(self.error.filename, place, str(self.error.msg)))
        related = [*related[:MAX_RELATED], *self._relate_creation()]
        of_version = bool(self.lack) and complaint.code == "missing-package"
        severity = "warning" if of_version or complaint.code in _NO_MISTAKES else "error"
        located = [_name_other_file(fix, file) for fix in fixes]
        return Problem(file, *span, severity, complaint.code, complaint.text, related, located)

    # The explanation.

    def _choose_complaint(self) -> tuple[Complaint, list[Fix]]:
        match self.error:
            case SyntaxError():
                return Complaint("syntax-error", f"{type(self.error).__name__}: {self.error.msg}."), []
            case ImportError():
                return self._explain_import(self.error), []
            case RecursionError():
                return self._explain_recursion(), []
        if need := describe_need(self.scene):
            return self._explain_need(need), []
        if self.lack:
            return Complaint("missing-package", f"{self.lack}: this code was probably written for another version."), []
        match self.error:
            case SystemExit():
                return self._explain_exit(), []
            case ValueDependentError():
                return self._too_big(self.error), []
            case NestedTensorError():
                text = f"{_first_line(self.error)}. Shapes after this line are unknown; the code itself may be right."
                return Complaint("value-dependent", f"{text[0].upper()}{text[1:]}"), []
            case AttributeError():
                return explain_slip(self.scene) or self._explain_attribute(self.error)
            case NotImplementedError() if (
                lack := re.search(r"aten::(\w+).* Meta tensors", str(self.error))
            ) is not None:
                return self._too_big(ValueDependentError(f"{lack[1]} needs values")), []
            case NotImplementedError() if 'is missing the required "forward"' in str(self.error):
                return self._no_forward(), []
        if any(text in str(self.error) for text in _VALUE_DEPENDENT):
            return _value_dependent(_first_line(self.error)), []
        return self._from_call() or explain_slip(self.scene) or (self._describe_plainly(), [])

    def _describe_plainly(self) -> Complaint:
        code, form, step = _PHASES[self.context.phase]
        message = form.format(raised=describe_error(self.error), model=self.context.model).rstrip(".")
        read = self.scene.file_read(self.context.owns)
        where = f" It was raised while {read} was read." if read and read not in message else ""
        if not self.frames and isinstance(self.error, TypeError | AttributeError | NameError):
            where = f" {NOBODY}"
        return Complaint(code, f"{message}.{where}{self._describe_operands()}{step.format(model=self.context.model)}")

    def _describe_operands(self) -> str:
        """The operands of the failed call, which torch's own texts often omit."""
        if self.failure is None:
            return ""
        call = self._build_call(self.failure)
        shown = [call.show(tensor, at, "").strip() for at, tensor in islice(call.tensors(), 4)]
        return f" {call.layer} was given {' and '.join(shown)}.{self._came_from()}" if shown else ""

    def _build_call(self, failure: Failure) -> Call:
        names = self.scene.names()
        path = failure.path or failure.scope if failure.module is not None else ""
        return Call(failure.func, failure.args, failure.kwargs, failure.module, path, names, self.context.symbols)

    def _from_call(self) -> tuple[Complaint, list[Fix]] | None:
        if self.failure is None:
            return None
        call = self._build_call(self.failure)
        found = _out_of_range(call, self.error) if isinstance(self.error, OutOfRangeError) else explain_call(call)
        if found is None and "view size is not compatible" in str(self.error):
            x = call.show(call.args[0], 0)
            text = f"view needs neighbouring memory,\nbut {x} was transposed or permuted: use reshape, which copies."
            found = Complaint("shape-mismatch", text, Rename("view", "reshape"))
        if found is None:
            return None
        return replace(found, text=found.text + self._came_from()), self._build_fixes(found)

    def _iterate_origins(self) -> Iterator[tuple[str, str, Position]]:
        """For each operand that an earlier line made: its text, its source, and the position of that."""
        names = self.scene.names() if self.failure is not None else {}
        for at, origin in self.failure.origins.items() if self.failure is not None else ():
            places = [place for place in map(resolve_mark, origin.stack) if self.context.owns(place.file)]
            if at in names and places and places[0].line not in {frame.line for frame in self.frames[:1]}:
                yield names[at], origin.maker, places[0]

    def _came_from(self) -> str:
        """A sentence on where the operands were made."""
        made = [
            f"`{name}` comes from {maker} (line {at.line})" for name, maker, at in islice(self._iterate_origins(), 2)
        ]
        return f" {', '.join(made)}." if made else ""

    def _explain_import(self, error: ImportError) -> Complaint:
        name = error.name or ""
        top = name.partition(".")[0]
        if name and error.path == self.context.path and "partially initialized" in str(error):
            text = f"This file is found in place of the package {name!r}, whose name it has."
            return Complaint("missing-package", text + install_advice(name, self.context.roots))
        is_known = isinstance(error, MissingPackageError) and bool(name)
        if not is_known and (not isinstance(error, ModuleNotFoundError) or not name or self._in_workspace(top)):
            return Complaint("import-error", f"{_first_line(error).rstrip('.')}.")
        text = f"{error}." if is_known else f"No module named '{name}' in {sys.executable}."
        return Complaint("missing-package", f"{text}{install_advice(name, self.context.roots)}")

    def _in_workspace(self, top: str) -> bool:
        folders = [Path(self.context.path).parent, *map(Path, self.context.roots)]
        return any(is_folder(folder / top) or is_file(folder / f"{top}.py") for folder in folders)

    def _explain_recursion(self) -> Complaint:
        # A function that was called once, such as the module's own code, is not part of the cycle.
        called = Counter(frame.function for frame in self.frames)
        cycle = [name for name in dict.fromkeys(frame.function for frame in reversed(self.frames)) if called[name] > 1]
        root, limit = self.context.root, sys.getrecursionlimit()
        depth = 0 if root is None else max(path.count(".") + 1 for path, _ in named_modules(root))
        if not cycle and depth > limit / 10:
            text = f"The modules are nested {depth} deep, so this calls deeper than Python's limit of {limit} calls"
            step = "Nest them less deeply, or raise the limit with sys.setrecursionlimit."
            return Complaint("recursion", f"{text} inside of each other. {step}")
        names = " -> ".join([*cycle[:4], cycle[0]]) if cycle else "a function"
        return Complaint("recursion", f"This recurses without end: {names}. It needs a case that ends it.")

    def _explain_need(self, need: str) -> Complaint:
        raised = "" if isinstance(self.error, OSError) else f" It raised {describe_error(self.error).rstrip('.')}."
        step = _SUPPLY[self.context.phase].format(model=self.context.model)
        return Complaint("missing-resource", f"This needs {need}.{raised}{step}")

    def _explain_exit(self) -> Complaint:
        step = _EXITS[self.context.phase].format(model=self.context.model)
        return Complaint("exited", f"The code ends its own run here: {describe_error(self.error)}. {step}")

    def _too_big(self, error: ValueDependentError) -> Complaint:
        """Explain that values need a real run, which was not done because of the model's size."""
        told = _value_dependent(str(error).replace("__", ""))
        if self.context.phase == "import":
            text = f"{told.text} A trace computes with weights only in constructors and forwards of models."
            return replace(told, text=text)
        step = f"Give a smaller one in a comment above its class: `# mase: {self.context.model}(...)`."
        return replace(told, text=f"{told.text} The model is too big to be run with numbers. {step}")

    def _no_forward(self) -> Complaint:
        name = str(self.error).partition("[")[2].partition("]")[0]
        text = f"{name} has no forward: define `def forward(self, ...)`."
        if name in ("ModuleList", "ModuleDict"):
            text = f"A {name} cannot be called: loop over it, or make it an nn.Sequential."
        return Complaint("missing-forward", text)

    def _explain_attribute(self, error: AttributeError) -> tuple[Complaint, list[Fix]]:
        text = _first_line(error).rstrip(".")
        if not isinstance(error.name, str) or error.obj is None:
            return Complaint("attribute-error", f"{text}."), []
        near = difflib.get_close_matches(error.name, _list_public_attributes(error.obj), n=1, cutoff=0.6)
        if near:
            fix = self._fix_attribute_name(error.name, near[0])
            return Complaint("attribute-error", f"{text}. Did you mean `{near[0]}`?"), [fix] if fix else []
        has = _list_layer_names(error.obj)
        return Complaint("attribute-error", f"{text}. It has the layers {has}." if has else f"{text}."), []

    # Quick fixes.

    def _build_fixes(self, complaint: Complaint) -> list[Fix]:
        """The quick fix that a complaint about a torch call asks for, where the source shows how to write it."""
        here, operands = self.scene.here(), self.scene.operands()
        if complaint.mend is None or here is None or not self.context.owns(here[0].path):
            return []
        fix = None
        match complaint.mend:
            case Rename(old, new):
                fix = self._fix_attribute_name(old, new)
            case Misfit() as misfit:
                fix = refit_constructor(self._collect_layer_chain(), misfit)
            case OtherKind(kind):
                fix = change_layer_class(self._collect_layer_chain(), kind)
            case Convert(at, method) if at in operands:
                fix = scenes.convert_operand(here[0], operands[at], method)
            case Option(parameter, index, should):
                # A method's first operand is before its name.
                at = index if _is_argument(here[1], operands) else index - 1
                fix = scenes.set_option(here[0], here[1], parameter, at, should)
            case Swap() if 0 in operands and 1 in operands:
                fix = scenes.swap_operands(here[0], operands[0], operands[1])
        return [fix] if fix else []

    def _fix_attribute_name(self, old: str, new: str) -> Fix | None:
        frame = self.frames[0] if self.frames else None
        if frame is None or not self.context.owns(frame.file):
            return None
        return scenes.rename_attribute(self.scene.file(frame.file), get_raw_position(frame), old, new)

    def _collect_layer_chain(self) -> list[Made]:
        """The failed layer and the user's modules around it, innermost first, as long as their makers are known."""
        if self.failure is None or self.failure.module is None:
            return []
        path, root = self.failure.path, self.context.root
        around = [] if root is None else [root, *self._iterate_ancestors(root, path)]
        own = [module for module in reversed(around) if not type(module).__module__.startswith("torch.nn")]
        found = []
        for module in (self.failure.module, *own):
            made = self.context.constructions.get(id(module))
            arguments = self.context.arguments(module)
            if made is None or not self.context.owns(made[0]):
                found.append(Made(None, None, type(module).__name__, 1, arguments))
                break
            count = list(self.context.constructions.values()).count(made)
            found.append(Made(self.scene.file(made[0]), made[1:], type(module).__name__, count, arguments))
        return found

    @staticmethod
    def _iterate_ancestors(root: nn.Module, path: str) -> Iterator[nn.Module]:
        parts = path.split(".")[:-1]
        for length in range(1, len(parts) + 1):
            with suppress(AttributeError):
                yield attribute(root, ".".join(parts[:length]))

    def _made_at(self) -> tuple[str, int, int, int, int] | None:
        return None if self.failure is None else self.context.constructions.get(id(self.failure.module))

    def _relate_creation(self) -> list[Related]:
        made = self._made_at()
        if made is None or self.failure is None or not self.context.owns(made[0]):
            return []
        line, end_line, column, end_column = made[1:]
        places = self.scene.file(made[0]).places
        span = (line, places.column(line, column), end_line, places.column(end_line, end_column))
        return [_make_related_place(made[0], span, f"`{self.failure.path}` is made here")]

    # Places and names.

    def _relate_frame(self, frame: Position) -> Related:
        return _make_related_place(frame.file, self.scene.span(frame), _describe_function(frame.function))

    def _syntax_place(self, error: SyntaxError) -> Span:
        line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
        end_line = error.end_lineno or line
        end = (error.end_offset or 0) - 1
        return line, column, end_line, end if end > column or end_line > line else column + 1


def _drop_duplicate_frames(frames: Sequence[Position]) -> Iterator[Position]:
    yield from dict.fromkeys(frames)


def _out_of_range(call: Call, error: OutOfRangeError) -> Complaint:
    """Explain an index of known value that is too large."""
    operands = [call.show(tensor, at, "an index") for at, tensor in call.tensors() if tensor.dtype.startswith("int")]
    given = operands[-1] if operands else "an index"
    text = f"{call.layer} has {error.bound} entries (0 to {error.bound - 1}),\nbut {given} holds {error.largest}."
    return Complaint("index-error", text)


def _is_argument(call: ast.expr | None, operands: Mapping[Any, ast.expr]) -> bool:
    """Is the first operand an argument of the call, and not the object whose method is called?"""
    return isinstance(call, ast.Call) and 0 in operands and operands[0] in call.args


def _describe_function(function: str) -> str:
    return "at module level" if function in ("", "<module>") else f"in {function}"


def _make_related_place(file: str, span: Span, message: str) -> Related:
    line, column, end_line, end_column = span
    place: Extent = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
    return {"file": file, **place, "message": message}


def _list_public_attributes(thing: Any) -> list[str]:
    try:
        names = dir(thing)
    except Exception:  # noqa: BLE001 - user code, and nn.Module's own before its __init__ ran
        return []
    return [name for name in names if not name.startswith("_")]


def _list_layer_names(thing: Any) -> str:
    """The names of a module's layers; "" for anything else and for a module whose `__init__` has not run."""
    children = vars(thing).get("_modules") if isinstance(thing, nn.Module) else None
    return ", ".join(children or ())


def describe_error(error: BaseException) -> str:
    """An exception as one line: its type and the first line of its text."""
    text, name = _first_line(error), type(error).__name__
    return f"{name}: {text}" if text else name


def _first_line(error: BaseException) -> str:
    return hide_addresses(str(error)).strip().partition("\n")[0]


def _value_dependent(text: str) -> Complaint:
    advice = "Shapes after this line are unknown: it depends on the numbers, not only on the shapes."
    return Complaint("value-dependent", f"{text.rstrip('.')}. {advice}")


def _name_other_file(fix: Fix, file: str) -> Fix:
    """A fix whose title names the file that it changes, if that is not the file of the problem."""
    [changed, *_] = fix["edits"]
    if changed["file"] == file:
        return fix
    before, _, line = fix["title"].rpartition("(line ")
    return {**fix, "title": f"{before}({Path(changed['file']).name}, line {line}"} if before else fix
