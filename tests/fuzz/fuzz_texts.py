"""Model files whose shapes follow from a rule that is worked by hand here: nothing of the project is asked.

A chain of layers over `f32[B, 8]`: a linear layer gives its own width, `cat` twice the width, all else the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

WIDTH = 8
#: What may be wrong with a file -> the end state of its trace, and the code of the one problem, "" for none.
FAULTS = {
    "": ("ready", ""),
    "mismatch": ("failed", "shape-mismatch"),
    "raises": ("failed", "forward-error"),
    "syntax": ("failed", "syntax-error"),
    "exits": ("crashed", "exited"),
    "empty": ("no_model", ""),
}
#: Faults of which no value is known, so that the last good text stays in sight.
SHOWS_NOTHING = {"syntax", "exits"}
_STATEMENTS = {"relu": "{before}.relu()", "alias": "{before}", "cat": "torch.cat([{before}, {before}], dim=1)"}
KINDS = ("linear", *_STATEMENTS)
#: What stands before a statement on its line: columns behind it differ between UTF-8, UTF-16 and code points.
PREFIXES = ("", 's = "é"; ', 's = "😀𐍈"; ')

Hints = dict[tuple[int, int], str]


@dataclass(frozen=True)
class Layer:
    """One line of `forward`, which makes `h{ident}`.  width: of a linear layer.  prefix: index into PREFIXES."""

    ident: int
    kind: str
    width: int = WIDTH
    prefix: int = 0


@dataclass(frozen=True)
class Spec:
    """One model file.  fault: a key of FAULTS, at the layer with the number `at`.  comments: lines above the class."""

    layers: tuple[Layer, ...]
    comments: int = 0
    fault: str = ""
    at: int = 0

    def changed(self, how: int, at: int, kind: int, width: int) -> Spec:
        """Another file: a layer more, one less, another width, another comment."""
        at = at % len(self.layers)
        fresh = Layer(max(each.ident for each in self.layers) + 1, KINDS[kind % len(KINDS)], 1 + width % 30, width % 3)
        match how % 4:
            case 0 if len(self.layers) < 8:
                return replace(self, layers=(*self.layers[: at + 1], fresh, *self.layers[at + 1 :]))
            case 1 if len(self.layers) > 1 and at > 0:
                return replace(self, layers=(*self.layers[:at], *self.layers[at + 1 :]))
            case 2:
                return replace(self, comments=(self.comments + 1) % 4)
        other = replace(self.layers[at], width=fresh.width, prefix=fresh.prefix)
        return replace(self, layers=(*self.layers[:at], other, *self.layers[at + 1 :]))


FIRST = Spec((Layer(0, "linear", 12),))


@dataclass(frozen=True)
class Written:
    """A file as text, and what must be shown at it.

    hints: (line, UTF-16 column) -> label.  fault: as `Spec` has it; None for a text of which nobody knows what it does.
    place: the line of the one problem, from 0; -1 for none.
    """

    text: str
    hints: Hints
    fault: str | None
    place: int = -1

    @property
    def shows(self) -> bool:
        """Does a trace of this text give hints of its own?"""
        return self.fault is not None and self.fault not in SHOWS_NOTHING


def utf16(text: str) -> int:
    """Its length in UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


def unknown(text: str) -> Written:
    """A text that somebody typed at random."""
    return Written(text, {}, None)


def written(spec: Spec) -> Written:
    """The file of a specification."""
    if spec.fault == "empty":
        return Written("import torch\n", {}, "empty")
    lines = [*_head(spec)]
    hints: Hints = {(len(lines), utf16("    def forward(self, x")): f": f32[B, {WIDTH}]"}
    lines.append("    def forward(self, x):")
    at, place, reached = spec.at % len(spec.layers), -1, True
    before, width = "x", WIDTH
    for number, layer in enumerate(spec.layers):
        if number == at and spec.fault in ("raises", "exits"):
            place, reached = len(lines), False
            lines.append("        raise KeyError(1)" if spec.fault == "raises" else "        __import__('os')._exit(3)")
        width = {"linear": layer.width, "cat": 2 * width}.get(layer.kind, width)
        start = f"        {PREFIXES[layer.prefix]}h{layer.ident}"
        if number == _mismatched(spec):
            place, reached = len(lines), False
        if reached:
            hints[len(lines), utf16(start)] = f": f32[B, {width}]"
        text = _STATEMENTS.get(layer.kind, f"self.f{layer.ident}({before})").format(before=before)
        if number == at and spec.fault == "syntax":
            place, text = len(lines), f"({text}"
        lines.append(f"{start} = {text}")
        before = f"h{layer.ident}"
    lines.append(f"        return {before}")
    if reached:
        hints[len(lines) - 1, utf16(lines[-1])] = f" -> f32[B, {width}]"
    lines += ["", "", 'if __name__ == "__main__":', f"    Net()(torch.randn(4, {WIDTH}))", ""]
    return Written("\n".join(lines), hints, spec.fault, place)


def _head(spec: Spec) -> Iterator[str]:
    yield from ("import torch", "from torch import nn", "")
    yield from (f"# note {number} of 𝔥é" for number in range(spec.comments))
    yield from ("", "class Net(nn.Module):", "    def __init__(self):", "        super().__init__()")
    width = WIDTH
    for number, layer in enumerate(spec.layers):
        if layer.kind == "linear":
            wrong = number == _mismatched(spec)
            yield f"        self.f{layer.ident} = nn.Linear({width + wrong}, {layer.width})"
        width = {"linear": layer.width, "cat": 2 * width}.get(layer.kind, width)
    yield ""


def _mismatched(spec: Spec) -> int:
    """The number of the layer that takes another width than it gets; -1 for none."""
    if spec.fault != "mismatch":
        return -1
    linear = [number for number, layer in enumerate(spec.layers) if layer.kind == "linear"]
    return linear[spec.at % len(linear)]
