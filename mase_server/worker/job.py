"""The job of a trace child: it turns a trace request into snapshots.

It imports the file, finds models and inputs, records each model, probes it at other sizes, and sends the results:
with plain numbers as soon as a model has waited longer than GLANCE, and complete at the end. It also warns of
tensors that `.to(device)` leaves behind, and packs what the next trace of the file should remember.

The wait before the first numbers keeps hints from flickering: at most saves the symbols follow within it. What a search
found, and which symbols varied, is packed for the next trace of the file, which tries it first and never believes it
without a run.
"""

from __future__ import annotations

import ast
import hashlib
import json
import linecache
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.machinery import FileFinder
from pathlib import Path
from typing import Any

from torch import nn

from mase_server.ir.session import Session
from mase_server.notebooks import is_notebook
from mase_server.ops.paths import attribute, named_tensors
from mase_server.ops.types import Kwargs, TensorType
from mase_server.passes.registry import built_in
from mase_server.protocol.records import Edit, UnrunCode
from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.protocol.snapshot import Problem
from mase_server.tracing.diagnosis import scenes
from mase_server.tracing.diagnosis.failure import RAISED, Failure
from mase_server.tracing.diagnosis.ignored import drop_ignored
from mase_server.tracing.diagnosis.problems import Context, explain_error, is_certain
from mase_server.tracing.diagnosis.recovery import RecoveringRecorder
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.execution.program import Loaded, as_program
from mase_server.tracing.execution.running import Trials
from mase_server.tracing.execution.substitutes import simulate_single_process
from mase_server.tracing.importing.exchange import Exchange, NotExchangeableError
from mase_server.tracing.importing.importer import file_of, install, prepare_cache_folder, reinstrument_libraries
from mase_server.tracing.importing.lookups import Lookups, read_path_files
from mase_server.tracing.importing.segments import list_methods, list_uncalled, list_unrun, merge_marks
from mase_server.tracing.importing.source import (
    Namespace,
    broken_cells,
    decode_source,
    kernel_names,
    noting_readers,
    parse_text,
    pin_sources,
    python_of,
    read_saved,
    show_lines,
)
from mase_server.tracing.inputs.comments import inputs_syntax
from mase_server.tracing.inputs.searching.failures import is_check
from mase_server.tracing.inputs.spec import Inputs
from mase_server.tracing.inputs.text import SpecError, format_inputs, parse_inputs
from mase_server.tracing.models.constructions import arguments_of, places_of, rebuild_of
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, Hooks, KnownSearch, Unshown, bind_inputs
from mase_server.tracing.recording.calling import module_calls_routed
from mase_server.tracing.recording.calls import Call, Reports, Run
from mase_server.tracing.recording.positions import report_phase, report_phases_to
from mase_server.tracing.recording.shadow import LARGE_SHADOW_LIMIT, Shadows, ValueDependentError
from mase_server.tracing.recording.state import SEED, KeptParts, put_in_mode, seed_random_numbers
from mase_server.tracing.symbols.probing import Telling
from mase_server.worker.jobs import Await, Emit
from mase_server.worker.payload import PayloadWriter, Places, branches_taken, describe_unrun
from mase_server.worker.preload import Surveyed, survey_modules
from mase_server.worker.proof import Proofs, needs_proof, unload_modules, unproved
from mase_server.worker.traced import Live, Traced
from mase_server.worker.transforms.work import replay_pipelines

# The warm parent imports this file, so its forks have every pass imported.
built_in()


#: Seconds after which a model's numbers are shown though its symbols, or other models, are not known yet.
GLANCE = 0.15
#: The same with passes applied: their effect on a model is not known yet, and would disappear for a moment.
LONGER_GLANCE = 1.0

#: The file that a waiting child traces.
_REHEARSAL = Path(__file__).parent / "rehearsal" / "model.py"


def trace(request: TraceRequest, emit: Emit, await_request: Await | None = None) -> Live:
    """Trace one file; emit stages and payloads, and return the live models.

    await_request: run ahead with the text of the request, up to the first call of a model or the end of the file, and
    wait there for the request that comes. It may have another text, see `importing.exchange`.
    """
    with report_phases_to(emit), pin_sources(request.path, request.texts), module_calls_routed():
        job = TraceJob(request, emit, await_request=await_request)
        with noting_readers() if await_request is not None else nullcontext(set[str]()) as job.readers:
            job.find()
        if job.lacks_values():
            unload_modules(job.importer.imported)  # they report to the first job
            shadows = Shadows(LARGE_SHADOW_LIMIT, builds=job.shadows.lacked)
            first, job = job, TraceJob(request, emit, shadows, job.lookups)
            job.modules_before = first.modules_before
            job.find()
        return job.finish()


def rehearse() -> None:
    """Trace a small model of our own, in a child that waits for its request: the trace to come then finds warm memory.

    A fork copies each page of its parent that it writes to, reference counts included: in a small trace that, and the
    first run of everything, is more than half of the time. No code of the user runs, and nothing of it remains.
    """
    scratch = tempfile.mkdtemp()
    try:
        sha256 = hashlib.sha256(_REHEARSAL.read_bytes()).hexdigest()
        request = TraceRequest(str(_REHEARSAL), str(_REHEARSAL.parent), sha256, 0, TraceOptions(), scratch=scratch)
        live = trace(request, lambda message: None)
        assert live.traced, "the rehearsal has a model"
        survey_modules()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        linecache.clearcache()


class TraceJob:
    """One trace of one file: `find`, then `finish`.

    shadows: which tensors keep values.  lookups: of an earlier try, whose libraries are already imported.
    """

    def __init__(
        self,
        request: TraceRequest,
        emit: Emit,
        shadows: Shadows | None = None,
        lookups: Lookups | None = None,
        await_request: Await | None = None,
    ) -> None:
        self.request, self.emit = request, emit
        self.started = time.perf_counter()
        self.await_request = await_request
        #: The files of which something was read beside the code that was executed.
        self.readers: Set[str] = frozenset()
        self.shadows, self.reports = shadows or Shadows(), Reports()
        self.sessions: dict[int, Traced] = {}
        self.traced: list[Traced] = []
        self.problems: list[Problem] = []
        self.unshown: list[Unshown] = []
        #: The exception that ended the user's program after it had called its models.
        self.ended: tuple[BaseException, Failure | None] | None = None
        #: The number of models already sent, and the time since which another one waits to be sent.
        self.glanced = 0
        self.new_since = 0.0
        self.lookups = lookups or Lookups(request.path, request.folder, (request.scratch, request.bytecode_cache))
        self.libraries = request.instrument
        self.cache = prepare_cache_folder(request.bytecode_cache)
        self.modules_before = set(sys.modules)
        self.endless = ""
        #: Seconds that a model may wait before its numbers are shown.
        self.patience = LONGER_GLANCE if request.options.pipelines else GLANCE

    def find(self) -> None:
        """Import the file, find its models and record each one's base run."""
        request = self.request
        saved = read_saved(request.path)
        self._read_text(saved)
        show_lines(request.path, self.text)
        if is_notebook(request.path):
            self.problems += broken_cells(request.path, saved)
        self.importer = install([request.folder], self.cache, self.reports.reporter)
        try:
            with self.lookups.recording():
                # Of the same text, everything stays the same; each process begins at numbers of its own.
                seed_random_numbers(SEED)
                self._find_in_text(self.text)
        finally:
            self.importer.uninstall()

    def _read_text(self, saved: bytes) -> None:
        request = self.request
        self.text = decode_source(python_of(request.path, saved))
        self.places = Places(request.path, _parse_text(self.text, request.path))
        self.writer = PayloadWriter(request, saved, self.reports, self.places)

    def _wait_for_text(self) -> None:
        """Where the trace runs ahead, wait for the request that comes, once."""
        if self.await_request is None:
            return
        await_request, self.await_request = self.await_request, None
        with self.lookups.paused():
            exchange = Exchange(self.importer, self.request.path, self.text, whole=self.request.path in self.readers)
        signatures = self.lookups.take_signatures()

        def go_on(request: TraceRequest) -> bool:
            if not request.follows(self.request) or signatures != self.lookups.take_signatures():
                return False
            source = request.texts[request.path]
            try:
                exchange.apply(source)
            except NotExchangeableError:
                return False
            self.request.become(request)
            self._read_text(source)
            self.started = time.perf_counter()
            return True

        await_request(exchange.lines, go_on)

    def lacks_values(self) -> bool:
        """Did code ask for a value that another try might keep, and is there time for one?

        A forward for one that a larger limit keeps; a constructor for a weight's.
        """
        late = any(one.problem.code == "time-limit" for one in self.unshown)
        asked = (one.session.rung == "real" or isinstance(one.error, ValueDependentError) for one in self.traced)
        return not late and (self.shadows.lacked or any(asked))

    def finish(self) -> Live:
        """Probe the models and send the results."""
        telling = read_telling(self.request.fit)
        unrun = list(self._list_unrun())  # before probes at other sizes take other branches
        for traced in self.traced:
            if traced.parts is not None:
                traced.parts.restore()
            self.emit({"event": "stage", "stage": "probing", "message": traced.name})
            glance = partial(self._send_glance, traced.seconds)
            with report_phase("sizes", traced.name), self._run_as_program():
                traced.probed = traced.session.probe(traced.run, telling.get(traced.name), glance)
            if traced.error is not None and not traced.found.rest:
                self.problems += self._explain_failure(traced)
            self.problems += left_behind(traced, self.request.path, self.text)
            self.problems += branches_taken(traced, self.places, Context(self.request.path, [self.request.folder]))
        if (ending := self._explain_ending()) is not None:
            self.problems.append(ending)
        if any(map(needs_proof, self.problems)):
            self._send_payload(complete=False)
            with report_phase("proof"):
                proofs = Proofs(self._judge_again, self._count_problems())
                self.problems = [proofs.proved(problem) for problem in self.problems]
        self._send_payload(complete=True, unrun=unrun)
        return self.writer.live

    @contextmanager
    def _run_as_program(self) -> Iterator[None]:
        """The surroundings in which `find` runs the code, to run the same code again."""
        request = self.request
        around = as_program(request.path, request.folder)
        with (
            self.lookups.recording(),
            guard_program(request.scratch, request.bytecode_cache),
            around,
            simulate_single_process(self.text),
        ):
            yield

    def _count_problems(self) -> int:
        return sum(problem.severity in ("error", "warning") for problem in self.problems)

    def _judge_again(self) -> tuple[int, int, int]:
        """In a fork, trace the file as edited there; return the number of problems, of models that run, and steps."""
        unload_modules(self.importer.imported)
        job = TraceJob(self.request, lambda message: None)
        job.find()
        for traced in job.traced:
            if traced.error is not None and not traced.found.rest:
                job.problems += job._explain_failure(traced)
            job.problems += left_behind(traced, job.request.path, job.text)
        if (ending := job._explain_ending()) is not None:
            job.problems.append(ending)
        return job._count_problems(), sum(traced.error is None for traced in job.traced), job.shadows.steps

    def _find_in_text(self, text: str) -> None:
        self.emit({"event": "stage", "stage": "importing", "message": Path(self.request.path).name})
        trials = Trials(self.shadows)

        def attempt(model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> BaseException | None:
            self._send_glance()
            with self.reports.muted():
                return trials.attempt(model, args, kwargs)

        hooks = Hooks(
            self.shadows,
            self._on_call,
            attempt,
            self._load_program,
            self._on_trial,
            read_known_inputs(self.request.fit),
            self._record_known,
            self._on_end,
            lambda seconds: self.emit({"event": "excused", "seconds": seconds}),
            read_endless(self.request.fit),
            self._on_endless,
            self.reports.muted,
            self._searching,
            self.reports.forget,
            self._wait_for_text,
        )
        for item in find_models(self.request, text, hooks):
            if isinstance(item, Problem):
                self.problems.append(item)
            elif isinstance(item, Unshown):
                self.unshown.append(item)
                self.problems += [] if item.elsewhere else [item.problem]
            else:
                self._send_glance()
                self.traced.append(self._trace_found(item))
                if len(self.traced) == self.glanced + 1:
                    self.new_since = time.perf_counter()

    def _send_glance(self, coming: float = 0.0) -> None:
        """Send numbers if a model has waited longer than its patience, or will have in `coming` seconds.

        This way a slow model, or probing, does not delay the models that were found first.
        """
        if len(self.traced) > self.glanced and time.perf_counter() + coming - self.new_since > self.patience:
            self.glanced = len(self.traced)
            self._send_payload(complete=False)

    @contextmanager
    def _searching(self) -> Iterator[None]:
        """Inside, inputs are tried: nothing of that is shown, as a trace that knows the inputs has nothing of it."""
        with self.reports.muted(), self.importer.unmarked():
            yield

    def _on_endless(self, program: str) -> None:
        self.endless = program

    @contextmanager
    def _on_trial(self) -> Iterator[Any]:
        """Wrap each try to make a model."""
        self._send_glance()
        with self.reports.on_trial() as reported, report_phase("constructor"):
            yield reported

    def _load_program(self, path: str) -> Loaded:
        names: Namespace = {}
        if path == self.request.path:
            self._use_search_path()
        code = self.importer.prepare(path, names)
        if is_notebook(path):
            names |= kernel_names(path)
        return Loaded(code, names, partial(self.importer.code_from, path))

    def _use_search_path(self) -> None:
        """Import as a fresh process would: the warm parent listed folders and imported modules long ago."""
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

    def _on_call(self, model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """The user's program calls a model: record it immediately and return the output."""
        self._wait_for_text()
        self._watch_libraries()
        session = Session(
            model, bind_inputs(model, args, kwargs), self.shadows, reports=self.reports, construct=rebuild_of(model),
            recorder=RecoveringRecorder,
        )  # fmt: skip
        traced = self.sessions[id(model)] = self._record_session(session)
        if traced.error is not None:
            raise traced.error
        assert session.base is not None
        return session.base.output

    def _watch_libraries(self) -> None:
        """From now on, library files that are open in an editor report too; they are imported by now."""
        if self.libraries:
            reinstrument_libraries(self.libraries, self.reports.reporter, self.cache)
            self.libraries = ()

    def _record_session(self, session: Session) -> Traced:
        self.emit({"event": "stage", "stage": "tracing", "message": type(session.model).__name__})
        started = time.perf_counter()
        error: BaseException | None = None
        try:
            with report_phase("forward", type(session.model).__name__), self.importer.marking() as ran:
                run = session.record()
        except RAISED as raised:  # the border to the user's code
            error = raised
            if session.base is None:  # a model that cannot be walked, such as one that contains itself
                raise
            run = session.base.partial()
        seconds = time.perf_counter() - started
        parts = KeptParts.of(session.model)
        return Traced(None, session, run, error, None, seconds, ran, parts)  # type: ignore[arg-type]

    def _record_known(self, found: Found) -> bool:
        """Record a model with the inputs of its last search; what ran counts only if they still work."""
        with self.importer.unmarked():
            traced = self._record_found(found)
        if traced.error is None:
            self.importer.add_marks(traced.ran)
        return traced.error is None

    def _record_found(self, found: Found) -> Traced:
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
        traced = self.sessions[id(found.model)] = self._record_session(session)
        return traced

    def _trace_found(self, found: Found) -> Traced:
        if not found.recorded or id(found.model) not in self.sessions:
            self._record_found(found)
        traced = self.sessions[id(found.model)]
        traced.found = found
        return traced

    def _on_end(self, error: BaseException, failure: Failure | None) -> None:
        """Keep the exception that ended the user's program after it had called its models."""
        self.ended = (error, failure)

    def _explain_ending(self) -> Problem | None:
        """The error that ended the program, if it is certainly the code's and not a model's own."""
        if self.ended is None or any(self.ended[0] is one.error for one in self.traced):
            return None
        error, failure = self.ended
        if isinstance(error, ValueDependentError):  # training begins, on values that a trace does not compute
            return None
        symbols: dict[TensorType, tuple[str, ...]] = {}
        for traced in self.traced:
            symbols |= traced.proved_dimensions()
        context = Context(self.request.path, [self.request.folder], phase="import", symbols=symbols)
        return explain_error(error, failure, context) if is_certain(error, failure, context) else None

    def _explain_failure(self, traced: Traced) -> Iterator[Problem]:
        """The error of a forward, and its further errors that are independent of the first."""
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
        # A line, or a layer, that runs three times is one mistake.
        seen: set[object] = set()
        for error, failure in pairs:
            problem = explain_error(error, failure, context)
            keys = {(problem.file, problem.line), failure.module if failure is not None else None} - {None}
            if keys.isdisjoint(seen):
                guessed = "search" in (traced.found.inputs_from, traced.found.arguments_from)
                yield (
                    _doubt_problem(problem, traced)
                    if traced.found.doubtful or (guessed and is_check(error))
                    else problem
                )
            seen |= keys

    def _list_unrun(self) -> Iterator[UnrunCode]:
        """The code of the shown models that did not run."""
        shown = [one for one in self.traced if one.error is None]
        failed = [one for one in self.traced if one.error is not None]
        kinds, doubted = (
            {kind for one in group for part in one.found.model.modules() for kind in type(part).__mro__}
            for group in (shown, failed)
        )
        methods = list_methods(kinds - doubted)
        for path, segments in self.importer.segments.items():
            ran, count = self.importer.ran[path], len(segments)
            entered, raised = (
                merge_marks(count, [one.ran[path] for one in group if path in one.ran]) for group in (shown, failed)
            )
            uncalled = list_uncalled(methods.get(path, ()), segments, ran)
            # The program ends at the last model that it calls: what it would call later is not known.
            later = {line for line, name in uncalled.items() if _is_called_outside(name, self.text)}
            for each in list_unrun(segments, ran, entered, raised, uncalled.keys() - later):
                yield describe_unrun(each, self.places.file(path))

    def _send_payload(self, *, complete: bool, unrun: Sequence[UnrunCode] = ()) -> None:
        problems = drop_ignored(self.problems) if self.problems else []
        payload = self.writer.write(
            self.traced,
            problems if complete else list(map(unproved, problems)),
            self.unshown,
            unrun,
            seconds=time.perf_counter() - self.started,
            complete=complete,
            dependencies=self.lookups.dependencies(),
            preload=self._list_preload_modules(),
            fit=pack_memory(self.traced, self.endless),
        )
        if complete and self.request.options.pipelines:
            with report_phase("passes"):
                payload["transforms"] = replay_pipelines(self.writer.live, self.request.options.pipelines)
        self.emit({"event": "snapshot", "payload": payload})

    def _list_preload_modules(self) -> list[str]:
        """The modules that the file imported and that are outside the workspace, in the order of their import."""
        own, new = set(self.importer.imported), sys.modules.keys() - self.modules_before
        found = []
        for name in [name for name in sys.modules if name in new and not name.startswith("__m")] if new else ():
            file = file_of(sys.modules[name])
            if file and file not in own and not self.importer.owns(file):
                found.append(name)
        return found


def _doubt_problem(problem: Problem, traced: Traced) -> Problem:
    """The error of a forward with guessed inputs, with a note that they may be at fault."""
    inputs = format_inputs(traced.found.spec)
    text = f"{problem.message} The inputs were guessed ({inputs}) and may not fit."
    text += f" {inputs_syntax(traced.found.model.forward)}"
    return replace(problem, severity="warning", message=text)


def _is_called_outside(method: str, text: str) -> bool:
    """Does a text name a method of something else than `self` or a part of it?"""
    found = re.finditer(rf"([\w.)\]]*)\.{re.escape(method)}\b", text)
    return any(each[1].partition(".")[0] != "self" for each in found)


def _parse_text(text: str, path: str) -> ast.Module | None:
    try:
        return parse_text(text, path)
    except SyntaxError:
        return None


# Tensors that `.to(device)` leaves behind: plain attributes of a module that its forward uses without moving them.

#: The file moves models or tensors itself, so it deals with more than one device.
_MOVES = re.compile(r"\.to\(\s*(device|\w*\.device|['\"]cuda)|\.cuda\(|accelerator|device_map")
#: Calls that bring a tensor to the device of another one.
_MOVED_BY = frozenset({"to", "cuda", "type_as", "new_tensor", "expand_as"})


def left_behind(traced: Traced, path: str, text: str) -> Iterator[Problem]:
    """Warn at each assignment of such a tensor; the quick fix makes it a buffer."""
    if not _MOVES.search(text):
        return
    file = scenes.File(path, text)
    model = traced.session.model
    for owner, name in dict.fromkeys(_iterate_plain_tensors(traced.run, model)):
        module = attribute(model, owner)
        statement = _find_only_assignment(file.tree, type(module).__name__, name)
        if statement is not None:
            yield _make_device_problem(file, statement, name)


def _iterate_plain_tensors(run: Run, model: nn.Module) -> Iterator[tuple[str, str]]:
    """Owner and name of every tensor that is no parameter or buffer and that a call uses without moving it."""
    kept = {path for path, _ in named_tensors(model)}
    for index, call in enumerate(run.calls):
        if call.kind == "get_attr" and isinstance(call.target, str) and call.target not in kept:
            takers = [other for other in run.calls[index:] if index in other.sources]
            if takers and not all(map(_is_moving_call, takers)):
                owner, _, name = call.target.rpartition(".")
                yield owner, name


def _is_moving_call(call: Call) -> bool:
    name = call.target if isinstance(call.target, str) else getattr(call.target, "__name__", "")
    return name in _MOVED_BY


def _find_only_assignment(tree: ast.Module, kind: str, name: str) -> ast.Assign | None:
    """The only plain assignment of `self.<name>` in the constructor of a class of the file."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind]
    found = [
        node
        for each in classes
        for node in ast.walk(each)
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [f"self.{name}"]
    ]
    return found[0] if len(found) == 1 else None


def _make_device_problem(file: scenes.File, statement: ast.Assign, name: str) -> Problem:
    line, column, end_line, end_column = file.places.span(statement)
    new = f'self.register_buffer("{name}", {file.source(statement.value)})'
    edit: Edit = {
        "file": file.path, "line": line, "column": column, "end_line": end_line, "end_column": end_column,
        "new_text": new,
    }  # fmt: skip
    text = (
        f"`self.{name}` is a plain tensor: `.to(device)` leaves it where it is,\nand the forward uses it with tensors"
        f" that are moved. Make it a buffer: `self.register_buffer(...)`."
    )
    fix = scenes.make_fix(f"Make `self.{name}` a buffer", edit)
    return Problem(file.path, line, column, end_line, end_column, "warning", "device-mismatch", text, [], [fix])


# The message from one trace to the next one of the same file. The server keeps it without looking inside.

VERSION = 9


def pack_memory(traced: Sequence[Traced], endless: str = "") -> bytes:
    """Pack the inputs that a search found, which the next trace tries first, and the telling sizes, by class name.

    endless: the program that called no model in time; the next trace gives it less time.
    """
    inputs, telling = {}, {}
    for one in traced:
        if one.found.search is not None and (packed := _pack_search(one.found.search, one.found.spec)) is not None:
            inputs[one.name] = packed
        if one.probed is not None and one.probed.telling:
            telling[one.name] = one.probed.telling
    return json.dumps({"version": VERSION, "inputs": inputs, "telling": telling, "endless": endless}).encode()


def read_endless(packed: bytes | None) -> str:
    """The program that called no model in time; "" for data that this version did not write."""
    try:
        return _read_packed(packed, "endless") or ""
    except (ValueError, KeyError):
        return ""


def _pack_search(search: KnownSearch, spec: Inputs) -> list[Any] | None:
    """A search as JSON data; None if some of its inputs have no written form."""
    texts = [_format_inputs_text(each) for each in (spec, *(tried for tried, _ in search.led))]
    if None in texts:
        return None
    led = [[text, error] for text, (_, error) in zip(texts[1:], search.led, strict=True)]
    return [texts[0], search.how, dict(search.sizes), search.built, search.otherwise, led, search.first]


def _unpack_search(packed: list[Any]) -> KnownSearch:
    text, how, sizes, built, otherwise, led, first = packed
    tried = tuple((parse_inputs(each), str(error)) for each, error in led)
    return KnownSearch(parse_inputs(text), how, dict(sizes), built, otherwise, tried, first)


def _format_inputs_text(spec: Inputs) -> str | None:
    """The written form, if it reads back as the same inputs."""
    text = format_inputs(spec)
    try:
        return text if parse_inputs(text) == spec else None
    except SpecError:
        return None


def read_known_inputs(packed: bytes | None) -> Mapping[str, KnownSearch]:
    """class name -> its last search that succeeded; empty for data that this version did not write."""
    try:
        kept = _read_packed(packed, "inputs")
        return {name: _unpack_search(packed) for name, packed in kept.items()}
    except (ValueError, TypeError, SpecError):
        return {}


def read_telling(packed: bytes | None) -> Mapping[str, Telling]:
    """class name -> what its last probing leaves to the next one; empty for data that this version did not write."""
    try:
        return dict(_read_packed(packed, "telling"))
    except (ValueError, TypeError):
        return {}


def _read_packed(packed: bytes | None, key: str) -> Any:
    data = json.loads(packed or b"{}")
    return data[key] if isinstance(data, dict) and data.get("version") == VERSION else {}
