"""The job of a trace child: a request becomes snapshots.

Import, find models and inputs, record each model, probe it at other sizes, and write what is known: with plain numbers
as soon as anything has waited for longer than a glance, and once complete.
"""

from __future__ import annotations

import ast
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.machinery import FileFinder
from pathlib import Path
from typing import Any

from torch import nn

from mase_server.inputs.comments import inputs_syntax
from mase_server.inputs.execution.distributed import alone
from mase_server.inputs.execution.guard import guarded
from mase_server.inputs.execution.program import Loaded, as_program
from mase_server.inputs.execution.trials import Trials
from mase_server.inputs.find import find
from mase_server.inputs.found import Found, Hooks, bind
from mase_server.inputs.making.constructions import arguments_of, places_of, rebuild_of
from mase_server.inputs.searching.failures import is_check
from mase_server.inputs.text import write
from mase_server.ir.session import Session
from mase_server.notebooks import is_notebook
from mase_server.ops.types import TensorType
from mase_server.passes.registry import built_in
from mase_server.snapshot import Problem
from mase_server.tracing.bindings import Reports
from mase_server.tracing.errors.failure import RAISED, Failure
from mase_server.tracing.errors.problems import Context, explain, is_certain
from mase_server.tracing.errors.recovery import RecoveringRecorder
from mase_server.tracing.loading.cells import broken_cells, kernel_names
from mase_server.tracing.loading.codecache import usable
from mase_server.tracing.loading.importer import install
from mase_server.tracing.loading.libraries import file_of, reinstrument
from mase_server.tracing.loading.lookups import Lookups
from mase_server.tracing.loading.source import decode, python_of, read_saved, show_lines
from mase_server.tracing.phases import phase, reported
from mase_server.tracing.shadow import LARGE_SHADOW_LIMIT, SHADOW_LIMIT, Shadows, ValueDependentError
from mase_server.tracing.state import put_in_mode
from mase_server.worker import memory
from mase_server.worker.branches import branches_taken
from mase_server.worker.devices import left_behind
from mase_server.worker.live import Live
from mase_server.worker.payload import PayloadWriter
from mase_server.worker.places import Places
from mase_server.worker.preload import Surveyed, read_path_files
from mase_server.worker.proof import Proofs, forget, needs_proof, unproved
from mase_server.worker.request import TraceRequest
from mase_server.worker.traced import Traced
from mase_server.worker.transforms.replay import replayed

# The warm parent imports this file: its forks find every pass imported.
built_in()

Emit = Callable[[dict[str, Any]], None]

#: Seconds after which the numbers of a model are shown though its symbols, or other models, are not known yet.
GLANCE = 0.15
#: The same where passes are applied: what they make of a model is not known yet, and would be gone for a moment.
LONGER_GLANCE = 1.0


def trace(request: TraceRequest, emit: Emit) -> Live:
    """Trace one file; emits stages and payloads, and gives the live models."""
    with reported(emit):
        job = TraceJob(request, emit)
        job.find()
        if job.lacks_values():
            job = TraceJob(request, emit, LARGE_SHADOW_LIMIT, job.lookups)
            job.find()
        return job.finish()


class TraceJob:
    """One trace of one file: `find`, then `finish`.

    limit: the size up to which tensors keep values.  lookups: of a try before it, whose modules are imported by now.
    """

    def __init__(
        self, request: TraceRequest, emit: Emit, limit: int = SHADOW_LIMIT, lookups: Lookups | None = None
    ) -> None:
        self.request, self.emit = request, emit
        self.started = time.perf_counter()
        self.shadows, self.reports = Shadows(limit), Reports()
        self.sessions: dict[int, Traced] = {}
        self.traced: list[Traced] = []
        self.problems: list[Problem] = []
        #: What ended the person's program after it had called its models.
        self.ended: tuple[BaseException, Failure | None] | None = None
        #: How many models were sent before all is known, and since when there is one that was not.
        self.glanced = 0
        self.new_since = 0.0
        self.lookups = lookups or Lookups(request.path, request.folder, (request.scratch, request.bytecode_cache))
        self.libraries = request.instrument
        self.cache = usable(request.bytecode_cache)
        self.modules_before = set(sys.modules)
        self.endless = ""
        #: Seconds that a model may wait before its numbers are shown.
        self.patience = LONGER_GLANCE if request.options.pipelines else GLANCE

    def find(self) -> None:
        """Import the file, find its models and record each one's base run."""
        gc.disable()
        request = self.request
        saved = read_saved(request.path)
        self.text = text = decode(python_of(request.path, saved))
        if is_notebook(request.path):
            show_lines(request.path, text)
            self.problems += broken_cells(request.path, saved)
        self.places = Places(request.path, _parsed(text))
        self.writer = PayloadWriter(request, saved, self.reports, self.places)
        self.importer = install([request.folder], self.cache, self.reports.reporter)
        try:
            with self.lookups.recording():
                self._find(text)
        finally:
            self.importer.uninstall()

    def lacks_values(self) -> bool:
        """Did a forward ask for a value that a larger limit might have kept?"""
        return any(one.session.rung == "real" or isinstance(one.error, ValueDependentError) for one in self.traced)

    def finish(self) -> Live:
        """Probe the models and send what is known."""
        outcomes = memory.outcomes(self.request.fit)
        for traced in self.traced:
            self.emit({"event": "stage", "stage": "probing", "message": traced.name})
            glance = partial(self._glance, traced.seconds)
            with phase("sizes", traced.name), self._surroundings():
                traced.probed = traced.session.probe(traced.run, outcomes.get(traced.name), glance)
            if traced.error is not None and not traced.found.rest:
                self.problems += self._problems(traced)
            self.problems += left_behind(traced, self.request.path, self.text)
            self.problems += branches_taken(traced, self.places, Context(self.request.path, [self.request.folder]))
        if (ending := self._ending()) is not None:
            self.problems.append(ending)
        if any(map(needs_proof, self.problems)):
            self._send(complete=False)
            with phase("proof"):
                proofs = Proofs.of(self._judge_again, self._told())
                self.problems = [proofs.proved(problem) for problem in self.problems]
        self._send(complete=True)
        return self.writer.live

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        """The surroundings in which `find` runs the code, for running the same code again."""
        request = self.request
        around = as_program(request.path, request.folder)
        with self.lookups.recording(), guarded(request.scratch, request.bytecode_cache), around, alone(self.text):
            yield

    def _told(self) -> int:
        return sum(problem.severity in ("error", "warning") for problem in self.problems)

    def _judge_again(self) -> tuple[int, int]:
        """In a fork, trace the file as it is edited there: what is told then, and how many models run."""
        forget(self.importer.imported)
        job = TraceJob(self.request, lambda message: None)
        job.find()
        for traced in job.traced:
            if traced.error is not None and not traced.found.rest:
                job.problems += job._problems(traced)
            job.problems += left_behind(traced, job.request.path, job.text)
        if (ending := job._ending()) is not None:
            job.problems.append(ending)
        return job._told(), sum(traced.error is None for traced in job.traced)

    def _find(self, text: str) -> None:
        self.emit({"event": "stage", "stage": "importing", "message": Path(self.request.path).name})
        trials = Trials(self.shadows)

        def attempt(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseException | None:
            self._glance()
            with self.reports.muted():
                return trials.attempt(model, args, kwargs)

        hooks = Hooks(
            self.shadows,
            self._on_call,
            attempt,
            self._load,
            self._on_trial,
            memory.inputs(self.request.fit),
            self._record_found,
            self._on_end,
            lambda seconds: self.emit({"event": "excused", "seconds": seconds}),
            memory.endless(self.request.fit),
            self._on_endless,
            self.reports.muted,
        )
        for item in find(self.request, text, hooks):
            if isinstance(item, Problem):
                self.problems.append(item)
            else:
                self._glance()
                self.traced.append(self._traced(item))
                if len(self.traced) == self.glanced + 1:
                    self.new_since = time.perf_counter()

    def _glance(self, coming: float = 0.0) -> None:
        """Send numbers if some model has waited for longer than a glance, or will have in `coming` seconds.

        So a slow model, or probing, does not delay the models that were found first.
        """
        if len(self.traced) > self.glanced and time.perf_counter() + coming - self.new_since > self.patience:
            self.glanced = len(self.traced)
            self._send(complete=False)

    def _on_endless(self, program: str) -> None:
        self.endless = program

    @contextmanager
    def _on_trial(self) -> Iterator[None]:
        """Around each try to make a model."""
        self._glance()
        with self.reports.on_trial(), phase("constructor"):
            yield

    def _load(self, path: str) -> Loaded:
        names: dict[str, Any] = {}
        if path == self.request.path:
            self._use_search_path()
        code = self.importer.prepare(path, names)
        if is_notebook(path):
            names |= kernel_names(path)
        return Loaded(code, names, partial(self.importer.code_from, path))

    def _use_search_path(self) -> None:
        """Import as a fresh process would: the warm parent listed folders, and imported modules, long ago."""
        read_path_files(run=True)
        for entry in sys.path:
            if (finder := sys.path_importer_cache.get(entry)) is None:
                sys.path_importer_cache.pop(entry, None)
            elif isinstance(finder, FileFinder):
                finder.invalidate_caches()
        for file in Surveyed.elsewhere:
            self.lookups.note("content", file)
        for top in self.lookups.note_loaded(Surveyed.places, sys.path) & Surveyed.learned:
            for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
                del sys.modules[name]

    def _on_call(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The person's program calls a model: record it there and then, and give the output back."""
        self._watch_libraries()
        session = Session(
            model, bind(model, args, kwargs), self.shadows, reports=self.reports, construct=rebuild_of(model),
            recorder=RecoveringRecorder,
        )  # fmt: skip
        traced = self.sessions[id(model)] = self._record(session)
        if traced.error is not None:
            raise traced.error
        assert session.base is not None
        return session.base.output

    def _watch_libraries(self) -> None:
        """Library files that are open in an editor report too, from now on; they are imported by now."""
        if self.libraries:
            reinstrument(self.libraries, self.reports.reporter, self.cache)
            self.libraries = ()

    def _record(self, session: Session) -> Traced:
        self.emit({"event": "stage", "stage": "tracing", "message": type(session.model).__name__})
        started = time.perf_counter()
        error: BaseException | None = None
        try:
            with phase("forward", type(session.model).__name__):
                run = session.record()
        except RAISED as raised:  # the border to the person's code
            error = raised
            if session.base is None:  # a model that cannot be walked, such as one that holds itself
                raise
            run = session.base.partial()
        return Traced(None, session, run, error, None, time.perf_counter() - started)  # type: ignore[arg-type]

    def _record_found(self, found: Found) -> bool:
        """Record a model whose inputs are known from its last trace; they count only if they still work."""
        self._watch_libraries()
        put_in_mode(found.model, found.training)
        session = Session(
            found.model,
            found.inputs,
            self.shadows,
            reports=self.reports,
            spec=found.spec,
            construct=found.construct,
            recorder=RecoveringRecorder,
        )
        traced = self.sessions[id(found.model)] = self._record(session)
        return traced.error is None

    def _traced(self, found: Found) -> Traced:
        if not found.recorded or id(found.model) not in self.sessions:
            self._record_found(found)
        traced = self.sessions[id(found.model)]
        traced.found = found
        return traced

    def _on_end(self, error: BaseException, failure: Failure | None) -> None:
        """The person's program ended with an exception after it had called its models."""
        self.ended = (error, failure)

    def _ending(self) -> Problem | None:
        """The error that ended the program, if it is certainly the code's and not a model's own."""
        if self.ended is None or any(self.ended[0] is one.error for one in self.traced):
            return None
        error, failure = self.ended
        symbols: dict[TensorType, tuple[str, ...]] = {}
        for traced in self.traced:
            symbols |= traced.proved_dimensions()
        context = Context(self.request.path, [self.request.folder], phase="import", symbols=symbols)
        return explain(error, failure, context) if is_certain(error, failure, context) else None

    def _problems(self, traced: Traced) -> Iterator[Problem]:
        """The error that a forward met, and those that do not follow from it."""
        recorder = traced.session.base
        assert recorder is not None
        assert traced.error is not None
        model = traced.found.model
        context = Context(
            self.request.path,
            [self.request.folder],
            model=traced.name,
            where=self.places.model(traced.found.name),
            constructions=places_of(model),
            symbols=traced.proved_dimensions(),
            root=model,
            arguments=arguments_of,
        )
        further = recorder.recovered[1:] if isinstance(recorder, RecoveringRecorder) else []
        pairs = [(traced.error, recorder.failure), *((failure.error, failure) for failure in further)]
        # One line, or one layer, that runs three times is one mistake.
        seen: set[object] = set()
        for error, failure in pairs:
            problem = explain(error, failure, context)
            keys = {(problem.file, problem.line), failure.module if failure is not None else None} - {None}
            if keys.isdisjoint(seen):
                guessed = "search" in (traced.found.inputs_from, traced.found.arguments_from)
                yield _doubted(problem, traced) if traced.found.doubtful or (guessed and is_check(error)) else problem
            seen |= keys

    def _send(self, *, complete: bool) -> None:
        payload = self.writer.write(
            self.traced,
            self.problems if complete else list(map(unproved, self.problems)),
            seconds=time.perf_counter() - self.started,
            complete=complete,
            dependencies=self.lookups.dependencies(),
            preload=self._preload(),
            fit=memory.pack(self.traced, self.endless),
        )
        if complete and self.request.options.pipelines:
            with phase("passes"):
                payload["transforms"] = replayed(self.writer.live, self.request.options.pipelines)
        self.emit({"event": "snapshot", "payload": payload})

    def _preload(self) -> list[str]:
        """Modules that the file brought in and that are not the workspace's own, in the order of their import."""
        own = set(self.importer.imported)
        found = []
        for name, module in list(sys.modules.items()):
            file = file_of(module)
            if name in self.modules_before or not file or file in own or name.startswith("__m"):
                continue
            if not self.importer.owns(file):
                found.append(name)
        return found


def _doubted(problem: Problem, traced: Traced) -> Problem:
    """The error of a forward whose inputs were guessed, and may be at fault."""
    inputs = write(traced.found.spec)
    text = f"{problem.message} The inputs were guessed ({inputs}) and may not fit."
    text += f" {inputs_syntax(traced.found.model.forward)}"
    return replace(problem, severity="warning", message=text)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None
