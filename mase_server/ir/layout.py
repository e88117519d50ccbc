"""The layout of a drawing: layers from top to bottom, where each scope is a box with a layout of its own.

The order within layers is igraph's (Sugiyama), which knows neither boxes nor widths; an isotonic regression here
finds places that respect widths. An edge that enters or leaves a box does so at a port on its border, and one that
passes layers has a lane of its own, so no line crosses a node. Lengths are pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from torch import fx

GAP, ROW_GAP, PADDING, HEADER = 14.0, 30.0, 12.0, 20.0
LANE = 4.0
SWEEPS = 6

#: A line: straight down to the second height, a bend to the third, then straight down.
Line = tuple[float, float, float, float, float, float]


@dataclass(eq=False)
class Cluster:
    """The nodes of one run of one scope, a contiguous part of the graph; `children` in order."""

    path: str
    kind: str
    first: int
    last: int = -1
    children: list[fx.Node | Cluster] = field(default_factory=list)


@dataclass(eq=False)
class Placed:
    """A laid out cluster: the places of its children's upper left corners, its lines, its ports by source node."""

    width: float
    height: float
    children: list[tuple[fx.Node | Placed, float, float]]
    lines: list[Line]
    cluster: Cluster
    inputs: dict[fx.Node, float] = field(default_factory=dict)
    outputs: dict[fx.Node, float] = field(default_factory=dict)


@dataclass(eq=False)
class _Item:
    """An item that takes a place in a layer: a node, a box, a port or a part of a lane.

    x: its centre.  reach: how far the item, or the text beside it, extends to the right of that.  top, bottom: of its
    layer.
    """

    content: fx.Node | Placed | None
    layer: int
    width: float = LANE
    height: float = 0.0
    reach: float = LANE / 2
    x: float = 0.0
    y: float = 0.0
    top: float = 0.0
    bottom: float = 0.0


@dataclass(frozen=True, slots=True)
class _Link:
    """An edge from one layer to the next, for one source node."""

    source: fx.Node
    start: _Item
    end: _Item

    def port_shifts(self) -> tuple[float, float]:
        """How far from the centres the line leaves and arrives: boxes have ports."""
        start, end = self.start.content, self.end.content
        return (
            _port_offset(start, start.outputs, self.source) if isinstance(start, Placed) else 0.0,
            _port_offset(end, end.inputs, self.source) if isinstance(end, Placed) else 0.0,
        )


def _port_offset(placed: Placed, ports: Mapping[fx.Node, float], source: fx.Node) -> float:
    return ports[source] - placed.width / 2


def build_cluster_tree(nodes: Sequence[fx.Node], path_of: Mapping[fx.Node, str], kinds: Mapping[str, str]) -> Cluster:
    """The tree of scopes, opened and closed in the order of the nodes; kinds: the scopes that are drawn, with their
    types."""
    root = Cluster("", kinds.get("", ""), 0, len(nodes) - 1)
    stack = [root]
    for index, node in enumerate(nodes):
        wanted = _drawn_prefixes(path_of[node], kinds)
        while len(stack) > 1 and (len(stack) - 1 > len(wanted) or stack[-1].path != wanted[len(stack) - 2]):
            stack.pop().last = index - 1
        for path in wanted[len(stack) - 1 :]:
            opened = Cluster(path, kinds[path], index)
            stack[-1].children.append(opened)
            stack.append(opened)
        stack[-1].children.append(node)
    for opened in stack:
        opened.last = len(nodes) - 1
    return root


def _drawn_prefixes(path: str, kinds: Mapping[str, str]) -> list[str]:
    parts = path.split(".") if path else []
    return [prefix for size in range(1, len(parts) + 1) if (prefix := ".".join(parts[:size])) in kinds]


class Layout:
    """Lays out a tree of clusters, innermost first.

    sizes: each node's box width and height, and how far its label or box reaches to the right of its centre.
    """

    def __init__(self, nodes: Sequence[fx.Node], sizes: Mapping[fx.Node, tuple[float, float, float]]) -> None:
        self._index = {node: index for index, node in enumerate(nodes)}
        self._trace_sizes = sizes

    def place(self, cluster: Cluster) -> Placed:
        """Lay out a cluster and everything in it."""
        inner = {id(child): self.place(child) for child in cluster.children if isinstance(child, Cluster)}
        level = _Level(self, cluster, [inner.get(id(child), child) for child in cluster.children])  # type: ignore[arg-type]
        return level.finish()

    def needs(self, child: fx.Node | Placed) -> list[fx.Node]:
        """The nodes outside of a child whose results the child takes."""
        if isinstance(child, fx.Node):
            return list(child.all_input_nodes)
        return list(child.inputs)

    def size(self, child: fx.Node | Placed) -> tuple[float, float, float]:
        """Width, height and reach of a child."""
        return self._trace_sizes[child] if isinstance(child, fx.Node) else (child.width, child.height, child.width / 2)

    def leaving(self, node: fx.Node, cluster: Cluster) -> bool:
        """Is a node's result used after its cluster?"""
        return any(self._index.get(user, -1) > cluster.last for user in node.users)

    def is_inside(self, node: fx.Node, cluster: Cluster) -> bool:
        """Is a node in a cluster?"""
        return cluster.first <= self._index[node] <= cluster.last


class _Level:
    """The children, ports and lanes directly in one cluster."""

    def __init__(self, layout: Layout, cluster: Cluster, children: list[fx.Node | Placed]) -> None:
        self._layout, self._cluster = layout, cluster
        self._items: list[_Item] = []
        self._links: list[_Link] = []
        self._providers: dict[fx.Node, _Item] = {}
        self._uses: list[tuple[fx.Node, _Item]] = []
        self._inputs: dict[fx.Node, _Item] = {}
        for child in children:
            self._add_child(child)
        self._pull_down()
        self._outputs = {
            source: self._add_port(source, self._depth())
            for source in list(self._providers)
            if self._is_leaving(source)
        }
        self._thread()

    def _is_leaving(self, source: fx.Node) -> bool:
        inside = self._layout.is_inside(source, self._cluster)
        return inside and self._layout.leaving(source, self._cluster)

    def _depth(self) -> int:
        return 1 + max((item.layer for item in self._items if item.content is not None), default=0)

    def _add_child(self, child: fx.Node | Placed) -> None:
        needs = self._layout.needs(child)
        for source in needs:
            if source not in self._providers:
                port = self._inputs[source] = self._providers[source] = self._add_item(None, 0)
                port.layer = 0
        layer = 1 + max((self._providers[source].layer for source in needs), default=0)
        item = self._add_item(child, layer)
        self._uses += [(source, item) for source in needs]
        for source in [child] if isinstance(child, fx.Node) else child.outputs:
            self._providers[source] = item

    def _add_item(self, content: fx.Node | Placed | None, layer: int) -> _Item:
        width, height, reach = (LANE, 0.0, LANE / 2) if content is None else self._layout.size(content)
        item = _Item(content, layer, width, height, reach)
        self._items.append(item)
        return item

    def _add_port(self, source: fx.Node, layer: int) -> _Item:
        port = self._add_item(None, layer)
        self._uses.append((source, port))
        return port

    def _pull_down(self) -> None:
        """Place a node without inputs right above its first user."""
        fed = {id(item) for _, item in self._uses}
        for item in self._items:
            content = item.content
            if isinstance(content, fx.Node) and id(item) not in fed and content.op != "placeholder":
                layers = [user.layer for source, user in self._uses if source is content]
                item.layer = max(1, min(layers, default=2) - 1)

    def _thread(self) -> None:
        """Link neighbouring layers; a source that is used further down gets a lane."""
        uses: dict[fx.Node, list[_Item]] = {}
        for source, item in self._uses:
            uses.setdefault(source, []).append(item)
        for source, users in uses.items():
            start = self._providers[source]
            lane = {start.layer: start}
            for layer in range(start.layer + 1, max(user.layer for user in users)):
                lane[layer] = self._add_item(None, layer)
                self._links.append(_Link(source, lane[layer - 1], lane[layer]))
            self._links += [_Link(source, lane[user.layer - 1], user) for user in dict.fromkeys(users)]

    def finish(self) -> Placed:
        """Place everything."""
        rows = self._order_layers()
        self._spread_rows(rows)
        left = min(item.x - item.width / 2 for item in self._items) - PADDING
        for item in self._items:
            item.x -= left
        height = self._stack_layers(rows)
        width = max(item.x + item.reach for item in self._items) + PADDING
        width = max(width, 7.0 * len(f"{self._cluster.path} {self._cluster.kind}") + 30)
        return Placed(
            width,
            height,
            [(item.content, item.x - item.width / 2, item.y) for item in self._items if item.content is not None],
            [_link_line(link) for link in self._links],
            self._cluster,
            {source: item.x for source, item in self._inputs.items()},
            {source: item.x for source, item in self._outputs.items()},
        )

    def _order_layers(self) -> list[list[_Item]]:
        """The items of each layer from left to right."""
        numbers = {id(item): number for number, item in enumerate(self._items)}
        edges = [(numbers[id(link.start)], numbers[id(link.end)]) for link in self._links]
        places = _place_by_sugiyama(len(self._items), edges, [item.layer for item in self._items])
        rows: list[list[_Item]] = [[] for _ in range(1 + max(item.layer for item in self._items))]
        for number in sorted(range(len(places)), key=places.__getitem__):
            rows[self._items[number].layer].append(self._items[number])
        return rows

    def _spread_rows(self, rows: list[list[_Item]]) -> None:
        above: dict[int, list[tuple[_Item, float]]] = {}
        below: dict[int, list[tuple[_Item, float]]] = {}
        for link in self._links:
            start, end = link.port_shifts()
            above.setdefault(id(link.end), []).append((link.start, start - end))
            below.setdefault(id(link.start), []).append((link.end, end - start))
        for row in rows:
            _settle_row(row, [0.0] * len(row))
        for sweep in range(SWEEPS):
            near = below if sweep % 2 else above
            for row in reversed(rows) if sweep % 2 else rows:
                _settle_row(row, [_mean_position(item, near.get(id(item), [])) for item in row])

    def _stack_layers(self, rows: list[list[_Item]]) -> float:
        """Set each layer's y; ports lie on the border. Return the height."""
        y = HEADER + (ROW_GAP / 2 if self._inputs else 0.0)
        for row in rows:
            height = max((item.height for item in row), default=0.0)
            for item in row:
                item.top, item.bottom = y, y + height
                item.height = item.height if item.content is not None else height
                item.y = y + (height - item.height) / 2
            y += height + ROW_GAP if height else 0.0
        y -= 0.0 if self._outputs else ROW_GAP - PADDING
        for port in self._inputs.values():
            port.y = port.height = 0.0
            port.bottom = HEADER
        for port in self._outputs.values():
            port.y, port.height = y, 0.0
        return y


def _mean_position(item: _Item, near: list[tuple[_Item, float]]) -> float:
    return sum(other.x + shift for other, shift in near) / len(near) if near else item.x


def _settle_row(row: list[_Item], wanted: list[float]) -> None:
    """The places nearest to the wanted ones without overlaps: an isotonic regression."""
    offset, offsets = 0.0, []
    for index, item in enumerate(row):
        if index:
            offset += row[index - 1].reach + item.width / 2 + GAP
        offsets.append(offset)
    blocks: list[list[float]] = []
    for place, offset in zip(wanted, offsets, strict=True):
        blocks.append([place - offset, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (one, weight), (other, more) = blocks[-2:]
            blocks[-2:] = [[(one * weight + other * more) / (weight + more), weight + more]]
    places = [place for place, weight in blocks for _ in range(int(weight))]
    for item, place, offset in zip(row, places, offsets, strict=True):
        item.x = place + offset


def _link_line(link: _Link) -> Line:
    """The line from an item's lower end, out of its layer, and into the next layer to the upper end of another item."""
    leave, arrive = link.port_shifts()
    start, end = link.start, link.end
    lane = end.content is None and end.height
    low = end.y + end.height if lane else end.y
    return (start.x + leave, start.y + start.height, max(start.bottom, start.y), end.x + arrive, end.top, low)


def _place_by_sugiyama(count: int, edges: Sequence[tuple[int, int]], layers: list[int]) -> list[float]:
    """igraph's horizontal places. Raises ImportError where igraph is not installed."""
    try:
        igraph = import_module("igraph")
    except ImportError as error:
        raise ImportError(
            "drawing a graph needs the package igraph for its layout: pip install igraph (or mase-server[draw])"
        ) from error
    graph: Any = igraph.Graph(n=count, edges=edges, directed=True)
    return [place[0] for place in graph.layout_sugiyama(layers=layers).coords[:count]]
