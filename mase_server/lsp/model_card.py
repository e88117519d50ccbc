"""The hover card of a model, at its class: what it is called with, and what of that nobody has said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mase_server.lsp.assumptions import ASSUMED
from mase_server.lsp.card import Row, table
from mase_server.lsp.figures import counted, in_bytes, scaled
from mase_server.lsp.hardware_texts import model_rows
from mase_server.lsp.labels import dimensions, label
from mase_server.lsp.pipelines import Transform, provenance, summary_rows
from mase_server.visible import escape_code, escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView

MOST_GUARDS = 8
#: Where inputs or arguments come from -> how that is said.
SOURCES = {
    "comment": "from a `# mase:` comment",
    "option": "from an option",
    "settings": "from the settings",
    "main": "as the file's own run gives them",
    "instance": "as a variable of the file holds it",
    "usage": "**assumed**: as it is made elsewhere",
    "search": "**assumed**: found by search",
    "default": "the defaults",
}


def model_card(models: Sequence[ModelView], stale: bool, links: Sequence[str] = ()) -> str:
    """The cards of the models of one class as Markdown. links: for each model a line that leads elsewhere."""
    parts = ["⚠ *stale: the file has changed, and its present text could not be traced*"] if stale else []
    for number, model in enumerate(models):
        parts += [f"**{escape_code(model.title)}** · model", *links[number : number + 1]]
        parts += [table(("", ""), list(_rows(model))), f"*{escape_markdown(model.found)}*"]
        parts += [*_next_step(model), *_pipeline(model), *_hardware(model)]
    return "\n\n".join(part for part in parts if part)


def _rows(model: ModelView) -> Iterator[Row]:
    for name, value in model.inputs.items():
        yield (
            f"input {escape_code(name)}",
            f"{escape_code(_input(value))} · {SOURCES.get(model.inputs_from, model.inputs_from)}",
        )
    given = ", ".join(f"{name}={value!r}" for name, value in model.arguments.items())
    if given or model.arguments_from in ASSUMED:
        source = SOURCES.get(model.arguments_from, model.arguments_from)
        yield "constructor", f"{escape_code(f'{model.name}({given})')} · {source}"
    yield "parameters", f"{model.parameters:,} · {in_bytes(model.parameter_bytes)}"
    if model.flops is not None:
        yield "cost", f"{scaled(model.flops, 'FLOPs')} · {counted(model.nodes, 'node')}"
    yield "mode", " · ".join((model.mode, *map(escape_markdown, model.fixed)))
    for guard in model.guards[:MOST_GUARDS]:
        yield "traced with", escape_markdown(guard)
    if (more := len(model.guards) - MOST_GUARDS) > 0:
        yield "traced with", f"{more} more: see `MaseGraph.guards`"


def _input(value: Any) -> str:
    """A value with its sizes: `f32[B, 3, 224, 224] = [2, 3, 224, 224]`."""
    text = label([value], 200)
    if isinstance(value, list) and dimensions(value) != list(map(str, value[1])):
        text += f" = {list(value[1])}"
    return text


def _next_step(model: ModelView) -> Iterator[str]:
    if {model.inputs_from, model.arguments_from} & ASSUMED:
        text, why = model.comment.get("text"), model.comment.get("why")
        if text:
            yield f"To keep or change that, take the quick fix, or write above the class {escape_code(f'# {text}')}"
        elif why:
            yield f"What was assumed cannot be written as a comment: {escape_markdown(why)}."


def _pipeline(model: ModelView) -> Iterator[str]:
    """The passes that were applied to it, and what came of them."""
    transform = model.transform
    if transform is None:
        return
    yield "**Passes**, applied again at every save:"
    yield "\n".join(_step(number, transform) for number in range(len(transform["steps"])))
    if transform["problem"]:
        yield f"⚠ {escape_markdown(transform['problem'])}"
    yield table(("", ""), [row for row in summary_rows(transform) if row[1]])
    if source := provenance(transform):
        yield f"*Measured against the original: {escape_markdown(source)}*"


def _hardware(model: ModelView) -> Iterator[str]:
    """What was emitted of it."""
    if model.hardware is None:
        return
    told = model.hardware.told
    yield "**Verilog**, made again at every save:" if not model.hardware.stale else "**Verilog**, of an older text:"
    yield table(("", ""), list(model_rows(model.hardware)))
    if told["refusal"]:
        yield f"⚠ {escape_markdown(told['refusal'])}"


def _step(number: int, transform: Transform) -> str:
    """`1. quantize(default='fixed(8,4)')`, and what it did in words; whether it could not be applied."""
    failed = transform["failed"]
    state = "" if failed is None or number < failed else " · **failed**" if number == failed else " · not applied"
    info = transform["steps"][number].get("info")
    told = f": {escape_markdown(str(info))}" if info and not state else ""
    return f"{number + 1}. {escape_code(transform['texts'][number])}{state}{told}"
