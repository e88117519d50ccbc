"""Why some model types of transformers are not traced, as found by reading their code."""

from __future__ import annotations

from collections.abc import Mapping

_SESSION = "takes a session of a video, an object that only its processor makes and that a forward goes on with"
_PART = "a part of a detector: takes what other parts of it compute, in sizes that have to agree"
_SLOW = "its clips of 64 frames take longer than a type is given"
_AT_ODDS = "parts of its default configuration do not fit each other: eager PyTorch fails too"

#: Type -> why; for those whose error does not say it.
EXPLAINED: Mapping[str, str] = {
    **dict.fromkeys(("edgetam_video", "sam2_video", "sam3_tracker_video", "sam3_video"), _SESSION),
    **dict.fromkeys(("sam3_detr_decoder", "sam3_lite_text_detr_decoder"), _PART),
    "vjepa2": _SLOW,
    **dict.fromkeys(("deepseek_ocr2_vision", "pp_ocrv6_small_det", "uvdoc"), _AT_ODDS),
    "blt_local_encoder": "takes hashes of bytes and where patches begin, which the whole model computes",
    "esmfold2": "takes a protein as tokens, bonds and a dictionary of atoms, which only its processor makes",
    "inkling2_vision": "takes patches with an index that only its processor makes",
    "inkling_vision": "takes clips with their channels last, which no parameter and no configuration says",
    "longcat_flash": "its path depends on values, and it is too big to be run for real even when it is narrow",
    "pp_doclayout_v2": "its defaults leave open which classes there are, and its path depends on values",
    "qwen2_5_omni_dit": "takes five inputs whose lengths and widths have to agree, of which its configuration says one",
    "moshi_depth": "takes codes and the last state of another model, from vocabularies that only its parts know",
    "pi0": "goes on from a cache that another model has filled",
    "tvp": "views one embedding a clip, though there is one for all: eager PyTorch fails for more than one clip",
    "voxtral_realtime": "takes text and sound whose lengths have to agree, and says so nowhere",
}
