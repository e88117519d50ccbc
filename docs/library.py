"""Pages of the library: one for each public class and function, from its docstring and signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mase_server
from docs.described import Described, described
from docs.passes import declaration, declared_help, declared_options
from docs.signatures import parameters_of, shown, signature
from mase_server import passes

ROOT = Path(__file__).parents[1]
#: The parameters of every pass, for docstrings that do not describe them.
_PASS = {"graph": "the graph, which is also returned.", "pass_args": "the options below, by name."}
_NO_OPTIONS = "this pass has no options."


@dataclass(frozen=True, slots=True)
class Public:
    """A public class or function. home: the module to import it from."""

    name: str
    thing: Any
    home: str

    @property
    def folder(self) -> str:
        """The folder of its page, in the reference."""
        return "passes" if self.home.endswith(".passes") else "library"

    @property
    def page(self) -> str:
        """Its page, in the reference."""
        return f"{self.folder}/{self.name}.md"

    @property
    def called(self) -> str:
        """Its name in a program that imports it."""
        return f"passes.{self.name}" if self.folder == "passes" else self.name

    @property
    def described(self) -> Described:
        """Its docstring in parts."""
        return described(inspect.getdoc(self.thing))


def public_names() -> list[Public]:
    """Every public class and function of the library, in the order of its `__all__`."""
    homes = (mase_server, passes)
    named = ((home, name, getattr(home, name)) for home in homes for name in home.__all__)
    return [Public(name, thing, home.__name__) for home, name, thing in named if callable(thing)]


def library_pages() -> dict[str, str]:
    """The page of every public name, by file name."""
    names = public_names()
    return {public.page: "\n".join(_page(public, names)) for public in names}


def _page(public: Public, names: list[Public]) -> Iterator[str]:
    found = public.described
    link = linker(public, names)
    yield f"# {public.called}\n"
    yield f"{link(found.summary)}\n"
    yield f"```python\n{_import(public)}\n\n{signature(public.called, public.thing)}\n```\n"
    yield from (f"{link(note)}\n" for note in (*_bases(public), *found.notes, *found.results))
    yield from _tables(public, found, link)
    yield from declaration(public.thing)
    if found.errors:
        yield f"## Errors\n\n{link(' '.join(found.errors))}\n"
    if found.example:
        yield f"## Example\n\n```python\n{_setting(found.example)}\n```\n"
    if isinstance(public.thing, type):
        yield from _members(public.thing, link)
    file = Path(inspect.getfile(inspect.unwrap(public.thing))).relative_to(ROOT).as_posix()
    yield f"## Source\n\n[{file}](../../../{file}). {' '.join(found.sources).removeprefix('Source: ')}".rstrip() + "\n"
    yield "[All reference pages](../README.md)\n"


def linker(own: Public, names: list[Public]) -> Callable[[str], str]:
    """A function that turns public names in a text into links, except the page's own name."""
    others = {public.name: public for public in names if public.name != own.name}
    pattern = re.compile(rf"(?<![\w./`\[])(`?)({'|'.join(sorted(others, key=len, reverse=True))})\1(?![\w`/(])")

    def link(match: re.Match[str]) -> str:
        return f"[`{match[2]}`](../{others[match[2]].page})"

    return lambda text: pattern.sub(link, text)


def _import(public: Public) -> str:
    return "from mase_server import " + ("passes" if public.folder == "passes" else public.name)


def _setting(example: list[str]) -> str:
    """The example with the imports that it needs."""
    text = "\n".join(example)
    names = [name for name in (*(each.name for each in public_names()), "passes") if _uses(text, name)]
    own = [name for name in names if name in mase_server.__all__]
    lines = [
        *([">>> import torch"] if _uses(text, "torch") else []),
        *([">>> from torch import nn"] if _uses(text, "nn") else []),
        *([f">>> from mase_server import {', '.join(own)}"] if own else []),
    ]
    return "\n".join([*lines, text])


def _uses(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.'\"]){name}\b(?!['\"])", text) is not None


def _bases(public: Public) -> Iterator[str]:
    if isinstance(public.thing, type) and public.thing.__bases__ != (object,):
        bases = [_base(each) for each in public.thing.__bases__ if not _is_hidden(each)]
        yield from [f"A subclass of {', '.join(bases)}."] if bases else []


def _base(base: type) -> str:
    if base.__module__ == "builtins" or base.__module__.startswith("mase_server"):
        return base.__name__
    return f"`{base.__module__.partition('._')[0]}.{base.__name__}`"


def _is_hidden(base: type) -> bool:
    """Is this a class of ours that is not public?"""
    return base.__module__.startswith("mase_server") and base.__name__ not in (*mase_server.__all__, *passes.__all__)


def _tables(public: Public, found: Described, link: Callable[[str], str]) -> Iterator[str]:
    parameters = {each.name: each for each in parameters_of(public.thing)}
    options = _options(parameters.get("pass_args")) or declared_options(public.thing)
    given = {
        **({"graph": _PASS["graph"]} if "pass_args" in parameters else {}),
        **declared_help(public.thing),
        **found.entries,
    }
    if "pass_args" in parameters:
        given["pass_args"] = _PASS["pass_args"] if options else _NO_OPTIONS
    defaults = {name: "" if each.default is each.empty else f"`{shown(each.default)}`"
                for name, each in parameters.items()}  # fmt: skip
    if options:
        defaults["pass_args"] = "see below"
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    told = {name: given.get(name, "") for name, each in parameters.items() if each.kind not in variadic}
    yield from table("Parameters", told, defaults, link)
    yield from table("Options", {name: given.get(name, "") for name in options}, options, link)
    known = {**told, **options}
    rest = {name: text for name, text in found.entries.items() if name not in known}
    yield from table("Attributes" if isinstance(public.thing, type) else "Also", rest, {}, link)


def _options(parameter: inspect.Parameter | None) -> dict[str, str]:
    """The options of a pass with their defaults."""
    if parameter is None or not isinstance(parameter.default, Mapping):
        return {}
    return {name: f"`{shown(value)}`" for name, value in parameter.default.items()}


def table(
    title: str, meanings: Mapping[str, str], defaults: Mapping[str, str], link: Callable[[str], str] = str
) -> Iterator[str]:
    """A section with a row for each name; nothing without names. Columns without entries are left out."""
    if not meanings:
        return
    yield f"## {title}\n"
    if any(defaults.get(name) for name in meanings):
        told = ((f"`{name}`", defaults.get(name, ""), link(text)) for name, text in meanings.items())
        yield grid(("name", "default", "meaning"), told)
    else:
        yield grid(("name", "meaning"), ((f"`{name}`", link(text)) for name, text in meanings.items()))


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars inside of cells are escaped."""
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines) + "\n"


def public_members(kind: type) -> dict[str, Any]:
    """The methods, properties and constants of a class and of its bases that are not public."""
    hidden = [base for base in kind.__bases__ if _is_hidden(base)]
    own = {name: value for each in (kind, *hidden) for name, value in vars(each).items() if not name.startswith("_")}
    fields = getattr(kind, "__dataclass_fields__", {})
    return {name: value for name, value in own.items() if name not in fields}


def _members(kind: type, link: Callable[[str], str]) -> Iterator[str]:
    members = public_members(kind)
    if members:
        yield "## Members\n"
    for name, value in members.items():
        yield f"### {name}\n"
        yield from _member(kind, name, value, link)


def _member(kind: type, name: str, value: Any, link: Callable[[str], str]) -> Iterator[str]:
    if isinstance(value, property):
        gives = inspect.signature(value.fget).return_annotation if value.fget else "Any"
        yield f"```python\n{name}: {gives}\n```\n"
        yield f"{link(inspect.getdoc(value) or '')}{' It can be set.' if value.fset else ''}\n"
    elif callable(getattr(kind, name)):
        found = described(inspect.getdoc(getattr(kind, name)))
        called = f"{kind.__name__}.{name}" if isinstance(value, classmethod | staticmethod) else name
        yield f"```python\n{signature(called, getattr(kind, name))}\n```\n"
        texts = (found.summary, *found.notes, *found.results, *found.errors, *found.sources)
        yield link(" ".join(texts)) + "\n"
        if found.entries:
            yield "\n".join(f"- `{each}`: {link(text)}" for each, text in found.entries.items()) + "\n"
    else:
        yield f"```python\n{name} = {_wrapped(value)}\n```\n"


def _wrapped(value: Any) -> str:
    text = ", ".join(map(shown, value)) if isinstance(value, list) else shown(value)
    lines = [line.strip() for line in re.findall(r".{1,96}(?:, |$)", text)]
    if not isinstance(value, list):
        return text
    return f"[{text}]" if len(lines) < 2 else "[\n    " + "\n    ".join(lines) + "\n]"
