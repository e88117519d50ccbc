"""`# mase:` comments: the wishes of users, the classes that they are for, and a comment for each assumption.

- `# mase: x: f32[1, 784]` gives inputs (see text.py); `# mase: Net: x: f32[1, 784]` gives those of one class.
- `# mase: Net(width=3)` gives constructor arguments; inputs may follow after a `;`.
- `# mase: skip` leaves a class out, or the file; `# mase: skip Net` names the class.
- A function that builds a model, or a variable that holds one, is named as a class is: `# mase: build(10); x: f32[8]`.
- `# mase: data FILE` names the data that formats are calibrated on if a pass is given none; see `passes.data.load`.
- Arguments may use the names of the file, `torch`, `nn`, `F`, `partial`, `SimpleNamespace`, and `config(dim=64)` for
  objects that are read both as `config.dim` and as `config["dim"]`.
- `# mase[small]: x: f32[1, 3, 32, 32]` gives a *set* a name; a model may have several, of which one is used.
- `# mase: ignore[shape-mismatch]` ignores problems of the line, `# mase: ignore-file[...]` those of the file.

A comment without a class name belongs to the class that it is in or directly above, otherwise to the file; wishes
for a class beat wishes for the file. Comments without a set's name always count. Those with one count while their
set is used, and beat those without. By default the first set is used, or none if a comment without a name already
says something about the model.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from mase_server.dtypes import LONG, SHORT
from mase_server.protocol.request import EVERY, TraceOptions, owner_of
from mase_server.tracing.diagnosis.ignored import explain_unknown_rule, is_ignore, read_ignores
from mase_server.tracing.importing.source import list_nodes
from mase_server.tracing.inputs.library.images import word_of
from mase_server.tracing.inputs.spec import FILLS, ConstantSpec, Inputs, MapSpec, SequenceSpec, Spec, complete_sizes
from mase_server.tracing.inputs.text import SpecError, format_inputs, parse_inputs
from mase_server.tracing.models.constructions import construction_of
from mase_server.tracing.models.expressions import NoTextError, write_call

_COMMENT = re.compile(r"#\s*mase(?P<named>\s*\[(?P<set>[^\]]*)\])?:\s*")
_SET = re.compile(r"\w[\w .+-]*")
_NAME = r"(?P<name>\w+(?:\.\w+)*(?:\[[^\]]*\])*)"
_SKIP = re.compile(rf"skip(?:\s+{_NAME})?\s*$")
_DATA = re.compile(r"data\s+(?P<data>[^\s:=(].*)$")
#: A template has this in the places that only a user can fill in; `?` is read likewise.
BLANK = "..."
_BLANK_INPUT = re.compile(r"(?:^|;)\s*(?P<name>[^\W\d]\w*)\s*[:=]\s*(?P<blank>\.\.\.|\?)\s*(?=;|$)")
_NAMED = re.compile(rf"{_NAME}\s*:\s*(?=\w+\s*[:=])")


def inputs_syntax(forward: Callable[..., Any]) -> str:
    """The next step when no inputs worked: how to write them, without values that were never tried."""
    text = "; ".join(f"{name}: TYPE[SIZE, ...]" for name in _required(forward) or ["NAME"])
    return f"Give them in a comment above the class: `# mase: {text}`, where `f32[B, 3]` is a type with two sizes."


def inputs_template(forward: Callable[..., Any]) -> str:
    """A comment's text with a blank for each input: `x: ...`; "" if the names are unknown."""
    return "; ".join(f"{name}: {BLANK}" for name in _required(forward))


def is_template(comment: str) -> bool:
    """Is a line a `# mase:` comment with blanks to fill in? There is nothing in it to try."""
    match = _COMMENT.match(comment.strip())
    if match is None:
        return False
    try:
        _parse_wish(comment.strip()[match.end() :], None, ())
    except BlankError:
        return True
    except SpecError:
        return False
    return False


def _required(forward: Callable[..., Any]) -> list[str]:
    """The names of the parameters that a forward requires."""
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

    line: from 1; start, column: the columns of the comment and of the text after its `mase:`.  set: "" without a
    name. text: the text after `mase:`.  data: the data that a `data` comment names, "" for any other.
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
    """A comment that could not be read. column..end_column: the wrong part, from 0.  fix: the text that was probably
    meant.

    start: where `fix` begins, "" if unknown.  blank_of: the class whose template has unfilled blanks; None for a
    comment that is no template.
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
    classes = [node for node in list_nodes(tree) if isinstance(node, ast.ClassDef)]
    names = _collect_model_names(tree)
    lines = source.splitlines()
    read: list[Wish | BadComment] = []
    written = list(_tokenize_comments(source))
    for found in written:
        if not is_ignore(found.text):
            read.append(read_comment(found, _find_owner(found.line, classes, lines), names))
    for ignore in read_ignores(source) if written else ():
        if why := explain_unknown_rule(ignore):
            read.append(BadComment(ignore.line, ignore.column, ignore.end_column, why))
    return read


def read_comment(found: Written, owner: str | None, names: Container[str]) -> Wish | BadComment:
    """Read one comment. owner: its default owner; names: those that it may name."""
    try:
        wish = _parse_wish(found.text, owner, names)
    except BlankError as error:
        said = re.match(r"(\w+)\s*\(", found.text) or _NAMED.match(found.text)
        blank_of = (said[1] if said else owner) or ""
        end = found.column + len(found.text)
        return BadComment(found.line, found.column + error.column, end, error.message, found.column, blank_of=blank_of)
    except SpecError as error:
        start = found.column + error.column
        end = max(start + 1, found.column + len(found.text))
        fix = mend_comment(found.text, error.column, lambda text: _is_readable(text, owner, names))
        return BadComment(found.line, start, end, error.message, found.column, fix)
    if found.set is not None and (
        why := "`skip` always counts, so it has no set" if wish.skip else _explain_bad_set_name(found.set)
    ):
        return BadComment(found.line, found.start, found.column, why)
    name = (found.set or "").strip()
    return replace(wish, line=found.line, column=found.column, set=name, start=found.start, text=found.text)


def _explain_bad_set_name(name: str) -> str:
    """The reason why a set cannot have this name; "" if it can."""
    if _SET.fullmatch(name.strip()):
        return ""
    return "expected a set's name of letters, digits, blanks and `_ . + -` between the brackets, as in `# mase[small]:`"


def apply_trial(
    trial: Mapping[str, str | None] | None, comments: Sequence[Wish | BadComment], tree: ast.Module
) -> list[Wish | BadComment]:
    """The comments, with those of a model's set replaced by the trial's, which has line 0 for itself."""
    if trial is None or trial["text"] is None:
        return list(comments)
    model, name = trial["model"], trial["set"] or ""
    kept = [each for each in comments if not (isinstance(each, Wish) and (each.owner, each.set) == (model, name))]
    if trial["text"]:
        written = Written(0, 0, 0, trial["text"], name or None)
        kept.append(read_comment(written, model, _collect_model_names(tree)))
    return kept


def _is_readable(text: str, owner: str | None, names: Container[str]) -> bool:
    try:
        return _parse_wish(text, owner, names) is not None
    except SpecError:
        return False


def _collect_model_names(tree: ast.Module) -> set[str]:
    """The classes of a file, and its functions and variables that may hold or make a model."""
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    found |= {node.name for node in list_nodes(tree) if isinstance(node, ast.ClassDef)}
    targets = (part for node in tree.body if isinstance(node, ast.Assign) for part in map(ast.walk, node.targets))
    return found | {name.id for part in targets for name in part if isinstance(name, ast.Name)}


@dataclass(frozen=True, slots=True)
class Written:
    """A comment as written in a file; set: the text in its brackets, None without brackets. The rest as in `Wish`."""

    line: int
    start: int
    column: int
    text: str
    set: str | None = None


def _tokenize_comments(source: str) -> Iterator[Written]:
    if not _COMMENT.search(source):  # to tokenize a text takes longer than to parse it
        return
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
            if match:
                line, start = token.start
                text = token.string[match.end() :].rstrip()
                yield Written(line, start, start + match.end(), text, match["set"])
    except (tokenize.TokenError, SyntaxError):
        return


def _find_owner(line: int, classes: list[ast.ClassDef], lines: list[str]) -> str | None:
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
    """Is the line in the class, or below its last statement with at least its indentation?"""
    end = node.end_lineno or node.lineno
    below = [text for text in lines[end:line] if text.strip()]
    return node.lineno <= line and all(len(text) - len(text.lstrip()) > node.col_offset for text in below)


def _parse_wish(text: str, owner: str | None, names: Container[str]) -> Wish:
    if skip := _SKIP.match(text):
        return Wish(skip["name"] or owner, None, None, True, 0, 0)
    if data := _DATA.match(text):
        return Wish(owner, None, None, False, 0, 0, data=data["data"].strip())
    start, call = 0, None
    named = _NAMED.match(text)
    if named and re.split(r"[.\[]", named["name"])[0] in names:
        owner, start = named["name"], named.end()
    elif re.match(r"\w+\s*\(", text):
        call, start = _split_constructor_call(text)
        owner = text.partition("(")[0].strip()
    inputs = _parse_inputs_at(text, start) if text[start:].strip() else None
    return Wish(owner, inputs, call, False, 0, 0)


def _split_constructor_call(text: str) -> tuple[str, int]:
    """The constructor call at the beginning of a text, and where the rest starts."""
    for match in re.finditer(r"\)", text):
        call, rest = text[: match.end()], text[match.end() :].lstrip()
        if _is_call(call) and (not rest or rest.startswith(";")):
            _refuse_blanks(call)
            return call, len(text) - len(rest) + rest.startswith(";")
    raise SpecError("expected constructor arguments, as in `Net(width=3)`, then the end or ';' and inputs", 1, 0)


def _refuse_blanks(text: str) -> None:
    """Raise BlankError for a call with arguments that are still to be filled in."""
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


def _parse_inputs_at(text: str, start: int) -> Inputs:
    if blanks := list(_BLANK_INPUT.finditer(text[start:])):
        names = ", ".join(match["name"] for match in blanks)
        what = f"fill in {names} in place of `{blanks[0]['blank']}`, each with a type and its sizes or with a constant"
        raise BlankError(f"{what}: `f32[B, 3]` is a type with two sizes", 1, start + blanks[0].start("blank"))
    try:
        return parse_inputs(text[start:])
    except SpecError as error:
        raise SpecError(error.message, error.line, error.column + start) from None


# The probable meaning of an unreadable `# mase:` comment: the smallest change that makes it readable.

#: Common spellings of an element type -> its short name.
_TYPES = {
    **SHORT, "float": "f32", "double": "f64", "half": "f16", "long": "i64", "int": "i32", "short": "i16",
    "byte": "u8", "fp32": "f32", "fp16": "f16", "int1": "bool",
}  # fmt: skip
_WORD = re.compile(r"[^\W\d]\w*")
#: Signs that are often forgotten, each as it would be written.
_FORGOTTEN = (": ", "]", ")", "}", "; ", ", ", "[")
#: Common misspellings -> the intended text.
_SPELLINGS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\btorch\.(?=\w)"), ""),
    (re.compile(r"\b(\w+)\(([\w\s,=]*)\)"), r"\1[\2]"),
    (re.compile(r"(?<=[\w\]])\s*[x*]\s*(?=\d)"), ", "),
    (re.compile(r"(?<=\d)x(?=\d)"), ", "),
    (re.compile(r"(?<=[\[,])\s*(?:-1|\?)(?=\s*[,\]])"), "B"),
    (re.compile(r"\b\w+\b(?=\s*[\[(])"), lambda match: _TYPES.get(match[0], match[0])),
)


def mend_comment(text: str, column: int, reads: Callable[[str], bool]) -> str:
    """The first likely text that can be read, "" if there is none. column: where reading stopped."""
    return next((each for each in _iterate_candidates(text, column) if each != text and reads(each)), "")


def _iterate_candidates(text: str, column: int) -> Iterator[str]:
    word = _WORD.match(text, column)
    if word:
        for close in _find_close_words(word[0]):
            yield text[:column] + close + text[word.end() :]
    spelled = text
    for pattern, meant in _SPELLINGS:
        yield pattern.sub(meant, text)
        spelled = pattern.sub(meant, spelled)
        yield spelled
    for whole in dict.fromkeys((text, spelled)):
        yield from _iterate_completed(whole, column)
    if not word and column < len(text):
        yield text[:column] + text[column + 1 :]


def _iterate_completed(text: str, column: int) -> Iterator[str]:
    """The text with one more sign: where reading stopped, after a call, or at the end."""
    before, after = text[:column].rstrip(), text[column:].lstrip()
    for sign in _FORGOTTEN:
        yield f"{before}{sign}{after}"
    yield re.sub(r"\)\s*(?=\w+\s*[:=])", "); ", text)
    for sign in ")]}":
        yield text + sign


def _find_close_words(word: str) -> list[str]:
    """The words of the text form with a spelling similar to this one."""
    return difflib.get_close_matches(word, [*LONG, *FILLS], n=3, cutoff=0.5)


# The wishes of comments, options and settings, class by class.


@dataclass(slots=True)
class ClassWishes:
    """The wishes for one class. call: text of the constructor call; arguments: texts by parameter name.

    called_at: the comment with the call.  inputs_set: the named set that the inputs are from.
    """

    inputs: Inputs | None = None
    inputs_from: str = "comment"
    inputs_set: str = ""
    call: str | None = None
    called_at: Wish | None = None
    arguments: dict[str, str] = field(default_factory=dict)

    def constructor(self, name: str) -> str | None:
        """The constructor call as text, None if there is no wish for one."""
        if self.call or not self.arguments:
            return self.call
        return f"{name}({', '.join(f'{key}={text}' for key, text in self.arguments.items())})"

    def said(self) -> str:
        """The source of the inputs, as the end of a sentence."""
        return f"inputs from {self.inputs_from}" + (f" [{self.inputs_set}]" if self.inputs_set else "")

    def any(self) -> bool:
        """Is there any wish?"""
        return self.inputs is not None or bool(self.call or self.arguments)


class Wishes:
    """The comments of a file and the options of a request; SpecError if the options' inputs cannot be read."""

    def __init__(self, options: TraceOptions, comments: Sequence[Wish | BadComment]) -> None:
        self.options = options
        #: The classes with a template above them whose blanks are unfilled.
        self.templates = {each.blank_of for each in comments if isinstance(each, BadComment)}
        #: Wishes for the file, then wishes for a class; each in the order of the file.
        self.comments = sorted((each for each in comments if isinstance(each, Wish)), key=lambda each: bool(each.owner))
        self.given = parse_inputs("\n".join(options.inputs)) if options.inputs else None

    def skips_file(self) -> bool:
        """Is the whole file to be left out?"""
        return any(wish.skip and wish.owner is None for wish in self.comments)

    def wants(self, name: str) -> bool:
        """Is this class to be shown?"""
        skipped = any(wish.skip and wish.owner == name for wish in self.comments)
        return not skipped and self.options.model in (None, name)

    def about(self, name: str) -> list[Wish]:
        """The comments on a model, by the name of its class, function or variable."""
        names = {None, name, owner_of(name)}
        return sorted((each for each in self.comments if each.owner in names), key=lambda each: each.line)

    def sets(self, name: str) -> list[str]:
        """The named sets of a model's inputs, in the order of the file."""
        return list(dict.fromkeys(each.set for each in self.about(name) if each.set))

    def active(self, name: str) -> str:
        """The set in use: the selected one; else the first, unless comments without a set are sufficient."""
        picked, sets = self._picked(name), self.sets(name)
        if picked is not None and picked in ("", *sets):
            return picked
        said = any(not (each.set or each.skip or each.data) for each in self.about(name))
        return "" if said or not sets else sets[0]

    def _picked(self, name: str) -> str | None:
        return self.options.sets.get(owner_of(name), self.options.sets.get(EVERY))

    def picked_builder(self, name: str) -> str:
        """The picked call of a function that builds a model, such as `resnet18()`; "" if none is picked."""
        picked = self._picked(name) or ""
        return picked if picked.endswith("()") else ""

    def prefers_builder(self, function: str) -> bool:
        """Is this function picked to build a model, or does a comment call it?"""
        return f"{function}()" in self.options.sets.values() or bool(self.of(function).call)

    def of(self, name: str) -> ClassWishes:
        """The wishes for a class: an option beats a comment, a comment beats a setting.

        Among comments, a set's beats those without a name, one for the class beats one for the file, a later an
        earlier.
        """
        found = ClassWishes(self.given, self.options.inputs_from, arguments=self.options.arguments)
        active = self.active(name)
        mine = (each for each in self.comments if each.owner in (None, name) and each.set in ("", active))
        for wish in sorted(mine, key=lambda each: bool(each.set)):
            if wish.call:
                found.call, found.called_at = wish.call, wish
            if wish.inputs is not None and not (self.given and self.options.inputs_from == "option"):
                found.inputs, found.inputs_from, found.inputs_set = wish.inputs, "comment", wish.set
        return found


# The assumptions made to show a model, as the comment that asks for exactly that.
#
# A comment is offered only if it reads back as the same values. Modules among the arguments are written as the calls
# that made them.


#: Sources of arguments that no comment has to repeat: the class or its file gives them.
_SAID = frozenset({"default", "instance", "comment", "main"})


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment without its `#`: `mase: Net(width=3); x: f32[B=2, 3]`.

    text: None if something has no text form, which `why` explains.  inputs: the comment with only these, None
    likewise.
    """

    text: str | None
    why: str = ""
    inputs: str | None = None


NOTHING_ASSUMED = Comment(None, "nothing was assumed")


def comment_for(
    model: nn.Module, arguments_from: str, inputs_from: str, spec: Inputs, names: Mapping[str, Any]
) -> Comment:
    """The comment above a class that reproduces a trace. names: those of the file, to write arguments with."""
    return _compose_comment(
        lambda: "" if arguments_from in _SAID else _write_construction(model, names),
        lambda: "" if inputs_from == "comment" else inputs_text(spec),
    )


def comment_naming(
    owner: str,
    arguments: Mapping[str, Any],
    arguments_from: str,
    inputs_from: str,
    spec: Inputs,
    names: Mapping[str, Any],
) -> Comment:
    """The same for an owner that is no class: a variable, or a function that was called with `arguments`."""
    function, _, part = owner.partition("[")
    makes = arguments_from not in _SAID and arguments

    def construction() -> str:
        if makes and part:
            raise NoTextError(f"{function} makes several models")
        return write_call(names[function], arguments, names) if makes else ""

    def inputs() -> str:
        text = "" if inputs_from == "comment" else inputs_text(spec)
        return text if makes or not text else f"{owner}: {text}"

    return _compose_comment(construction, inputs)


def _compose_comment(construction: Callable[[], str], inputs: Callable[[], str]) -> Comment:
    """The text of a comment from the texts of its two parts, one of which may be missing."""
    written = ""
    try:
        written = inputs()
        parts = [part for part in (construction(), written) if part]
    except NoTextError as error:
        return Comment(None, str(error), f"mase: {written}" if written else None)
    return Comment(f"mase: {'; '.join(parts)}", "", f"mase: {written}") if parts else NOTHING_ASSUMED


def _write_construction(model: nn.Module, names: Mapping[str, Any]) -> str:
    made = construction_of(model)
    if made is None:
        raise NoTextError(f"the constructor call of {type(model).__name__} was not seen")
    try:
        return write_call(type(model), made.bound(), names)
    except NoTextError as error:
        raise NoTextError(f"the constructor arguments: {error}") from None


def inputs_text(spec: Inputs) -> str:
    """Inputs as text that reads back as the same inputs; NoTextError names the first without a text form."""
    for name, entry in spec.entries.items():
        if (trouble := next(without_text(entry), None)) is not None:
            raise NoTextError(f"the input {name}: {trouble}")
    text = format_inputs(spec)
    try:
        same = complete_sizes(parse_inputs(text)) == complete_sizes(spec)
    except SpecError:
        same = False
    if not same:
        raise NoTextError("the inputs do not read back the same")
    return text


def without_text(spec: Spec) -> Iterator[str]:
    """The parts of an input that have no text form."""
    match spec:
        case SequenceSpec(items, _, build):
            if build is not None and not word_of(build):
                yield "a tuple of a type of its own has no text form"
            for item in items:
                yield from without_text(item)
        case MapSpec(pairs, build):
            if build is not None:
                yield "an object of a class of its own has no text form"
            for _, item in pairs:
                yield from without_text(item)
        case ConstantSpec(value):
            if not isinstance(value, bool | int | float | str | None):
                yield f"a {type(value).__name__} has no text form"
