"""Commands around passes. Each takes one map: `path` or `uri`, `model` where a file has several, and what it says.

Any client can have them executed. What is needed and was not given is asked, where the client shows questions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from mase_server.arguments import Argument
from mase_server.daemon.pipelines import PassError
from mase_server.lsp import builds
from mase_server.lsp.asking import as_map, ask, choices
from mase_server.lsp.calls import call, called, model_of
from mase_server.lsp.graphs import Graph
from mase_server.lsp.pass_actions import offered

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

_UNDO, _REDO, _RESET, _COMPARE = "Undo", "Redo", "Remove all", "Compare with the original"
_REQUESTS = {_UNDO: "mase/undoPass", _REDO: "mase/redoPass", _RESET: "mase/resetPasses"}


async def apply_pass(ls: Server, given: Any = None) -> Any:
    """mase.applyPass {pass, arguments?, only?}: as `mase/applyPass`, and "info", what it did; None where given up."""
    target, asked = model_of(ls, given), as_map(given)
    declared = await _declared(ls, target, asked.get("pass"))
    arguments = {**(asked.get("arguments") or {}), **({"only": list(asked["only"])} if asked.get("only") else {})}
    for argument in map(Argument.from_wire, declared["arguments"]):
        if argument.required and arguments.get(argument.name) is None:
            answer = await ask(ls, f"{declared['title']}: {argument.help}", choices(argument))
            if answer is None:
                return None
            arguments[argument.name] = argument.value(answer)
    running = asyncio.ensure_future(
        call(ls, "mase/applyPass", **target, **{"pass": declared["name"]}, arguments=arguments)
    )
    ls.listener.pass_begins(
        target["path"], target["model"], f"{declared['title']} on {target['model']}", running.cancel
    )
    try:
        return {**await running, "info": _found(ls, **target)}
    except asyncio.CancelledError:
        return None
    finally:
        ls.listener.pass_ended(target["path"], target["model"])


def _found(ls: Server, path: str, model: str) -> str:
    """What the last pass on a model did or found, in words."""
    shown = ls.daemon.store.snapshot(path)
    if shown is None or model not in shown.titles:
        return ""
    transform = shown.transforms.get(shown.titles.index(model))
    steps = transform.told["steps"] if transform is not None else ()
    return str(steps[-1].get("info") or "") if steps else ""


async def choose_pass(ls: Server, given: Any = None) -> Any:
    """mase.choosePass {only?}: ask which pass, and apply it."""
    target, asked = model_of(ls, given), as_map(given)
    passes = offered(await _passes(ls, target["path"]), asked.get("only") or ())
    name = await ask(ls, f"Which pass for {asked.get('name') or target['model']}?", [each["name"] for each in passes])
    return None if name is None else await apply_pass(ls, {**asked, **target, "pass": name})


async def undo_pass(ls: Server, given: Any = None) -> Any:
    """mase.undoPass: take the last pass back."""
    return await called(ls, "mase/undoPass", model_of(ls, given))


async def redo_pass(ls: Server, given: Any = None) -> Any:
    """mase.redoPass: apply again what was taken back last."""
    return await called(ls, "mase/redoPass", model_of(ls, given))


async def reset_passes(ls: Server, given: Any = None) -> Any:
    """mase.resetPasses: take all passes back."""
    return await called(ls, "mase/resetPasses", model_of(ls, given))


async def pipeline(ls: Server, given: Any = None) -> Any:
    """mase.pipeline: show the passes of a model, and what can be done with them; what `mase/pipeline` answers then."""
    target = model_of(ls, given)
    known = await called(ls, "mase/pipeline", target)
    steps = "; ".join(f"{number}. {step}" for number, step in enumerate(known["steps"], 1)) or "none"
    possible = {_UNDO: known["steps"], _REDO: known["undone"], _RESET: known["steps"], _COMPARE: known["steps"]}
    choice = await ask(ls, f"Passes on {target['model']}: {steps}", [name for name, those in possible.items() if those])
    if choice == _COMPARE:
        await ls.graphs.show_difference(**target)
    elif choice is not None:
        return await called(ls, _REQUESTS[choice], target)
    return known


async def show_transformed(ls: Server, given: Any = None) -> Any:
    """mase.showTransformed {original?, show?}: {"uri", "text"} of the graph as Python, shown unless `show` is false."""
    graph = Graph(**model_of(ls, given), original=bool(as_map(given).get("original")))
    if as_map(given).get("show") is False:
        return {"uri": ls.graphs.uri(graph)}
    return await ls.contents.show(ls.graphs.uri(graph))


async def compare(ls: Server, given: Any = None) -> Any:
    """mase.compare {show?}: {"uri", "text"} of a diff, shown; or, if `show` is false, the URIs of both documents."""
    target = model_of(ls, given)
    if as_map(given).get("show") is False:
        graphs = {name: Graph(**target, original=name == "original") for name in ("original", "transformed")}
        return {**target, **{name: ls.graphs.uri(graph) for name, graph in graphs.items()}}
    return await ls.graphs.show_difference(**target)


async def write_pipeline(ls: Server, given: Any = None) -> Any:
    """mase.writePipeline: the setting `mase.pipelines` that holds what is applied to a file's models, and shown."""
    form = await call(ls, "mase/pipelineSettings", path=model_of(ls, given)["path"])
    if as_map(given).get("show") is not False:
        text = f'To keep these passes, put into the settings: "mase.pipelines": {json.dumps(form)}'
        ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, text))
    return form


async def check_argument(ls: Server, params: Any) -> dict[str, Any]:
    """mase/checkArgument {uri, pass, argument, value}: {"value": what it means}, or {"problem": text}."""
    asked = as_map(params)
    declared = await _declared(ls, model_of(ls, params), asked.get("pass"))
    known = {each["name"]: each for each in declared["arguments"]}
    argument = known.get(str(asked.get("argument")), declared["others"])
    if argument is None:
        raise JsonRpcInvalidParams(f"{declared['name']} has no argument {asked.get('argument')!r}")
    try:
        return {"value": Argument.from_wire(argument).value(asked.get("value"))}
    except ValueError as error:
        return {"problem": str(error)}


async def _passes(ls: Server, path: str) -> Sequence[Mapping[str, Any]]:
    """Every pass that there is: shapes are there a little before the passes, and whoever is quick waits for these."""
    known: Sequence[Mapping[str, Any]] = await call(ls, "mase/passes", path=path)
    if known:
        return known
    try:
        return await ls.daemon.passes.refresh(path)
    except PassError as error:
        raise JsonRpcInvalidParams(str(error)) from error


async def _declared(ls: Server, target: Mapping[str, str], name: Any) -> Mapping[str, Any]:
    if name == builds.FORM:
        return builds.declared({})
    passes = await _passes(ls, target["path"])
    found: Mapping[str, Any] | None = next((each for each in passes if name in (each["name"], each["mase"])), None)
    if found is None:
        told = ", ".join(each["name"] for each in passes) or "none yet: the file is being traced"
        raise JsonRpcInvalidParams(f"there is no pass {name!r}; there are {told}")
    return found
