"""`# mase:` comments: what the person asks for, and for which class.

- `# mase: x: f32[1, 784]` gives inputs (see text.py); `# mase: Net: x: f32[1, 784]` gives those of one class.
- `# mase: Net(width=3)` gives constructor arguments; inputs may follow after a `;`.
- `# mase: skip` leaves a class out, or the file; `# mase: skip Net` names the class.
- A function that builds a model, or a variable that holds one, is named as a class is: `# mase: build(10); x: f32[8]`.
- `# mase: data FILE` names the data that formats are calibrated on where a pass is given none; see `passes.data.load`.
- Arguments may use the names of the file, `torch`, `nn`, `F`, `partial`, `SimpleNamespace`, and `config(dim=64)` for
  what is read both as `config.dim` and as `config["dim"]`.
- `# mase[small]: x: f32[1, 3, 32, 32]` gives a *set* a name; a model may have several, of which one is used.

Without a class name a comment belongs to the class in or directly above which it stands, otherwise to the file; what
is said for a class beats what is said for the file. Comments without a set's name always count. Those with one count
while their set is used, and beat those without. Where nobody picks, the first set is used, or none where a comment
without a name says anything for the model already.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mase_server.inputs.slips import mended
from mase_server.inputs.spec import Inputs
from mase_server.inputs.text import SpecError, parse

_COMMENT = re.compile(r"#\s*mase(?P<named>\s*\[(?P<set>[^\]]*)\])?:\s*")
_SET = re.compile(r"\w[\w .+-]*")
_NAME = r"(?P<name>\w+(?:\.\w+)*(?:\[[^\]]*\])*)"
_SKIP = re.compile(rf"skip(?:\s+{_NAME})?\s*$")
_DATA = re.compile(r"data\s+(?P<data>[^\s:=(].*)$")
#: What stands in a template in place of what only a person can say; `?` is read likewise.
BLANK = "..."
_BLANK_INPUT = re.compile(r"(?:^|;)\s*(?P<name>[^\W\d]\w*)\s*[:=]\s*(?P<blank>\.\.\.|\?)\s*(?=;|$)")
_NAMED = re.compile(rf"{_NAME}\s*:\s*(?=\w+\s*[:=])")


def inputs_syntax(forward: Callable[..., Any]) -> str:
    """The next step where no inputs did: how they are said, without values that nobody has tried."""
    text = "; ".join(f"{name}: TYPE[SIZE, ...]" for name in _required(forward) or ["NAME"])
    return f"Say them with a comment above the class: `# mase: {text}`, where `f32[B, 3]` is a type with two sizes."


def inputs_template(forward: Callable[..., Any]) -> str:
    """A comment's text with a blank for each input: `x: ...`; "" where the names are not known."""
    return "; ".join(f"{name}: {BLANK}" for name in _required(forward))


def is_template(comment: str) -> bool:
    """Is a line a `# mase:` comment with blanks to fill in? It says nothing that could be tried."""
    match = _COMMENT.match(comment.strip())
    if match is None:
        return False
    try:
        _wish(comment.strip()[match.end() :], None, ())
    except BlankError:
        return True
    except SpecError:
        return False
    return False


def _required(forward: Callable[..., Any]) -> list[str]:
    """The names of the parameters that a forward cannot do without."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


class BlankError(SpecError):
    """A comment with blanks that are still to be filled in."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One comment. owner: a class of the file, None for the whole file. call: the constructor call's text.

    line: from 1; start, column: where the comment and the text after its `mase:` start.  set: "" where it has no name.
    text: what follows `mase:`.  data: what a `data` comment names, "" for any other.
    """

    owner: str | None
    inputs: Inputs | None
    call: str | None
    skip: bool
    line: int
    column: int
    set: str = ""
    start: int = 0
    text: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True)
class BadComment:
    """A comment that could not be read. column..end_column: what is wrong, from 0.  fix: the text that could be meant.

    start: where `fix` would begin, "" where nobody can say.  blank_of: the class whose template it is, whose blanks are
    not filled in yet; None for a comment that is none.
    """

    line: int
    column: int
    end_column: int
    message: str
    start: int = 0
    fix: str = ""
    blank_of: str | None = None


def read_comments(source: str, tree: ast.Module) -> list[Wish | BadComment]:
    """Every `# mase:` comment of a file, in order."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    names = _names(tree)
    lines = source.splitlines()
    read: list[Wish | BadComment] = []
    for found in _comments(source):
        read.append(read_comment(found, _owner(found.line, classes, lines), names))
    return read


def read_comment(found: Written, owner: str | None, names: Container[str]) -> Wish | BadComment:
    """One comment. owner: whom it belongs to where it names nobody; names: those that it may name."""
    try:
        wish = _wish(found.text, owner, names)
    except BlankError as error:
        said = re.match(r"(\w+)\s*\(", found.text) or _NAMED.match(found.text)
        blank_of = (said[1] if said else owner) or ""
        end = found.column + len(found.text)
        return BadComment(found.line, found.column + error.column, end, error.message, found.column, blank_of=blank_of)
    except SpecError as error:
        start = found.column + error.column
        end = max(start + 1, found.column + len(found.text))
        fix = mended(found.text, error.column, lambda text: _reads(text, owner, names))
        return BadComment(found.line, start, end, error.message, found.column, fix)
    if found.set is not None and (
        why := "`skip` counts always, so it has no set" if wish.skip else _misnamed(found.set)
    ):
        return BadComment(found.line, found.start, found.column, why)
    name = (found.set or "").strip()
    return replace(wish, line=found.line, column=found.column, set=name, start=found.start, text=found.text)


def _misnamed(name: str) -> str:
    """Why a set cannot be called that; "" where it can."""
    if _SET.fullmatch(name.strip()):
        return ""
    return "expected a set's name of letters, digits, blanks and `_ . + -` between the brackets, as in `# mase[small]:`"


def tried(
    trial: Mapping[str, str | None] | None, comments: Sequence[Wish | BadComment], tree: ast.Module
) -> list[Wish | BadComment]:
    """The comments with those of a model's set exchanged for one of a trial, which stands on line 0 for itself."""
    if trial is None or trial["text"] is None:
        return list(comments)
    model, name = trial["model"], trial["set"] or ""
    kept = [each for each in comments if not (isinstance(each, Wish) and (each.owner, each.set) == (model, name))]
    if trial["text"]:
        written = Written(0, 0, 0, trial["text"], name or None)
        kept.append(read_comment(written, model, _names(tree)))
    return kept


def _reads(text: str, owner: str | None, names: Container[str]) -> bool:
    try:
        return _wish(text, owner, names) is not None
    except SpecError:
        return False


def _names(tree: ast.Module) -> set[str]:
    """The classes of a file, and its functions and variables that may hold or make a model."""
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    targets = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return found | {target.id for target in targets if isinstance(target, ast.Name)}


@dataclass(frozen=True, slots=True)
class Written:
    """A comment as it stands in a file; set: what its brackets hold, None without brackets. The rest as in `Wish`."""

    line: int
    start: int
    column: int
    text: str
    set: str | None = None


def _comments(source: str) -> Iterator[Written]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
            if match:
                line, start = token.start
                text = token.string[match.end() :].rstrip()
                yield Written(line, start, start + match.end(), text, match["set"])
    except (tokenize.TokenError, SyntaxError):
        return


def _owner(line: int, classes: list[ast.ClassDef], lines: list[str]) -> str | None:
    below = line
    while below < len(lines) and lines[below].lstrip().startswith("#"):
        below += 1
    for node in classes:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if first == below + 1:
            return node.name
    inside = [node for node in classes if _is_inside(line, node, lines)]
    return max(inside, key=lambda node: node.lineno).name if inside else None


def _is_inside(line: int, node: ast.ClassDef, lines: list[str]) -> bool:
    """Does the line stand in the class, or below its last statement but as far indented?"""
    end = node.end_lineno or node.lineno
    below = [text for text in lines[end:line] if text.strip()]
    return node.lineno <= line and all(len(text) - len(text.lstrip()) > node.col_offset for text in below)


def _wish(text: str, owner: str | None, names: Container[str]) -> Wish:
    if skip := _SKIP.match(text):
        return Wish(skip["name"] or owner, None, None, True, 0, 0)
    if data := _DATA.match(text):
        return Wish(owner, None, None, False, 0, 0, data=data["data"].strip())
    start, call = 0, None
    named = _NAMED.match(text)
    if named and re.split(r"[.\[]", named["name"])[0] in names:
        owner, start = named["name"], named.end()
    elif re.match(r"\w+\s*\(", text):
        call, start = _call(text)
        owner = text.partition("(")[0].strip()
    inputs = _inputs(text, start) if text[start:].strip() else None
    return Wish(owner, inputs, call, False, 0, 0)


def _call(text: str) -> tuple[str, int]:
    """The constructor call that a text begins with, and where the rest starts."""
    for match in re.finditer(r"\)", text):
        call, rest = text[: match.end()], text[match.end() :].lstrip()
        if _is_call(call) and (not rest or rest.startswith(";")):
            _refuse_blanks(call)
            return call, len(text) - len(rest) + rest.startswith(";")
    raise SpecError("expected constructor arguments, as in `Net(width=3)`, then the end or ';' and inputs", 1, 0)


def _refuse_blanks(text: str) -> None:
    """BlankError for a call with arguments that are still to be filled in."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    given = [("the arguments", each) for each in call.args]
    given += [(str(each.arg), each.value) for each in call.keywords]
    blanks = [(name, each) for name, each in given if isinstance(each, ast.Constant) and each.value is ...]
    if blanks:
        names = ", ".join(dict.fromkeys(name for name, _ in blanks))
        raise BlankError(f"fill in {names} in place of `{BLANK}`, each with a Python value", 1, blanks[0][1].col_offset)


def _is_call(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Call)
    except SyntaxError:
        return False


def _inputs(text: str, start: int) -> Inputs:
    if blanks := list(_BLANK_INPUT.finditer(text[start:])):
        names = ", ".join(match["name"] for match in blanks)
        what = f"fill in {names} in place of `{blanks[0]['blank']}`, each with a type and its sizes or with a constant"
        raise BlankError(f"{what}: `f32[B, 3]` is a type with two sizes", 1, start + blanks[0].start("blank"))
    try:
        return parse(text[start:])
    except SpecError as error:
        raise SpecError(error.message, error.line, error.column + start) from None
