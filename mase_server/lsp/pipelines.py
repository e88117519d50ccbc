"""What a model's pipeline of passes says of itself, in the lens and in the card: nothing that was not measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mase_server.lsp.figures import counted, in_bytes, ratio

#: A map as `snapshot.TRANSFORM_KEYS` has it, and "texts": its steps as texts.
Transform = Mapping[str, Any]

MEASURING = "measuring…"
#: Most steps that a lens names.
MOST_STEPS = 3
_LONGEST = 60


def lens_text(transform: Transform) -> str:
    """`quantize → prune · 8 bits · SQNR 38.2 dB · 0.4 % saturated · 4.0x smaller`."""
    summary = transform["summary"]
    parts = (steps_text(transform), *_bits(summary), *_error(transform), *_size(summary), *_trouble(transform))
    return " · ".join(part for part in parts if part)


def steps_text(transform: Transform) -> str:
    """`quantize → prune → …`."""
    names = [step["pass"] for step in transform["steps"]]
    return " → ".join([*names[:MOST_STEPS], *(["…"] if len(names) > MOST_STEPS else [])])


def sqnr_text(value: float | str) -> str:
    """`38.2 dB`; `exact` where nothing differs."""
    return "exact" if value == "inf" else f"{value:.1f} dB"


def share_text(share: float) -> str:
    """A share from 0 to 1 as `0.4 %`; what is above zero is never told as none."""
    percent = 100 * share
    return "0 %" if not share else "< 0.1 %" if percent < 0.1 else f"{percent:.2g} %" if percent < 99.5 else "100 %"


def random_weights(weights: str) -> str:
    """What stands beside figures where the weights are no trained ones; "" where they are. weights: in words."""
    return "random weights" if "random" in weights else ""


def measured(transform: Transform) -> bool:
    """Were its errors measured?"""
    return bool(transform["inputs"])


def provenance(transform: Transform) -> str:
    """On which inputs and whose weights the errors were measured; empty until they are."""
    return "; ".join(part for part in (transform["inputs"], transform["weights"]) if part)


def bits_text(bits: float) -> str:
    """`8 bits`, `4.25 bits`."""
    return f"{bits:.3g} bits" if bits < 100 else f"{bits:.0f} bits"


def change(pair: Sequence[float] | None, text: Any) -> str:
    """`32 bits → 8 bits` of [before, after]; once where nothing changed."""
    if not pair or None in pair:
        return ""
    before, after = map(text, pair)
    return str(before) if before == after else f"{before} → {after}"


def summary_rows(transform: Transform) -> Iterator[tuple[str, str]]:
    """What the whole model became, as rows of a card; its steps are not among them."""
    summary = transform["summary"]
    sizes = change(summary.get("parameter_bytes"), in_bytes)
    times = "".join(f" · {part}" for part in _size(summary))
    yield "size", f"{sizes}{times}"
    yield "parameters", change(summary.get("parameters"), lambda number: f"{number:,}")
    yield "bits of weights", change(summary.get("weight_bits"), bits_text)
    yield "bits of values", change(summary.get("data_bits"), bits_text)
    yield "nodes", change(summary.get("nodes"), lambda number: counted(number, "node"))
    yield (
        "error of the output",
        error_text(transform, summary.get("sqnr"), summary.get("max_error"), summary.get("saturated")),
    )


def error_text(
    transform: Transform, sqnr: float | str | None, max_error: float | None, saturated: float | None = None
) -> str:
    """`SQNR 38.2 dB · max error 0.0123 · 0.4 % saturated`; that it is being measured; nothing where it was not."""
    parts = [] if sqnr is None else [f"SQNR {sqnr_text(sqnr)}"]
    if max_error is not None:
        parts.append(f"max error {max_error:.3g}")
    if saturated is not None:
        parts.append(f"{share_text(saturated)} saturated")
    return " · ".join(parts) or ("" if transform["complete"] else MEASURING)


def _bits(summary: Mapping[str, Any]) -> Iterator[str]:
    pairs = {name: summary.get(f"{name}_bits") for name in ("weight", "data")}
    changed = {name: pair[1] for name, pair in pairs.items() if pair and None not in pair and pair[0] != pair[1]}
    told = dict.fromkeys(map(bits_text, changed.values()))
    if len(told) == 1:
        yield next(iter(told))
    elif changed:
        yield f"weights {bits_text(changed['weight'])}, values {bits_text(changed['data'])}"


def _error(transform: Transform) -> Iterator[str]:
    sqnr = transform["summary"].get("sqnr")
    if sqnr is not None:
        yield "SQNR " * (sqnr != "inf") + sqnr_text(sqnr)
        if (saturated := transform["summary"].get("saturated")) is not None:
            yield f"{share_text(saturated)} saturated"
        yield random_weights(transform["weights"])
    elif not transform["complete"]:
        yield MEASURING


def _size(summary: Mapping[str, Any]) -> Iterator[str]:
    pair = summary.get("parameter_bytes")
    if pair and None not in pair and all(pair):
        yield ratio(*pair)


def _trouble(transform: Transform) -> Iterator[str]:
    if transform["problem"]:
        text = " ".join(str(transform["problem"]).split())
        yield f"⚠ {text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}"
