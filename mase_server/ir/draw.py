"""Drawings of a graph: an SVG with a box for each scope, colours for families of operators and shapes on the edges; a
table of its operations, as HTML and as text; and its modules as a tree of text.

A scope is a contiguous run of nodes, so a module that is called twice is drawn twice and boxes have no cycles. Folding
is CSS (`:has`), without a script.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import fx, nn

from mase_server.dtypes import SHORT, short
from mase_server.formats import with_parameters
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ir.layout import Layout, Line, Placed, build_cluster_tree
from mase_server.ir.number_formats import Formats, format_text, number_formats, operator_of
from mase_server.ops.table import op_info, parameters_of
from mase_server.ops.types import TensorType
from mase_server.tracing.recording.values import DictOf, TupleOf
from mase_server.visible import escape_markup, reveal

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph


#: family -> fill colour; related families share a colour.
COLOURS: Mapping[str, str] = {
    "matmul": "#bcd7f7", "conv": "#a9c8f5", "attention": "#d9c8f5", "recurrent": "#cdbdf0", "norm": "#fce3a6",
    "activation": "#f9c9a8", "pool": "#f6b8b0", "embedding": "#c9e7d3", "elementwise": "#dcefc3",
    "reduction": "#f2d5e8", "shape": "#eceef1", "index": "#e3e8ee", "creation": "#e7ece4", "loss": "#f5b5c4",
    "fft": "#c3e9ee", "other": "#f4f4f4", "placeholder": "#b5ead0", "get_attr": "#d8f3e5", "output": "#b5ead0",
}  # fmt: skip
#: Colours of number formats, in the order in which a graph first uses them.
FORMAT_COLOURS = (
    "#bcd7f7",
    "#f9c9a8",
    "#c9e7d3",
    "#f2d5e8",
    "#fce3a6",
    "#cdbdf0",
    "#c3e9ee",
    "#f6b8b0",
    "#dcefc3",
    "#e3e8ee",
)
UNROUNDED, UNROUNDED_COLOUR = "not rounded", "#f4f4f4"
FONT, SMALL_FONT = 6.3, 5.0
MARGIN = 16.0
LEGEND, CELL = 20.0, 90.0

STYLE = (
    "text{font:10px system-ui,sans-serif;fill:#1d2733}.o{font-weight:600}.n,.t{fill:#5b6775;font-size:9px}"
    ".e{fill:none;stroke:#8794a3;stroke-width:1}.b{stroke:#9aa6b4;stroke-width:.8}"
    ".s{fill:#fff;stroke:#b9c3cf;stroke-width:1}.d1{fill:#f6f8fb}.d2{fill:#eef2f7}.d3{fill:#e7ecf3}"
    ".l{fill:#3d4a5a;font-weight:600}input{margin:2px;width:11px;height:11px}"
    ".c:has(>foreignObject input:checked)>.i{display:none}.c:has(>foreignObject input:checked)>.s{fill:#d5dde8}"
)


def draw(
    graph: MaseGraph, file: str | os.PathLike[str] = "mase_graph.svg", colours: Literal["family", "format"] = "family"
) -> None:
    """Write a graph as SVG. Scopes fold away by their check boxes in viewers that show HTML in SVG.

    colours: what determines a box's colour: the family of the operator, or the number format of the result.
    Raises ImportError if igraph, which computes the layout, is not installed; OSError if the file cannot be written.
    """
    Path(file).write_text(graph_svg(graph, colours), encoding="utf-8")


def graph_svg(graph: MaseGraph, colours: Literal["family", "format"] = "family") -> str:
    """The drawing as text."""
    return _Drawing(graph, colours == "format").text()


class _Drawing:
    """One drawing: the texts in the boxes, and the layout of the boxes."""

    def __init__(self, graph: MaseGraph, by_format: bool) -> None:
        self._model = graph.module
        self._nodes = list(graph.fx_graph.nodes)
        self._shapes = _Shapes(graph)
        self._colours = self._format_colours() if by_format else COLOURS
        self._group = self._result_format if by_format else self._operator_family
        self._paths_of_mention = _scope_paths(self._nodes)
        self._labels = {node: self._node_label(node) for node in self._nodes}
        kinds = {path: _kind_name(node) for node, path in self._paths_of_mention.items() if path} | _recorded_kinds(
            graph
        )
        root = build_cluster_tree(
            self._nodes, self._paths_of_mention, {path: kind for path, kind in kinds.items() if path}
        )
        root.kind = type(graph.module).__name__
        self._placed = Layout(self._nodes, {node: self._box_size(node) for node in self._nodes}).place(root)

    def _box_size(self, node: fx.Node) -> tuple[float, float, float]:
        width = max(map(len, self._labels[node])) * FONT + 16
        written = 4 + SMALL_FONT * len(self._shapes.of(node)) if node.users else 0.0
        return width, 30.0, max(width / 2, written)

    def text(self) -> str:
        """The SVG document."""
        cell = max([CELL, *(FONT * len(group) + 24 for group in self._used_groups())])
        width = max(self._placed.width, 3 * cell) + 2 * MARGIN
        columns = int((width - 2 * MARGIN) // cell)
        legend = LEGEND * -(-len(self._used_groups()) // columns)
        height = self._placed.height + 2 * MARGIN + legend
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{STYLE}</style>'
            f'<rect width="100%" height="100%" fill="#fff"/>'
        )
        body = "".join(self._cluster(self._placed, MARGIN, MARGIN + legend, 0))
        return f"{head}{''.join(self._legend_lines(columns, cell))}{body}</svg>\n"

    def _used_groups(self) -> list[str]:
        found = {self._group(node) for node in self._nodes}
        return [group for group in self._colours if group in found]

    def _legend_lines(self, columns: int, cell: float) -> Iterator[str]:
        for number, group in enumerate(self._used_groups()):
            x, y = MARGIN + cell * (number % columns), 8 + LEGEND * (number // columns)
            yield f'<rect class="b" x="{x:.0f}" y="{y:.0f}" width="12" height="12" rx="3" '
            yield f'fill="{self._colours[group]}"/>'
            yield f'<text x="{x + 17:.0f}" y="{y + 10:.0f}">{escape_markup(group)}</text>'

    def _cluster(self, placed: Placed, x: float, y: float, depth: int) -> Iterator[str]:
        cluster = placed.cluster
        yield f'<g class="c"><rect class="s d{min(depth, 3)}" x="{x:.0f}" y="{y:.0f}" width="{placed.width:.0f}" '
        yield f'height="{placed.height:.0f}" rx="6"/>'
        yield f'<foreignObject x="{x + 2:.0f}" y="{y + 2:.0f}" width="17" height="17"><input '
        yield 'xmlns="http://www.w3.org/1999/xhtml" type="checkbox" title="fold"/></foreignObject>'
        yield f'<text class="l" x="{x + 20:.0f}" y="{y + 14:.0f}">{escape_markup(cluster.path)}'
        yield f'<tspan class="t"> {escape_markup(cluster.kind)}</tspan></text><g class="i">'
        for line in placed.lines:
            yield f'<path class="e" d="{_edge_path(line, x, y)}"/>'
        for child, dx, dy in placed.children:
            inner = self._cluster(child, x + dx, y + dy, depth + 1) if isinstance(child, Placed) else None
            yield from self._node_lines(child, x + dx, y + dy) if isinstance(child, fx.Node) else inner or ()
        yield "</g></g>"

    def _node_lines(self, node: fx.Node, x: float, y: float) -> Iterator[str]:
        operator, name = self._labels[node]
        width = max(len(operator), len(name)) * FONT + 16
        middle = x + width / 2
        yield f"<g><title>{escape_markup(self._tooltip_text(node))}</title>"
        yield f'<rect class="b" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="30" rx="5" '
        yield f'fill="{self._colours[self._group(node)]}"/>'
        yield f'<text class="o" text-anchor="middle" x="{middle:.0f}" y="{y + 13:.0f}">{escape_markup(operator)}</text>'
        yield f'<text class="n" text-anchor="middle" x="{middle:.0f}" y="{y + 24:.0f}">{escape_markup(name)}</text>'
        shape = self._shapes.of(node)
        if shape and node.users:
            yield f'<text class="t" x="{middle + 4:.0f}" y="{y + 39:.0f}">{escape_markup(shape)}</text>'
        yield "</g>"

    def _node_label(self, node: fx.Node) -> tuple[str, str]:
        """The operator, and the name by which the user knows the node."""
        if node.op in ("placeholder", "output", "get_attr"):
            return node.op, _clip_text(str(node.target))
        return _clip_text(self._operator_info(node).mase_op), _clip_text(self._own_name(node))

    def _own_name(self, node: fx.Node) -> str:
        if node.op != "call_module":
            return node.name
        inside = self._paths_of_mention[node]
        return str(node.target).removeprefix(f"{inside}." if inside else "")

    def _operator_info(self, node: fx.Node) -> Any:
        module = attribute(self._model, str(node.target)) if node.op == "call_module" else None
        return op_info(node.op, underlying_callable(node.target), module if isinstance(module, nn.Module) else None)

    def _operator_family(self, node: fx.Node) -> str:
        family = node.op if node.op in COLOURS else str(self._operator_info(node).family)
        return family if family in COLOURS else "other"

    def _result_format(self, node: fx.Node) -> str:
        return self._shapes.formats.get(node, UNROUNDED)

    def _format_colours(self) -> Mapping[str, str]:
        found = dict.fromkeys(self._shapes.formats.values())
        colours = {text: FORMAT_COLOURS[index % len(FORMAT_COLOURS)] for index, text in enumerate(found)}
        return {**colours, UNROUNDED: UNROUNDED_COLOUR}

    def _tooltip_text(self, node: fx.Node) -> str:
        target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
        lines = [f"{node.name}: {node.op} {target}", f"scope: {self._paths_of_mention[node] or '(the model)'}"]
        if node.op == "call_module":
            lines.append(repr(attribute(self._model, str(node.target))).partition("\n")[0])
        taken = ", ".join(f"{source.name} {self._shapes.of(source)}" for source in node.all_input_nodes)
        return "\n".join([*lines, f"takes {taken or 'nothing'}", f"gives {self._shapes.of(node) or 'no tensor'}"])


class _Shapes:
    """Types of results in words, with symbols where probing found them and number formats in place of element types.

    formats: of results, as text.
    """

    def __init__(self, graph: MaseGraph) -> None:
        self._probed = graph.probed
        self._facts = graph.facts if graph.modified else {}
        self.formats = {node: str(each) for node, each in number_formats(graph.fx_graph, graph.module).items()}
        self._texts: dict[fx.Node, str] = {}

    def of(self, node: fx.Node) -> str:
        """As `f32[B, T, 768]` or `fixed(8,4)[B, T, 768]`; several tensors are separated by commas; "" for none."""
        if node not in self._texts:
            self._texts[node] = _clip_text(self._result_text(node), 48)
        return self._texts[node]

    def _result_text(self, node: fx.Node) -> str:
        # A rounding has the shape of its input.
        shaped: Any = node.args[0] if format_text(node) is not None else node
        value, index = shaped.meta.get("value"), shaped.meta.get("call")
        format = self.formats.get(node)
        if self._probed is None or not self._probed.symbols or index is None:
            return self._describe_values([self._facts.get(node) if value is None else value], format)
        return self._describe_values([run.calls[index].value for run in self._probed.runs], format)

    def _describe_values(self, values: list[Any], format: str | None = None) -> str:
        first = values[0]
        if isinstance(first, TensorType):
            return f"{format or short(first.dtype)}[{', '.join(self._size_texts([value.shape for value in values]))}]"
        parts: tuple[Any, ...] = ()
        if isinstance(first, TupleOf):
            parts = tuple(zip(*(value.items for value in values), strict=False))
        elif isinstance(first, DictOf):
            parts = tuple(zip(*([item for _, item in value.items] for value in values), strict=False))
        return ", ".join(text for part in parts if (text := self._describe_values(list(part))))

    def _size_texts(self, shapes: list[tuple[int, ...]]) -> Iterator[str]:
        for sizes in zip(*shapes, strict=False):
            fitted = None if self._probed is None or len(set(sizes)) == 1 else self._probed.fitter.fit(sizes)
            yield str(sizes[0] if fitted is None else fitted)


def _scope_paths(nodes: list[fx.Node]) -> dict[fx.Node, str]:
    """The scope of each node; a node without one, a size or one added by a pass, gets the scope of the next node."""
    found: dict[fx.Node, str] = {}
    path = ""
    for node in reversed(nodes):
        scope = node.meta.get("scope")
        path = found[node] = path if scope is None else scope.module_path
    return found


def _kind_name(node: fx.Node) -> str:
    scope = node.meta.get("scope")
    kind = None if scope is None else scope.module_type
    return kind.__name__ if isinstance(kind, type) else str(kind or "")


def _recorded_kinds(graph: MaseGraph) -> dict[str, str]:
    """The kinds of all recorded scopes: scopes that only hold other scopes have no node of their own."""
    if graph.recording is None:
        return {}
    return {path: kind.__name__ for path, kind in graph.recording.run.scopes}


def _clip_text(text: str, size: int = 28) -> str:
    text = reveal(text)
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _edge_path(line: Line, x: float, y: float) -> str:
    x0, start, bend, x1, straight, end = line
    x0, x1 = x + x0, x + x1
    start, bend, straight, end = y + start, y + bend, y + straight, y + end
    if abs(x0 - x1) < 1:
        return f"M{x0:.0f} {start:.0f}V{end:.0f}"
    middle = (bend + straight) / 2
    curve = f"C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {straight:.0f}"
    return f"M{x0:.0f} {start:.0f}V{bend:.0f}{curve}V{end:.0f}"


# A graph as a table and as a tree, for notebooks and terminals. User-defined names are escaped.

#: The most nodes that are shown; the rest are counted.
MOST_ROWS = 500
_HEAD = ("layer", "operator", "result", "format", "parameters", "FLOPs")
_NUMBERS = frozenset({"parameters", "FLOPs"})


class _Table:
    """A row for each node that computes: its path or name, MASE's operator, its result and its cost."""

    def __init__(self, graph: MaseGraph) -> None:
        nodes = [node for node in graph.nodes if node.op.startswith("call")]
        self.name, self.summary = type(graph.root).__name__, _summarize_graph(graph, len(nodes))
        self.rows = list(_table_rows(graph, nodes[:MOST_ROWS]))
        self.left = f"… and {len(nodes) - MOST_ROWS:,} more nodes" if len(nodes) > MOST_ROWS else ""
        self.used = [n for n, name in enumerate(_HEAD) if name != "format" or any(row[n] for row in self.rows)]


def graph_html_table(graph: MaseGraph) -> str:
    """The operations as HTML."""
    table = _Table(graph)
    parts = [f"<b>{escape_markup(table.name)}</b>: {escape_markup(table.summary)}", "<table><thead>"]
    parts.append(_html_row("th", table.used, _HEAD) + "</thead><tbody>")
    parts += [_html_row("td", table.used, row) for row in table.rows]
    left = f"<p>{table.left}</p>" if table.left else ""
    return f"<div>{''.join(parts)}</tbody></table>{left}</div>"


def graph_text_table(graph: MaseGraph) -> str:
    """The operations as text, in columns."""
    table = _Table(graph)
    lines = [[reveal(row[n]) for n in table.used] for row in (_HEAD, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numbers = [_HEAD[n] in _NUMBERS for n in table.used]
    aligned = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, numbers, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([reveal(f"{table.name}: {table.summary}"), *aligned, *filter(None, [table.left])])


def graph_text_tree(graph: MaseGraph) -> str:
    """The operations as text, each with its result below the modules that it belongs to."""
    nodes = [node for node in graph.nodes if node.op.startswith("call")]
    paths, kinds, facts = _scope_paths(list(graph.fx_graph.nodes)), _recorded_kinds(graph), graph.facts
    lines, above = [f"{type(graph.root).__name__}: {_summarize_graph(graph, len(nodes))}"], list[str]()
    for node in nodes[:MOST_ROWS]:
        path = paths[node].split(".") if paths[node] else []
        same = next((n for n, pair in enumerate(zip(path, above, strict=False)) if pair[0] != pair[1]), len(path))
        same = min(same, len(above))
        for depth in range(same, len(path)):
            kind = kinds.get(".".join(path[: depth + 1]), "")
            lines.append(f"{'  ' * (depth + 1)}{path[depth]}{kind and f' ({kind})'}")
        above = path
        operator, layer = operator_of(node, graph.module), _layer_path(node).rpartition(".")[2]
        name = f"{layer} ({operator})" if layer else operator
        lines.append(f"{'  ' * (len(path) + 1)}{name}: {_fact_text(facts.get(node))}")
    more = [f"… and {len(nodes) - MOST_ROWS:,} more nodes"] if len(nodes) > MOST_ROWS else []
    return "\n".join([*map(reveal, lines), *more])


def _summarize_graph(graph: MaseGraph, count: int) -> str:
    count_of = f"{count:,} operation{'' if count == 1 else 's'}"
    parameters, _ = parameters_of(graph.root)
    inputs = [f"{node.name}: {_fact_text(graph.facts.get(node))}" for node in graph.nodes if node.op == "placeholder"]
    flops = graph.scope_costs()[""].flops
    return f"{count_of} · {parameters:,} parameters · {flops:,} FLOPs · {', '.join(inputs) or 'no inputs'}"


def _table_rows(graph: MaseGraph, nodes: list[fx.Node]) -> Iterator[tuple[str, ...]]:
    facts, costs, formats = graph.facts, graph.costs(), number_formats(graph.fx_graph, graph.module)
    for node in nodes:
        flops = costs[node.name].flops
        yield (
            _layer_path(node) or node.name,
            operator_of(node, graph.module),
            _fact_text(facts.get(node)),
            _format_cell(formats, node),
            f"{_count_parameters(graph, node):,}" if _layer_path(node) else "",
            f"{flops:,}" if flops else "",
        )


def _layer_path(node: fx.Node) -> str:
    """The path of the layer that a node runs, also if it runs with rounded parameters; "" for a node that is no
    layer."""
    layer = node.args[0] if node.target is with_parameters else node
    is_layer = isinstance(layer, fx.Node) and (layer is not node or node.op == "call_module")
    return str(layer.target) if is_layer and isinstance(layer, fx.Node) else ""


def _count_parameters(graph: MaseGraph, node: fx.Node) -> int:
    return parameters_of(attribute(graph.module, _layer_path(node)))[0]


def _format_cell(formats: Formats, node: fx.Node) -> str:
    return str(formats[node]) if node in formats else ""


def _fact_text(fact: Any) -> str:
    """A fact as hints show it: `f32[2, 8]`."""
    if isinstance(fact, TensorType):
        return f"{SHORT.get(fact.dtype, fact.dtype)}[{', '.join(map(str, fact.shape))}]"
    if isinstance(fact, tuple):
        return f"({', '.join(map(_fact_text, fact))})"
    if isinstance(fact, dict):
        return f"{{{', '.join(f'{key}: {_fact_text(value)}' for key, value in fact.items())}}}"
    return "" if fact is None else str(fact)


def _html_row(tag: str, used: list[int], cells: tuple[str, ...]) -> str:
    parts = []
    for index in used:
        align = "right" if _HEAD[index] in _NUMBERS else "left"
        parts.append(f'<{tag} style="text-align: {align}">{escape_markup(cells[index])}</{tag}>')
    return f"<tr>{''.join(parts)}</tr>"
