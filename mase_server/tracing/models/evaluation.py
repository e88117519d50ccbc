"""The values of expressions in files that are not run: a constructor's call, with the assignments that it depends on.

Names are simple assignments around the expression, lists that statements fill, what loops bind in their first turn,
parameters with a default or with an argument in some call, entries of a command line parser, and what the file imports.
Of a file elsewhere in the workspace, imports of the workspace's own modules are carried out, since parts of a model are
made of them; the file itself is imported only if it is a module of a package, or does nothing but define.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import importlib
import importlib.util
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.execution.program import Place
from mase_server.tracing.importing.placeholders import stands_in
from mase_server.tracing.importing.source import Namespace, remember
from mase_server.tracing.importing.statements import collecting_failures
from mase_server.tracing.models.classes import calls_of
from mase_server.tracing.models.configs import AnyConfig, reads_of
from mase_server.tracing.models.constructions import Surroundings
from mase_server.tracing.models.settings import parsed_options
from mase_server.tracing.models.workspace import loads_module

UNKNOWN = object()
#: The longest chain of assignments that is followed.
MAX_DEPTH = 6
#: The most changes of one configuration that are followed, and the longest chain in which they are.
MAX_CHANGES = 32
MAX_CHANGED = 1
#: The most turns of a loop that fills a list.
MAX_TURNS = 64
#: The methods that put something into a list.
_GROWING = frozenset({"append", "extend", "insert"})
#: The most calls of a function elsewhere in the workspace that are asked for an argument.
MAX_CALLERS = 4
#: A text that the reader of an example is to replace, such as `<PATH_TO_YOUR_DATA>/x.cfg`.
_OPEN = re.compile(r"<\w[\w ]*>")
#: Names of arguments that are configurations.
CONFIG_NAME = re.compile(r"conf|cfg|args|params|^hp|^opt|settings", re.IGNORECASE)


class UnknownNameError(LookupError):
    """A call uses a name whose value depends on running the code around it."""


def evaluate_call(
    call: ast.expr, namespace: Namespace, tree: ast.Module, file: str = "", around: Surroundings | None = None
) -> Any:
    """The value of an expression of a file; UnknownNameError before anything runs if a name cannot be resolved.

    file: of an expression elsewhere in the workspace, whose imports of workspace modules are then imported.  around:
    where else the functions of the file may be called.
    """
    return _Resolver(namespace, tree, file, around).evaluate(call, 0)


def import_definition(file: str, tree: ast.Module, name: str, around: Surroundings) -> Any:
    """A class or function at the top of another file of the workspace; None if it cannot be imported."""
    found = _Resolver(around.namespace, tree, file, around).import_own(name)
    return None if found is UNKNOWN else found


def evaluate_partly(
    call: ast.Call,
    namespace: Namespace,
    tree: ast.Module,
    function: Callable[..., Any],
    file: str = "",
    around: Surroundings | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """The known arguments of a call of `function` by name; and the names of the unknown ones."""
    given: dict[str, Any] = {}
    lacking: list[str] = []
    resolver = _Resolver(namespace, tree, file, around)
    for name, node in _bound_nodes(call, function):
        try:
            value = _evaluate_expression(node, namespace, resolver.names_of(node, 0))
        except Exception:  # noqa: BLE001 - evaluates a piece of the person's code out of its place
            value = UNKNOWN
        if value is UNKNOWN or stands_in(value):
            lacking.append(name)
        else:
            given[name] = value
    return given, lacking


def _bound_nodes(call: ast.Call, function: Callable[..., Any]) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call by name, without those that the function does not take: another version of it did."""
    try:
        signature = inspect.signature(function)
        takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        nodes = [each for each in call.args if not isinstance(each, ast.Starred)]
        named = {each.arg: each.value for each in call.keywords if each.arg}
        bound = signature.bind_partial(
            *nodes, **{name: value for name, value in named.items() if takes_any or name in signature.parameters}
        )
    except (TypeError, ValueError):
        return
    for name, node in bound.arguments.items():
        if isinstance(node, ast.expr):
            yield name, node
        elif isinstance(node, dict):  # what `**kwargs` takes
            yield from node.items()


def _evaluate_expression(node: ast.expr, namespace: Namespace, local: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<call>", "eval"), {**namespace, **local})


@dataclass(frozen=True, slots=True)
class _Index:
    """The names of a file: its functions with their classes, innermost first; plain assignments and imports by name.

    members: values that are assigned to attributes of `self`.  changes: those of entries of a name
    (`config.depth = 3`), in order.  imports: name -> (module, name in it or "", level).
    defined: classes and functions at the top of the file.  only_defines: does the file nothing but define and assign?
    loops: what loops and comprehensions go through, by the names that they bind.
    """

    functions: list[tuple[ast.FunctionDef, str]]
    assignments: dict[str, list[tuple[int, ast.expr]]]
    members: dict[str, list[tuple[int, ast.expr]]]
    imports: dict[str, tuple[str, str, int]]
    defined: frozenset[str]
    only_defines: bool
    changes: dict[str, list[_Change]]
    loops: dict[str, list[_Loop]]


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop or comprehension. values: what it goes through.  keys: where in a member of it a name's value is."""

    first: int
    last: int
    values: ast.expr
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """`config.model["depth"] = 3`. keys: "model" and "depth".  tests: conditions of the `if`s around it."""

    line: int
    keys: tuple[str, ...]
    value: ast.expr
    tests: tuple[ast.expr, ...]


def _iterate_changes(body: Iterable[ast.AST], tests: tuple[ast.expr, ...] = ()) -> Iterator[tuple[str, _Change]]:
    """The changes of entries that statements make, each with the name that holds the entry."""
    for node in body:
        match node:
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__")), body=then):
                yield from _iterate_changes(then, tests)
            case ast.If(test=test, body=then, orelse=other):
                yield from _iterate_changes(then, (*tests, test))
                yield from _iterate_changes(other, (*tests, ast.copy_location(ast.UnaryOp(ast.Not(), test), test)))
            case ast.Assign(targets=[target], value=value):
                keys = list[str]()
                while isinstance(target, ast.Attribute | ast.Subscript):
                    key = target.attr if isinstance(target, ast.Attribute) else getattr(target.slice, "value", None)
                    keys.insert(0, key if isinstance(key, str) else "")
                    target = target.value
                if keys and all(keys) and isinstance(target, ast.Name) and target.id != "self":
                    yield target.id, _Change(node.lineno, tuple(keys), value, tests)
            case ast.stmt():
                yield from _iterate_changes(getattr(node, "body", ()), tests)


@remember(64)
def _index_tree(tree: ast.Module) -> _Index:
    """Read once for all calls in the file."""
    defined = frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    index = _Index([], {}, {}, {}, defined, all(map(_only_defines, tree.body)), {}, {})
    for changed, change in _iterate_changes(tree.body):
        index.changes.setdefault(changed, []).append(change)
    owners = {
        inner: node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for inner in node.body
    }  # fmt: skip
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                index.functions.append((node, owners.get(node, "")))
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                for name, part in _pair_targets(target, value):
                    held = index.assignments if "." not in name else index.members
                    held.setdefault(name.removeprefix("self."), []).append((node.lineno, part))
            case ast.For(target=target, iter=values):
                _note_loop(index.loops, node, target, values)
            case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops) | ast.DictComp(generators=loops):
                for loop in loops:
                    _note_loop(index.loops, node, loop.target, loop.iter)
            case ast.Import(names=aliases):
                for alias in aliases:
                    module = alias.name if alias.asname else alias.name.partition(".")[0]
                    index.imports[alias.asname or module] = (module, "", 0)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                for alias in aliases:
                    index.imports[alias.asname or alias.name] = (module or "", alias.name, level)
    # The innermost function around a line is the last that begins before it.
    index.functions.sort(key=lambda pair: -pair[0].lineno)
    return index


def _only_defines(node: ast.stmt) -> bool:
    """Is a statement at the top of a file an import, a definition, an assignment, a docstring or a guarded part?"""
    if isinstance(node, ast.If | ast.Try):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(
        node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign | ast.Pass
    )


def _pair_targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment binds, `self.name` included, each with the expression of its value."""
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            yield f"self.{name}", value
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for at, each in enumerate(targets):
                item = ast.copy_location(ast.Constant(at), value)
                part = ast.copy_location(ast.Subscript(value, item, ast.Load()), value)
                yield from _pair_targets(each, part)


def _iterate_growth(body: Iterable[ast.stmt], name: str, first: int, last: int) -> Iterator[ast.stmt]:
    """The statements between two lines that put something into a list, outermost and in order."""
    for node in body:
        if first < node.lineno and (node.end_lineno or node.lineno) < last:
            if _grows(node, name):
                yield node
        elif node.lineno < last and (node.end_lineno or node.lineno) > first:
            for inner in ("body", "orelse", "finalbody"):
                yield from _iterate_growth(getattr(node, inner, ()), name, first, last)


def _grows(node: ast.stmt, name: str) -> bool:
    """Does a statement, or one inside of it, put something into a list?"""
    for inner in ast.walk(node):
        match inner:
            case ast.FunctionDef() | ast.ClassDef():
                return False
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=method))):
                if owner == name and method in _GROWING:
                    return True
            case ast.AugAssign(target=ast.Name(id=owner), op=ast.Add()) if owner == name:
                return True
    return False


def _unpack(target: ast.expr, value: Any) -> Namespace:
    """Bind a target to a value: the names of `target = value`, each with its part."""
    match target:
        case ast.Name(id=name):
            return {name: value}
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            pairs = zip(targets, value, strict=True)
            return {name: part for each, member in pairs for name, part in _unpack(each, member).items()}
    return {}


def _note_loop(
    loops: dict[str, list[_Loop]],
    node: ast.For | ast.expr,
    target: ast.expr,
    values: ast.expr,
    keys: tuple[int, ...] = (),
) -> None:
    match target:
        case ast.Name(id=name):
            loops.setdefault(name, []).append(_Loop(node.lineno, node.end_lineno or node.lineno, values, keys))
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for at, each in enumerate(targets):
                _note_loop(loops, node, each, values, (*keys, at))


class _Resolver:
    """The names of expressions in a file that is not run. file, around: given for a file elsewhere in the workspace."""

    def __init__(
        self, namespace: Namespace, tree: ast.Module, file: str = "", around: Surroundings | None = None
    ) -> None:
        self.namespace, self.tree, self.file, self.around = namespace, tree, file, around
        self.index = _index_tree(tree)

    def names_of(self, node: ast.expr, depth: int) -> Namespace:
        """Values for the names of an expression that the module does not have, or that the file imports."""
        found: Namespace = {}
        bound = _collect_bound_names(node)
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Name) or inner.id in bound or inner.id in found:
                continue
            imported = self._import_name(inner.id)
            if imported is not UNKNOWN:
                found[inner.id] = imported
            elif not self._is_bound(inner.id):
                found[inner.id] = self._resolve_name(node, inner.id, depth)
        return found

    def _import_name(self, name: str) -> Any:
        """The import of a name in the file, if that module is loaded, or one of the workspace's own; else UNKNOWN."""
        if not self.file or self.around is None or name not in self.index.imports:
            return UNKNOWN
        if getattr(self.namespace.get(name), "__module__", "") == self.around.namespace.get("__name__"):
            return UNKNOWN  # the traced file's own, which is loaded already
        module, attribute, level = self.index.imports[name]
        full = importlib.util.resolve_name("." * level + module, Place.of(self.file).package) if level else module
        return self._import_member(full, attribute)

    def import_own(self, name: str) -> Any:
        """A class or function that the file itself defines, if it is a module and no program; else UNKNOWN."""
        if not self.file or self.around is None:
            return UNKNOWN
        package, file = Place.of(self.file).package, Path(self.file)
        if not package and not self.index.only_defines:
            return UNKNOWN
        names = [f"{package}.{file.stem}" if package else file.stem]
        # Folders without an `__init__.py` are packages too, from the workspace's folder on.
        if not package and file.is_relative_to(folder := self.around.workspace.folder):
            names.insert(0, ".".join(file.with_suffix("").relative_to(folder).parts))
        found = (self._import_member(each, name) for each in names)
        return next((each for each in found if each is not UNKNOWN), UNKNOWN)

    def _import_member(self, module: str, name: str) -> Any:
        try:
            if module not in sys.modules and not self._is_own(module):
                return UNKNOWN
            with collecting_failures():  # what it lacks is no matter of this file
                held = importlib.import_module(module)
            found = getattr(held, name) if name else held
        except RAISED:  # the border to the user's modules
            return UNKNOWN
        return UNKNOWN if stands_in(found) else found

    def _is_own(self, module: str) -> bool:
        spec = importlib.util.find_spec(module.partition(".")[0])
        places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
        folder = self.around.workspace.folder if self.around is not None else ""
        return bool(folder) and any(Path(place).is_relative_to(folder) for place in places if place)

    def _resolve_name(self, node: ast.expr, name: str, depth: int) -> Any:
        """The value of a name; for a key into a table, the table's first key."""
        if name == "self" and self.index.members:
            return _SelfView(self, depth)
        try:
            return self._resolve_assigned(name, node.lineno, depth)
        except UnknownNameError:
            if name in self.index.defined and (defined := self.import_own(name)) is not UNKNOWN:
                return defined
            for inner in ast.walk(node):
                match inner:
                    case ast.Subscript(value=ast.Name(id=table), slice=ast.Name(id=key)) if key == name:
                        held = self._find_table(table, inner.value, depth)
                        if isinstance(held, dict) and held:
                            return next(iter(held))
            raise

    def _find_table(self, name: str, node: ast.expr, depth: int) -> Any:
        if self._is_bound(name):
            return self.namespace.get(name)
        try:
            return self.names_of(node, depth).get(name)
        except UnknownNameError:
            return None

    def _is_bound(self, name: str) -> bool:
        return name in self.namespace or hasattr(builtins, name)

    def _resolve_assigned(self, name: str, line: int, depth: int) -> Any:
        earlier = [pair for pair in self.index.assignments.get(name, ()) if pair[0] < line]
        around = [each for each in self.index.loops.get(name, ()) if each.first <= line <= each.last]
        loop = max(around, key=lambda each: each.first, default=None)
        if loop is not None and all(pair[0] < loop.first for pair in earlier) and depth < MAX_DEPTH:
            return self._take_first(loop, depth)
        value = max(earlier, key=lambda pair: pair[0])[1] if earlier else self._find_given(name, line)
        if value is not None and loads_module(value) and self.around is not None:
            # A module that is chosen when the program runs: here, the one that is traced.
            return SimpleNamespace(**self.around.namespace)
        if _is_parsing(value) and (options := parsed_options(self.tree)):
            return AnyConfig({**self._read_settings(name, options), **options}).at((name,))
        if depth >= MAX_DEPTH:
            raise UnknownNameError(f"{name!r} has no simple assignment before line {line}")
        if value is None:
            return self._resolve_argument(name, line, depth)
        if not earlier and isinstance(value, ast.Constant) and value.value is None:
            with contextlib.suppress(UnknownNameError):  # a default that stands for a value from elsewhere
                return self._resolve_argument(name, line, depth)
        try:
            made = self.evaluate(value, depth + 1)
        except RAISED:  # the border to the user's expressions
            # A file or command line that is read when the program runs: settings of the workspace look like it.
            if CONFIG_NAME.search(name) and (known := self._read_settings(name)):
                return AnyConfig(known).at((name,))
            raise
        if isinstance(made, list):
            return self._grow(name, list(made), _iterate_growth(self.tree.body, name, value.lineno, line), depth)
        return self._apply_changes(name, value.lineno, line, made, depth)

    def _take_first(self, loop: _Loop, depth: int) -> Any:
        """The value of a loop's name in its first turn."""
        with contextlib.suppress(*RAISED):  # the border to the user's expressions
            for value in self.evaluate(loop.values, depth + 1):
                for key in loop.keys:
                    value = value[key]
                return value
        raise UnknownNameError(f"the first turn of the loop in line {loop.first} is not known")

    def _grow(self, name: str, held: list[Any], statements: Iterable[ast.stmt], depth: int) -> list[Any]:
        """A list with what statements after its assignment put into it."""
        inner = _Resolver({**self.namespace, name: held}, self.tree, self.file, self.around)
        for node in statements:
            match node:
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=method), args=args)):
                    if owner == name and method in _GROWING:
                        getattr(held, method)(*(inner.evaluate(each, depth + 1) for each in args))
                case ast.AugAssign(target=ast.Name(id=owner), op=ast.Add(), value=more) if owner == name:
                    held += inner.evaluate(more, depth + 1)
                case ast.With(body=then) | ast.Try(body=then) if _grows(node, name):
                    inner._grow(name, held, then, depth + 1)
                case ast.While() if _grows(node, name):
                    raise UnknownNameError(f"how often the loop in line {node.lineno} fills {name!r} is not known")
                case ast.If(test=test, body=then, orelse=other) if _grows(node, name):
                    inner._grow(name, held, then if inner.evaluate(test, depth + 1) else other, depth + 1)
                case ast.For(target=target, iter=values, body=turn) if _grows(node, name):
                    for value in itertools.islice(inner.evaluate(values, depth + 1), MAX_TURNS):
                        named = {**inner.namespace, **_unpack(target, value)}
                        _Resolver(named, self.tree, self.file, self.around)._grow(name, held, turn, depth + 1)
        return held

    def _apply_changes(self, name: str, first: int, last: int, value: Any, depth: int) -> Any:
        """A configuration with the entries that the statements between two lines give it."""
        changes = [each for each in self.index.changes.get(name, ()) if first < each.line < last]
        if not changes or depth > MAX_CHANGED:
            return value
        with contextlib.suppress(*RAISED):  # the border to the user's configurations
            value = copy.deepcopy(value)
        # A change reads the configuration as the changes before it left it.
        inner = _Resolver({**self.namespace, name: value}, self.tree, self.file, self.around)
        for change in changes[:MAX_CHANGES]:
            with contextlib.suppress(*RAISED):  # the border to the user's expressions
                if all(inner.evaluate(test, depth + 1) for test in change.tests):
                    holder = value
                    for key in change.keys[:-1]:
                        holder = holder[key] if isinstance(holder, Mapping) else getattr(holder, key)
                    made = inner.evaluate(change.value, depth + 1)
                    if isinstance(holder, MutableMapping):
                        holder[change.keys[-1]] = made
                    else:
                        setattr(holder, change.keys[-1], made)
        return value

    def evaluate(self, value: ast.expr, depth: int) -> Any:
        """The value of an expression of the file."""
        return _evaluate_expression(value, self.namespace, self.names_of(value, depth))

    def _find_given(self, name: str, line: int) -> ast.expr | None:
        """The value of parameter `name` of the function around a line: its default, a test's parameter, or a call's
        argument."""
        for function, _ in self._list_functions_around(line):
            held = {**self._read_first_call(function), **_list_defaults(function.args), **_read_parametrized(function)}
            if name in held:
                return held[name]
        return None

    def _list_functions_around(self, line: int) -> list[tuple[ast.FunctionDef, str]]:
        pairs = self.index.functions
        return [pair for pair in pairs if pair[0].lineno <= line <= (pair[0].end_lineno or line)]

    def _read_first_call(self, function: ast.FunctionDef) -> dict[str, ast.expr]:
        """The arguments of a function's first call in its file."""
        calls = calls_of(self.tree, function.name)
        return _name_arguments(calls[0], function) if calls else {}

    def _resolve_argument(self, name: str, line: int, depth: int) -> Any:
        """The value of parameter `name` of the function around a line, as other files of the workspace call it; for a
        configuration, the settings of the workspace that have what the file reads of it."""
        unknown = UnknownNameError(f"{name!r} has no simple assignment before line {line}")
        if self.around is None:
            raise unknown
        for function, owner in self._list_functions_around(line)[:1]:
            called = owner if function.name == "__init__" else "" if owner else function.name
            for call in itertools.islice(self.around.workspace.calls(called, self.file) if called else (), MAX_CALLERS):
                node = _name_arguments(call.node, function).get(name)
                if node is None or (isinstance(node, ast.Name) and depth + 2 >= MAX_DEPTH):
                    continue
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _OPEN.search(node.value):
                    continue
                other = _Resolver(self.namespace, call.tree, call.file, self.around)
                with contextlib.suppress(*RAISED):  # the border to the user's expressions
                    if not stands_in(value := other.evaluate(node, depth + 1)):
                        return value
        if CONFIG_NAME.search(name) and (known := self._read_settings(name)):
            return AnyConfig(known).at((name,))
        raise unknown

    def _read_settings(self, name: str, given: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
        """The settings of the workspace that have what the file reads of a configuration; {} if that is `given`."""
        reads = {read.path[0] for read in reads_of(name, self.tree)}
        lacking = reads - given.keys()
        return self.around.settings().closest(lacking) if lacking and self.around is not None else {}


class _SelfView:
    """`self` in a class that is not run: its attributes are what the file assigns to them."""

    def __init__(self, resolver: _Resolver, depth: int) -> None:
        self._mase_resolver, self._mase_depth = resolver, depth

    def __getattr__(self, name: str) -> Any:
        values = self._mase_resolver.index.members.get(name, ())
        if not values or self._mase_depth >= MAX_DEPTH:
            raise UnknownNameError(f"'self.{name}' has no simple assignment")
        made = (self._mase_resolver.evaluate(value, self._mase_depth + 1) for _, value in values)
        return next((each for each in made if each is not None), None)  # `if self.width is None: self.width = 8`


def _name_arguments(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The arguments of a call of a function, by parameter name."""
    names = [each.arg for each in function.args.args]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    plain = itertools.takewhile(lambda each: not isinstance(each, ast.Starred), call.args)
    positional = dict(zip(names, plain, strict=False))
    return {**positional, **{each.arg: each.value for each in call.keywords if each.arg}}


def _is_parsing(node: ast.expr | None) -> bool:
    """Is this `parser.parse_args()`, or `flags.FLAGS`?"""
    match node:
        case ast.Call(func=ast.Attribute(attr="parse_args")) | ast.Attribute(attr="FLAGS"):
            return True
    return False


def _read_parametrized(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The first values that `pytest.mark.parametrize` gives a test's parameters."""
    found: dict[str, ast.expr] = {}
    for node in function.decorator_list:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[names, ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]), *_],
            ):
                words = _split_parameter_names(names)
                match first:
                    case ast.Call(func=ast.Attribute(attr="param"), args=values):
                        found |= zip(words, values, strict=False)
                    case ast.Tuple(elts=values) | ast.List(elts=values) if len(words) > 1:
                        found |= zip(words, values, strict=False)
                    case _:
                        found[words[0]] = first
    return found


def _split_parameter_names(names: ast.expr) -> list[str]:
    match names:
        case ast.Constant(value=str(text)):
            return [word.strip() for word in text.split(",")]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [str(part.value) for part in parts if isinstance(part, ast.Constant)] or [""]
    return [""]


def _list_defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    given = {each.arg: value for each, value in (*pairs, *keywords) if value is not None}
    # A factory that passes on its arguments is assumed to get none.
    rest = {
        each.arg: ast.parse(text, mode="eval").body
        for each, text in ((arguments.kwarg, "{}"), (arguments.vararg, "()"))
        if each
    }
    return {**given, **rest}


def _collect_bound_names(node: ast.expr) -> set[str]:
    """Names that comprehensions and lambdas inside an expression bind."""
    stored = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    return stored | {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
