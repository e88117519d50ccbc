"""A pipeline as text: the passes that were applied to a model, with their arguments. Standard library only.

One step is written as a call, e.g. ``quantize(by='type', linear='fixed(8,4)', **{'0.weight': 'mxint(8,8)'})``; a
pipeline is a list of them. Settings, provenance and the command line use this form.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One pass with its arguments: plain values (numbers, texts, booleans, None, lists and maps of them)."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """{"pass", "arguments"}."""
        return {"pass": self.name, "arguments": dict(self.arguments)}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Step:
        """The inverse of `to_wire`."""
        return cls(data["pass"], dict(data["arguments"]))

    @classmethod
    def parse(cls, text: str) -> Step:
        """The inverse of `str`; ValueError, quoting it, for what is no call with named plain values."""
        try:
            node = ast.parse(text.strip(), mode="eval").body
            call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
            if not isinstance(call.func, ast.Name) or call.args:
                raise ValueError("a step is a pass with named arguments")
            return cls(call.func.id, _keywords(call))
        except (SyntaxError, ValueError, TypeError) as error:
            raise ValueError(f"{text!r} is no step ({error}); an example: quantize(default='fixed(8,4)')") from None

    def __str__(self) -> str:
        named = [f"{key}={value!r}" for key, value in self.arguments.items() if _is_name(key)]
        other = {key: value for key, value in self.arguments.items() if not _is_name(key)}
        return f"{self.name}({', '.join([*named, *([f'**{other!r}'] if other else [])])})"


def _is_name(key: str) -> bool:
    """Does Python read this name as it stands? It refuses its own words, and normalises other letters than ASCII's."""
    return key.isidentifier() and key.isascii() and not keyword.iskeyword(key)


def _keywords(call: ast.Call) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in call.keywords:
        value = ast.literal_eval(each.value)
        found |= dict(value) if each.arg is None else {each.arg: value}
    return found
