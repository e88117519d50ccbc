"""What has no hardware for a reason that a person can do something about."""

from __future__ import annotations

from collections.abc import Mapping

_LOOPS = (
    "it reads its own last result, and streams have no way back; write its steps out, as a loop over time in forward, "
    "and each step is hardware of its own"
)
_RANDOM = "it draws random numbers, and hardware gives the same for the same; give them as an input of the model"
_PLACES = "it gives places of values, and no component compares all with all; take the values out of the hardware"
_LENGTHS = "how much it gives depends on the values, and a stream has one length; mask what is not wanted instead"
_AFTER = "each of its results needs the one before, and streams have no way back; do it outside of the hardware"
_SCATTERED = "where it puts values depends on values; torch.where with a comparison has hardware"

_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("lstm", "gru", "rnn", "rnn_tanh", "rnn_relu"), _LOOPS),
    **dict.fromkeys(
        ("randn_like", "rand_like", "randn", "rand", "bernoulli", "normal", "multinomial", "poisson", "randint"),
        _RANDOM,
    ),
    **dict.fromkeys(("argmax", "argmin", "sort", "argsort", "topk", "kthvalue", "median", "mode"), _PLACES),
    **dict.fromkeys(("nonzero", "masked_select", "unique", "_pack_padded_sequence", "_pad_packed_sequence"), _LENGTHS),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), _AFTER),
    **dict.fromkeys(("scatter", "scatter_add", "index_add", "index_put", "index_copy", "scatter_reduce"), _SCATTERED),
}


def missing(operator: str) -> str:
    """What is told of an operator that has no hardware."""
    reason = _REASONS.get(operator)
    return f"there is no component for {operator}" + (
        "; docs/hardware.md lists what there is" if reason is None else f": {reason}"
    )
