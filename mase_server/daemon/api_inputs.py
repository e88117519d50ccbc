"""API functions on named sets of inputs: which one is used, what others would give, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mase_server import answers
from mase_server.daemon.api_files import inputs, opener, tracked_of
from mase_server.daemon.api_graphs import shown
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.input_fields import Said, compose, unreadable
from mase_server.daemon.input_sets import difference, told
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.daemon.trials import Trial
from mase_server.snapshot import Problem
from mase_server.worker.request import TraceOptions, owner_of

#: The figures where nothing could be traced.
_NOTHING = {
    **dict.fromkeys(("inputs", "outputs", "parameters", "parameter_bytes", "flops", "bytes", "nodes", "form")),
    **dict.fromkeys(("found", "inputs_from", "arguments_from"), ""),
}


async def pick_inputs(api: Api, params: Params) -> list[dict[str, Any]]:
    """Trace a model with a named set of inputs from now on: `mase/inputs` once it is traced.

    set: one of its "sets", as in `# mase[small]: x: f32[1, 3]`; "" for what comments without a name say.  Without
    `set` the pick is forgotten.  It is kept for this user, also when the server ends.
    """
    snapshot, index = shown(api, params)
    model = snapshot.payload["models"][index]
    name = params.get("set")
    if name is not None:
        _known_set(snapshot.titles[index], name, model["sets"])
    api.daemon.opened(snapshot.path, by=opener(api, snapshot.path))
    api.daemon.pick_inputs(snapshot.path, owner_of(model["name"]), name)
    await api.daemon.wait(snapshot.path)
    return await inputs(api, {"path": snapshot.path})


async def try_inputs(api: Api, params: Params) -> dict[str, Any]:
    """What would come of a set of inputs, traced beside what is shown: "form", "problems", and the figures of `told`.

    set: "" for the comments without a name, or a name that there may not be yet; without it, the one that is used.
    inputs, arguments: texts by name, which the set would say instead, as in `{"x": "f32[1, 3]"}`; an empty one says
    nothing.  Without both: the set as it is.  comment: as what it would be written.  A problem has a "field",
    e.g. "inputs.x", or "".  Over a connection arguments are plain values: no code is taken there.
    """
    snapshot, index = shown(api, params)
    model = snapshot.payload["models"][index]
    name = params.get("set", model["set"])
    said = None
    if "inputs" in params or "arguments" in params:
        wrong = _wrong(api, params)
        said = compose(owner_of(model["name"]), params.get("arguments"), params.get("inputs", {}))
        if wrong:
            return {**_NOTHING, "set": name, "comment": _comment(name, said), "problems": wrong}
    trial = await _trial(api, snapshot, model, name, said)
    problems = [_problem(each, said) for each in trial.problems if each.severity in ("error", "warning")]
    unread = any(each.code == "bad-comment" and each.line == 0 for each in trial.problems)
    figures = None if unread else _figures(trial.snapshot, snapshot.titles[index], model["name"])
    return {**(figures or _NOTHING), "set": name, "comment": _comment(name, said), "problems": problems}


async def compare_inputs(api: Api, params: Params) -> dict[str, Any]:
    """How a model differs with two sets of inputs: {"path", "model", "before", "after", "rows", "problems"}.

    sets: two names, "" for what comments without a name say.  before, after: figures as `mase/tryInputs` has them, None
    where the model cannot be traced so.  rows: {"line", "column", "name", "kind", "function", "before", "after",
    "differs"} for each place with tensors; before and after: its values, None where it was not reached.
    """
    snapshot, index = shown(api, params)
    model = snapshot.payload["models"][index]
    names = params["sets"]
    if len(names) != 2:
        raise ApiError("invalid-params", f"sets has {len(names)} names; it takes two, e.g. ['small', 'large']")
    for name in names:
        _known_set(snapshot.titles[index], name, model["sets"])
    trials = [await _trial(api, snapshot, model, name, None) for name in names]
    title = snapshot.titles[index]
    figures = [_figures(each.snapshot, title, model["name"]) for each in trials]
    sides = [each and {**each, "set": name} for each, name in zip(figures, names, strict=True)]
    problems = [_problem(each, None) for one in trials for each in one.problems if each.severity == "error"]
    head = {"path": snapshot.path, "model": title, "before": sides[0], "after": sides[1]}
    return {**head, "rows": difference(snapshot.path, *(each.snapshot for each in trials)), "problems": problems}


def _figures(snapshot: GraphSnapshot | None, *names: str) -> dict[str, Any] | None:
    """What a trace says of the model with the first of these titles that it has."""
    title = next((name for name in names if snapshot is not None and name in snapshot.titles), None)
    return None if snapshot is None or title is None else told(snapshot, title)


def _known_set(title: str, name: str, known: list[str]) -> None:
    if name and name not in known:
        listed = ", ".join(known) or f"none: write one, e.g. `# mase[{name}]: ...` above its class"
        raise ApiError("unknown-inputs", f"{title} has no inputs named {name!r}; it has {listed}", {"sets": known})


async def _trial(api: Api, snapshot: GraphSnapshot, model: Mapping[str, Any], name: str, said: Said | None) -> Trial:
    tracked = tracked_of(api, snapshot.path)
    owner = owner_of(model["name"])
    wanted = {"model": owner, "set": name, "text": None if said is None else said.text}
    before = tracked.options or TraceOptions()
    options = replace(before, inputs=(), sets={**before.sets, owner: name}, trial=wanted)
    return await api.daemon.tried(snapshot.path, options)


def _wrong(api: Api, params: Params) -> list[dict[str, Any]]:
    """What can be said against texts before anything runs."""
    for key in ("inputs", "arguments"):
        for name, text in params.get(key, {}).items():
            if not (isinstance(text, str) and name.isidentifier()):
                raise ApiError("invalid-params", f"{key}.{name} is {text!r}, expected a text, as in 'f32[1, 3]'")
    found = unreadable(params.get("arguments", {}), literal=api.session is not None)
    return [{"severity": "error", "field": field, "message": message} for field, message in found]


def _problem(problem: Problem, said: Said | None) -> dict[str, Any]:
    at_field = said is not None and problem.line == 0
    field = said.field_at(problem.column) if said is not None and at_field else ""
    message = problem.message.removeprefix("This comment could not be read: ")
    return {"severity": problem.severity, "field": field, "message": message}


def _comment(name: str, said: Said | None) -> str:
    if said is None or not said.text:
        return ""
    return f"mase[{name}]: {said.text}" if name else f"mase: {said.text}"


INPUTS = (
    ApiMethod(
        "mase/pickInputs", {**MODEL, "set?": str}, pick_inputs, list[answers.Inputs], answer="inputs", executes=True
    ),
    ApiMethod(
        "mase/tryInputs",
        {**MODEL, "set?": str, "inputs?": dict, "arguments?": dict},
        try_inputs,
        answers.InputTrial,
        executes=True,
    ),
    ApiMethod(
        "mase/compareInputs", {**MODEL, "sets": list[str]}, compare_inputs, answers.InputComparison, executes=True
    ),
)
