"""The evidence of an exception, from a constructor or a forward, about the constructor's arguments."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import re
import textwrap
import tokenize
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any

from mase_server.tracing.importing.source import remember
from mase_server.tracing.models.classes import get_entry_name, list_aliases
from mase_server.tracing.models.configs import list_entries
from mase_server.tracing.models.constructions import list_parameters

#: The required member or class of an argument ("" for neither) -> candidates for it.
Parts = Callable[[str, str | type], Iterator[Any]]

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Step:
    """A statement that the error passed through, outermost first, and the frame that ran it."""

    node: ast.stmt
    function: ast.FunctionDef
    frame: FrameType

    def value(self, node: ast.expr) -> Any:
        """An expression's value when the error left the frame, None if it takes calls to compute it."""
        if any(
            isinstance(inner, ast.Call | ast.Await | ast.Yield) and not _is_plain(inner) for inner in ast.walk(node)
        ):
            return None
        try:
            names = {**self.frame.f_globals, **self.frame.f_locals}
            with warnings.catch_warnings(action="ignore"):
                return eval(compile(ast.Expression(node), "<clue>", "eval"), names)
        except Exception:  # noqa: BLE001 - evaluates a piece of the person's code a second time
            return None


def _is_plain(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="len" | "int" | "sum") | ast.Attribute(attr="size" | "dim" | "numel")):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Clue:
    """An error of a try with `arguments` (including defaults), and the arguments that it may be about.

    Entries of configurations among them count as arguments too.  culprits: their names, the likeliest first.
    places: the place of each such entry.  parts: classes, functions and modules that an argument may be.
    takes_any: does the constructor take `**kwargs`?  entry: the workspace's value of an entry, None if it has none.
    function: what the arguments are for.
    """

    error: BaseException
    text: str
    arguments: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    culprits: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: Parts = field(default=lambda name, attribute: iter(()))
    takes_any: bool = False
    entry: Callable[[Sequence[str]], Any] = field(default=lambda path: None)
    function: Callable[..., Any] | None = None

    def last(self) -> Step | None:
        """The statement that raised, if it can be read."""
        return self.steps[-1] if self.steps else None

    def names_at(self, step: Step, name: str) -> dict[str, None]:
        """The names that an argument has in the function of a step, its own first: variables and parameters get it."""
        names = dict.fromkeys([name])
        for at, each in enumerate(self.steps):
            if at:
                passed = _pair_parameters(self.steps[at - 1], each)
                names |= {parameter: None for parameter, given in passed if get_entry_name(given) in names}
            names |= {alias: None for held in tuple(names) for alias in list_aliases(each.function, held)}
            if each is step:
                break
        return names


def clue_of(
    error: BaseException,
    kind: Callable[..., Any],
    given: Mapping[str, Any],
    parts: Parts = lambda name, attribute: iter(()),
    entry: Callable[[Sequence[str]], Any] = lambda path: None,
) -> Clue:
    """Read an error from `kind(**given)` or from the forward of the resulting model."""
    own = {**defaults_of(kind), **given}
    inside = {name: entry for name, entry in list_entries(own).items() if name not in own}
    arguments = {**own, **{name: value for name, (_, value) in inside.items()}}
    text = _BROADCAST.sub(_word_as_kernels, f"{type(error).__name__}: {error}")
    steps = tuple(_iterate_failed_statements(error.__traceback__))
    culprits = dict.fromkeys([*_of_steps(steps, arguments), *_of_words(_WORD.findall(text), arguments)])
    places = {name: path for name, (path, _) in inside.items()}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in list_parameters(kind))
    held = own if places else given
    return Clue(error, text, arguments, steps, tuple(culprits), held, places, parts, takes_any, entry, kind)


def place_of(error: BaseException) -> tuple[str, str, int]:
    """The key that distinguishes errors: type, and the place where it was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return (type(error).__name__, last.tb_frame.f_code.co_filename, last.tb_lineno) if last else ("", "", 0)


def defaults_of(kind: Callable[..., Any]) -> Mapping[str, Any]:
    """The parameters that need not be given, with their defaults."""
    return {each.name: each.default for each in list_parameters(kind) if each.default is not each.empty}


def _iterate_failed_statements(trace: TracebackType | None) -> Iterator[Step]:
    while trace is not None:
        found = _find_failed_statement(trace.tb_frame, trace.tb_lineno)
        if found is not None:
            yield found
        trace = trace.tb_next


def _find_failed_statement(frame: FrameType, line: int) -> Step | None:
    """The innermost statement at a line of a frame's function; library frames are read like the user's own."""
    code = frame.f_code
    if code.co_name.startswith("<") or "torch/" in code.co_filename.replace("\\", "/").partition("site-packages/")[2]:
        return None
    read = _parse_function(code)
    if read is None:
        return None
    tree, first = read
    at = line - first + 1
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= at <= (node.end_lineno or at)
    ]
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    inner = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)
    if inner is None or not functions or isinstance(inner, ast.FunctionDef):
        return None
    return Step(_find_guarding_test(inner, around), functions[0], frame)


@remember(1024)
def _parse_function(code: CodeType) -> tuple[ast.Module, int] | None:
    """The syntax tree of a function and its first line; cached, because a search reads the same functions
    repeatedly.

    `inspect.getsourcelines` would ask every module of the process for its file, and stop at one that has none to tell.
    """
    first = code.co_firstlineno
    try:
        lines = inspect.getblock(linecache.getlines(code.co_filename)[first - 1 :])
        return ast.parse(textwrap.dedent("".join(lines))), first
    except (SyntaxError, tokenize.TokenError):
        return None


def _find_guarding_test(node: ast.stmt, around: list[ast.stmt]) -> ast.stmt:
    """For a `raise`, the `if` around it, whose test is the reason of the error."""
    if not isinstance(node, ast.Raise):
        return node
    tests = [each for each in around if isinstance(each, ast.If)]
    return max(tests, key=lambda each: each.lineno, default=node)


def _of_steps(steps: tuple[Step, ...], arguments: Mapping[str, Any]) -> Iterator[str]:
    """Arguments that the statements read, the innermost first, also through local names and other parameters."""
    for step in reversed(steps):
        node: ast.AST = step.node.test if isinstance(step.node, ast.If | ast.Assert) else step.node
        names = [each.id if isinstance(each, ast.Name) else each.attr for each in _list_name_nodes(node)]
        keys = [each.slice.value for each in ast.walk(node) if isinstance(each, ast.Subscript)
                and isinstance(each.slice, ast.Constant) and isinstance(each.slice.value, str)]  # fmt: skip
        seen = list(dict.fromkeys([*keys, *names]))
        for name in seen:
            seen += [each for each in _trace_name_sources(step.function).get(name, ()) if each not in seen][:20]
        yield from _of_words(seen, arguments)
        yield from _of_words(_trace_parameters(steps[: steps.index(step) + 1], seen), arguments)


def _trace_parameters(steps: tuple[Step, ...], names: list[str]) -> list[str]:
    """The names from which the callers of the last step computed those of its names that are parameters."""
    found: list[str] = []
    for called, caller in itertools.pairwise(reversed(steps)):
        given = [value for parameter, value in _pair_parameters(caller, called) if parameter in names]
        names = [
            each.id if isinstance(each, ast.Name) else each.attr for value in given for each in _list_name_nodes(value)
        ]
        for name in names:
            names += [each for each in _trace_name_sources(caller.function).get(name, ()) if each not in names][:20]
        found += names
    return found


def _pair_parameters(caller: Step, called: Step) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of a called function, each with the expression that the statement of its caller gives."""
    names = [each.arg for each in (*called.function.args.posonlyargs, *called.function.args.args)]
    plain_names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    owner = type(called.frame.f_locals.get("self"))
    known = {called.function.name, "__init__", *(each.__name__ for each in owner.__mro__)}
    calls = [each for each in ast.walk(caller.node) if isinstance(each, ast.Call)]
    meant = [each for each in calls if get_entry_name(each.func) in known]
    if not meant and called.function.name == "__init__":  # a class by another name
        meant = [each for each in calls if each.keywords and all(keyword.arg in names for keyword in each.keywords)]
    for call in meant:
        plain = itertools.takewhile(lambda each: not isinstance(each, ast.Starred), call.args)
        yield from zip(plain_names, plain, strict=False)
        yield from ((each.arg, each.value) for each in call.keywords if each.arg in names)


def _list_name_nodes(node: ast.AST) -> list[ast.Name | ast.Attribute]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]


@remember(1024)
def _trace_name_sources(function: ast.FunctionDef) -> dict[str, dict[str, None]]:
    """For every name that a function sets, the names that it was computed from."""
    found: dict[str, dict[str, None]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=ast.expr() as source):
                pass
            case ast.AugAssign(target=target, value=source) | ast.AnnAssign(target=target, value=ast.expr() as source):
                targets = [target]
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                targets = [target]
            case _:
                continue
        sources = dict.fromkeys(each.id for each in _list_name_nodes(source) if isinstance(each, ast.Name))
        for each in (named for item in targets for named in _list_name_nodes(item)):
            found.setdefault(each.id if isinstance(each, ast.Name) else each.attr, {}).update(sources)
    return found


def _of_words(words: list[str], arguments: Mapping[str, Any]) -> Iterator[str]:
    """Arguments with exactly these names, then those that share a word's stem (`depths` and `depth`)."""
    yield from (word for word in words if word in arguments)
    stems = {word.lower().rstrip("s") for word in words if len(word) > 3}
    yield from (name for name in arguments if name.lower().rstrip("s") in stems)


#: Two sizes that do not agree, as operations on meta say it.
_BROADCAST = re.compile(
    r"Attempting to broadcast a dimension of length (\d+) at (-\d+)!.*broadcastable to \[([\d, ]+)\]"
)


def _word_as_kernels(match: re.Match[str]) -> str:
    """The same error in the words of the operations that compute."""
    dim, sizes = int(match[2]), match[3].split(", ")
    return (
        f"The size of tensor a ({sizes[dim]}) must match the size of tensor b ({match[1]}) "
        f"at non-singleton dimension {len(sizes) + dim}"
    )
