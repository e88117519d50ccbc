"""The file's own run: the models that it calls, and the problems that it shows."""

from __future__ import annotations

import ast
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from mase_server.notebooks import is_notebook
from mase_server.ops.types import Kwargs
from mase_server.protocol.records import Extent, Related
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import Problem
from mase_server.system import seconds_waited
from mase_server.tracing.diagnosis.failure import RAISED, Failure
from mase_server.tracing.diagnosis.problems import describe_error
from mase_server.tracing.execution.guard import AGAIN, program_of
from mase_server.tracing.execution.program import (
    Loaded,
    Place,
    as_program,
    compile_plainly,
    execute_program,
    module_for,
)
from mase_server.tracing.execution.substitutes import unwrap_model
from mase_server.tracing.execution.watch import PATIENCE, OnCall, Reached, StatementOver, Stop, TimeUp, Watch
from mase_server.tracing.importing.datasets import AbsentDataError, list_absent_data
from mase_server.tracing.importing.importer import owns
from mase_server.tracing.importing.missing import MissingImport, ReplacedError
from mase_server.tracing.importing.packages import install_advice, install_command, package_for
from mase_server.tracing.importing.placeholders import Base, MissingPackageError
from mase_server.tracing.importing.source import (
    Namespace,
    Places,
    Span,
    decode_source,
    list_nodes,
    parse_file,
    read_source,
)
from mase_server.tracing.importing.standins import assumed
from mase_server.tracing.importing.statements import MAX_FAILURES, MAX_OF_NOTEBOOK, Cuts, collecting_failures
from mase_server.tracing.inputs import trouble
from mase_server.tracing.inputs.comments import ClassWishes, Wishes
from mase_server.tracing.inputs.roles import describe_inputs
from mase_server.tracing.inputs.showing import Showing
from mase_server.tracing.models.arguments import Built, build
from mase_server.tracing.models.classes import find_builders
from mase_server.tracing.models.constructions import Constructions, get_class_origin
from mase_server.tracing.models.found import Found, Hooks, Unshown, bind_inputs, plain_hooks
from mase_server.tracing.recording.calling import Values, map_leaves
from mase_server.tracing.recording.positions import Position, report_phase
from mase_server.tracing.recording.rungs import (
    Bounded,
    TooSlowError,
    limit_memory,
    needs_values,
    real_copy,
    worth_a_real_run,
)
from mase_server.tracing.recording.shadow import MetaMode, Shadows
from mase_server.tracing.recording.state import preserve_state, require_tree

#: The share of the time limit in which models are made; the rest is for their symbols.
SEARCH_SHARE = 0.75


class Running(Showing):
    """The results of a file's own run, under the name `__main__` if that calls a model, else as an import."""

    def __init__(self, request: TraceRequest, tree: ast.Module, hooks: Hooks, wishes: Wishes) -> None:
        super().__init__(request, tree, hooks, wishes)
        #: Seconds that the file may run by itself; the rest of the time is for the classes that it defines.
        self.patience = request.seconds * 2 / 3
        self.program = program_of(tree)
        self._began, self._waited, self._excused = time.monotonic(), seconds_waited(), 0.0
        #: The error of an imported file that was passed over.
        self.passed: BaseException | None = None
        #: Classes of which a comment asks for a call that cannot be made.
        self.refused: dict[str, Unshown] = {}

    def is_late(self) -> bool:
        """Has the time for making models ended? What was found by then is shown with its symbols."""
        return self._count_seconds() > self.request.seconds * SEARCH_SHARE

    def _count_seconds(self) -> float:
        """Seconds of the search as the limit counts them: without waiting for a processor or a library's import."""
        excused = max(self._excused, seconds_waited() - self._waited)
        return time.monotonic() - self._began - excused

    def _excuse(self, seconds: float) -> None:
        self._excused += seconds
        self.hooks.excused(seconds)

    def load(self) -> tuple[MainRun, list[Found]]:
        """The last run of the file, and the models that it called by itself.

        The error of a file that it imports is the run's own if it has none.
        """
        with collecting_failures() as failures:
            run, found = self._load()
        if run.error is None and failures:
            run, self.passed = replace(run, error=failures[0]), failures[0]
        return run, found

    def _load(self) -> tuple[MainRun, list[Found]]:
        place, test, own = Place.of(self.path), find_test(self.tree), None
        # A module of a package that does nothing else as a program is run under its own name, which others may use.
        if self.options.run_main and (not place.package or test is not None or trouble.has_guard(self.tree)):
            own = run = self._execute_as("__main__", test)
            found = [self._of_call(run, reached) for reached in self._worth_showing(run)]
            if found or run.time_up is not None or (run.error is None and not trouble.has_guard(self.tree)):
                return run, found
            self.explanation = run.error
        run = self._execute_as(place.name)
        if own is not None:
            _hand_on_globals(self.tree, own.module, run.module)
        return run, [self._of_call(run, reached) for reached in self._worth_showing(run)]

    def in_run(self, run: MainRun) -> Problem | None:
        """The problem that the file's own run shows; None if it only ended as a program before it called a model."""
        where = self.path, self.request.folder
        if run.time_up is not None:
            # A class whose constructor never ends would not end the next time either.
            made = trouble.find_failed_constructor(run.time_up)
            self.covered |= {made} if made is not None else set()
            if made is None:
                self.hooks.on_endless(self.program)
            return trouble.out_of_time(*where, run.time_up, self.patience, self.request.seconds, self.tree)
        if run.error is not None:
            # Its models may not need what the program lacks here.
            ended = run.early and trouble.is_under_main_guard(self.path, run.error, self.tree)
            if ended and not trouble.is_of_constructor(run.error):
                return None
            problem = trouble.in_run(*where, run.error)
            if run.made_up and problem.code == "import-error":
                text = f"{problem.message} Its command-line arguments `{' '.join(run.made_up)}` are guessed."
                problem = replace(problem, severity="warning", message=text)
            # Only the package's own `__init__.py` imports what failed, and no line of the file does.
            foreign = run.error is self.passed and problem.file != self.path
            return replace(problem, severity="information") if foreign else problem
        if self.explanation is not None and trouble.is_of_constructor(self.explanation):
            return trouble.in_run(*where, self.explanation)
        return None

    def _execute_as(self, name: str, test: ast.FunctionDef | None = None) -> MainRun:
        plain = plain_hooks(self.hooks.shadows).on_call

        def on_call(model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
            if not self._is_replaced(name_model(model, vars(sys.modules[name]))):
                return self.hooks.on_call(model, args, kwargs)
            with self.hooks.quiet():  # its values are those of the other inputs
                return plain(model, args, kwargs)

        again = self.hooks.endless == self.program
        patience = self.patience * AGAIN if again else self.patience
        where, hooks = (self.path, self.request.folder), self.hooks
        with report_phase("running", Path(self.path).name):
            return run_main(
                *where, on_call, hooks.shadows, hooks.load, name, patience, self._excuse, hooks.quiet,
                self.is_late, test,
            )  # fmt: skip

    def _is_replaced(self, name: str) -> bool:
        """Is this model shown in another way than by the program's own call, or not at all?"""
        return self.wishes.of(name).any() or not self.wishes.wants(name)

    def _worth_showing(self, run: MainRun) -> list[Reached]:
        """The called models to show; a part only if the whole that holds it was not called.

        UnwalkableError for a model that torch cannot traverse.
        """
        for reached in run.reached:
            require_tree(reached.model)
        names, whole = vars(run.module), run.shown_parts
        wanted = [reached for reached in run.reached if self.wishes.wants(name_model(reached.model, names))]
        return [reached for reached in wanted if reached.shown or id(reached.model) not in whole]

    def _of_call(self, run: MainRun, reached: Reached) -> Found:
        model, made = reached.model, run.constructions.of(reached.model)
        name = name_model(model, vars(run.module))
        wish = self.wishes.of(name)
        built = Built(model, made.bound() if made else {}, "main", made.rebuild() if made else None)
        if wish.constructor(type(model).__name__) is not None:
            built = self._build_wished(type(model), vars(run.module), wish) or built
        if wish.inputs is not None:
            return self.of_spec(built, name, wish.inputs, wish.inputs_from, wish.said())
        inputs = bind_inputs(model, reached.args, reached.kwargs)
        spec = describe_inputs(inputs, model, self.hooks.shadows.get)
        return Found(
            built.model, name, reached.args, reached.kwargs, inputs, spec, "main", built.arguments,
            built.source, run.how, reached.training, built.construct,
            recorded=reached.shown and built.model is model,
        )  # fmt: skip

    def _build_wished(
        self,
        kind: type[nn.Module],
        namespace: Namespace,
        wish: ClassWishes,
    ) -> Built | None:
        errors: list[BaseException] = []
        built = build(kind, self.around(namespace), wish.constructor(kind.__name__), errors)
        if built is None and wish.called_at is not None:
            self.refused.setdefault(kind.__name__, self.describe_unbuilt(kind.__name__, kind, errors))
        return None if built is None else self.as_wished(built, kind.__name__)


# Models that a file keeps in variables of its own: `model = Net()`, `nets = {"small": nn.Sequential(...)}`.

#: The depth to which containers are searched, and the most of their items.
MAX_DEPTH = 2
MAX_ITEMS = 16


@dataclass(frozen=True, slots=True)
class Instance:
    """A model and the expression that gives it: `model`, `nets['small']`."""

    name: str
    model: nn.Module


def name_model(model: nn.Module, namespace: Namespace) -> str:
    """The class of a model; of one of torch's classes, such as nn.Sequential, the variable that holds it."""
    plain = get_class_origin(type(model), "") == "torch"
    held = (each for item in namespace.items() for each in iterate_held_models(*item)) if plain else ()
    return next((each.name for each in held if each.model is model), type(model).__name__)


def iterate_held_models(name: str, value: Any, depth: int = 0) -> Iterator[Instance]:
    """The models in a value: itself, or the items of a list or dict, each with the expression that gives it."""
    if isinstance(value, nn.Module) and not isinstance(value, nn.ModuleList | nn.ModuleDict):
        yield Instance(name, unwrap_model(value))
    elif depth < MAX_DEPTH:
        yield from (
            each
            for key, item in _list_items(value)
            for each in iterate_held_models(f"{name}[{key!r}]", item, depth + 1)
        )


def _list_items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict | nn.ModuleDict):
        return list(value.items())[:MAX_ITEMS]
    if isinstance(value, list | tuple | nn.ModuleList):
        return list(enumerate(value))[:MAX_ITEMS]
    return []


# Packages that cannot be imported, reported at their import statements.

_SHOWN = "Code that does not need it is still analysed."
#: Ends of names of files that an installation compiles.
_SOURCES = frozenset({".pyx", ".cpp", ".cu", ".cc", ".rs"})
#: Names of modules that are compiled, or written by the build.
_BUILT = re.compile(r"^_C$|^_C_|cuda|cpp|cython|triton|_pb2|version$|_?ext$|^ext_|kernels?$|^lib")


@dataclass(frozen=True, slots=True)
class Lacking:
    """The error of a statement of the file that needs a missing package, and the problem that it would be by itself."""

    error: MissingPackageError
    problem: Problem


def problems_of(
    missing: Iterable[MissingImport], path: str, folder: str, lacking: Lacking | None = None, *, serious: bool = True
) -> Iterator[Problem]:
    """One problem for each package, at the first import of the edited file that leads to it.

    lacking: a statement of the file that needs one; the problem of that package tells it too.  serious: is nothing
    shown?
    """
    if lacking is not None and not serious:
        lacking = replace(lacking, problem=replace(lacking.problem, severity="warning"))
    by_package: dict[str, list[MissingImport]] = defaultdict(list)
    for each in missing:
        by_package[each.name if each.own else each.name.partition(".")[0]].append(each)
    by_place: dict[Position, list[MissingImport]] = defaultdict(list)
    for found in by_package.values():
        by_place[_find_import(found, path)] += found
    for at, found in by_place.items():
        problem = _make_absence_problem(at, found, folder)
        # The package's own `__init__.py` imports it, and no line of the file does.
        own = any(frame.file == path for each in found for frame in each.at)
        problem = problem if own else replace(problem, severity="information")
        if lacking is not None and any(_is_of_package(each, lacking.error) for each in found):
            problem, lacking = _tell_need(problem, lacking), None
        yield problem
    if lacking is not None:
        yield tell_in_file(lacking.problem, path, folder)


def _is_of_package(missing: MissingImport, error: MissingPackageError) -> bool:
    return missing.name.partition(".")[0] == (error.name or "").partition(".")[0]


def _tell_need(problem: Problem, lacking: Lacking) -> Problem:
    """The problem of a package that a statement of the file needs: it says which, and what it needs."""
    needing = lacking.problem
    needed = f"{str(lacking.error).partition(' is needed here')[0]} is needed"
    place: Extent = {
        "line": needing.line, "column": needing.column, "end_line": needing.end_line, "end_column": needing.end_column,
    }  # fmt: skip
    related: Related = {"file": needing.file, **place, "message": f"{needed} here"}
    message = problem.message.replace(_SHOWN, f"{needed} at line {needing.line}. {_SHOWN}", 1)
    return replace(problem, severity=needing.severity, message=message, related=[related, *problem.related])


def _find_import(found: Sequence[MissingImport], path: str) -> Position:
    """The import statement of a file that leads to a missing package; the top of the file if none does."""
    mine = [at for each in found for at in each.at if at.file == path]
    if mine:
        return sorted(mine, key=lambda at: (at.line, at.column))[0]
    return _find_import_of_package(path, {at.file for each in found for at in each.at})


def _find_import_of_package(path: str, passed: Set[str]) -> Position:
    """The first import statement of a file that leads to one of the files `passed`, else the first relative one.

    The `__init__.py` of the file's own package runs before the file, which has a statement for the same module at best.
    """
    inner = list(_iterate_relative_imports(path))
    leading = [node for node in inner if not passed.isdisjoint(_iterate_module_files(node, path))]
    for node in (leading or inner)[:1]:
        return Position(path, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, "")
    return Position(path, 1, 0, 1, 0, "")


def tell_in_file(problem: Problem, path: str, folder: str) -> Problem:
    """A problem of another file that was imported, told at the import statement of the edited file."""
    if problem.file == path or not owns(folder, problem.file):
        return problem
    passed = {problem.file, *(each["file"] for each in problem.related)}
    place: Extent = {
        "line": problem.line, "column": problem.column, "end_line": problem.end_line, "end_column": problem.end_column,
    }  # fmt: skip
    where = f"{os.path.relpath(problem.file, folder)}, line {problem.line}"
    related: Related = {"file": problem.file, **place, "message": "Raised here"}
    line, column, end_line, end_column = _get_import_span(_find_import_of_package(path, passed))
    return replace(
        problem, file=path, line=line, column=column, end_line=end_line, end_column=end_column,
        message=f"{where}: {problem.message}", related=[related, *problem.related], fixes=[],
    )  # fmt: skip


def _iterate_relative_imports(path: str) -> Iterator[ast.ImportFrom]:
    try:
        tree = parse_file(path)
    except (OSError, SyntaxError, ValueError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level)


def _iterate_module_files(node: ast.ImportFrom, path: str) -> Iterator[str]:
    """The files that a relative import may run."""
    folder = Path(path).parents[node.level - 1]
    for name in (node.module, *(f"{node.module or ''}.{each.name}" for each in node.names)):
        place = folder.joinpath(*filter(None, (name or "").split(".")))
        yield from (f"{place}.py", str(place / "__init__.py"))


def unknown_bases(
    path: str, folder: str, names: Mapping[str, Any], nodes: Mapping[str, ast.ClassDef]
) -> Iterator[Unshown]:
    """Every class that has a forward, and that may be a model once its base is installed."""
    for name, node in nodes.items():
        kind = names.get(name)
        if not (isinstance(kind, type) and issubclass(kind, Base)) or issubclass(kind, nn.Module):
            continue
        if callable(vars(kind).get("forward")):
            error = kind.missing()
            code = "missing-package" if error.name else "import-error"
            step = install_advice(error.name, [folder]).strip() if error.name else ""
            why = f"Its base is unknown: {error}."
            yield Unshown(name, why, step, trouble.at_class(path, node, "error", code, why), elsewhere=True)


def _make_absence_problem(at: Position, found: list[MissingImport], folder: str) -> Problem:
    mine = any(each.own and not _is_built(each) for each in found)
    severity, code = ("error", "import-error") if mine else ("warning", "missing-package")
    others = {each.at[0]: each for each in found if each.at[0] != at}
    message = "\n".join(dict.fromkeys(_describe_absence(each, folder) for each in found))
    # No installation helps where a module exists nowhere, or is installed and broken.
    wanted = (package_for(each.name, [folder]) for each in found if not each.own and _is_absent(each))
    packages = list(dict.fromkeys(filter(None, wanted)))
    command = install_command(packages) if packages else None
    related = list(map(_make_import_place, others.values()))
    return Problem(at.file, *_get_import_span(at), severity, code, message, related, command=command)


def _is_built(missing: MissingImport) -> bool:
    """Does an installation probably create it, judged by its name or by sources of compiled code beside its
    importer?"""
    beside = Path(missing.at[0].file).parent
    return is_built(missing.name) or any(file.suffix in _SOURCES for file in beside.glob("*.*"))


def is_built(name: str) -> bool:
    """Does the name of a workspace's own module look like one that its installation makes?"""
    return _BUILT.search(name.rpartition(".")[2]) is not None


def _is_absent(missing: MissingImport) -> bool:
    """Is there no such module, rather than one that raises?"""
    return isinstance(missing.error, ModuleNotFoundError) and missing.error.name == missing.name


def _describe_absence(missing: MissingImport, folder: str) -> str:
    name, error, bases = missing.name, missing.error, dict.fromkeys(missing.absent.bases or ())
    taken = "".join(f" MASE treats its {base} as a plain nn.Module." for base in bases)
    if missing.own:
        built = " It looks like one that the package's installation builds." if _is_built(missing) else ""
        return f"No module named '{name}' in this workspace.{built} {_SHOWN}{taken}"
    if isinstance(error, ReplacedError):
        return f"{error}."
    if not _is_absent(missing):
        return f"{name} cannot be imported in {sys.executable}: {describe_error(error).rstrip('.')}. {_SHOWN}{taken}"
    if name.partition(".")[0] in sys.modules:
        version = f"the version of {name.partition('.')[0]} that is installed there has none"
        return f"No module named '{name}' in {sys.executable}: {version}. {_SHOWN}{taken}"
    said = assumed(name) or taken
    return f"No module named '{name}' in {sys.executable}. {_SHOWN}{said}{install_advice(name, [folder])}"


def _make_import_place(missing: MissingImport) -> Related:
    line, column, end_line, end_column = _get_import_span(missing.at[0])
    place: Extent = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
    return {"file": missing.at[0].file, **place, "message": f"{missing.name} is imported here"}


def _get_import_span(at: Position) -> Span:
    """Columns in code points."""
    try:
        places = Places(decode_source(read_source(at.file)))
        return at.line, places.column(at.line, at.column), at.end_line, places.column(at.end_line, at.end_column)
    except (OSError, SyntaxError, UnicodeDecodeError, IndexError):
        return at.line, 0, at.line, 0


# Trying a forward: on meta if it can run there, else for real.


class Trials:
    """Tries forwards; keeps the real copy of a model whose path depends on values. around: surrounds tries on meta."""

    def __init__(self, shadows: Shadows, around: Callable[[], AbstractContextManager[None]] = limit_memory) -> None:
        self.shadows, self.around = shadows, around
        self._plain = plain_hooks(shadows)
        self._real: dict[int, tuple[nn.Module, nn.Module]] = {}

    def attempt(self, model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> BaseException | None:
        """Run the forward; return the exception that it raises, None if it succeeds."""
        with preserve_state(model, self.shadows), self.around():
            on_meta = self._plain.attempt(model, args, kwargs)
        if on_meta is None or not needs_values(on_meta) or not worth_a_real_run(model, on_meta):
            return on_meta
        try:
            if id(model) not in self._real:
                self._real[id(model)] = (model, real_copy(model, self.shadows, None))
            real = self._real[id(model)][1]
        except RAISED:  # a model that cannot be copied: what meta says stands
            return on_meta
        try:
            # A model that has values already is its own copy, and belongs to the caller.
            with preserve_state(real, self.shadows), torch.no_grad(), Bounded():
                for buffer in real.buffers():
                    self.shadows.written(buffer)
                real(*self._fill_with_values(args), **self._fill_with_values(kwargs))
        except TooSlowError:
            # Nothing disproves these inputs.
            return None
        except RAISED as raised:  # the border to the user's code
            # The same error on meta knows which call raised it, of which inputs.
            return on_meta if str(raised) == str(on_meta) else raised
        return None

    def _fill_with_values(self, value: Any) -> Any:
        def change(item: Any) -> Any:
            if not isinstance(item, torch.Tensor) or not item.is_meta:
                return item
            real = self.shadows.get(item)
            return torch.zeros(item.shape, dtype=item.dtype) if real is None else real

        return map_leaves(value, change)


# Running a file as `__main__`, to find the models that its author calls, and their arguments.

# A mode on meta that remembers the torch call that raised, as a recorder does for a forward.


class FailureMode(MetaMode):
    """MetaMode that describes the call that raised an exception. failure: the last such call."""

    def __init__(self, shadows: Shadows) -> None:
        super().__init__(shadows)
        self.failure: Failure | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Values = (), kwargs: Kwargs | None = None
    ) -> Any:
        try:
            return super().__torch_function__(func, types, args, kwargs)
        except Exception as error:
            if self.failure is None or self.failure.error is not error:
                with torch._C.DisableTorchFunction():
                    self.failure = Failure.of(error, func, args, kwargs or {}, "")
            raise


@dataclass(frozen=True, slots=True)
class MainRun:
    """The outcome of a program.

    reached: the first call of each model, in order.  error: the program's own exception that ended it (SystemExit
    included).  failure: the torch call that raised it, if one did.  time_up: no model was called in time; the
    traceback shows where the program was.  made_up: invented command-line arguments.  early: did a statement fail
    before any model was called?  test: the function that called the models, if the program itself did not.  absent: of
    data sets that were not there.
    """

    module: ModuleType
    reached: tuple[Reached, ...]
    constructions: Constructions
    error: BaseException | None
    time_up: TimeUp | None = None
    failure: Failure | None = None
    made_up: tuple[str, ...] = ()
    early: bool = False
    test: ast.FunctionDef | None = None
    absent: tuple[AbsentDataError, ...] = ()

    @property
    def shown_parts(self) -> frozenset[int]:
        """The ids of the models that were handed to `on_call`, and of their parts."""
        return frozenset(id(part) for each in self.reached if each.shown for part in each.model.modules())

    @property
    def how(self) -> str:
        """A sentence on how its models are called."""
        told = "the inputs of the file's own run"
        if self.test is not None:
            told = f"the inputs of {self.test.name}(), line {self.test.lineno}"
        return f"{told}, with the guessed command-line arguments `{' '.join(self.made_up)}`" if self.made_up else told


def run_main(
    path: str,
    folder: str,
    on_call: OnCall,
    shadows: Shadows,
    load: Callable[[str], Loaded] = compile_plainly,
    name: str = "__main__",
    patience: float = PATIENCE,
    excused: Callable[[float], None] = lambda seconds: None,
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
    late: Callable[[], bool] = lambda: False,
    test: ast.FunctionDef | None = None,
) -> MainRun:
    """Run `path` on meta as `name`; each model's first outermost call goes to `on_call(model, args, kwargs)`.

    The module stays in `sys.modules`. `on_call` runs outside of every torch function mode and returns the call's
    output to the program. The program is stopped if it has called no model for `patience` seconds of its own;
    `excused` is called with those in which it waited for a processor, or for the import of a library. `quiet`
    surrounds further calls of a model. A program that ends without a call is followed by its `test`,
    whose own failure is none of the program. Once `late()`, it is stopped at the first call of another model.
    """
    constructions = Constructions()
    watch = Watch(
        on_call, constructions, folder, patience=patience, excused=excused, quiet=quiet, in_cells=is_notebook(path),
        late=late, count=lambda: shadows.steps, path=path,
    )  # fmt: skip
    # A statement that trains ends there; the next one may contain another model.
    cuts = Cuts(Stop, StatementOver, watch.goes_on, MAX_OF_NOTEBOOK if watch.in_cells else MAX_FAILURES)
    error: BaseException | None = None
    mode = FailureMode(shadows)
    early: list[bool] = []

    def goes_past(error: BaseException) -> bool:
        early.append(not watch.reached)
        return True

    with ExitStack() as stack:
        made_up = stack.enter_context(as_program(path, folder))
        module = module_for(path, name)
        stack.enter_context(constructions.recording())
        loaded: Loaded | None = None
        try:
            loaded = load(path)
            with watch.active(), mode:
                module, error = execute_program(loaded, module, cuts, goes_past)
                if test is not None and error is None and watch.time_up is None and not watch.reached:
                    with suppress(*RAISED):  # the border to the user's program
                        vars(module)[test.name]()
                else:
                    test = None
        except RAISED as raised:  # the border to the user's program
            if loaded is None and isinstance(raised, TypeError | AttributeError | NameError):
                raise  # no text is the cause of these: an earlier run of the program has changed what reads it
            error = raised
        absent = tuple(list_absent_data())
    reached = tuple(watch.reached.values())
    return MainRun(
        module, reached, constructions, error, None if test else watch.time_up, None if test else mode.failure,
        tuple(made_up), early[:1] == [True], test, absent,
    )  # fmt: skip


def _hand_on_globals(tree: ast.Module, program: ModuleType, module: ModuleType) -> None:
    """Give a module what only its run as a program has set, by functions that say `global`: a device, a vocabulary.

    Not models or objects of its own classes, which are those of the program.
    """
    names = {name for node in list_nodes(tree) if isinstance(node, ast.Global) for name in node.names}
    for name in sorted(names & vars(program).keys() - vars(module).keys()):
        value = getattr(program, name)
        if type(value).__module__ != program.__name__ and not isinstance(value, (nn.Module, type)):
            setattr(module, name, value)


def find_test(tree: ast.Module) -> ast.FunctionDef | None:
    """The function `test` of a file, if it can be called without arguments and makes a model of the file."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    test = functions.get("test")
    if test is None or len(test.args.defaults) < len(test.args.posonlyargs + test.args.args):
        return None
    called = {each.func.id for each in ast.walk(test) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    makers = {each.name for name in classes for each in find_builders(tree, name) if each is not test}
    return test if called & {*classes, *makers} else None
