"""Texts about a model's pipeline of passes, for the lens and the card; only measured figures are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mase_server.lsp.wording import format_count, format_ratio, in_bytes
from mase_server.protocol.snapshot import effect_texts, share_text

#: A map as `snapshot.TRANSFORM_KEYS` has it, and "texts": its steps as texts.
Transform = Mapping[str, Any]

MEASURING = "measuring…"
#: Maximum number of steps in a lens.
MOST_STEPS = 3
_LONGEST = 60


def lens_texts(transform: Transform) -> tuple[str, ...]:
    """The pipeline in a lens, from long to short.

    `prune → quantize · 50 % pruned · 8 bits · SQNR 38.2 dB (random weights) · 0.4 % saturated · 4.0x smaller`, then
    without the saturated share, the size, the names of the passes and the bits. The shortest form tells what the passes
    did to the parameters, `LoRA rank 8 · 1.2 % trainable`, or else their number.
    """
    summary, steps = transform["summary"], steps_text(transform)
    [error, *saturated] = _error_parts(transform) or [""]
    problem, ratio, bits = _problem_text(transform), "".join(_size_ratio_parts(summary)), "".join(_bits_parts(summary))
    failed = problem and "⚠ failed"
    count = format_count(len(transform["steps"]), "pass", "passes")
    done = effect_texts(transform["summary"])
    effects = [text.removeprefix("LoRA ") for text in done]
    brief = error.removeprefix("SQNR ")
    narrow = [(count, *effects, bits, error, failed), (*done, error, failed), (*done, brief, failed), (*done, failed)]
    if not effects:
        narrow = [(steps, error, failed), (steps, brief, failed), (count, error, failed), (count, failed)]
    forms = (
        (steps, *effects, bits, error, *saturated, ratio, problem), (steps, *effects, bits, error, ratio, problem),
        (steps, *effects, bits, error, failed), *narrow,
    )  # fmt: skip
    return tuple(dict.fromkeys(" · ".join(part for part in parts if part) for parts in forms))


def steps_text(transform: Transform) -> str:
    """`quantize → prune → …`."""
    names = [step["pass"] for step in transform["steps"]]
    return " → ".join([*names[:MOST_STEPS], *(["…"] if len(names) > MOST_STEPS else [])])


def sqnr_text(value: float | str) -> str:
    """`38.2 dB`; `exact` if nothing differs."""
    return "exact" if value == "inf" else f"{value:.1f} dB"


def sqnr_of_weights(value: float | str, weights: str) -> str:
    """`SQNR 38.2 dB (random weights)`, `exact (weights of net.pt)`: a figure always names its weights."""
    told = weights_text(weights)
    return "SQNR " * (value != "inf") + sqnr_text(value) + (f" ({told})" if told else "")


def weights_text(weights: str) -> str:
    """The remark beside each SQNR, from the source of the weights in words: `random weights`, `weights of net.pt`."""
    if "; " in weights:
        return "partly random weights"
    return weights.partition(" (seed")[0].partition(":")[0]


def is_measured(transform: Transform) -> bool:
    """Were its errors measured?"""
    return bool(transform["inputs"])


def provenance_text(transform: Transform) -> str:
    """The inputs and the weights on which the errors were measured; "" until they are."""
    return "; ".join(part for part in (transform["inputs"], transform["weights"]) if part)


def bits_text(bits: float) -> str:
    """`8 bits`, `4.25 bits`."""
    return f"{bits:.3g} bits" if bits < 100 else f"{bits:.0f} bits"


def format_change(pair: Sequence[float] | None, text: Any) -> str:
    """`32 bits → 8 bits` for [before, after]; one value if nothing changed."""
    if not pair or None in pair:
        return ""
    before, after = map(text, pair)
    return str(before) if before == after else f"{before} → {after}"


def summary_rows(transform: Transform) -> Iterator[tuple[str, str]]:
    """The changes of the whole model as rows of a card, without its steps."""
    summary = transform["summary"]
    sizes = format_change(summary.get("parameter_bytes"), in_bytes)
    times = "".join(f" · {part}" for part in _size_ratio_parts(summary))
    yield "size", f"{sizes}{times}"
    yield "parameters", format_change(summary.get("parameters"), lambda number: f"{number:,}")
    if ranks := summary.get("ranks"):
        yield "LoRA", f"rank {', '.join(map(str, ranks))}"
    if trainable := summary.get("trainable"):
        count = summary["parameters"][-1]
        yield "trainable parameters", f"{format_change(trainable, lambda number: f'{number:,}')} of {count:,}"
    if summary.get("sparsity"):
        yield "pruned", f"{share_text(summary['sparsity'])} of the weights"
    yield "bits of weights", format_change(summary.get("weight_bits"), bits_text)
    yield "bits of values", format_change(summary.get("data_bits"), bits_text)
    yield "nodes", format_change(summary.get("nodes"), lambda number: format_count(number, "node"))
    yield (
        "error of the output",
        error_text(transform, summary.get("sqnr"), summary.get("max_error"), summary.get("saturated")),
    )


def error_text(
    transform: Transform, sqnr: float | str | None, max_error: float | None, saturated: float | None = None
) -> str:
    """`SQNR 38.2 dB (random weights) · max error 0.0123 · 0.4 % saturated`; "measuring…"; "" if it was not measured."""
    parts = [] if sqnr is None else [sqnr_of_weights(sqnr, transform["weights"])]
    if max_error is not None:
        parts.append(f"max error {max_error:.3g}")
    if saturated is not None:
        parts.append(f"{share_text(saturated)} saturated")
    return " · ".join(parts) or ("" if transform["complete"] else MEASURING)


def _bits_parts(summary: Mapping[str, Any]) -> Iterator[str]:
    pairs = {name: summary.get(f"{name}_bits") for name in ("weight", "data")}
    changed = {name: pair[1] for name, pair in pairs.items() if pair and None not in pair and pair[0] != pair[1]}
    told = dict.fromkeys(map(bits_text, changed.values()))
    if len(told) == 1:
        yield next(iter(told))
    elif changed:
        yield f"weights {bits_text(changed['weight'])}, values {bits_text(changed['data'])}"


def _error_parts(transform: Transform) -> list[str]:
    """The SQNR and the share of saturated values."""
    sqnr, saturated = transform["summary"].get("sqnr"), transform["summary"].get("saturated")
    if sqnr is None:
        return [] if transform["complete"] else [MEASURING]
    return [
        sqnr_of_weights(sqnr, transform["weights"]),
        *([] if saturated is None else [f"{share_text(saturated)} saturated"]),
    ]


def _size_ratio_parts(summary: Mapping[str, Any]) -> Iterator[str]:
    pair = summary.get("parameter_bytes")
    if pair and None not in pair and all(pair):
        yield format_ratio(*pair)


def _problem_text(transform: Transform) -> str:
    text = " ".join(str(transform["problem"] or "").split())
    return f"⚠ {text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}" if text else ""
