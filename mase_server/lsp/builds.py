"""The form of a build: what a person is asked before hardware is made, once for each model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pygls.exceptions import JsonRpcInvalidParams

from mase_server.arguments import Argument
from mase_server.lsp.asking import ask
from mase_server.lsp.calls import called
from mase_server.suggestions import suggest

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: The name of the form, where a pass has its own.
FORM = "emitVerilog"
_PACE = "Which pace for {model}?"
_EVERY = "One multiplier a layer"
_BUDGETS = (16, 64, 256, 1024)

ARGUMENTS = (
    Argument(
        "precision",
        "format",
        "the number format, where the passes have given the model none yet",
        choices=("fixed(8,auto)", "fixed(6,auto)", "fixed(12,auto)", "fixed(16,auto)", "fixed(8,4)"),
    ),
    Argument(
        "data",
        "text",
        "what chooses the places that `auto` leaves open: a file of tensors or a function; else the file's own inputs",
    ),
    Argument(
        "multipliers", "integer", "a budget, and as fast as it allows; without one, one for each layer", minimum=1
    ),
    Argument(
        "interval", "integer", "cycles from one sample to the next, with the fewest multipliers that do it", minimum=1
    ),
    Argument("max_multipliers", "integer", "above so many, nothing is emitted", minimum=1),
    Argument("max_memory_bits", "integer", "above so many bits of memory, nothing is emitted", minimum=1),
    Argument("scope", "text", "a module's path, or a node's name, that is built alone; empty for the whole model"),
)


def declared(known: Mapping[str, Any]) -> dict[str, Any]:
    """The form as a pass is declared (`Pass.to_wire`), and "given": what the person gave before.

    known: as `mase/verilog` tells it.
    """
    default, build = known.get("default") or {}, of(known)
    arguments = [{**each.to_wire(), "default": default.get(each.name) or None} for each in ARGUMENTS]
    given = {name: value for name, value in build.items() if value != default.get(name)}
    about = "SystemVerilog that opens beside the source and follows every save."
    words = {"name": FORM, "title": "Emit the Verilog of", "kind": "transform", "help": about, "source": ""}
    return {
        **words,
        "arguments": arguments,
        "others": None,
        "needs": [],
        "selects": False,
        "menu": False,
        "given": given,
    }


def of(known: Mapping[str, Any]) -> dict[str, Any]:
    """The build of a model as `mase/verilog` tells it: the remembered one, else what the settings say."""
    return dict(known.get("build") or known.get("default") or {})


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a build, given as such or as texts; None for what a form leaves empty.

    JsonRpcInvalidParams says what does not fit.
    """
    arguments = {each.name: each for each in ARGUMENTS}
    if unknown := sorted(set(given) - set(arguments)):
        raise JsonRpcInvalidParams(f"a build has no {', '.join(unknown)}{suggest(unknown[0], arguments, 'it has')}")
    try:
        values = {name: arguments[name].value(value) for name, value in given.items()}
    except ValueError as error:
        raise JsonRpcInvalidParams(str(error)) from error
    return {name: "" if arguments[name].kind == "text" and value is None else value for name, value in values.items()}


async def asked(ls: Server, target: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """A build by two questions, for clients without a form; None where the person gave up.

    The format is asked for only where the model's passes leave it open.
    """
    build = dict(values)
    pipeline = await called(ls, "mase/pipeline", target)
    if not any(step.startswith("quantize") for step in pipeline.get("steps", ())):
        formats = [build["precision"], *(each for each in ARGUMENTS[0].choices if each != build["precision"])]
        answer = await ask(ls, f"Which number format for the hardware of {target['model']}?", formats)
        if answer is None:
            return None
        build["precision"] = answer
    budgets = {_EVERY: None, **{f"At most {number} multipliers": number for number in _BUDGETS}}
    answer = await ask(ls, _PACE.format(model=target["model"]), list(budgets))
    return None if answer is None else {**build, "multipliers": budgets[answer], "interval": None}
