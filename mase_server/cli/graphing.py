"""`mase-server graph`, `draw` and `compile`: the graph of one model, and what compilers make of it."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import unified_diff
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from mase_server.cli.check_text import fix_lines
from mase_server.cli.checking import Sources, read_revision
from mase_server.cli.reports import Talk, apply_and_ask, ask_each_model
from mase_server.cli.session import Subject, ask_daemon, ask_own_daemon, daemon_for
from mase_server.cli.showing import value_map
from mase_server.cli.steps import (
    DaemonOption,
    FileArgument,
    InputOption,
    ModelOption,
    PythonOption,
    UsageError,
    parse_steps,
    resolve_steps,
)
from mase_server.cli.terminal import Line, from_here, print_lines, say, say_json
from mase_server.daemon.status import Listener
from mase_server.lsp.labels import has_tensor, label_values
from mase_server.lsp.wording import format_count, format_with_prefix, lens_text
from mase_server.protocol.answers import Compiled
from mase_server.protocol.records import Answer, Params
from mase_server.visible import align_table_columns, reveal


class Output(StrEnum):
    """The output format of `graph`."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    MERMAID = "mermaid"


class Format(StrEnum):
    """The output format of `compile`."""

    TEXT = "text"
    JSON = "json"


class Colours(StrEnum):
    """The meaning of the colours in a drawing."""

    FAMILY = "family"
    FORMAT = "format"


def graph(
    file: FileArgument,
    output: Annotated[
        Output, typer.Option("--format", help="A table by modules, JSON, Graphviz, or Mermaid.")
    ] = Output.TEXT,
    model: ModelOption = None,
    scope: Annotated[str | None, typer.Option(help="One module with everything below it, by its path.")] = None,
    inputs: InputOption = None,
    python: PythonOption = None,
    daemon: DaemonOption = True,
) -> None:
    """Show the graph of a model: its operators by modules, with shapes, where they come from, and costs.

    Examples:

        mase-server graph net.py --scope encoder.layers.0

        mase-server graph net.py --format dot | dot -Tpdf -o net.pdf

        mase-server graph net.py --format json | jq '.nodes[].mase_op'

    Exit status: 0 shown, 1 there is no graph, 2 wrong usage.
    """
    from mase_server.cli.session import Subject

    with _told():
        found = fetch_graph(Subject(file, tuple(inputs or ()), python, daemon), model, scope)
    printers = {
        Output.TEXT: print_text,
        Output.JSON: print_json,
        Output.DOT: print_dot,
        Output.MERMAID: print_mermaid,
    }
    printers[output](found)
    sys.stdout.flush()


def draw(
    file: FileArgument,
    target: Annotated[Path, typer.Option("-o", "--output", help="The SVG file; - is standard output.")],
    model: ModelOption = None,
    colours: Annotated[Colours, typer.Option(help="Colours by family of operators, or number format.")] = (
        Colours.FAMILY
    ),
    original: Annotated[bool, typer.Option("--original", help="Leave out the passes of a running daemon.")] = False,
    inputs: InputOption = None,
    python: PythonOption = None,
    daemon: DaemonOption = True,
) -> None:
    """Draw the graph of a model as SVG: nested by modules, shapes on the edges; modules fold by a click.

    The interpreter of the model needs igraph: pip install igraph.

    Examples:

        mase-server draw net.py -o net.svg

        mase-server draw net.py -o - --model Encoder | rsvg-convert > net.png

    Exit status: 0 drawn, 1 there is no graph or it cannot be drawn, 2 wrong usage.
    """
    from mase_server.cli.session import Subject

    place = {"model": model, "original": original or None, "colours": colours.value}
    with _told():
        svg = fetch_drawing(Subject(file, tuple(inputs or ()), python, daemon), place)
    if str(target) == "-":
        say(svg)
        return
    try:
        target.write_text(svg, "utf-8")
    except OSError as error:
        say(f"error: cannot write {target}: {error.strerror}", error=True)
        raise typer.Exit(2) from None


class View(StrEnum):
    """The views that `compile` shows."""

    BREAKS = "breaks"
    DYNAMO = "dynamo"
    ATEN = "aten"
    JOINT = "joint"
    INDUCTOR = "inductor"
    EXPORT = "export"
    ONNX = "onnx"


def compile_model(
    file: FileArgument,
    view: Annotated[View, typer.Option(help="Where torch.compile breaks, its graphs, code or exports.")] = View.BREAKS,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="WITH",
            help="Tell the difference to another view, fx for the model as it is called, a revision of git, inputs "
            "('x: f32[8,4]'), or passes ('quantize default=fixed(8,4)').",
        ),
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Inductor's code for the CPU, also where there is a GPU.")] = False,
    output: Annotated[Format, typer.Option("--format", help="Text, or a JSON object.")] = Format.TEXT,
    model: ModelOption = None,
    inputs: InputOption = None,
    python: PythonOption = None,
    daemon: DaemonOption = True,
) -> None:
    """Show what PyTorch's compilers make of a model: graph breaks, graphs, Inductor's code, the exported program.

    The model runs with the inputs of its file, and again at other sizes, so that recompilations show. No kernel is
    built. Every part of a graph stands below the line of the source that it comes from.

    Examples:

        mase-server compile net.py

        mase-server compile net.py --view export

        mase-server compile net.py --format json | jq '.models[].breaks'

        mase-server compile net.py --view inductor --compare HEAD

    Exit status: 0 shown, 1 it cannot be shown, or not exported; 2 wrong usage.
    """
    from mase_server.cli.session import Subject

    with _told():
        subject = Subject(file, tuple(inputs or ()), python, daemon)
        if compare is not None and view is View.BREAKS:
            view = View.DYNAMO
        found = ask_daemon(subject, lambda path: request_compiled(path, model, view, cpu))
        other = None if compare is None else _compile_other(subject, model, view, compare)
    if other is not None:
        own = _Side(view.value, found)
        differences = _list_differences(other, own) if other.earlier else _list_differences(own, other)
        if output is Format.JSON:
            say_json({"models": [{"model": title, "difference": text} for title, text in differences]})
        else:
            print_lines(Line(((text or f"{title} is the same in both", ""),)) for title, text in differences)
        raise typer.Exit(0)
    if output is Format.JSON:
        say_json({"models": [{"model": title, **told} for title, told in found]})
    else:
        for title, told in found:
            print_lines(_compiled_lines(title, told, view))
    sys.stdout.flush()
    raise typer.Exit(int(any(told["problem"] for _, told in found)))


def request_compiled(path: str, model: str | None, view: View, cpu: bool = False) -> Talk[list[tuple[str, Compiled]]]:
    """The model of a title, else all models of the file. cpu: for the CPU, also where there is a GPU."""
    shown = View.DYNAMO if view is View.BREAKS else view

    def refuse(error: Exception) -> Compiled:
        return {
            "view": shown.value, "text": "", "lines": [], "graphs": 0, "operations": 0, "breaks": [], "recompiles": [],
            "sizes": [], "kernels": [], "problem": str(error), "place": None,
        }  # fmt: skip

    return ask_each_model(
        "mase/compiled", path, model, {"view": shown.value} | ({"device": "cpu"} if cpu else {}), refuse
    )


def _compile_other(subject: Subject, model: str | None, view: View, compare: str) -> _Side:
    """The other side of a comparison; Refused, BadParameter."""
    if compare == "fx":
        talk = partial(ask_each_model, "mase/transformed", model=model, given={"original": True})
        return _Side(compare, ask_daemon(subject, talk), earlier=True)
    if compare in list(View):
        return _Side(compare, ask_daemon(subject, lambda path: request_compiled(path, model, View(compare))))
    if re.match(r"\w+\s*:", compare):
        other = replace(subject, inputs=tuple(compare.split(";")))
    elif (text := read_revision(subject.file, compare)) is not None:
        other = replace(subject, text=text)
    else:
        return _Side(compare, asyncio.run(_compile_with_passes(subject, model, view, compare)))
    found = ask_daemon(other, lambda path: request_compiled(path, model, view))
    return _Side(compare, found, earlier=other.text is not None)


async def _compile_with_passes(subject: Subject, model: str | None, view: View, passes: str) -> list[tuple[str, Any]]:
    async with daemon_for(subject.wanted, Listener()) as daemon:
        await daemon.wait(subject.path)
        try:
            steps = resolve_steps(parse_steps(shlex.split(passes)), await daemon.passes.refresh(subject.path))
        except UsageError as error:
            why = f"{passes!r} is no view, inputs or revision that git knows, and as passes: {error}"
            raise typer.BadParameter(why, param_hint="--compare") from error
        given = {"view": view.value, "passes": True}
        return await ask_own_daemon(daemon, apply_and_ask("mase/compiled", subject.path, model, given, steps))


def _list_differences(before: _Side, after: _Side) -> list[tuple[str, str]]:
    """The title of each model of both, and the difference of its texts, as `diff -u` tells it."""
    texts = [{title: told["text"].split("\n") for title, told in side.models} for side in (before, after)]
    return [
        (title, "\n".join(unified_diff(text, texts[1][title], before.name, after.name, lineterm="")))
        for title, text in texts[0].items()
        if title in texts[1]
    ]


def _compiled_lines(title: str, told: Compiled, view: View) -> Iterator[Line]:
    if told["problem"] and not told["text"]:
        yield Line(((f"{title}: not compiled: {told['problem']}", ""),))
        return
    graphs, breaks = format_count(told["graphs"], "graph"), format_count(len(told["breaks"]), "break")
    head = f"{graphs}, {format_count(told['operations'], 'operation')}"
    if view not in (View.EXPORT, View.ONNX):
        times = format_count(len(told["recompiles"]), "time")
        head += f", {breaks}" + (f", compiled again {times} at other sizes" if told["recompiles"] else "")
    yield Line(((f"{title}: {head}", "bold"),))
    sources = Sources()
    for one in told["breaks"]:
        where = f"{from_here(one['file'])}:{one['line']}: " if one["file"] else ""
        rest = (one["explanation"], *((one["advice"],) if one["advice"] else one["hints"]))
        yield Line((("\n    ".join((f"{where}graph break: {one['reason']}", *filter(None, rest))), ""),))
        if one["fix"] is not None:
            yield from fix_lines(sources, one["fix"])
    for again in told["recompiles"]:
        where = f"{from_here(again['file'])}:{again['line']}: " if again["file"] else ""
        yield Line(((f"{where}{again['function']} is compiled again: {again['size']}", ""),))
    if view is not View.BREAKS:
        yield Line((("\n" + told["text"], ""),))


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two that are compared. models: title, and an answer with a text.  earlier: was it before the other?"""

    name: str
    models: Sequence[tuple[str, Any]]
    earlier: bool = False


class _told:
    """End the program on a refusal, with status 2 if it names something that is not there."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from mase_server.cli.session import Refused

        if isinstance(error, Refused):
            say(f"error: {error}", error=True)
            raise typer.Exit(error.status) from None


# The graph of a model from the daemon's API, prepared for printing.

#: The columns requested for each node.
_COLUMNS = (
    "name", "op", "target", "mase_op", "mase_type", "family", "scope", "value", "flops", "file", "line", "column",
    "inputs", "format",
)  # fmt: skip
_TABLES = {"value": "values", "scope": "scopes", "file": "files"}


@dataclass(frozen=True, slots=True)
class Node:
    """A node. scope: the path of its module.  inputs: names.  place: file and line, if known."""

    name: str
    op: str
    target: str
    mase_op: str
    mase_type: str
    family: str
    scope: str
    value: Any
    flops: int | None
    file: str | None
    line: int
    inputs: tuple[str, ...]
    format: str | None


@dataclass(frozen=True)
class Graph:
    """model: as in `mase/models`.  stale: it belongs to an older text.  types: of modules, by path."""

    path: str
    model: Mapping[str, Any]
    nodes: tuple[Node, ...]
    types: Mapping[str, str]
    stale: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes by name; with a scope, inputs may be missing because they come from outside."""
        return {node.name: node for node in self.nodes}


def request_graph(wanted: Params) -> Talk[list[Any]]:
    """Ask for all pages of `mase/graph`, which are of one trace: a new one meanwhile begins them anew."""
    pages: list[Any] = []
    start: int | None = 0
    while start is not None:
        page = yield "mase/graph", {**wanted, "start": start}
        if pages and (page["sha256"], page["generation"]) != (pages[0]["sha256"], pages[0]["generation"]):
            pages, start = [], 0
            continue
        pages.append(page)
        start = page["next"]
    return pages


def fetch_graph(subject: Subject, model: str | None, scope: str | None) -> Graph:
    """The graph of a model or of one of its modules; Refused."""

    def talk(path: str) -> Talk[Graph]:
        wanted = {key: value for key, value in {"path": path, "model": model, "scope": scope}.items() if value}
        pages = yield from request_graph({**wanted, "columns": list(_COLUMNS)})
        known = yield "mase/models", {"path": path}
        names = {}
        if scope:
            whole = yield "mase/graph", {**wanted, "scope": "", "columns": ["name"]}
            names = dict(zip(whole["columns"]["row"], whole["columns"]["name"], strict=True))
        told = next(each for each in known["models"] if each["title"] == pages[0]["model"])
        return _graph_from_pages(path, told, pages, names)

    return ask_daemon(subject, talk)


def fetch_drawing(subject: Subject, place: Mapping[str, Any]) -> str:
    """The SVG of a model; Refused."""

    def talk(path: str) -> Talk[str]:
        wanted = {key: value for key, value in place.items() if value is not None}
        drawn = yield "mase/draw", {"path": path, **wanted}
        return str(drawn["svg"])

    return ask_daemon(subject, talk)


#: A node as a page of `mase/graph` has it: the name of each column with its cell.
NodeRow = dict[str, Any]


def _graph_from_pages(path: str, model: Mapping[str, Any], pages: Sequence[Answer], names: dict[int, str]) -> Graph:
    rows = [row for page in pages for row in _rows_from_columns(page)]
    names = names | {row["row"]: row["name"] for row in rows}
    nodes = tuple(_node_from_row(row, names) for row in rows)
    types = {scope: kind for page in pages for scope, kind in page["scopes"]}
    return Graph(path, model, nodes, types, pages[0]["stale"])


def _rows_from_columns(page: Answer) -> list[NodeRow]:
    """The columns of a page as rows, with indices replaced by values."""
    columns = dict(page["columns"])
    for name, table in _TABLES.items():
        columns[name] = [page[table][index] if index >= 0 else None for index in columns[name]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _node_from_row(row: NodeRow, names: Mapping[int, str]) -> Node:
    facts = {key: row[key] for key in ("name", "op", "target", "mase_op", "mase_type", "family", "flops", "format")}
    file = row["file"]["path"] if row["file"] else None
    inputs = tuple(names[each] for each in row["inputs"] if each in names)
    scope = row["scope"][0] if row["scope"] else ""
    return Node(scope=scope, value=row["value"], file=file, line=row["line"], inputs=inputs, **facts)


# Graphs for drawing programs: Graphviz and Mermaid. Modules are boxes around their nodes.

_MARKS = re.compile(r'["#&<>`%\\]')


@dataclass(slots=True)
class Module:
    """A module by its path, "" for the whole model, with its contents in order of execution."""

    path: str
    held: list[Module | Node] = field(default_factory=list)


def print_dot(graph: Graph) -> None:
    """Print for Graphviz."""
    say("\n".join(_dot_lines(graph)))


def print_mermaid(graph: Graph) -> None:
    """Print for Markdown pages."""
    say("\n".join(_mermaid_lines(graph)))


def _module_tree(graph: Graph) -> Module:
    modules = {"": Module("")}

    def module(path: str) -> Module:
        if path not in modules:
            modules[path] = Module(path)
            module(path.rpartition(".")[0]).held.append(modules[path])
        return modules[path]

    for node in graph.nodes:
        module(node.scope).held.append(node)
    return modules[""]


def _box_title(graph: Graph, module: Module) -> str:
    kind = graph.types.get(module.path, "")
    return f"{module.path.rpartition('.')[2]}{': ' if kind else ''}{kind}"


def _graph_edges(graph: Graph) -> Iterator[tuple[Node, Node]]:
    known = graph.by_name
    yield from ((known[name], node) for node in graph.nodes for name in node.inputs if name in known)


def _dot_lines(graph: Graph) -> Iterator[str]:
    yield f"digraph {_dot_text(graph.model['title'])} {{"
    yield '  node [shape=box, style=rounded, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    yield from _dot_module(graph, _module_tree(graph), "  ")
    for before, after in _graph_edges(graph):
        yield f"  {_dot_text(before.name)} -> {_dot_text(after.name)} [label={_dot_text(value_of(before))}];"
    yield "}"


def _dot_module(graph: Graph, module: Module, indent: str) -> Iterator[str]:
    for each in module.held:
        if isinstance(each, Node):
            yield f"{indent}{_dot_text(each.name)} [label={_dot_text(_node_label(each))}];"
        else:
            yield f"{indent}subgraph {_dot_text(f'cluster_{each.path}')} {{ label={_dot_text(_box_title(graph, each))};"
            yield from _dot_module(graph, each, indent + "  ")
            yield f"{indent}}}"


def _node_label(node: Node) -> str:
    name = name_of(node)
    return name if name == node.mase_op else f"{name}: {node.mase_op}"


def _dot_text(text: str) -> str:
    escaped = reveal(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _mermaid_lines(graph: Graph) -> Iterator[str]:
    numbers = {node.name: number for number, node in enumerate(graph.nodes)}
    yield "flowchart TD"
    yield from _mermaid_module(graph, _module_tree(graph), "  ", numbers)
    for before, after in _graph_edges(graph):
        shape = value_of(before)
        arrow = f"-->|{_mermaid_text(shape)}|" if shape else "-->"
        yield f"  n{numbers[before.name]} {arrow} n{numbers[after.name]}"


def _mermaid_module(graph: Graph, module: Module, indent: str, numbers: dict[str, int]) -> Iterator[str]:
    for each in module.held:
        if isinstance(each, Node):
            yield f"{indent}n{numbers[each.name]}[{_mermaid_text(_node_label(each))}]"
        else:
            yield f"{indent}subgraph {_mermaid_text(each.path)} [{_mermaid_text(_box_title(graph, each))}]"
            yield from _mermaid_module(graph, each, indent + "  ", numbers)
            yield f"{indent}end"


def _mermaid_text(text: str) -> str:
    """A text in Mermaid, with the special characters of Mermaid, Markdown and HTML escaped."""
    escaped = _MARKS.sub(lambda found: f"#{ord(found[0])};", reveal(text))
    return f'"{escaped}"'


# A graph as a table by modules, and as JSON.

_HEAD = ("node", "operator", "result", "from", "FLOPs", "format", "line")
#: Maximum characters of the list of inputs in a row.
_INPUTS = 40


def print_text(graph: Graph) -> None:
    """Print a row for each node, below its modules."""
    lens = lens_text(SimpleNamespace(**graph.model), graph.stale)  # type: ignore[arg-type]
    head = Line(((f"{graph.model['title']}", "bold"), (f" ({reveal(from_here(graph.path))}): {lens}", "")))
    rows = list(_graph_rows(graph))
    used = [place for place, name in enumerate(_HEAD) if name != "format" or any(row[place] for row in rows)]
    table = align_table_columns(
        [_HEAD[place] for place in used], [[row[place] for place in used] for row in rows], right={4}
    )
    is_node = [True, *(bool(row[1]) for row in rows)]
    print_lines([head, *(Line(((text, "" if of else "dim"),)) for text, of in zip(table, is_node, strict=True))])


def _graph_rows(graph: Graph) -> Iterator[tuple[str, ...]]:
    shown: list[str] = []
    for node in graph.nodes:
        parts = node.scope.split(".") if node.scope else []
        common = next((depth for depth, pair in enumerate(zip(shown, parts, strict=False)) if pair[0] != pair[1]),
                      min(len(shown), len(parts)))  # fmt: skip
        for depth in range(common, len(parts)):
            kind = graph.types.get(".".join(parts[: depth + 1]), "")
            yield "  " * depth + parts[depth] + (f": {kind}" if kind else ""), *[""] * (len(_HEAD) - 1)
        shown = parts
        yield _node_row(graph, node, len(parts))


def _node_row(graph: Graph, node: Node, depth: int) -> tuple[str, ...]:
    inputs = ", ".join(_input_name(graph.by_name.get(name), name, node.scope) for name in node.inputs)
    inputs = inputs if len(inputs) <= _INPUTS else inputs[: _INPUTS - 1] + "…"
    line = str(node.line) if node.file == graph.path else f"{Path(node.file).name}:{node.line}" if node.file else ""
    flops = format_with_prefix(node.flops, "").strip() if node.flops else ""
    return "  " * depth + name_of(node), node.mase_op, value_of(node), inputs, flops, node.format or "", line


def name_of(node: Node) -> str:
    """The name of a layer, or of the node for anything else."""
    return node.target.rpartition(".")[2] if node.op == "call_module" else node.name


def _input_name(node: Node | None, name: str, scope: str) -> str:
    """An input's name in a row of this module: a layer's path, or its own name if it is in the same module."""
    if node is None or node.op != "call_module":
        return name
    return name_of(node) if node.scope == scope else node.target


def value_of(node: Node) -> str:
    """The node's result, if it contains tensors."""
    return label_values([node.value]) if has_tensor(node.value) else ""


def print_json(graph: Graph) -> None:
    """Print one JSON object: {"file", "model", "stale", "complete", "modules", "nodes"}."""
    nodes = [asdict(node) | {"value": value_map(node.value), "inputs": list(node.inputs)} for node in graph.nodes]
    told = {
        "file": graph.path,
        "model": graph.model["title"],
        "stale": graph.stale,
        "complete": graph.model["complete"],
    }
    say_json({**told, "modules": dict(graph.types), "nodes": nodes})
