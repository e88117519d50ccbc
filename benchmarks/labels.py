"""Labels of model files: the class that a file is about, and the inputs that an expert would accept for it.

A line of a labels file is `REPOSITORY/PATH<TAB>MAIN<TAB>INPUTS`; the repositories lie beside the labels file. MAIN is a
class, several with "|" between them of which any counts, or "-" for none. INPUTS, which may be absent, are words like

    x[_,1|3,_,_]    image[_,3,_,_]/[3,_,_]    ids:int[_,_]    feats*[_,_,_,_]

A dimension is `_` for any, or the sizes that it may have; "/" separates shapes of which any will do, `:int` asks for
integers (without it they are refused), `:any` for either, and `*` speaks of every tensor in a list. What no label says,
CHECKS says by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from observed import File


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes that an input may have: of each shape, the sizes that each dimension may have, None for any.

    integer: must it have integers? None: either will do.
    """

    shapes: tuple[tuple[frozenset[int] | None, ...], ...]
    integer: bool | None = False

    @classmethod
    def parse(cls, text: str) -> Shapes:
        """From "[_,1|3]/[_]", with ":int" or ":any" before it."""
        shapes = re.findall(r"\[([^\]]*)\]", text)
        integer = None if text.startswith(":any") else text.startswith(":int")
        return cls(tuple(tuple(map(_sizes, filter(None, one.split(",")))) for one in shapes), integer)

    def accept(self, dtype: str, shape: tuple[Any, ...]) -> bool:
        """Is it one of these? A size that is unknown fits every dimension."""
        if self.integer is not None and self.integer != bool(re.match(r"[iu]\d", dtype)):
            return False
        return any(
            len(one) == len(shape)
            and all(sizes is None or size == "?" or size in sizes for sizes, size in zip(one, shape, strict=True))
            for one in self.shapes
        )


def _sizes(text: str) -> frozenset[int] | None:
    return None if text == "_" else frozenset(map(int, text.split("|")))


@dataclass(frozen=True, slots=True)
class Label:
    """One line of a labels file. inputs: what is asked of an input, by its name."""

    main: tuple[str, ...] = ()
    inputs: Mapping[str, Shapes] = field(default_factory=dict)

    @classmethod
    def parse(cls, main: str, inputs: str = "") -> Label:
        """From the second and third column."""
        words = re.findall(r"(\w+)\*?((?::int|:any)?\[\S*)", inputs)
        return cls(tuple(main.split("|")) if main != "-" else (), {name: Shapes.parse(text) for name, text in words})


def read_labels(path: Path) -> dict[File, Label]:
    """The labelled files, in their order, with their repositories as workspaces."""
    root, labels = path.resolve().parent, dict[File, Label]()
    for line in path.read_text(encoding="utf-8").splitlines():
        name, *columns = line.split("\t")
        if columns:
            labels[File(str(root / name.split("/")[0]), str(root / name))] = Label.parse(*columns)
    return labels


#: What an expert expects of an input by its name alone, where no label says more: the first that matches.
CHECKS = tuple(
    (title, re.compile(names), Shapes.parse(shapes))
    for title, names, shapes in (
        ("channels of an image", r"(\w+_)?(images?|imgs?|pixel_values|pictures?|rgb)\d?",
         "[_,1|3|4,_,_]/[1|3|4,_,_]/[_,_,_,1|3|4]/[_,1|3,_,_,_]/[_,_,1|3,_,_]"),
        ("channels of audio", r"(\w+_)?(wavs?|waveforms?|audios?|audio_data|speech|mix|mixture)\d?",
         "[_]/[_,_]/[_,1|2,_]"),
        ("tokens", r"(input|token|text|word|src|tgt|trg)_(ids|tokens|words|seq)|tokens|captions?|texts?",
         ":int[_]/[_,_]/[_,_,_]"),
        ("lengths", r"(\w+_)?(lengths?|lens?)", ":int[_]/[_,1]"),
        ("time of a diffusion", r"t|timesteps?|time_cond|sigmas?|noise_levels?", ":any[]/[_]/[_,1]"),
        ("rank of a mel spectrogram", r"mels?|mel_(spec|specs|spectrogram|targets?)", "[_,_]/[_,_,_]/[_,1|2,_,_]"),
        ("rank", r"\w+", ":any[]/[_]/[_,_]/[_,_,_]/[_,_,_,_]/[_,_,_,_,_]"),
    )
)  # fmt: skip
#: Arguments that are the size of a vocabulary, and the least that one has.
VOCABULARY = re.compile(
    r"(n_?|num_?|src_?|tgt_?|trg_?|text_?)*(vocab|vocb|words?|ntokens?|tokens)(_size|_num)?|num_embeddings"
)
SMALLEST_VOCABULARY = 20


def implausible(label: Label, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Iterator[str]:
    """What an expert would reject, a line each, of what was assumed.

    inputs: values as `observed` describes them.  sizes: the constructor's integers.
    """
    for name, value in inputs.items():
        title, shapes = _check(label, name)
        for dtype, shape in _tensors(value):
            if not shapes.accept(dtype, shape):
                yield f"{title}: {name} {dtype}{list(shape)}"
    for name, size in sizes.items():
        if VOCABULARY.fullmatch(name) and size < SMALLEST_VOCABULARY:
            yield f"vocabulary: {name}={size}"


def _check(label: Label, name: str) -> tuple[str, Shapes]:
    """What is asked of an input, with its title."""
    if name in label.inputs:
        return "label", label.inputs[name]
    return next((title, shapes) for title, names, shapes in CHECKS if names.fullmatch(name))


def _tensors(value: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every tensor in a described value."""
    match value:
        case ("tuple", items):
            for each in items:
                yield from _tensors(each)
        case ("dict", items):
            for _, each in items:
                yield from _tensors(each)
        case (str() as dtype, tuple() as shape) if dtype != "python":
            yield dtype, shape
