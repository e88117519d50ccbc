"""The views of a compiled model: Dynamo's graphs and breaks, ATen operators, Inductor's code, exports.

It runs in a fork of the trace child, on the model with its weights and the example inputs. The recording of shapes has
added calls to the person's functions; Dynamo would compile these too, so each function gets its plain code back first.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn

from mase_server.protocol.answers.models import Compiled, GraphBreak
from mase_server.protocol.records import Edit, Fix
from mase_server.protocol.request import VIEWS as MODULES
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.importing import standins
from mase_server.tracing.importing.importer import find_functions, owns, restore_plain_code
from mase_server.tracing.importing.source import decode_source, read_source
from mase_server.tracing.inputs.spec import outside_modes
from mase_server.tracing.models.real import Real
from mase_server.worker.proof import apply_edits
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.break_fixes import BreakScene, Candidate
from mase_server.worker.transforms.captures import (
    Compiler,
    Scene,
    are_equal,
    compile_graphs,
    list_runs,
    read_breaks,
    show_graphs,
)
from mase_server.worker.transforms.exports import show_export, show_onnx
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.inductor import show_inductor
from mase_server.worker.transforms.runs import Subject, answer_on_meta, list_namespaces

#: After this time no more edits are tried; what was found until then is told.
_MENDING_SECONDS = 30.0


def send_compiled(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Send a `Compiled` of the model as it is written, or with its steps unless `original`. name: the view.

    On meta, only check whether there is enough memory for weights.
    """
    subject = Subject.of(live, ask.model, real)
    if ask.name not in VIEWS:
        raise AskError(f"there is no view {ask.name!r}; there are {', '.join(VIEWS)}")
    if real is None:
        return answer_on_meta(subject, ask, send)
    scene = Scene.of(subject, ask, send)
    namespaces = list_namespaces(real.model)
    restore_plain_code(live.request.path, namespaces)
    main = ModuleType("__main__")  # where Dynamo looks for the globals of the file
    main.__dict__.update(*[each for each in namespaces if each.get("__name__") == "__main__"][:1])
    # Its surroundings are not those of `as_program`, whose substitutes Dynamo would compile.
    with guard_program(live.request.scratch), outside_modes(), torch.no_grad(), patch.dict(sys.modules, __main__=main):
        known = set(sys.modules)
        gc.set_threshold(50_000, 20, 1_000)  # compilers make many objects, and the process ends with the answer
        _construct_plainly()
        _learn_again()
        for function in (standins.rearrange, standins.reduce, standins.repeat, standins.einsum):
            torch._dynamo.allow_in_graph(function)  # type: ignore[no-untyped-call]  # as einops does, for which they stand
        made = VIEWS[ask.name](scene)
        if scene.further and ask.name == "dynamo":
            made["breaks"] = _Mender(scene, made["breaks"]).mend_all()
        send({"event": "imported", "modules": list(list_libraries(known, scene.workspace))})
    return send({"value": made})


def _construct_plainly() -> None:
    """Have Dynamo and Python construct modules as if no construction had been recorded; no `__new__` can be removed."""
    from torch._dynamo.variables.user_defined import UserDefinedClassVariable

    def construct(kind: type[nn.Module], *args: Any, **kwargs: Any) -> Any:
        return object.__new__(kind)

    is_standard: Any = UserDefinedClassVariable.is_standard_new
    UserDefinedClassVariable.is_standard_new = lambda variable: (  # type: ignore[method-assign, assignment]
        getattr(variable.value, "__new__", None) is construct or is_standard(variable)
    )
    nn.Module.__new__ = staticmethod(construct)  # type: ignore[assignment]


def _learn_again() -> None:
    """Have Dynamo learn the functions of Python and torch, beside what it knows.

    Where the recorded forward used it, it learned them while the recorder stood in for some. What it was told to allow,
    to leave out or to trace in another way stays: nobody tells it again.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.variables.builtin import BuiltinVariable

    for learned in vars(trace_rules).values():
        if isinstance(learned, trace_rules.FunctionIdSet) and learned.function_ids is not None:
            learned.function_ids |= {*learned.lazy_initializer()} - trace_rules._polyfilled_function_ids()
    rules = trace_rules.get_torch_obj_rule_map()
    trace_rules.clear_lru_cache()
    again = trace_rules.get_torch_obj_rule_map()
    again.update({**rules, **again})
    BuiltinVariable._constant_fold_functions.cache_clear()


def list_libraries(known: Collection[str], workspace: str) -> Iterator[str]:
    """The loaded modules beside the known ones that have a file outside of the workspace, in the order of their import.

    In another order, some that import each other fail, and leave Inductor without its lowerings.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in known and file and not owns(workspace, file):
            yield name


def import_for_view(view: str) -> None:
    """Import what a view needs, without starting a thread or a process."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    for name in MODULES.get(view, ()):
        import_module(name)


# Dynamo and ATen: the graphs that a backend is given.


def _show_dynamo(scene: Scene) -> Compiled:
    return show_graphs("dynamo", lambda keep: keep, scene)


def _show_aten(scene: Scene) -> Compiled:
    from torch._dynamo.backends.common import aot_autograd

    return show_graphs("aten", lambda keep: aot_autograd(fw_compiler=keep), scene)


def _show_joint(scene: Scene) -> Compiled:
    """In training mode, with gradients: each joint graph, and the forward and the backward that it is cut into."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def make_backend(keep: Compiler) -> Any:
        def cut(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
            keep_part("joint", fx.GraphModule(joint, copy.deepcopy(joint.graph)), inputs)
            return min_cut_rematerialization_partition(joint, inputs, **options)

        def keep_part(part: str, graph: fx.GraphModule, inputs: Any) -> Any:
            graph.meta["part"] = part
            return keep(graph, inputs)

        return aot_autograd(
            fw_compiler=partial(keep_part, "forward"), bw_compiler=partial(keep_part, "backward"), partition_fn=cut
        )

    scene.model.train()
    with torch.enable_grad():
        shown = show_graphs("joint", make_backend, scene, trains=True)
    return shown if "joint" in shown["text"] else {**shown, "text": "# No result depends on a parameter."}


# Edits after which a break is gone.


@dataclass(slots=True)
class _Mender:
    """Tries edits: the model's functions get the code of the edited text, and it is compiled and run again."""

    scene: Scene
    breaks: Sequence[GraphBreak]
    functions: dict[str, list[FunctionType]] = field(default_factory=dict)
    plain: list[Any] = field(default_factory=list)

    def mend_all(self) -> list[GraphBreak]:
        """The breaks, each with the first edit after which it is gone while the results are the same bits."""
        end = time.monotonic() + _MENDING_SECONDS
        return [
            {**each, "fix": self._find_fix(each)}
            if owns(self.scene.workspace, each["file"]) and time.monotonic() < end
            else each
            for each in self.breaks
        ]

    def _find_fix(self, found: GraphBreak) -> Fix | None:
        text = decode_source(read_source(found["file"]))
        if found["file"] not in self.functions:
            namespaces = list_namespaces(self.scene.model)
            self.functions[found["file"]] = find_functions(found["file"], namespaces)
        for candidate in BreakScene(found["file"], text, found["line"]).list_candidates():
            try:
                if self._is_gone(found, text, candidate) and self._is_right_on_both_sides(found, text, candidate):
                    return {"title": candidate.title, "preferred": True, "edits": candidate.edits}
            except Exception:  # noqa: BLE001 - whatever an edit breaks, it is not offered
                continue
        return None

    def _is_gone(self, found: GraphBreak, text: str, candidate: Candidate) -> bool:
        with self._edited(found["file"], text, candidate.edits):
            again = compile_graphs(lambda keep: keep, self.scene)
        lines = _list_old_lines(text, candidate.edits)
        left = {
            (each["file"], lines[each["line"] - 1] if each["file"] == found["file"] else each["line"])
            for each in read_breaks(again, self.scene.workspace)
        }
        known = {(each["file"], each["line"]) for each in self.breaks}
        return left <= known - {(found["file"], found["line"])} and are_equal(again.results, self._run_plainly())

    def _is_right_on_both_sides(self, found: GraphBreak, text: str, candidate: Candidate) -> bool:
        if candidate.opposite is None:
            return True
        results = []
        for edits in candidate.opposite:
            with self._edited(found["file"], text, edits):
                results.append([run(self.scene.model) for run in list_runs(self.scene)])
        return are_equal(*results)

    def _run_plainly(self) -> list[Any]:
        if not self.plain:
            self.plain += [run(self.scene.model) for run in list_runs(self.scene)]
        return self.plain

    @contextmanager
    def _edited(self, path: str, text: str, edits: Sequence[Edit]) -> Iterator[None]:
        sources = (text, apply_edits(text, edits))
        versions = dict(_pair_codes(*(compile(each, path, "exec", dont_inherit=True) for each in sources)))
        before = [(function, function.__code__) for function in self.functions[path]]
        for function, code in before:
            new = versions.get(code)
            if new is not None and new.co_freevars == code.co_freevars:
                function.__code__ = new
        try:
            yield
        finally:
            for function, code in before:
                function.__code__ = code


def _pair_codes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Each function's code before an edit with that after it: of one name, in order."""
    groups: list[dict[str, list[CodeType]]] = []
    for code in (old, new):
        group: dict[str, list[CodeType]] = {}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                group.setdefault(constant.co_name, []).append(constant)
        groups.append(group)
    for name, codes in groups[0].items():
        for before, after in zip(codes, groups[1].get(name, ()), strict=False):
            yield before, after
            yield from _pair_codes(before, after)


def _list_old_lines(text: str, edits: Sequence[Edit]) -> list[int]:
    """Of each line of the edited text, the line of the text as it was."""
    lines = list(range(1, text.count("\n") + 2))
    for edit in sorted(edits, key=lambda edit: edit["line"], reverse=True):
        lines[edit["line"] - 1 : edit["end_line"]] = [edit["line"]] * (edit["new_text"].count("\n") + 1)
    return lines


#: The views by their names.
VIEWS: dict[str, Callable[[Scene], Compiled]] = {
    "dynamo": _show_dynamo, "aten": _show_aten, "joint": _show_joint, "inductor": show_inductor,
    "export": show_export, "onnx": show_onnx,
}  # fmt: skip
