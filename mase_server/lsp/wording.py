"""What hints and lenses say, for editors and the command line alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mase_server.lsp.figures import counted, scaled
from mase_server.lsp.labels import LIMIT, has_tensor, label

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView

#: Most models that a lens names.
MOST_ROOTS = 4
NAMES = frozenset({"parameter", "binding", "return"})
EXPRESSIONS = NAMES | {"expression"}


class Seen(Protocol):
    """A value that was seen somewhere."""

    @property
    def value(self) -> Any:
        """As `snapshot` has values."""


class Placed(Protocol):
    """A place with values: a `SiteView`, or what another process tells of one."""

    @property
    def kind(self) -> str:
        """One of `snapshot.KINDS`."""

    @property
    def values(self) -> Sequence[Seen]:
        """In the order in which they were seen."""


def hint_text(site: Placed, follows: str, limit: int = LIMIT) -> str:
    """The hint after `site`, of which the line goes on with `follows`.

    `: f32[B]` after a name, ` -> f32[B]` after a returned value; a name with an annotation keeps its only colon.
    """
    text = label([value.value for value in site.values], limit)
    if site.kind == "return":
        return f" -> {text}"
    annotated = follows.lstrip().startswith(":") and not follows.lstrip().startswith(":=")
    return f" {text}" if annotated and site.kind != "expression" else f": {text}"


def shown(site: Placed) -> bool:
    """Does this site get a hint: is there a tensor to tell of?"""
    return any(has_tensor(value.value) for value in site.values)


def roots_text(roots: Sequence[str], picked: str | None) -> str:
    """`shown for: Small | Large · pick one`, of a class that several models use."""
    if picked in roots:
        return f"shown for: {picked}, of {len(roots)} models · pick another"
    return f"shown for: {' | '.join(roots[:MOST_ROOTS])}{' | …' if len(roots) > MOST_ROOTS else ''} · pick one"


def lens_text(model: ModelView, stale: bool) -> str:
    """`15 nodes · 61,706 parameters · 847 kFLOPs · eval · inputs from __main__ · 12 ms`."""
    return _joined([*_facts(model, stale), *_origins(model), *model.fixed, _duration(model)])


def facts_text(model: ModelView, stale: bool) -> str:
    """`15 nodes · 61,706 parameters · 847 kFLOPs · eval · 12 ms`: as short as it can be, with buttons behind it."""
    return _joined([*_facts(model, stale), _duration(model)])


def origins_text(model: ModelView) -> str:
    """`found by search: x = image [B, 3, H, W] · assumed H = 64`: may be long; "" where there is nothing to say."""
    return _joined([*_origins(model), *model.fixed])


def _joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


def _facts(model: ModelView, stale: bool) -> Iterator[str]:
    if stale:
        yield "stale"
    yield counted(model.nodes, "node")
    yield counted(model.parameters, "parameter")
    if model.flops is not None:
        yield scaled(model.flops, "FLOPs")
    yield model.mode


def _duration(model: ModelView) -> str:
    return f"{1000 * model.seconds:.0f} ms"


def _origins(model: ModelView) -> Iterator[str]:
    """How a model's inputs were found, and what nobody has said of it: its arguments, the sizes of its inputs."""
    found = model.found
    if model.arguments_from == "search":
        given = ", ".join(f"{name}={value!r}" for name, value in model.arguments.items())
        yield _short(f"arguments assumed: {given or 'none'}")
        found = found.partition("; its ")[0]
    yield _short(found)
    if model.inputs_from == "search" and model.symbols:
        yield "assumed " + ", ".join(f"{symbol} = {size}" for symbol, size in model.symbols.items())


def _short(text: str, limit: int = 90) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
