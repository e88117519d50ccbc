"""What the syntax tree of a pass tells of it: its arguments with their defaults, and whether it reads weights."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mase_server.arguments import Argument, Kind
from mase_server.formats import parse

#: What further keys may be, where the pass gives its arguments to somebody else.
ANY = Argument("argument", "value", "passed on as it is")

#: Attributes by which values of parameters are reached.
_VALUES = frozenset(
    {
        "weight", "bias", "parameters", "named_parameters", "buffers", "named_buffers", "state_dict", "get_parameter",
        "get_buffer", "data", "item", "tolist", "numpy", "model", "check_against", "running_mean", "running_var",
        "export",
    }
)  # fmt: skip

_ABSENT = object()


class PassSyntax:
    """One function with the signature of a pass, in the tree of its file."""

    def __init__(self, function: ast.FunctionDef, tree: ast.Module) -> None:
        self.function, self.tree = function, tree
        self.docstring = ast.get_docstring(function) or ""

    @property
    def has_signature(self) -> bool:
        """Can it be called with a graph, or with a graph and a map?"""
        given = self.function.args
        count, optional = len(given.posonlyargs) + len(given.args), len(given.defaults)
        required = [default for default in given.kw_defaults if default is None]
        return count >= 1 and count - optional <= 2 and not required

    @property
    def takes_arguments(self) -> bool:
        """Has it a second parameter?"""
        return self._parameter is not None

    @property
    def _parameter(self) -> ast.arg | None:
        given = [*self.function.args.posonlyargs, *self.function.args.args]
        return given[1] if len(given) > 1 else None

    def arguments(self) -> tuple[tuple[Argument, ...], Argument | None]:
        """Those of the default map and those that it asks its map for; then what further keys mean, None for none."""
        if self._parameter is None:
            return (), None
        defaults = {key: value for key, value in self._defaults().items() if isinstance(key, str)}
        asked = _Asked(self._parameter.arg)
        asked.visit(self.function)
        found = [self._argument(name, value) for name, value in {**asked.defaults, **defaults}.items()]
        required = [name for name in asked.required if name not in defaults and name not in asked.defaults]
        return (*found, *(self._argument(name, _ABSENT) for name in required)), ANY if asked.passed_on else None

    def _defaults(self) -> Mapping[Any, Any]:
        """The default of `pass_args`: a literal, or the name of one."""
        given = self.function.args
        position = 1 - (len(given.posonlyargs) + len(given.args) - len(given.defaults))
        node: ast.expr | None = given.defaults[position] if 0 <= position < len(given.defaults) else None
        if isinstance(node, ast.Name):
            node = _constants(self.tree).get(node.id)
        value = _literal(node)
        return value if isinstance(value, Mapping) else {}

    def _argument(self, name: str, default: Any) -> Argument:
        text = self._told(name) or f"see {self.function.name}"
        if default is _ABSENT:
            return Argument(name, "value", text, required=True)
        return Argument(name, _kind(default), text, default=default)

    def _told(self, name: str) -> str:
        """What the docstring says of a name: `name: text`, `name (int): text` or `:param name: text`."""
        pattern = rf"(?:^|[.;]\s+|\s{{2,}})(?::param\s+(?:\w+\s+)?)?{re.escape(name)}\s*(?:\([^)]*\))?\s*:\s*([^\n]+)"
        found = re.search(pattern, self.docstring, re.MULTILINE)
        return re.split(r"(?<=\.)\s", found[1].strip())[0].rstrip(".") if found else ""

    def reads_values(self) -> bool:
        """Does it, or a function of its file that it calls, reach for values of parameters? Where in doubt, it does."""
        functions = {each.name: each for each in self.tree.body if isinstance(each, ast.FunctionDef)}
        todo, seen = [self.function.name], set[str]()
        while todo:
            name = todo.pop()
            if name in seen or name not in functions:
                continue
            seen.add(name)
            for node in ast.walk(functions[name]):
                if getattr(node, "attr", None) in _VALUES or getattr(node, "id", None) == "getattr":
                    return True
                todo += [node.id] if isinstance(node, ast.Name) else []
        return False


class _Asked(ast.NodeVisitor):
    """How a function uses its map: `get` with a default, `[key]`, `key in`, or given to somebody else as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.defaults: dict[str, Any] = {}
        self.required: list[str] = []
        self.passed_on = False

    def visit_Call(self, node: ast.Call) -> None:
        """`pass_args.get("key", default)`."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=self.name), attr="get"), args=[ast.Constant(str(key)), *rest]
            ):
                self.defaults.setdefault(key, _literal(rest[0]) if rest else None)
                self._visit_all(rest)
            case _:
                self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`pass_args["key"]`."""
        match node:
            case ast.Subscript(value=ast.Name(id=self.name), slice=ast.Constant(str(key)), ctx=ast.Load()):
                self.required.append(key)
            case _:
                self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """`"key" in pass_args`: it may be missing."""
        match node:
            case ast.Compare(
                left=ast.Constant(str(key)), ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=self.name)]
            ):
                self.defaults.setdefault(key, None)
            case _:
                self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Any other use."""
        self.passed_on |= node.id == self.name and isinstance(node.ctx, ast.Load)

    def _visit_all(self, nodes: list[ast.expr]) -> None:
        for each in nodes:
            self.visit(each)


def functions(tree: ast.Module) -> Iterator[PassSyntax]:
    """The functions at the file's top that are named like a pass and can be called like one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and re.fullmatch(r"[^_]\w*_(transform|analysis)_pass", node.name):
            found = PassSyntax(node, tree)
            if found.has_signature:
                yield found


def _kind(default: Any) -> Kind:
    """The kind of an argument by its default; "value", which takes anything, where that tells nothing."""
    return next((kind for kind, fits in _KINDS.items() if fits(default)), "value")


def _is_format(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(parse(value)) is not None
    except ValueError:
        return False


_KINDS: Mapping[Kind, Callable[[Any], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int),
    "number": lambda value: isinstance(value, float),
    "format": _is_format,
    "text": lambda value: isinstance(value, str),
    "texts": lambda value: isinstance(value, list | tuple) and bool(value) and all(isinstance(v, str) for v in value),
    "map": lambda value: isinstance(value, Mapping) and bool(value),
}


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What names at the file's top are set to."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def documentation(syntax: PassSyntax) -> str:
    """The docstring, cleaned; a sentence of ours where there is none."""
    return inspect.cleandoc(syntax.docstring) or f"{syntax.function.name}, which has no docstring."
