"""The workspace's own passes: functions in its files with the signature of a pass, found without running them.

Name, arguments and help follow from the syntax tree. The file is imported in the fork that applies the pass, which
gets the modules that the model's classes come from, so that `isinstance` means the same classes. A workspace pass
cannot shadow a built-in one: its file's name is put in front, since a new file must not change what a pipeline means.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from mase_server.formats import parse
from mase_server.ir.graph import MaseGraph
from mase_server.passes.declaration import Need, Pass, PassArguments, Result
from mase_server.protocol.arguments import Argument, Kind
from mase_server.tracing.importing.source import Namespace, decode_source, files_below, read_source

_SUFFIX = re.compile(r"_(transform|analysis)_pass$")


def workspace_passes(folder: str, path: str, taken: Mapping[str, Pass]) -> Mapping[str, Pass]:
    """Name -> pass, for the file `path` and those below `folder`; nothing is imported before a pass is called.

    A pass is a function at a file's top level, `def NAME_transform_pass(graph, pass_args={...})` or
    `..._analysis_pass`, that returns the graph and a dict.  taken: passes whose names are reserved; one of the same
    name gets its file's as a prefix.
    """
    found: dict[str, Pass] = {}
    for file, syntax in _find_pass_functions(folder, path):
        short = _SUFFIX.sub("", syntax.function.name)
        name = next(
            (name for name in _possible_pass_names(short, file) if name not in taken and name not in found), None
        )
        if name is not None:
            found[name] = _declare_pass(name, file, syntax)
    return found


def _find_pass_functions(folder: str, path: str) -> Iterator[tuple[str, PassSyntax]]:
    for file, tree in pass_file_trees(folder, path):
        for syntax in pass_functions(tree):
            yield file, syntax


def _possible_pass_names(short: str, file: str) -> Iterator[str]:
    """The possible names of a pass, the shortest first."""
    yield short
    words = [re.sub(r"\W", "_", part) for part in Path(file).with_suffix("").parts[1:]]
    for count in range(1, len(words) + 1):
        yield "_".join([*words[-count:], short])


def _declare_pass(name: str, file: str, syntax: PassSyntax) -> Pass:
    function = syntax.function
    arguments, others = syntax.arguments()
    needs: frozenset[Need] = frozenset({"metadata", "weights"} if syntax.reads_values() else {"metadata"})
    words = _SUFFIX.sub("", function.name).replace("_", " ").strip()
    return Pass(
        name=name,
        title=words[:1].upper() + words[1:],
        kind="transform" if function.name.endswith("_transform_pass") else "analysis",
        function=LazyFunction(file, function.name, function.lineno, pass_documentation(syntax), syntax.takes_arguments),
        arguments=arguments,
        others=others,
        needs=needs,
        source=file,
    )


# Python files of a workspace that may hold passes, and their syntax trees. The search is bounded and runs none of them.

#: Bounds of one search: files, seconds, bytes of one file.
MAX_FILES = 3000
MAX_SECONDS = 0.5
MAX_BYTES = 400_000
_PASS = re.compile(rb"^def\s+[a-zA-Z]\w*_(?:transform|analysis)_pass\s*\(", re.MULTILINE)
#: Passes of this package are found elsewhere.
_OWN = str(Path(__file__).parents[2]) + os.sep


def pass_file_trees(folder: str, first: str) -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of each file with a function named like a pass: `first`, then the least nested files.

    Files that cannot be read or parsed are skipped, as are tests, hidden folders and installed packages.
    """
    end = time.monotonic() + MAX_SECONDS
    for number, path in enumerate(chain([first], _python_files(folder, first))):
        if number > MAX_FILES or (number and time.monotonic() > end):
            return
        tree = None if path.startswith(_OWN) else _parse_pass_file(path)
        if tree is not None:
            yield path, tree


def _python_files(folder: str, but: str) -> Iterator[str]:
    return (file.path for file in files_below(folder, (".py",), but) if not file.name.startswith("test_"))


def _parse_pass_file(path: str) -> ast.Module | None:
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            return None
        source = read_source(path)
        if _PASS.search(source) is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(decode_source(source), path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Functions of the workspace's files, imported when they are first called, in the fork that runs them.


class LazyFunction:
    """A function of a file. It can be called like the function itself. line: of its definition."""

    def __init__(self, path: str, name: str, line: int, docstring: str, takes_arguments: bool = True) -> None:
        self.path, self.line, self.takes_arguments = path, line, takes_arguments
        self.__name__, self.__doc__ = name, docstring

    def __call__(self, graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
        """Import the file, unless the model already did, and call the function."""
        function = namespace_of_file(self.path, graph.root)[self.__name__]
        found: Result = function(graph, dict(pass_args or {})) if self.takes_arguments else function(graph)
        return found


def namespace_of_file(path: str, model: nn.Module) -> Mapping[str, Any]:
    """The names of a file, from the modules of the model's classes, or imported now.

    Files that the model's classes come from are not imported again: a pass that checks whether a layer is one of
    these classes must use the same class.
    """
    known = dict(_of_classes(model))
    loaded = {getattr(module, "__file__", None): module for module in list(sys.modules.values())}
    for file in known.keys() - loaded.keys():
        name = _dotted_name(file)[0]
        module = loaded[file] = ModuleType(name)
        vars(module).update(known[file])
        # A library of this name is not replaced: others need it.
        sys.modules.setdefault(name, module)
    return vars(loaded[path] if path in loaded else _import_file(path))


def _of_classes(model: nn.Module) -> Iterator[tuple[str, Namespace]]:
    """Path and names of the files that define the classes of a model's modules."""
    for kind in {type(module) for module in model.modules()}:
        names = getattr(kind.forward, "__globals__", {})
        file = names.get("__file__")
        if isinstance(file, str):
            yield file, names


def _dotted_name(path: str) -> tuple[str, str]:
    """The dotted name of a file, and the folder that this name is relative to."""
    file = Path(path)
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), str(folder)


def _import_file(path: str) -> ModuleType:
    """The module of a file, imported under its own name, or under another if that one is taken."""
    name, folder = _dotted_name(path)
    sys.path.insert(0, folder)
    try:
        if "." in name:
            return importlib.import_module(name)
        return _from_file(name if name not in sys.modules else f"_mase_pass_{name}", path)
    finally:
        sys.path.remove(folder)


def _from_file(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{os.path.basename(path)} cannot be imported as a Python module", path=path)  # noqa: PTH119
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The information on a pass in its syntax tree: its arguments with their defaults, and whether it reads weights.

#: The kind of further keys of a pass that hands its arguments on as a whole.
ANY = Argument("argument", "value", "passed on as it is")

#: Attributes through which values of parameters are read.
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
        """The arguments in the default map and those read from the map; then the meaning of further keys, None for
        none."""
        if self._parameter is None:
            return (), None
        defaults = {key: value for key, value in self._defaults().items() if isinstance(key, str)}
        asked = _Asked(self._parameter.arg)
        asked.visit(self.function)
        found = [self._argument(name, value) for name, value in {**asked.defaults, **defaults}.items()]
        required = [name for name in asked.required if name not in defaults and name not in asked.defaults]
        return (*found, *(self._argument(name, _ABSENT) for name in required)), ANY if asked.passed_on else None

    def _defaults(self) -> Mapping[Any, Any]:
        """The default of `pass_args`: a literal, or a name for one."""
        given = self.function.args
        position = 1 - (len(given.posonlyargs) + len(given.args) - len(given.defaults))
        node: ast.expr | None = given.defaults[position] if 0 <= position < len(given.defaults) else None
        if isinstance(node, ast.Name):
            node = _top_constants(self.tree).get(node.id)
        value = _literal_value(node)
        return value if isinstance(value, Mapping) else {}

    def _argument(self, name: str, default: Any) -> Argument:
        text = self._told(name) or f"see {self.function.name}"
        if default is _ABSENT:
            return Argument(name, "value", text, required=True)
        return Argument(name, _kind_of_default(default), text, default=default)

    def _told(self, name: str) -> str:
        """The docstring's words about a name: `name: text`, `name (int): text` or `:param name: text`."""
        pattern = rf"(?:^|[.;]\s+|\s{{2,}})(?::param\s+(?:\w+\s+)?)?{re.escape(name)}\s*(?:\([^)]*\))?\s*:\s*([^\n]+)"
        found = re.search(pattern, self.docstring, re.MULTILINE)
        return re.split(r"(?<=\.)\s", found[1].strip())[0].rstrip(".") if found else ""

    def reads_values(self) -> bool:
        """Does the function, or one of its file that it calls, read values of parameters? In doubt, yes."""
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
    """The uses of a function's map: `get` with a default, `[key]`, `key in`, or handing it on as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.defaults: PassArguments = {}
        self.required: list[str] = []
        self.passed_on = False

    def visit_Call(self, node: ast.Call) -> None:
        """`pass_args.get("key", default)`."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=self.name), attr="get"), args=[ast.Constant(str(key)), *rest]
            ):
                self.defaults.setdefault(key, _literal_value(rest[0]) if rest else None)
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


def pass_functions(tree: ast.Module) -> Iterator[PassSyntax]:
    """The functions at the file's top level that are named like a pass and have its signature."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and re.fullmatch(r"[^_]\w*_(transform|analysis)_pass", node.name):
            found = PassSyntax(node, tree)
            if found.has_signature:
                yield found


def _kind_of_default(default: Any) -> Kind:
    """The kind of an argument by its default; "value", which takes anything, if that does not tell."""
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


def _top_constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The values of names at the file's top level."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def _literal_value(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def pass_documentation(syntax: PassSyntax) -> str:
    """The docstring, cleaned; a default sentence if there is none."""
    return inspect.cleandoc(syntax.docstring) or f"{syntax.function.name}, which has no docstring."
