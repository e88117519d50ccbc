"""The text form of a model's inputs: `x: f32[B=2, 3, 32, 32]; ids: i64[B, T] < 50257; use_cache = False`.

Several inputs are separated by `;` or newlines; a value is a tensor, a `{name: value}` map, a tuple, a list or a
Python constant; `join(..., ...)` puts tensors side by side in the last dimension, `flat(...)` makes the first two of
a tensor one, `array(...)` makes a numpy array of one. A size is a number or a symbol, which may give its own size
(`T=16`). The sizes may be followed by the fill of the values: `< 50257` (below), or one of the words of `FILLS`, e.g.
`ones`, `causal`, `lengths(T)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mase_server.dtypes import LONG, SHORT
from mase_server.tracing.inputs.library.images import COMBINATIONS, word_of
from mase_server.tracing.inputs.spec import (
    FILLS,
    ConstantSpec,
    Dim,
    Inputs,
    MapSpec,
    Number,
    SequenceSpec,
    Spec,
    TensorSpec,
)


class SpecError(ValueError):
    """Text that is no input specification. line counts from 1, column from 0, both within the text."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


_TOKEN = re.compile(
    r"(?P<newline>[\n;])|(?P<space>[ \t\r]+)|(?P<number>-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)|-inf\b)"
    r"|(?P<string>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")|(?P<sign>[\[\](){},:=<])"
)
_INFINITE = "inf"
_CONSTANTS = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text, self.sizes = text, dict[str, int]()
        self.tokens, self.at = list(self._scan_tokens()), 0

    def _scan_tokens(self) -> Iterator[_Token]:
        start = 0
        while start < len(self.text):
            token = self._scan_word(start) or self._scan_other(start)
            if token.kind != "space":
                yield token
            start += len(token.text)
        yield _Token("end", "", start)

    def _scan_word(self, start: int) -> _Token | None:
        """An identifier as Python has them, which no regular expression of `re` tells."""
        end = start
        while end < len(self.text) and ("_"[: end - start] + self.text[end]).isidentifier():
            end += 1
        word = self.text[start:end]
        return _Token("number" if word == _INFINITE else "name", word, start) if word else None

    def _scan_other(self, start: int) -> _Token:
        match = _TOKEN.match(self.text, start)
        if match is None:
            raise self.error(f"unexpected character {self.text[start]!r}", start)
        return _Token(match.lastgroup or "", match.group(), start)

    def error(self, message: str, start: int) -> SpecError:
        before = self.text[:start]
        return SpecError(message, before.count("\n") + 1, start - (before.rfind("\n") + 1))

    def expected(self, what: str) -> SpecError:
        token = self.tokens[self.at]
        return self.error(f"expected {what}, found {repr(token.text) if token.text else 'the end'}", token.start)

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> bool:
        """Skip the token if it is one of these signs."""
        if self.token.kind in ("sign", "name") and self.token.text in texts:
            self.at += 1
            return True
        return False

    def need(self, what: str, *texts: str) -> None:
        if not self.take(*texts):
            raise self.expected(what)

    def name(self, what: str) -> str:
        token = self.token
        if token.kind == "string":
            self.at += 1
            return str(ast.literal_eval(token.text))
        if token.kind != "name" and token.text != _INFINITE:
            raise self.expected(what)
        self.at += 1
        return token.text

    def entries(self) -> dict[str, Spec]:
        found: dict[str, Spec] = {}
        while True:
            while self.token.kind == "newline":
                self.at += 1
            if self.token.kind == "end":
                return found
            start = self.token.start
            name = self.name("an input's name, as in `x: f32[1, 784]`")
            if name in found:
                raise self.error(f"the input {name!r} is given twice", start)
            self.need("':' and the value after the name, as in `x: f32[1, 784]`", ":", "=")
            found[name] = self.value()
            if self.token.kind not in ("newline", "end"):
                raise self.expected("';' or the end after a value")

    def value(self) -> Spec:
        token = self.token
        if self.take("{"):
            return MapSpec(tuple(self.pairs()))
        if self.take("("):
            return SequenceSpec(tuple(self.members(")")))
        if self.take("["):
            return SequenceSpec(tuple(self.members("]")), is_list=True)
        if token.kind in ("number", "string"):
            self.at += 1
            return ConstantSpec(parse_number(token.text) if token.kind == "number" else ast.literal_eval(token.text))
        if token.kind == "name" and token.text in _CONSTANTS:
            self.at += 1
            return ConstantSpec(_CONSTANTS[token.text])
        if self.take(*COMBINATIONS):
            self.need(f"'(' and the parts after {token.text}", "(")
            return SequenceSpec(tuple(self.members(")")), build=COMBINATIONS[token.text])
        return self.tensor()

    def pairs(self) -> Iterator[tuple[str, Spec]]:
        while not self.take("}"):
            key = self.name("a key or '}'")
            self.need("':' after a key", ":")
            yield key, self.value()
            if self.token.text != "}":
                self.need("',' or '}'", ",")

    def members(self, end: str) -> Iterator[Spec]:
        while not self.take(end):
            yield self.value()
            if self.token.text != end:
                self.need(f"',' or {end!r}", ",")

    def tensor(self) -> TensorSpec:
        start = self.token.start
        if self.token.kind != "name":
            raise self.expected("a value such as f32[1, 784], {key: ...}, (..., ...) or a constant")
        name = self.name("an element type")
        dtype = name if name in LONG else SHORT.get(name)
        if dtype is None:
            raise self.error(f"unknown element type {name!r}; expected one of {', '.join(LONG)}", start)
        self.need(f"'[' and the sizes after {name}, as in {name}[1, 784]", "[")
        dims = []
        while not self.take("]"):
            dims.append(self.dim())
            if self.token.text != "]":
                self.need("',' or ']'", ",")
        return TensorSpec(dtype, tuple(dims), *self.fill())

    def dim(self) -> Dim:
        token = self.token
        if token.kind == "number" and token.text.isdigit():
            self.at += 1
            return int(token.text)
        if token.kind != "name":
            raise self.expected("a size: a number or a symbol")
        self.at += 1
        if self.take("="):
            size = self.token
            if not size.text.isdigit():
                raise self.expected(f"the size of {token.text}")
            self.at += 1
            if self.sizes.setdefault(token.text, int(size.text)) != int(size.text):
                raise self.error(f"{token.text} is {self.sizes[token.text]} before and {size.text} here", size.start)
        return token.text

    def fill(self) -> tuple[str, Number | str | None]:
        if self.take("<"):
            return "below", self.argument()
        if self.token.kind != "name":
            return "", None
        token = self.token
        if token.text not in FILLS:
            raise self.expected(f"one of {', '.join(FILLS)}")
        self.at += 1
        if not self.take("("):
            return token.text, None
        argument = self.argument()
        self.need("')'", ")")
        return token.text, argument

    def argument(self) -> Number | str:
        token = self.token
        if token.kind not in ("number", "name"):
            raise self.expected("a number or a symbol")
        self.at += 1
        return parse_number(token.text) if token.kind == "number" else token.text


def parse_number(text: str) -> Number:
    """The int or float that a number's text means."""
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def parse_inputs(text: str) -> Inputs:
    """Read inputs; for an invalid text, SpecError with the position and the expected text."""
    reader = _Reader(text)
    return Inputs(reader.entries(), reader.sizes)


def format_inputs(inputs: Inputs) -> str:
    """The text that `parse_inputs` reads back as the same inputs (observed objects become their repr)."""
    left = dict(inputs.sizes)
    return "; ".join(f"{_write_name(name)}: {write_spec(spec, left)}" for name, spec in inputs.entries.items())


def write_spec(spec: Spec, sizes: dict[str, int]) -> str:
    """The text of one value; every symbol gives its size where it is first written (and is then removed from
    `sizes`)."""
    match spec:
        case TensorSpec(dtype, dims, fill, argument):
            inner = ", ".join(_write_dim(dim, sizes) for dim in dims)
            return f"{dtype}[{inner}]{_write_fill(fill, argument)}"
        case SequenceSpec(items, is_list, build):
            inner = ", ".join(write_spec(item, sizes) for item in items)
            if word := word_of(build):
                return f"{word}({inner})"
            return f"[{inner}]" if is_list else f"({inner}{',' * (len(items) == 1)})"
        case MapSpec(pairs):
            return "{" + ", ".join(f"{_write_name(key)}: {write_spec(item, sizes)}" for key, item in pairs) + "}"
        case ConstantSpec(value):
            return repr(value)


def _write_dim(dim: Dim, sizes: dict[str, int]) -> str:
    return f"{dim}={sizes.pop(dim)}" if isinstance(dim, str) and dim in sizes else str(dim)


def _write_name(name: str) -> str:
    return name if name.isidentifier() and name not in _CONSTANTS else repr(name)


def _write_fill(fill: str, argument: Number | str | None) -> str:
    if fill == "below":
        return f" < {argument}"
    return f" {fill}" * bool(fill) + (f"({argument})" if argument is not None else "")
