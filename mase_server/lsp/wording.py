"""Texts of hints and lenses, for editors and the command line alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mase_server.dtypes import LONG
from mase_server.lsp.labels import LIMIT, has_tensor, label_values
from mase_server.protocol.records import MOST_SEARCHED

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView
    from mase_server.protocol.answers import CostChange, DeviceCosts, GraphBreak, Recompile
    from mase_server.protocol.records import UnrunCode


#: Maximum number of models in a lens.
MOST_ROOTS = 4
#: Maximum characters of the guesses that a lens lists, and of the origin of the inputs.
_GUESSES, _ORIGIN = 24, 90
#: From this number of parameters on, a lens rounds it.
_EXACT = 10_000
#: The texts of classes and of other objects.
_CLASS = re.compile(r"<class '(?:[^']*\.)?(\w+)'>")
_OBJECT = re.compile(r"[A-Z]\w*\(.*\)|\{.*\}|<.*>", re.DOTALL)
_MODULE = re.compile(r"([A-Z]\w*)\(\n")
#: The mark of what was traced from an earlier text than the present one.
OLDER = "~"
NAMES = frozenset({"parameter", "binding", "return"})
EXPRESSIONS = NAMES | {"expression"}


class Seen(Protocol):
    """A value that was seen at a place."""

    @property
    def value(self) -> Any:
        """The value in the form of `snapshot`."""


class Placed(Protocol):
    """A place with values: a `SiteView`, or one that another process sent."""

    @property
    def kind(self) -> str:
        """One of `snapshot.KINDS`."""

    @property
    def values(self) -> Sequence[Seen]:
        """The values in the order in which they were seen."""


def hint_text(site: Placed, follows: str, limit: int = LIMIT, *, dtypes: bool = True, fresh: bool = True) -> str:
    """The hint after `site`; `follows` is the rest of its line. dtypes: with element types?  fresh: is it sure to be
    that of the present text?

    `: f32[B]` after a name, ` -> f32[B]` after a returned value; a name with an annotation keeps its only colon. A hint
    that may change once the text is saved is marked: `: ~f32[B]`.
    """
    text = ("" if fresh else OLDER) + label_values([value.value for value in site.values], limit, dtypes=dtypes)
    if site.kind == "return":
        return f" -> {text}"
    annotated = follows.lstrip().startswith(":") and not follows.lstrip().startswith(":=")
    return f" {text}" if annotated and site.kind != "expression" else f": {text}"


def describe_unrun(unrun: UnrunCode, decider: int | None, quote: Callable[[str], str]) -> str:
    """Why code did not run. decider: the line that decides, 0 for none; None if it has changed since the trace."""
    told = "Not run with these inputs"
    if decider is None or not any(unrun["reason"]):
        return told
    before, code, after = unrun["reason"]
    line = f" (line {decider})" if decider else ""
    return f"{told}: {before}{quote(code) if code else ''}{after}{line}"


def has_hint(site: Placed) -> bool:
    """Does this site get a hint, i.e. does it have a tensor?"""
    return any(has_tensor(value.value) for value in site.values)


def roots_text(roots: Sequence[str], picked: str | None) -> str:
    """`shown for: Small | Large · pick one`, for a class that several models use."""
    if picked in roots:
        return f"shown for: {picked}, of {len(roots)} models · pick another"
    return f"shown for: {' | '.join(roots[:MOST_ROOTS])}{' | …' if len(roots) > MOST_ROOTS else ''} · pick one"


def lens_text(model: ModelView, stale: bool) -> str:
    """`guessed B=2 · 61.7 k parameters · 847 kFLOPs · 15 nodes · found by search: x = image · traced in 12 ms`.

    It is for terminals, which have room and no hover.
    """
    first = ("stale" if stale else "", guess_text(model), size_text(model), format_count(model.nodes, "node"))
    return " · ".join(part for part in (*first, *_origin_parts(model), *model.fixed, duration_text(model)) if part)


def guess_text(model: ModelView) -> str:
    """`guessed B=2, T=16`: the sizes of inputs and the constructor's arguments that the user did not give; or ""."""
    sizes = model.symbols if model.inputs_from == "search" else {}
    given = model.arguments if model.arguments_from == "search" else {}
    told = [
        *(f"{name}={size}" for name, size in sizes.items()),
        *(f"{name}={argument_text(value)}" for name, value in given.items()),
    ]
    shown = [each for place, each in enumerate(told) if len(", ".join(told[: place + 1])) <= _GUESSES]
    more = [f"… {len(told) - len(shown)} more"] if len(told) > len(shown) else []
    if shown:
        return f"guessed {', '.join([*shown, *more])}"
    parts = {"arguments": bool(given), "inputs": model.inputs_from == "search"}
    return " and ".join(f"guessed {part}" for part, is_guessed in parts.items() if is_guessed)


def short_guess_text(model: ModelView) -> str:
    """The guesses, in the fewest words: `guessed inputs`, `guessed sizes` if it is arguments, too; or ""."""
    if model.arguments_from == "search" and model.arguments:
        return "guessed sizes"
    return "guessed inputs" if model.inputs_from == "search" else ""


def argument_text(value: Any) -> str:
    """An argument as code. A value that is not plain comes as its text: a class, an object, a configuration.

    A module, whose text has many lines, is `Encoder(…)`.
    """
    if isinstance(value, str) and (module := _MODULE.match(value)):
        return f"{module[1]}(…)"
    if isinstance(value, str) and (named := _CLASS.fullmatch(value)):
        return named[1]
    return value if isinstance(value, str) and _OBJECT.fullmatch(value) else repr(value)


def size_text(model: ModelView) -> str:
    """`124 M parameters · 5.62 GFLOPs`, and the mode unless it is evaluation."""
    big = format_with_prefix(model.parameters, "") if model.parameters >= _EXACT else ""
    parts = [f"{big} parameters" if big else format_count(model.parameters, "parameter")]
    until = "" if getattr(model, "complete", True) else " up to the error"
    parts += [] if model.flops is None else [format_with_prefix(model.flops, "FLOPs") + until]
    return " · ".join([*parts, *([] if model.mode == "eval" else [f"{model.mode} mode"])])


def duration_text(model: ModelView) -> str:
    """`traced in 12 ms`."""
    return f"traced in {1000 * model.seconds:.0f} ms"


def _origin_parts(model: ModelView) -> Iterator[str]:
    """How a model's inputs were found, in at most 90 characters."""
    found = model.found.partition("; its ")[0] if model.arguments_from == "search" else model.found
    yield found if len(found) <= _ORIGIN else found[: _ORIGIN - 1] + "…"


# Numbers in the form that people read.

_SI = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_with_prefix(number: float, unit: str) -> str:
    """A count with an SI prefix and three digits: `75.5 MFLOPs`, `12 FLOPs`."""
    return _scale_number(number, 1000, [f"{prefix}{unit}" for prefix in _SI])


def in_bytes(number: float) -> str:
    """A size in bytes with a binary prefix: `96.0 KiB`, `12 B`."""
    return _scale_number(number, 1024, _BINARY)


def format_seconds(seconds: float) -> str:
    """A time with three digits: `3.10 ms`, `0.45 µs`."""
    if seconds >= 1:
        return f"{_scale_number(seconds, 1000, ('s', 'ks', 'Ms'))}" if seconds >= 100 else f"{seconds:.3g} s"
    unit, factor = next((each for each in (("ms", 1e3), ("µs", 1e6)) if seconds * each[1] >= 1), ("ns", 1e9))
    return f"{seconds * factor:.3g} {unit}"


def describe_fit(told: DeviceCosts) -> str:
    """`fits 24.0 GB: B <= 18 at T = 1024; T <= 8192 at B = 4`, and what else would."""
    text = f"fits {format_with_prefix(told['memory'], 'B')}: {_describe_sizes(told, told['fits'])}"
    if told["fits_checkpointed"]:
        text += f"; checkpointing {told['checkpointed']} would allow {_describe_sizes(told, told['fits_checkpointed'])}"
    if told["longest"]:
        text += f"; {told['longest']:,} tokens in the cache of each sequence"
    return text


def _describe_sizes(told: DeviceCosts, fits: Mapping[str, int]) -> str:
    texts = []
    for name, most in fits.items():
        others = ", ".join(f"{other} = {size}" for other, size in told["sizes"].items() if other != name)
        at = f" at {others}" if others else ""
        more = " and more" if most >= MOST_SEARCHED else ""
        texts.append(f"{name} <= {most}{more}{at}" if most else f"not even {name} = 1{at}")
    return "; ".join(texts)


def describe_change(change: CostChange) -> str:
    """`+2.10 GB peak, +12 % time, at 3 lines`; `no change` if nothing differs."""
    before, after, lines = change["before"], change["after"], change["lines"]
    parts = []
    if size := after["peak_bytes"] - before["peak_bytes"]:
        parts.append(f"{'+' if size > 0 else '-'}{format_with_prefix(abs(size), 'B')} peak")
    share = 100 * (after["seconds"] - before["seconds"]) / (before["seconds"] or 1)
    if abs(share) >= 0.05:
        parts.append(f"{share:+.3g} % time")
    at = f"at {format_count(len(lines), 'line')}" if lines else ""
    return ", ".join([*parts, at] if at else parts) or "no change"


def _scale_number(number: float, step: int, units: Sequence[str]) -> str:
    scale = 0
    while number >= step and scale + 1 < len(units):
        number, scale = number / step, scale + 1
    digits = 0 if scale == 0 else max(0, 3 - len(str(int(number))))
    return f"{number:.{digits}f} {units[scale]}"


def format_count(number: int, noun: str, nouns: str = "") -> str:
    """`1 node`, `1,024 nodes`; `nouns` is the plural if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def format_share(part: float, whole: float) -> str:
    """A part of a whole in percent: `4.2 %`, `< 0.1 %`."""
    percent = 100 * part / whole if whole else 0.0
    return "< 0.1 %" if 0 < percent < 0.1 else f"{percent:.3g} %"


def format_ratio(before: float, after: float) -> str:
    """The change of a size: `4.0x smaller`, `1.2x larger`; "" if it hardly changed."""
    times = max(before, after) / min(before, after)
    word = "smaller" if after < before else "larger"
    return f"{times:.1f}x {word}" if times >= 1.05 else ""


def torch_name(dtype: str) -> str:
    """torch's name of a short element type: "float32" for "f32"."""
    return LONG.get(dtype, dtype)


def describe_recompile(found: Recompile) -> str:
    """The message about a recompilation: the function, and the size or value that it is compiled for."""
    return f"torch.compile compiles {found['function']} again at other sizes: {found['size']}"


def describe_break(found: GraphBreak) -> str:
    """The message about a graph break: that it is one, PyTorch's reason, and what avoids it."""
    return f"torch.compile breaks its graph here: {found['reason'].rstrip('.')}. {found['advice']}".strip()
