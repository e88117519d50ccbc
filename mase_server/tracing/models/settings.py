"""The settings in a workspace: YAML, JSON and TOML files, command line parsers, dictionaries in its code.

The one with most of the entries that the code reads from its configuration is taken; if none has half of them, names
decide.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import re
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from mase_server.tracing.importing.lookups import note_read
from mase_server.tracing.models.workspace import CONFIGURATIONS, Workspace

#: A mapping counts if it has this share of the wanted entries, and at least this many of them.
ENOUGH = 0.5
AT_LEAST = 2
#: Entries that name the class of a mapping.
NAMING = ("type", "_target_", "target", "name", "class", "class_path", "model", "arch")
#: Entries beside the name that hold the arguments, where they do not stand beside it themselves.
ARGUMENTS = ("params", "init_args", "kwargs", "args")
#: Bounds: settings that are read, and bytes of one file.
MAX_SETTINGS = 400
MAX_BYTES = 60_000
#: How many files of Hydra's defaults are followed, each from the one before: two may name each other.
MAX_DEFAULTS = 4

#: The entries of one mapping of settings by their names: plain values, and mappings inside of it.
Entries = dict[str, Any]

#: A mapping in code, an entry that is set by an assignment (`_C.MODEL.DEPTH = 12`), or a class of settings.
_MAKES = re.compile(
    rb"(?im)(dict|hparams|namespace|config|params|struct|munch)\(|(config|cfg|params|args)\w*\s*=\s*\{"
    rb"|^\s*(_?C|\w*(config|cfg|conf|args|opts?|hps|hparams|params))(\.\w+)+\s*=[^=]"
    rb"|^class \w*(config|cfg|args|params|settings|options)\b"
)
#: What a file of code has and a file of settings in Python's syntax has not.
_DOES = re.compile(rb"(?m)^\s*(def|class|async|while|with) |^(import|from) (torch|numpy)")
#: Classes whose assignments are settings.
CONFIG_CLASS = re.compile(r"(Config|Args|Arguments|Params|HParams|Cfg|Options|Settings)$")
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_LINE = re.compile(r"([\w./ -]+?)\s*:(?:\s+(.*))?$")
#: A value that begins with a bracket.
_OPENED = re.compile(r"(?:^-|:)\s+[\[{]")
#: A quoted word in a list or map, or one without quotes.
_WORD = re.compile(r"""("[^"]*"|'[^']*')|([^\s\[\]{},:"'][^\[\]{},:]*?)(?=\s*[\[\]{},:])""")
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "null": None, "none": None, "~": None, "": None}


class Settings:
    """The mappings from names to values in a workspace. tree: the file itself, whose own come first."""

    def __init__(self, workspace: Workspace, tree: ast.AST | None = None) -> None:
        self.workspace, self.tree = workspace, tree
        self._known: dict[Path, list[Mapping[str, Any]]] = {}

    def closest(self, wanted: Set[str]) -> Entries:
        """The mapping with the most wanted entries, including nested ones; empty if none has enough."""
        best: Mapping[str, Any] = {}
        # Of nested mappings, the inner one has the entries at its top level.
        most: tuple[float, float] = (max(AT_LEAST, ENOUGH * len(wanted)), -1)
        found = list(self._iterate_mappings(wanted, most[0]))
        for mapping in found:
            score = (len(wanted & keys_of(mapping)), len(wanted & mapping.keys()))
            if score > most:
                best, most = mapping, score
        if any(isinstance(value, dict) for value in best.values()):
            # An experiment's file may say only how it differs from the defaults, or these leave something to it.
            alike = (each for each in found if 2 * len(best.keys() & each.keys()) > min(len(best), len(each)))
            same = (each for each in alike if not _names_another(best, each))
            most_more = max(same, key=lambda each: len(keys_of(each) - keys_of(best)))
            best = _merge(dict(most_more), dict(best))
        return dict(best)

    def naming(self, name: str) -> Entries:
        """The mapping that names the class `name` as its own; empty if none does."""
        for mapping in self._iterate_mappings({name}, 1):
            said = (str(value).rpartition(".")[2] for key, value in mapping.items() if str(key).lower() in NAMING)
            if name in said:
                held = next((mapping[key] for key in ARGUMENTS if isinstance(mapping.get(key), Mapping)), mapping)
                known = ((key, self._refer(value)) for key, value in held.items())
                return {key: value for key, value in known if value != "???"}
        return {}

    def _refer(self, value: Any) -> Any:
        """The value of the entry that `${model.width}` refers to; "???", which is for somebody to fill in, if none."""
        if not isinstance(value, str) or (match := _REFERENCE.fullmatch(value)) is None:
            return value
        found = self.find_entry(match[1].split("."))
        return "???" if found is None or (isinstance(found, str) and "$" in found) else found

    def find_entry(self, path: Sequence[str]) -> Any:
        """The value at a path of names in the first mapping that has it; None if none does."""
        for mapping in self._iterate_mappings(set(path), len(path)):
            held: Any = mapping
            for name in path:
                held = held.get(name) if isinstance(held, Mapping) else None
            if held is not None:
                return held
        return None

    def _iterate_mappings(self, words: Set[str], enough: float) -> Iterator[Mapping[str, Any]]:
        """The mappings of files whose text has enough of these words, the file's own first."""
        own = _in_code(self.tree) if self.tree is not None else iter(())
        yield from itertools.islice(itertools.chain(own, self._iterate_mappings_elsewhere(words, enough)), MAX_SETTINGS)

    def _iterate_mappings_elsewhere(self, words: Set[str], enough: float) -> Iterator[Mapping[str, Any]]:
        # A command line writes `--num-layers`.
        wanted = [(word.encode(), word.replace("_", "-").encode()) for word in words]
        # Defaults come before the many experiments that change a few of them.
        texts = sorted(self.workspace.texts((*CONFIGURATIONS, ".py")), key=lambda each: "default" not in each[0].stem)
        for path, text in texts:
            names_others = path.suffix == ".yaml" and b"defaults:" in text
            if names_others or sum(word in text or dashed in text for word, dashed in wanted) >= enough:
                note_read(path)
                if path not in self._known:
                    self._known[path] = list(itertools.islice(_read_mappings(path, text), MAX_SETTINGS))
                yield from self._known[path]


def _names_another(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Do two mappings name different models: `model_name: unet` and `model_name: vit`?"""
    named = [key for key in one.keys() & other.keys() if str(key).lower().rpartition("_")[2] in NAMING]
    return any(one[key] != other[key] for key in named if isinstance(one[key], str) and isinstance(other[key], str))


def _read_mappings(path: Path, text: bytes) -> Iterator[Mapping[str, Any]]:
    if path.suffix != ".py":
        return _in_file(path, text) if len(text) <= MAX_BYTES else iter(())
    parser = b"add_argument" in text or b"DEFINE_" in text
    plain = not parser and not _DOES.search(text)
    tree = _parse_setting_code(text) if plain or parser or _MAKES.search(text) else ast.Module([], [])
    return itertools.chain(_iterate_nested(_read_module(tree)) if plain else (), _in_code(tree, parser=parser))


def _read_module(tree: ast.AST) -> Entries:
    """The settings in a file that does nothing but assign them: `depth = 12`, `model = dict(width=64)`."""
    pairs = ((node.targets[0], node.value) for node in ast.iter_child_nodes(tree) if isinstance(node, ast.Assign))
    values = {
        target.id: plain_mapping(value) or _read_literal(value)
        for target, value in pairs
        if isinstance(target, ast.Name)
    }
    return {name: value for name, value in values.items() if value is not Ellipsis}


def keys_of(mapping: Mapping[str, Any]) -> set[str]:
    """The names of all entries, including those of nested mappings."""
    inner = (keys_of(value) for value in mapping.values() if isinstance(value, Mapping))
    return {key for key in mapping if isinstance(key, str)}.union(*inner)


def _parse_setting_code(text: bytes) -> ast.AST:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


# ------------------------------------------------------------------------------------------------------------- files


def _in_file(path: Path, text: bytes) -> Iterator[Mapping[str, Any]]:
    try:
        value = _READERS[path.suffix](text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and isinstance(value.get("defaults"), list):
        value = _resolve_references(composed := _compose(path, value), composed)
    yield from _iterate_nested(value)


def _iterate_nested(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every mapping in a value, the outer ones first."""
    waiting: list[Any] = [value]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict):
            yield value
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _compose(path: Path, own: Entries, depth: int = 1) -> Entries:
    """A configuration of Hydra with what the files of its `defaults` hold, in the package that each is for."""
    whole = Entries()
    for entry in own["defaults"]:
        group, name = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        group, _, package = str(group).removeprefix("override ").strip("/").partition("@")
        file = path.parent / group / f"{str(name).removesuffix('.yaml')}.yaml"
        try:
            text = file.read_text("utf-8") if file != path else ""
            held = _read_yaml(text)
        except (OSError, ValueError):
            continue
        note_read(file)
        said = re.search(r"#\s*@package\s+([\w.]+)", text)
        package = package or (said[1] if said else group.replace("/", "."))
        if isinstance(held, dict) and isinstance(held.get("defaults"), list):
            held = _compose(file, held, depth + 1) if depth < MAX_DEFAULTS else held
        for key in reversed(package.split(".") if package and package != "_global_" else ()):
            held = {key: held}
        whole = _merge(whole, held) if isinstance(held, dict) else whole
    return _merge(whole, {key: value for key, value in own.items() if key != "defaults"})


def _merge(one: Entries, other: Entries) -> Entries:
    """Both, and the other's values where they disagree."""
    both = {**one, **other}
    return both | {
        key: _merge(one[key], other[key]) for key in one.keys() & other.keys()
        if isinstance(one[key], dict) and isinstance(other[key], dict)
    }  # fmt: skip


def _resolve_references(value: Any, whole: Entries) -> Any:
    """A value with what each `${model.width}` in it refers to."""
    if isinstance(value, dict):
        return {key: _resolve_references(held, whole) for key, held in value.items()}
    if isinstance(value, list):
        return [_resolve_references(held, whole) for held in value]
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    held: Any = whole
    for name in match[1].split(".") if match else ():
        held = held.get(name) if isinstance(held, dict) else None
    return value if match is None or held is None else held


def _read_yaml(text: str) -> Any:
    """Read by PyYAML if the user has it, else by a tiny reader."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        return simple_yaml(text)
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    if len(documents) != 1 and all(isinstance(each, dict) for each in documents):
        return {key: value for each in documents for key, value in each.items()}
    return documents[0]


def simple_yaml(text: str) -> Entries:
    """Nested maps and lists, in lines or in brackets; a line that is neither is skipped."""
    rows: deque[_Row] = deque()
    is_open = False
    for line in text.splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if is_open:  # brackets that go on in the next lines
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {plain.strip()}")
        elif plain:
            rows.append((len(plain) - len(plain.lstrip()), plain.lstrip()))
        last = rows[-1][1] if rows else ""
        is_open = bool(_OPENED.search(last)) and sum(map(last.count, "[{")) > sum(map(last.count, "]}"))
    whole = _read_rows(rows) if rows else None
    return whole if isinstance(whole, dict) else {}


#: A line: how far in it is, and what it says.
_Row = tuple[int, str]


def _read_rows(rows: deque[_Row]) -> Any:
    """The map or list whose lines come next, up to a line that is further out."""
    indent, found, items = rows[0][0], Entries(), list[Any]()
    while rows and rows[0][0] >= indent:
        at, text = rows.popleft()
        rest = text[1:].lstrip() if text.startswith("- ") else ""
        if at == indent and rest:
            if _LINE.match(rest):
                rows.appendleft((indent + len(text) - len(rest), rest))
            items.append(_read_rows(rows) if _LINE.match(rest) else _read_value(rest))
        elif at == indent and (match := _LINE.match(text)) is not None:
            inside = rows and (rows[0][0] > indent or (rows[0][0] == indent and rows[0][1].startswith("- ")))
            found[match[1]] = _read_value(match[2]) if match[2] else _read_rows(rows) if inside else None
        if items and rows and rows[0][0] == indent and not rows[0][1].startswith("- "):
            break
    return items or found


def _read_value(text: str) -> Any:
    """A scalar, or a list or a map in brackets."""
    quote = _WORD.sub(lambda match: match[1] or repr(_read_scalar(match[2])), text) if text[0] in "[{" else text
    return _read_scalar(quote)


def _read_scalar(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


#: suffix -> the reader of such a file; ValueError for an unreadable one.
_READERS: dict[str, Callable[[str], Any]] = {
    ".json": json.loads, ".toml": tomllib.loads, ".yaml": _read_yaml, ".yml": _read_yaml,
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- code


def _in_code(tree: ast.AST, *, parser: bool = True) -> Iterator[Mapping[str, Any]]:
    """The options of a command line parser, entries that are assigned one by one, then dictionaries of plain values."""
    if parser and (options := parsed_options(tree)):
        yield options
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef):
            yield from itertools.chain.from_iterable(map(_iterate_nested, _list_assigned_entries(node)))
        elif isinstance(node, ast.ClassDef) and CONFIG_CLASS.search(node.name):
            yield _read_class_entries(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict | ast.Call) and (found := plain_mapping(node)):
            yield found


def _list_assigned_entries(scope: ast.Module | ast.FunctionDef) -> list[Entries]:
    """The configurations that a scope fills by assignments: `config.model.depth = 12`, `model = config.model = C()`.

    Those with at least two entries.
    """
    roots: dict[str, Entries] = {}
    #: Another name of an inner mapping -> where it is: `model = config.model`.
    aliases: dict[str, tuple[str, ...]] = {}
    for node in scope.body:
        if not isinstance(node, ast.Assign):
            continue
        paths = [path for target in node.targets if (path := _read_path(target, aliases)) is not None]
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        held = next((path for path in paths if len(path) > 1), _read_path(node.value, aliases) or ())
        if len(held) > 1:
            aliases |= dict.fromkeys(names, held)
        value = _read_literal(node.value)
        for path in paths:
            if len(path) > 1 and value is not Ellipsis:
                holder: Any = roots.setdefault(path[0], Entries())
                for key in path[1:-1]:
                    inner = holder.get(key)
                    holder[key] = holder = inner if isinstance(inner, dict) else Entries()
                holder[path[-1]] = value
    return [entries for entries in roots.values() if len(keys_of(entries)) > 1]


def _read_path(node: ast.expr, aliases: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """The names of `config.model.depth`, whatever an inner part of it is called here; None for any other expression."""
    match node:
        case ast.Name(id=name):
            return aliases.get(name, (name,))
        case ast.Attribute(value=holder, attr=key) | ast.Subscript(value=holder, slice=ast.Constant(value=str(key))):
            inner = _read_path(holder, aliases)
            return None if inner is None else (*inner, key)
    return None


def _read_class_entries(node: ast.ClassDef) -> Entries:
    """The plain values that a class gives its attributes, in its body or in its methods."""
    found: Entries = {}
    for inner in ast.walk(node):
        match inner:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if inner in node.body:
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if inner in node.body:
                pass
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                pass
            case _:
                continue
        # A value that is filled in later is None before.
        if (plain := _read_literal(value)) is not Ellipsis and found.get(name) is None:
            found[name] = plain
    return found


#: Names of classes that hold what they are given: `dict`, `HParams`, `EasyDict`, `SimpleNamespace`.
_MAPPING_NAME = re.compile(r"dict$|hparams|namespace|config|params$|struct$|^munch$", re.IGNORECASE)


def plain_mapping(node: ast.AST) -> Entries:
    """The entries with plain values of a dictionary display, or of a call like `dict(...)`, and of those inside."""
    match node:
        case ast.Dict(keys=keys, values=values):
            pairs = [
                (key.value, value)
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
        case ast.Call(func=ast.Name(id=made) | ast.Attribute(attr=made), args=[], keywords=keywords) if (
            _MAPPING_NAME.search(made)
        ):
            pairs = [(each.arg, each.value) for each in keywords if each.arg]
        case _:
            return {}
    found: Entries = {}
    for key, value in pairs:
        inner = plain_mapping(value)
        if inner:
            found[key] = inner
        elif (plain := _read_literal(value)) is not Ellipsis:
            found[key] = plain
    return found


def _read_literal(node: ast.AST | None) -> Any:
    """The value of a literal; Ellipsis for anything else."""
    try:
        return ast.literal_eval(node) if isinstance(node, ast.expr) else Ellipsis
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return Ellipsis


def parsed_options(tree: ast.AST) -> Entries:
    """The defaults of a command line parser, from its `add_argument` calls, or from `flags.DEFINE_integer("T", 8)`."""
    found: Entries = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=args, keywords=keywords):
                given = {each.arg: each.value for each in keywords if each.arg}
                name = _find_option_name([str(_read_literal(each)) for each in args], given)
                default = _read_option_default(given)
                # An empty device is one that the program picks when it runs.
                found |= {name: "cpu" if name == "device" and default == "" else default} if name else {}
            case ast.Call(
                func=ast.Attribute(attr=attr) | ast.Name(id=attr), args=[ast.Constant(value=str(name)), *rest]
            ) if attr.startswith("DEFINE_"):
                given = {each.arg: each.value for each in node.keywords if each.arg}
                found[name] = _read_option_default({"default": rest[0], **given} if rest else given)
    return found


def _find_option_name(names: list[str], given: Mapping[str, ast.expr]) -> str:
    named = _read_literal(given.get("dest"))
    if isinstance(named, str):
        return named
    long = [name for name in names if name.startswith("--")] or names
    return long[0].lstrip("-").replace("-", "_") if long else ""


def _read_option_default(given: Mapping[str, ast.expr]) -> Any:
    action = _read_literal(given.get("action"))
    if action in ("store_true", "store_false"):
        return action == "store_false"
    default, choices = _read_literal(given.get("default")), _read_literal(given.get("choices"))
    if default is Ellipsis:
        return choices[0] if isinstance(choices, list | tuple) and choices else None
    kind = given.get("type")
    if isinstance(default, str) and isinstance(kind, ast.Name) and kind.id in ("int", "float"):
        return _read_scalar(default)
    return default
