"""hook_inspection: the hooks on each module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from mase_server.ir.graph import MaseGraph
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Result, complete_options
from mase_server.passes.report.report_graph import format_table

#: Kind of hook -> the attribute of a module that holds such hooks by number.
KINDS: Mapping[str, str] = {
    "forward_pre": "_forward_pre_hooks",
    "forward": "_forward_hooks",
    "backward_pre": "_backward_pre_hooks",
    "backward": "_backward_hooks",
    "state_dict_pre": "_state_dict_pre_hooks",
    "state_dict": "_state_dict_hooks",
    "load_state_dict_pre": "_load_state_dict_pre_hooks",
    "load_state_dict": "_load_state_dict_post_hooks",
}
#: The same for hooks on all modules of the process.
EVERYWHERE: Mapping[str, str] = {
    "forward_pre": "_global_forward_pre_hooks",
    "forward": "_global_forward_hooks",
    "backward_pre": "_global_backward_pre_hooks",
    "backward": "_global_backward_hooks",
}


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook. module: path of the module it is on.  kind: of `KINDS`.  number: the id that torch gave it."""

    module: str
    kind: str
    number: int
    function: Callable[..., Any]


@analysis("List the hooks on modules")
def hook_inspection_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """List the hooks on the model's modules, also those that run for every module, and replaced forwards.

    A forward of an instance's own, such as the one that accelerate wraps around a layer, counts as `hooked_forward`.
    Gives {"hooks": {"$module_$number": (number, function)}, "kinds": kind by the same keys, "everywhere": the same for
    hooks on all modules, "hooked_forwards": {module: forward}, "report": text}.
    Source: `chop.passes.graph.analysis.pruning.hook_inspection_analysis_pass`.

    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> handle = model[0].register_forward_hook(print)
    >>> _, found = passes.hook_inspection_analysis_pass(MaseGraph(model))
    >>> [(key.partition("_")[0], kind) for key, kind in found["kinds"].items()]
    [('0', 'forward')]
    """
    complete_options("hook_inspection_analysis_pass", pass_args, {})
    own = [hook for path, module in graph.root.named_modules() for hook in _hooks_of_module(path, module, KINDS)]
    everywhere = list(_hooks_of_module("", torch_module, EVERYWHERE))
    exchanged = {
        path: vars(module)["forward"] for path, module in graph.root.named_modules() if _is_forward_exchanged(module)
    }
    rows = [(hook.module or "the model itself", hook.kind, _function_name(hook.function)) for hook in own]
    rows += [("every module", hook.kind, _function_name(hook.function)) for hook in everywhere]
    rows += [
        (path or "the model itself", "hooked_forward", _function_name(forward)) for path, forward in exchanged.items()
    ]
    found = {
        "hooks": {_hook_key(hook): (hook.number, hook.function) for hook in own},
        "kinds": {_hook_key(hook): hook.kind for hook in own},
        "everywhere": {_hook_key(hook): (hook.number, hook.function) for hook in everywhere},
        "hooked_forwards": exchanged,
    }
    return graph, {**found, "report": format_table(("module", "kind", "function"), rows) if rows else "no hooks"}


def _hooks_of_module(path: str, holder: object, kinds: Mapping[str, str]) -> Iterator[Hook]:
    for kind, attribute in kinds.items():
        for number, function in (getattr(holder, attribute, None) or {}).items():
            yield Hook(path, kind, number, function)


def _is_forward_exchanged(module: nn.Module) -> bool:
    return callable(vars(module).get("forward"))


def _hook_key(hook: Hook) -> str:
    return f"{hook.module}_{hook.number}"


def _function_name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
