"""What was assumed to show a model, as the `# mase:` comment that asks for just that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.inputs.generate import complete
from mase_server.inputs.library.combined import word_of
from mase_server.inputs.making.constructions import construction_of
from mase_server.inputs.making.expressions import NoTextError, call
from mase_server.inputs.spec import ConstantSpec, Inputs, MapSpec, SequenceSpec, Spec
from mase_server.inputs.text import SpecError, parse, write

#: Where arguments come from that nobody has to say again: the class or its file gives them.
_SAID = frozenset({"default", "instance", "comment", "main"})


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment without its `#`: `mase: Net(width=3); x: f32[B=2, 3]`.

    text: None where `why` says what has no text form.  inputs: the comment that says only these, None likewise.
    """

    text: str | None
    why: str = ""
    inputs: str | None = None


NOTHING_ASSUMED = Comment(None, "nothing was assumed")


def comment_for(
    model: nn.Module, arguments_from: str, inputs_from: str, spec: Inputs, names: Mapping[str, Any]
) -> Comment:
    """The comment above a class that reproduces a trace. names: those of the file, to write arguments with."""
    return _comment(
        lambda: "" if arguments_from in _SAID else _construction(model, names),
        lambda: "" if inputs_from == "comment" else inputs_text(spec),
    )


def comment_naming(
    owner: str,
    arguments: Mapping[str, Any],
    arguments_from: str,
    inputs_from: str,
    spec: Inputs,
    names: Mapping[str, Any],
) -> Comment:
    """The same for what is no class: `owner` is a variable, or a function and `arguments` those that it was given."""
    function, _, part = owner.partition("[")
    makes = arguments_from not in _SAID and arguments

    def construction() -> str:
        if makes and part:
            raise NoTextError(f"{function} makes several models")
        return call(names[function], arguments, names) if makes else ""

    def inputs() -> str:
        text = "" if inputs_from == "comment" else inputs_text(spec)
        return text if makes or not text else f"{owner}: {text}"

    return _comment(construction, inputs)


def _comment(construction: Callable[[], str], inputs: Callable[[], str]) -> Comment:
    """The text of a comment from the texts of its two parts, of which one may have none."""
    written = ""
    try:
        written = inputs()
        parts = [part for part in (construction(), written) if part]
    except NoTextError as error:
        return Comment(None, str(error), f"mase: {written}" if written else None)
    return Comment(f"mase: {'; '.join(parts)}", "", f"mase: {written}") if parts else NOTHING_ASSUMED


def _construction(model: nn.Module, names: Mapping[str, Any]) -> str:
    made = construction_of(model)
    if made is None:
        raise NoTextError(f"nobody saw how {type(model).__name__} was made")
    try:
        return call(type(model), made.bound(), names)
    except NoTextError as error:
        raise NoTextError(f"the constructor arguments: {error}") from None


def inputs_text(spec: Inputs) -> str:
    """Inputs as text that reads back as the same inputs; NoTextError names the first that has none."""
    for name, entry in spec.entries.items():
        if (trouble := next(without_text(entry), None)) is not None:
            raise NoTextError(f"the input {name}: {trouble}")
    text = write(spec)
    try:
        same = complete(parse(text)) == complete(spec)
    except SpecError:
        same = False
    if not same:
        raise NoTextError("the inputs do not read back the same")
    return text


def without_text(spec: Spec) -> Iterator[str]:
    """What of an input has no text form."""
    match spec:
        case SequenceSpec(items, _, build):
            if build is not None and not word_of(build):
                yield "a tuple of a type of its own has no text form"
            for item in items:
                yield from without_text(item)
        case MapSpec(pairs, build):
            if build is not None:
                yield "an object of a class of its own has no text form"
            for _, item in pairs:
                yield from without_text(item)
        case ConstantSpec(value):
            if not isinstance(value, bool | int | float | str | None):
                yield f"a {type(value).__name__} has no text form"
