"""Shapes that people write of a forward's parameters, in docstrings, comments, annotations and suffixes of names.

`x (Tensor): mel spectrogram (B, T, 80)`, `# x: b c h w`, `Float[Tensor, "b t d"]`, `target: NxCxHxW`, `x_BLC`. A symbol
is the batch, a length or a side by what it is called, and a size if a constructor's argument or an attribute is called
so. What else the words leave open is taken from the other evidence: the rank counts.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from torch import nn

from mase_server.tracing.inputs.searching.forward import read_function
from mase_server.tracing.inputs.spec import Dim, TensorSpec
from mase_server.tracing.models.constructions import construction_of, list_required_parameters, signature_of

#: What a dimension is called -> its symbol; the first that matches counts. `N` and `L` are decided by their place.
SYMBOLS: tuple[tuple[str, str], ...] = (
    (r"n?b|bs|bsz|bz|b_?size|n?_?batch(es|_?size)?|mini_?batch(_?size)?|sz_?b|num_?samples", "B"),
    (r"h|ht|height|img_?h|rows|x_?1", "H"),
    (r"w|wd|width|img_?w|cols|x_?2", "W"),
    (r"x_?3", "D"),
    (r"(src|source|s|key|kv|mem(ory)?|enc)_?(seq_?)?(len(gth)?|steps)|s|lk|tk|src", "S"),
    (
        r"t|l[qx]?|(\w+_)?(seq|len|time|length|frames?|steps?|tokens?|sequences?|lengths?|words?|samples|timesteps)"
        r"|(\w*_)?(seq_?len(gth)?|max_?len(gth)?|seq_?size|sequence_?length)|t_?(max|in|out|mel|text|wav|feats?)|l_?(in|out|max)|(n|num)_?(tokens|frames|steps)"
        r"|tgt|sentence|history|hist",
        "T",
    ),
)
#: Sizes whose name says nothing of their number: they are taken from the other evidence.
_OPEN = re.compile(
    r"\?|_|c|d|e|f|k|p|q|m|g|r|v|n|l|in|out|\w*(chann?els?|chans?|dims?|dimensions?|features?|feats?|emb(edding)?s?|size"
    r"|width|hidden|units|model|mels|classes|nums?|points|nodes|heads?|class)|\w?(dim|hid|emb|feat|ch)\w*|[A-Z]\w?"
    r"|(num|n)_\w+"
)
#: What the frequencies of a spectrum are called, and the window from which they are computed.
_BINS = re.compile(r"f|(n_?|num_?)?(freqs?|frequenc(y|ies))(_?(bins?|dims?))?|(n|num)_?bins|f_?bins?")
_WINDOW = re.compile(r"n_?fft|(stft|fft)_?(size|len(gth)?|n)|fft")
#: Dimensions with nothing of their own to tell: their number alone is told.
UNKNOWN = "?"

_PART = r"(?:[A-Za-z_\d][\w.]*(?:[*/+-][\w.]+)*)"
_SEPARATED = rf"{_PART}(?:\s*[,;]\s*{_PART})*\s*,?"
#: A shape in brackets, or with an `x` between the sizes, which are the group, and the pattern between them.
_SHAPES = (
    (re.compile(rf"[(\[]\s*({_SEPARATED})\s*[)\]]"), r"[,;\s]+"),
    (re.compile(rf"[(\[]\s*({_PART}(?:\s+[x\u00d7]\s+{_PART})+)\s*[)\]]"), r"\s+[x\u00d7]\s+"),
    (
        re.compile(r"(?<![\w.])((?:[A-Z]\w?|\d+)(?:\s?[x\u00d7*]\s?(?:[A-Z]\w?|\d+))+)(?![\w.])"),
        r"\s?[x\u00d7*]\s?",
    ),
)
_RANK = re.compile(r"(?<![\w.])(\d)-?[dD]\b(?= |imensional)")
#: Letters of a pattern, or names with commas, alone in the text: `x: b c h w`, `x: B, H*W, C`.
_LETTERS = re.compile(r"^\W*((?:[a-zA-Z]|\d+)(?:\s+(?:[a-zA-Z]|\d+)){1,4})\W*$")
_LISTED = re.compile(rf"^\W*({_PART}(?:\s*,\s*{_PART}){{1,5}})\W*$")
#: The name of a size in two words.
_IN_TWO_WORDS = re.compile(
    r"\b(batch|seq|sequence|hidden|embed|embedding|feature|state|input|output)[ -](size|len|length|dims?|dimensions?)\b"
)
#: A size that is written with its number: `C=3`, `features+hour+day=3`.
_WITH_NUMBER = re.compile(rf"({_PART})\s*=\s*(\d+)(?=\s*[,;)\]])")
_QUOTED = re.compile(r"^[\w.]+\[.*?[\"']([^\"']*)[\"']\s*\]$")
_SUFFIX = re.compile(r"\w+_([BN][A-Z]{0,4})$")
_INTEGER = re.compile(
    r"\b(Long|Int)(Tensor)?\b|\bint(eger)?s?(32|64)?\b|\b(token|word|class)? ?(ids?|indices|indexes)\b|\blong\b"
    r"|\b(ground.truth|class|true) labels?\b"
)
_BOOLEAN = re.compile(r"\bBool(Tensor|ean)?\b|\bbool\b")
#: The beginning of what is said of a parameter: `x (Tensor): `, `:param x:`, `- x is`.
_ENTRY = r"^\W*(?:param\s+|attr:|arg\s+)?[`*\"']*NAME[`*\"']*\s*(?:\([^)]*\)|\[[^\]]*\])?\s*(?::|-|=|\u2013|\bis\b)"
_SECTION = re.compile(r"^\W*[Ii]nputs?(?:[ _]shape)?\W*(?:$|:)")
#: The most lines that follow the one that names a parameter and may tell of it.
_FURTHER = 3
MAX_RANK = 6


@dataclass(frozen=True, slots=True)
class Told:
    """A shape in words. sizes: as they are written, `?` for one of which nothing is said.  source: where it was read.

    kind: "i64" or "bool" if the words say so, else "".
    """

    sizes: tuple[str, ...]
    source: str
    kind: str = ""

    def why(self) -> str:
        """The reason for a candidate."""
        if set(self.sizes) == {UNKNOWN}:
            return f"{self.source} {len(self.sizes)} dimensions"
        return f"{self.source} ({', '.join(self.sizes)})"


def read_words(model: nn.Module, name: str) -> Told | None:
    """The words that are written of a parameter, or of a value that a forward unpacks; None if nothing is."""
    found = [told for told in _iterate_told(model, name) if told.sizes]
    # A shape says more than a rank.
    return next((told for told in found if set(told.sizes) != {UNKNOWN}), next(iter(found), None))


def read_docstring(model: nn.Module, text: str, name: str, source: str, *, alone: bool) -> Iterator[Told]:
    """The words of a docstring about a parameter. alone: no other exists, so a section on the input is about it."""
    lines = inspect.cleandoc(text).splitlines()
    yield from _read_lines(model, lines, name, source)
    if alone:
        yield from _read_section(model, lines)
        for line in lines:
            if "->" in line and (sizes := _find_shape(model, line.partition("->")[0], letters=False)):
                yield Told(sizes, source)


def read_message(model: nn.Module, text: str, name: str) -> Told | None:
    """The shape that a check asks for: `x must be [N, 2], got (2, 64)`, `expected (N, V, C) with V=14, C=3`; None if it
    says none. name: of an input."""
    wanted = re.split(r"\b(?:but|got|given|received|found)\b", text)[0]
    sizes = _find_shape(model, wanted[wanted.find(name) :] if name in wanted else wanted, letters=False)
    numbers = dict(re.findall(r"\b([A-Za-z_]\w*) ?= ?(\d+)\b", wanted))
    sizes = sizes and tuple(numbers.get(size, size) for size in sizes)
    return Told(sizes, "its check says") if sizes and set(sizes) != {UNKNOWN} else None


def _iterate_told(model: nn.Module, name: str) -> Iterator[Told]:
    kind, forward = type(model), inspect.unwrap(type(model).forward)
    source, node = read_function(forward)
    if node is None:
        return
    for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
        if argument.arg == name and argument.annotation is not None:
            yield from _read_annotation(model, argument.annotation)
    for lines in _comments_of(source, node, name):
        yield from _read_lines(model, lines, name, "its comment says")
    inherited = (getattr(base.__dict__.get("forward"), "__doc__", None) for base in kind.__mro__)
    for text in (forward.__doc__, kind.__dict__.get("__doc__"), getattr(kind.__init__, "__doc__", None), *inherited):
        if isinstance(text, str):
            alone = len(list_required_parameters(forward)) == 2  # self, and the input
            yield from read_docstring(model, text, name, "its docstring says", alone=alone)
    if (match := _SUFFIX.fullmatch(name)) is not None:
        yield Told(tuple(match[1]), "its name says")
    if names := _list_unpacked_names(node, name):
        sizes = tuple(each if each and _is_called(model, each) else UNKNOWN for each in names)
        yield Told(sizes, "its forward unpacks")


def _list_unpacked_names(node: ast.FunctionDef, name: str) -> list[str]:
    """The names that a forward gives the sizes of a parameter (`b, c, h, w = x.shape`) before it gets another value."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value) if ast.unparse(value) in (
                f"{name}.shape",
                f"{name}.size()",
            ):
                # `*others, t = x.shape`: one dimension for all the others.
                others = ["b"] if isinstance(targets[0], ast.Starred) else []
                targets = targets[len(others) :]
                plain = [each.id.lower() if isinstance(each, ast.Name) else "" for each in targets]
                return [] if any(isinstance(each, ast.Starred) for each in targets) else [*others, *plain]
        if any(_stores(each, name) for each in ast.walk(statement)):
            return []
    return []


def _read_annotation(model: nn.Module, annotation: ast.expr) -> Iterator[Told]:
    """`Float[Tensor, "b c h w"]`, also in quotes."""
    held = annotation.value if isinstance(annotation, ast.Constant) else None
    text = held if isinstance(held, str) else ast.unparse(annotation)
    match = _QUOTED.match(text)
    words = match[1].split() if match is not None else []
    if words and not any(set(word) & set(".*#/+-") for word in words):
        yield Told(tuple(words), "its annotation says", _kind_of(text))


def _kind_of(text: str) -> str:
    return "bool" if _BOOLEAN.search(text) else ("i64" if _INTEGER.search(text) else "")


def _comments_of(source: str, node: ast.FunctionDef, name: str) -> Iterator[list[str]]:
    """The comments about a parameter, before another value takes its name: of its line in the head, then in the
    body."""
    until = min((each.lineno for each in ast.walk(node) if _stores(each, name)), default=1 << 20)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    alone = {each.lineno for each in arguments if sum(other.lineno == each.lineno for other in arguments) == 1}
    own = {each.lineno for each in arguments if each.arg == name} & alone
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        return
    for token in tokens:
        line = token.start[0]
        if token.type == tokenize.COMMENT and line < until:
            text = token.string.lstrip("#! ")
            yield [f"{name}: {text}" if line in own and line != node.lineno else text]


def _stores(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _read_lines(model: nn.Module, lines: Sequence[str], name: str, source: str) -> Iterator[Told]:
    """The shape behind the name of a parameter: in its line, else in the lines of its entry."""
    entry = re.compile(_ENTRY.replace("NAME", re.escape(name)))
    mention = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w(])")
    for at, line in enumerate(lines):
        found = mention.search(line)
        if found is None:
            continue
        is_entry = entry.match(line) is not None
        rest = line[found.end() :]
        if is_entry:
            rest = "\n".join([rest, *_entry_lines(lines, at)])
        elif not re.search(r"(?i)shape|tensor|size|dim", line):
            continue
        sizes = _find_shape(model, rest, letters=is_entry)
        if sizes:
            yield Told(sizes, source, _kind_of(rest.split("\n\n")[0]))


def _read_section(model: nn.Module, lines: Sequence[str]) -> Iterator[Told]:
    """`- Input: :math:`(N, C, L)``, `Input shape`: what is said of the only input, whatever its name."""
    for at, line in enumerate(lines):
        if (match := _SECTION.match(line)) is not None:
            rest = "\n".join([line[match.end() :], *_entry_lines(lines, at)])
            if sizes := _find_shape(model, rest, letters=True):
                yield Told(sizes, "its docstring says", _kind_of(rest))


def _entry_lines(lines: Sequence[str], at: int) -> Iterator[str]:
    """The lines after an entry that are further in, up to the next entry."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    for line in lines[at + 1 : at + 1 + _FURTHER]:
        if not line.strip() or len(line) - len(line.lstrip()) <= indent:
            return
        yield line


def _find_shape(model: nn.Module, text: str, letters: bool) -> tuple[str, ...]:
    """The first shape in a text; () if there is none. Any number of dimensions, as in `(*, T)`, is a batch."""
    text = re.sub(r"([(\[])\s*(?:\*|\.\.\.)\s*,", r"\1B,", text.replace(r"\times", "x"))
    text = _WITH_NUMBER.sub(r"\2", _IN_TWO_WORDS.sub(r"\1_\2", text))
    first = text.split("\n", 1)[0]
    for match in filter(None, (pattern.match(first) for pattern in (_LETTERS, _LISTED) if letters)):
        found = tuple(re.split(r"[,\s]+", match[1]))
        if "x" not in found and _is_shape(model, found, closed=True):
            return found
    for pattern, between in _SHAPES:
        for match in pattern.finditer(text):
            sizes = tuple(each for each in re.split(between, match[1]) if each)
            if _is_shape(model, sizes, closed="," in match[1]):
                return sizes
    rank = _RANK.search(text)
    return () if rank is None else (UNKNOWN,) * int(rank[1])


def _is_shape(model: nn.Module, sizes: tuple[str, ...], closed: bool) -> bool:
    """Are these the sizes of a tensor, and not the words of a sentence?"""
    if not sizes or len(sizes) > MAX_RANK or all(size.isdigit() for size in sizes):
        return False
    if all(re.fullmatch(r"x_?\d", size) for size in sizes):  # several tensors
        return False
    if len(sizes) == 1 and not closed and not _is_batch(sizes[0]) and sizes[0] not in ("N", "T", "L"):
        return False
    return all(size.isdigit() or size in "NL" or _is_called(model, size) for size in sizes)


def _is_batch(size: str) -> bool:
    """Is it the batch, or a product with it: `len*bsz`?"""
    return any(_symbol_of(part) == "B" for part in size.split("*"))


def _is_called(model: nn.Module, size: str) -> bool:
    """Is this what a dimension may be called?"""
    if len(parts := re.split(r"[*/+-]", size)) > 1:
        return all(part.isdigit() or _is_called(model, part) for part in parts)
    plain = size if len(size) < 3 else size.lower()
    return bool(_symbol_of(size) or _OPEN.fullmatch(plain)) or value_of(model, size) is not None


def _symbol_of(size: str) -> str:
    """The symbol of what a dimension is called; "" if it is none."""
    return next((symbol for pattern, symbol in SYMBOLS if re.fullmatch(pattern, size.lower())), "")


def value_of(model: nn.Module, size: str) -> int | None:
    """The number that a size's name has in the constructor, or as an attribute; None if it has none."""
    key = size.removeprefix("self.")
    held = _read_sizes(model)
    if key not in held and _BINS.fullmatch(key.lower()):
        return count_bins(model)
    if key not in held and (stem := _stem_of(key)):
        # `embedding_size` of a docstring is the `embedding_dim` of the constructor, if it is the only one so called.
        alike = {name for name in held if _stem_of(name) == stem}
        key = alike.pop() if len(alike) == 1 else key
    value = held.get(key)
    return value if type(value) is int and value > 0 else None


def _read_sizes(model: nn.Module) -> Mapping[str, Any]:
    """The arguments of a model's constructor, and its attributes."""
    made = construction_of(model)
    defaults = {each.name: each.default for each in signature_of(type(model)).parameters.values()}
    return {**defaults, **(made.bound() if made is not None else {}), **vars(model)}


def count_bins(model: nn.Module) -> int | None:
    """The number of frequencies of the spectra whose window the constructor is told; None if it is told none."""
    told = {value for key, value in _read_sizes(model).items() if _WINDOW.fullmatch(key.lower()) and type(value) is int}
    return told.pop() // 2 + 1 if len(told) == 1 and min(told) > 1 else None


def _stem_of(size: str) -> str:
    """The name of a size without the word for sizes; "" if it has none."""
    stem = re.sub(r"^(d|dim|size)_|_?(sizes?|dims?|dimensions?|channels|features|width)$", "", size.lower())
    return stem if stem != size.lower() else ""


def apply_words(told: Told, model: nn.Module, others: Sequence[TensorSpec]) -> Iterator[TensorSpec]:
    """Candidates of a told shape, with what it leaves open from other candidates of as many dimensions."""
    dims = _name_sizes(model, told.sizes)
    alike = [spec for spec in others if len(spec.dims) == len(dims)]
    for spec in alike:
        if _fits_kind(told, spec):
            # A number that stands where the words have a symbol belongs where they leave open what has that symbol.
            pairs = list(zip(spec.dims, dims, strict=True))
            moved = iter([size for size, dim in pairs if isinstance(dim, str) and isinstance(size, int)])
            merged = tuple(
                _open_size(next(moved, size) if size in dims else size, at, dims) if dim is None else dim
                for at, (size, dim) in enumerate(pairs)
            )
            yield TensorSpec(told.kind or spec.dtype, merged, spec.fill, spec.argument)
    if not any(_fits_kind(told, spec) and spec.dtype in (told.kind, "f32") for spec in alike):
        least = 3 if dims[-2:] == ("H", "W") else 1  # a row of scores says nothing of the channels of an image
        features = (spec.dims[-1] for spec in others if len(spec.dims) >= least and spec.dtype == "f32")
        width = next((dim for dim in features if isinstance(dim, int)), None)
        rest = tuple(_open_size(width, at, dims) if dim is None else dim for at, dim in enumerate(dims))
        bound = next((spec for spec in others if spec.dtype == "i64" and spec.fill == "below"), None)
        lengths = next((spec for spec in others if spec.fill == "lengths"), None)
        if lengths is not None:
            yield replace(lengths, dims=rest)
        elif told.kind == "i64":
            yield TensorSpec("i64", rest, "below", bound.argument if bound is not None else 10)
        else:
            yield TensorSpec(told.kind or "f32", rest, "ones" if told.kind == "bool" else "")


def _fits_kind(told: Told, spec: TensorSpec) -> bool:
    return not told.kind or told.kind == spec.dtype


def _open_size(found: Dim | None, at: int, dims: Sequence[Dim | None]) -> Dim:
    """A size that the words leave open: as another candidate has it, else the usual number of channels or features."""
    of_image = found in ("H", "W") and (len(dims) < 4 or "T" in dims)  # a side is no number of features
    if isinstance(found, int) or (found is not None and found not in dims and not of_image):
        return found
    is_channel = at == 1 and tuple(dims[-2:]) == ("H", "W")
    return 3 if is_channel else 64


#: A shape of which the batch is `B`, and `N` another number.
_BOTH = re.compile(r"[(\[]\s*B\s*,[^)\]]*\bN\b")


def _writes_both(model: nn.Module) -> bool:
    """Is there a batch `B` beside `N` in the words of a forward? Then `N` is no batch in any of its shapes."""
    return _BOTH.search(read_function(type(model).forward)[0]) is not None


def _name_sizes(model: nn.Module, sizes: tuple[str, ...]) -> tuple[Dim | None, ...]:
    """Symbols and numbers for the sizes of a shape; None where the words leave one open."""
    named: list[Dim | None] = []
    batched = any(_symbol_of(size) == "B" for size in sizes) or _writes_both(model)
    for at, size in enumerate(sizes):
        value, symbol = value_of(model, size), _symbol_of(size)
        if symbol in ("H", "W") and not {"H", "W"} <= {_symbol_of(each) for each in sizes}:
            symbol = ""  # a hidden size, or a width of features
        if re.fullmatch(r"(?i)h\*w|h/\w+\*w/\w+", size):
            named.append("T")
        elif size.isdigit():
            named.append(int(size))
        elif size.startswith("self.") and value is not None:
            named.append(value)
        elif size == "N":
            first = not batched and (at == 0 or (at == 1 and _symbol_of(sizes[0]) in ("T", "S")))
            named.append("B" if first else "N")
        elif size == "L":
            named.append("L" if at == 2 and len(sizes) == 3 else "T")
        elif size in "dD" and [each.lower() for each in sizes[at + 1 : at + 3]] == ["h", "w"]:
            named.append("D")
        elif value is not None and not (at == 0 and symbol == "B") and symbol not in ("T", "S"):
            named.append(value)
        else:
            named.append(symbol or None)
    if named[0] is None and "B" not in named and named[1:2] != ["H"]:
        named[0] = "B"
    seen: dict[str, None] = {}
    for at, dim in enumerate(named):
        # Two lengths of different names are different.
        if isinstance(dim, str) and dim in seen and sizes[at] != sizes[named.index(dim)]:
            named[at] = {"T": "S", "S": "T"}.get(dim)
        elif isinstance(dim, str):
            seen[dim] = None
    return tuple(named)
