"""Building an executable fx graph from a recording, with the guards under which it holds.

The guards are a part of the graph: its code checks the sizes of its inputs before it computes anything. They are
attached to the graph's code generator, so copies of the graph, and modules made from it, keep them.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.amp import autocast_mode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import PythonCode

from mase_server.ir.allowed import CheckpointError, require_writable
from mase_server.ops.paths import attribute as attribute
from mase_server.ops.paths import writable_path
from mase_server.ops.types import Kwargs, TensorType
from mase_server.tracing.guards import (
    Guard,
    GuardError,
    SizeGuards,
    Source,
    check_value,
    describe_look,
    place_of,
    size_guards,
)
from mase_server.tracing.recording.calls import Call, Constant, Constants, Look, Ref, Run, Scope, references
from mase_server.tracing.recording.sizes import ARITHMETIC, RELATIONS, Term
from mase_server.tracing.recording.values import Rebuild
from mase_server.tracing.symbols.fitting import Atom, Expr
from mase_server.tracing.symbols.probing import MismatchError, Probed, merge

CreateNode = Callable[[str, Any, tuple[Any, ...], Kwargs], fx.Node]


def _has_constants_of(run: Run, base: Run) -> bool:
    """Do two runs hold the same tensors that torch did not make, such as of numpy? Of meta tensors the shape counts."""
    pairs = [(value, run.constants.get(name)) for name, value in base.constants.items()]
    tensors = [(one, other) for one, other in pairs if isinstance(one, torch.Tensor)]
    return all(
        isinstance(other, torch.Tensor)
        and one.shape == other.shape
        and (one.is_meta or other.is_meta or torch.equal(one, other))
        for one, other in tensors
    )


def used_calls(run: Run) -> list[bool]:
    """For each call: does it become a node? Unused helpers, attributes and templates do not."""
    used = [False] * len(run.calls)
    for source in references([look.arguments for look in run.looks]):
        used[source] = True
    for index in range(len(run.calls) - 1, -1, -1):
        call = run.calls[index]
        if not (call.helper or call.kind == "get_attr"):
            used[index] = True
        if used[index]:
            for source in call.sources:
                used[source] = True
    return used


class GraphBuilder:
    """Builds the fx graph of a recording; generic in its symbols where probing found them.

    `nodes[i]` is the node of call `i`, None if it was dropped. Each node's meta has `scope` (Scope), `call` (index)
    and `value` (the description of its result).  create_node: makes nodes of `graph`, as fx's does.  enter: is
    called with the scope of each node before the node is made.
    """

    def __init__(
        self,
        run: Run,
        probed: Probed | None = None,
        create_node: CreateNode | None = None,
        enter: Callable[[Scope], None] | None = None,
    ) -> None:
        self.run = run
        self.graph = fx.Graph()
        self._create = create_node or self.graph.create_node
        self._enter = enter
        self._generic = probed if probed is not None and probed.generic else None
        self.nodes: list[fx.Node | None] = [None] * len(run.calls)
        self._trace_sizes: dict[str, fx.Node] = {}
        self._casting: torch.dtype | None = None
        self._context: fx.Node | None = None
        self._sources = _symbol_sources(self._generic) if self._generic else {}

    def build(self) -> fx.Graph:
        """The finished graph."""
        self._build_nodes()
        set_guards(self.graph, self._size_guards())
        return self.graph

    def names(self) -> list[str | None]:
        """The name of each call's node, None for those that do not become nodes; nodes get no arguments then."""
        create = self._create
        self._create = lambda kind, target, args, kwargs: create(kind, target, (), {})
        self._build_nodes()
        return [None if node is None else node.name for node in self.nodes]

    def _build_nodes(self) -> None:
        looks = self.looks()[::-1]
        for index, used in enumerate(used_calls(self.run)):
            self._look_again(looks, index)
            if used:
                call = self.run.calls[index]
                if not call.helper:
                    self._switch_autocast(call.cast if call.kind != "output" else None)
                self.nodes[index] = self._build_node(index, call)

    def guards(self) -> list[str]:
        """The texts of the graph's guards; the graph itself need not be built."""
        looks = [describe_look(look.asked, seen, place_of(look.stack)) for look, seen in self.looks()]
        return [*self._size_guards().texts(), *looks]

    def _size_guards(self) -> SizeGuards:
        if self._generic is None:
            return size_guards(self.run, [self.run], lambda sizes: None)
        generic = self._generic
        return size_guards(self.run, generic.runs, generic.fitter.fit, generic.points[0], generic.fixed)

    def looks(self) -> list[tuple[Look, Any]]:
        """The looks at values that the graph repeats, each with the value that it must see, in order.

        A look that saw other things at other sizes without changing the graph, or what it holds, is left out.
        """
        runs = self._generic.runs if self._generic is not None else [self.run]
        kept = []
        alike = all(len(run.looks) == len(self.run.looks) and _has_constants_of(run, self.run) for run in runs)
        for index, look in enumerate(self.run.looks):
            found = [run.looks[index] for run in runs] if alike else [look]
            try:
                seen = merge([each.seen for each in found], self._generic.fitter, runs) if self._generic else look.seen
            except MismatchError:
                continue
            kept.append((look, seen))
        return kept

    def _look_again(self, looks: list[tuple[Look, Any]], index: int) -> None:
        while looks and looks[-1][0].after <= index:
            look, seen = looks.pop()
            self._switch_autocast(None)
            given = look.asked, self._build_argument(look.arguments), self._build_argument(seen), place_of(look.stack)
            self._create("call_function", check_value, given, {})

    def _switch_autocast(self, dtype: torch.dtype | None) -> None:
        """Enter and leave autocast where the recorded forward did, with the nodes that torch.export uses."""
        if dtype == self._casting:
            return
        if self._context is not None:
            self._create("call_function", autocast_mode._exit_autocast, (self._context,), {})
            self._context = None
        if dtype is not None:
            given = ("cpu", dtype, True, None)
            self._context = self._create("call_function", autocast_mode._enter_autocast, given, {})
        self._casting = dtype

    def _build_node(self, index: int, call: Call) -> fx.Node:
        path, kind = self.run.scopes[call.scope]
        scope = Scope(path, kind if path else None)
        if self._enter is not None:
            self._enter(scope)
        args, kwargs = call.args, call.kwargs
        if self._generic is not None and index in self._generic.arguments:
            args, kwargs = self._generic.arguments[index]
        target = call.target
        if isinstance(target, Constant):
            name = target.name
            target = name if call.kind == "get_attr" else _Named(name, self.run.constants[name])
        node = self._create(call.kind, target, self._build_argument(args), self._build_argument(kwargs))
        node.meta.update(scope=scope, call=index, value=call.value)
        return node

    def _build_argument(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self.nodes[value.index]
        if isinstance(value, Expr):
            return self._build_expression(value)
        if isinstance(value, Constant):
            return self._create("get_attr", value.name, (), {})
        if isinstance(value, (list, tuple)):
            items = [self._build_argument(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {key: self._build_argument(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*(self._build_argument(item) for item in (value.start, value.stop, value.step)))
        return value

    def _build_expression(self, expr: Expr) -> Any:
        total: Any = expr.constant
        for factor, atoms in expr.terms:
            product: Any = factor
            for atom in atoms:
                product = (
                    self._apply_arithmetic(operator.mul, product, self._build_atom(atom))
                    if product != 1
                    else self._build_atom(atom)
                )
            total = self._apply_arithmetic(operator.add, total, product) if total != 0 else product
        return total

    def _build_atom(self, atom: Atom) -> fx.Node:
        node = self._size_of_symbol(atom.symbol)
        if atom.offset:
            node = self._apply_arithmetic(operator.add, node, atom.offset)
        return node if atom.divisor == 1 else self._apply_arithmetic(operator.floordiv, node, atom.divisor)

    def _apply_arithmetic(self, function: Callable[..., Any], first: Any, second: Any) -> fx.Node:
        return self._create("call_function", function, (first, second), {})

    def _size_of_symbol(self, symbol: str) -> fx.Node:
        found = self._trace_sizes.get(symbol)
        if found is None:
            index, dimension = self._sources[symbol]
            source = self.nodes[index]
            if source is None:
                source = self.nodes[index] = self._build_node(index, self.run.calls[index])
            found = self._trace_sizes[symbol] = self._create("call_method", "size", (source, dimension), {})
        return found


class _Named:
    """A callable object as the target of a node, under an attribute-like name that generated code can use."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def underlying_callable(target: Any) -> Any:
    """The callable behind a node's target, without the name that generated code uses for it."""
    return target._function if isinstance(target, _Named) else target


def _symbol_sources(probed: Probed) -> dict[str, tuple[int, int]]:
    """symbol -> (call, dimension) of the input tensor whose size it is."""
    found: dict[str, tuple[int, int]] = {}
    for index, calls in enumerate(zip(*(run.calls for run in probed.runs), strict=True)):
        if calls[0].kind != "placeholder" and not calls[0].helper:
            continue
        shapes = [call.value.shape for call in calls if isinstance(call.value, TensorType)]
        if len(shapes) != len(calls):
            continue
        for dimension, sizes in enumerate(zip(*shapes, strict=True)):
            for symbol in probed.fitter.symbols:
                if symbol not in found and list(sizes) == [point[symbol] for point in probed.points]:
                    found[symbol] = (index, dimension)
    return found


class _Compiled(_LazyGraphModule):
    """A GraphModule whose code is generated when first needed; ir.allowed.UnwritableName if that is impossible."""

    def _real_recompile(self) -> PythonCode:
        require_writable(self.graph)
        return super()._real_recompile()


def build_graph_module(graph: fx.Graph, root: nn.Module, constants: Constants) -> fx.GraphModule:
    """A GraphModule over the root's own modules and parameters; the root itself is not changed.

    Targets that cannot be written as code are renamed.
    """
    targets: dict[str, object] = {}
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            path = node.target
            if path not in names:
                names[path] = path if path in constants else writable_path(root, path)
                targets[names[path]] = constants[path] if path in constants else attribute(root, path)
            if names[path] != path:
                node.target = names[path]
    module = _Compiled(targets, graph, type(root).__name__)
    module.training = root.training
    return module


def compile_code(module: fx.GraphModule) -> fx.GraphModule:
    """Generate the module's code now. That is slow, so it waits until the code is needed."""
    _LazyGraphModule.force_recompile(module)
    return module


# The guards of a graph: a check at the top of its code, and their form in a file.

_CHECK = "_mase_check_sizes"
#: The deepest expression that is accepted from a file.
_MOST_LEVELS = 40


class GuardedCode(fx.graph.CodeGen):
    """Generates a graph's code with a check of its inputs' sizes at the top."""

    def __init__(self, guards: SizeGuards) -> None:
        super().__init__()
        self.guards = guards
        self.calls = 0
        #: Inputs that the forward changes -> the tensors in them at the last call.
        self._given: dict[str, list[weakref.ref[torch.Tensor]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_given": {}}

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise GuardError unless all guards hold for these inputs."""
        self.guards.check(inputs)
        if self.guards.state:
            self.calls += 1
            if self.calls > 1:
                raise GuardError(f"{self.guards.state_text}; give the state to the model as an input instead")
        for name in self.guards.changed:
            self._check_is_new(name, inputs.get(name))

    def _check_is_new(self, name: str, value: Any) -> None:
        """Raise GuardError where an input that the forward would have changed is given as it was at the last call."""
        held = Rebuild.of(value).tensors
        last = self._given.get(name, ())
        if held and len(held) == len(last) and all(one is known() for one, known in zip(held, last, strict=True)):
            raise GuardError(
                f"{name} is the same as in the last call; the model would have changed it then, and the graph does not:"
                " pass the one that the last call returned, or a copy to compute the same step again"
            )
        self._given[name] = list(map(weakref.ref, held))

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """The head of the function, followed by the check."""
        names = [variable.partition(":")[0].partition("=")[0].strip().lstrip("*") for variable in free_vars]
        head = super().gen_fn_def(free_vars, maybe_return_annotation, **options)
        given = ", ".join(f"{name!r}: {name}" for name in names if name != "self")
        return f"{head}\n    {_CHECK}({{{given}}})"

    def additional_globals(self) -> list[tuple[str, Any]]:
        """The check function that the code calls."""
        return [*super().additional_globals(), (_CHECK, self.check)]


def set_guards(graph: fx.Graph, guards: SizeGuards) -> None:
    """Let the code of `graph` check these guards."""
    if guards:
        graph.set_codegen(GuardedCode(guards))


def guards_of(graph: fx.Graph) -> SizeGuards:
    """The guards of a graph on sizes."""
    code = graph._codegen
    return code.guards if isinstance(code, GuardedCode) else SizeGuards()


def texts_of(graph: fx.Graph) -> list[str]:
    """Every assumption of a graph, one text for each guard."""
    texts = guards_of(graph).texts()
    for node in graph.nodes:
        if node.op == "call_function" and node.target is check_value:
            asked, _, seen, place = node.args
            texts.append(describe_look(str(asked), seen, str(place)))
    return texts


def write_guards(guards: SizeGuards) -> list[Any]:
    """Guards as plain data."""
    sources = [[each.name, each.input, [list(step) for step in each.path], each.dimension] for each in guards.sources]
    conditions = [
        [each.relation, _term_to_lists(each.left), _term_to_lists(each.right), each.place] for each in guards.guards
    ]
    return [sources, conditions, guards.state, *([list(guards.changed)] if guards.changed else [])]


def _term_to_lists(term: Term) -> Any:
    return [_term_to_lists(part) for part in term] if isinstance(term, tuple) else term


def read_guards(data: Any) -> SizeGuards:
    """Guards from plain data of a file, each part checked; CheckpointError for anything else."""
    try:
        rows, conditions, state, *more = data
        changed = tuple(map(_read_guard_text, more[0] if more else ()))
        sources = tuple(
            Source(
                _read_guard_text(name),
                _read_guard_text(given),
                tuple((flag is True, _read_guard_key(flag, key)) for flag, key in path),
                int(dimension),
            )
            for name, given, path, dimension in rows
        )
        names = {source.name for source in sources}
        guards = tuple(
            Guard(
                _read_guard_text(relation, RELATIONS),
                _read_term(left, names),
                _read_term(right, names),
                _read_guard_text(place),
            )
            for relation, left, right, place in conditions
        )
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"its guards are not understood: {error}") from None
    return SizeGuards(sources, guards, _read_guard_text(state), changed)


def _read_guard_text(value: Any, known: Any = None) -> str:
    if not isinstance(value, str) or (known is not None and value not in known):
        raise ValueError(f"{value!r:.80}")
    return value


def _read_guard_key(is_attribute: Any, key: Any) -> Any:
    if not isinstance(key, (str, int)) or (is_attribute and not (isinstance(key, str) and not key.startswith("_"))):
        raise ValueError(f"{key!r:.80}")
    return key


def _read_term(value: Any, names: set[str], level: int = 0) -> Term:
    if type(value) is int or (isinstance(value, str) and value in names):
        return value
    operator, left, right = value
    if level > _MOST_LEVELS or not isinstance(value, list):
        raise ValueError(f"{value!r:.80}")
    return (
        _read_guard_text(operator, ARITHMETIC),
        _read_term(left, names, level + 1),
        _read_term(right, names, level + 1),
    )
