"""Values of inputs that are no tensors: numbers, flags, words, by their names and what a forward compares them with."""

from __future__ import annotations

import ast
import re
from typing import Any

from torch import nn

from mase_server.inputs.searching.forward import Source

#: Pattern of a name -> values, likeliest first; the first match counts.
NAMES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"^(use|is|has|do|with|return|output|need|apply|enable|no)_|^(training|train|causal|is_?causal|deterministic"
     r"|sample|verbose|reverse|inverse|normali[sz]e|flag|mask_only|sampling|eval)$", (False, True)),
    (r"^(h|w|height|width|h_?w|nh|nw|ph|pw|hp|wp)$", (4, 8, 32, 16)),
    (r"^(start|offset|cur)_?(pos|idx|index|position)?$|(_pos|_offset|_start|_index|_idx)$|^(i|j|idx|index|layer(_id)?|stage"
     r"|pos|level)$", (0, 1)),
    (r"size|shape|resolution|^hw$", (8, (8, 8), (4, 4), (2, 8, 8))),
    (r"^(t|seq_?len(gth)?|max_?len(gth)?|length|len|seq|l)$", (16, 8)),
    (r"^(b|bs|batch(_?size)?)$", (2,)),
    (r"alpha|beta|gamma|lam|temp|eps|scale|factor|weight|strength|ratio|prob|^p$|rate|coef|sigma|threshold|^tau$|^w$",
     (0.5, 1.0)),
    (r"", (2, 1, 4, 0)),
)  # fmt: skip
#: Annotation, or its text -> values of that type.
TYPES: dict[str, tuple[Any, ...]] = {"bool": (False, True), "int": (2, 1, 4), "float": (0.5, 1.0), "str": ()}


def scalars(name: str, annotation: Any = None) -> list[Any]:
    """Values of a name, those of the type that it is annotated with first."""
    usual = next(values for pattern, values in NAMES if re.search(pattern, name.lower()))
    kind = type_of(annotation)
    if kind is None:
        return list(usual)
    fitting = [value for value in usual if type(value).__name__ == kind]
    return list(dict.fromkeys([*fitting, *TYPES[kind]]))


def type_of(annotation: Any) -> str | None:
    """The word of `TYPES` that an annotation is, also inside Optional; None for any other."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if str(annotation).startswith("typing.Optional"):
        text = str(annotation)
    found = re.fullmatch(r"(?:(?:typing\.)?Optional\[)?(bool|int|float|str)\]?(?: \| None)?", text)
    return found[1] if found else None


def words(model: nn.Module, name: str) -> list[Any]:
    """Words that a forward compares a parameter with."""
    source = Source.of(model, model.forward)
    found: dict[Any, None] = {}
    for node in ast.walk(source.node) if source else ():
        match node:
            case ast.Compare(
                left=ast.Name(id=owner), ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=str(word))]
            ):
                if owner == name:
                    found.setdefault(word)
            case ast.Compare(left=ast.Name(id=owner), comparators=[other]) if owner == name:
                found |= {each.value: None for each in ast.walk(other) if isinstance(each, ast.Constant)}
            case ast.Subscript(value=table, slice=ast.Name(id=owner)) if owner == name and source:
                held = source.resolve(table)
                found |= dict.fromkeys(held.keys() if hasattr(held, "keys") else ())
    return [word for word in found if isinstance(word, str)]
