"""MaseTracer: the public interface of recording, as an fx.Tracer.

It records, unless a subclass overrides one of `PROXY_METHODS`: then it traces proxies, as fx does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from torch import fx, nn
from torch.fx._symbolic_trace import PH

from mase_server.ir.build import GraphBuilder
from mase_server.ir.session import Session
from mase_server.ops.paths import attribute
from mase_server.ops.types import Kwargs
from mase_server.tracing.recording.calls import Run, Scope, ScopeContextManager
from mase_server.tracing.recording.leaf_functions import as_leaves
from mase_server.tracing.recording.recorder import is_torch_leaf
from mase_server.tracing.recording.values import holds_tensor
from mase_server.tracing.symbols.probing import Probed

#: Methods of an fx.Tracer that work on proxies: a subclass that overrides one expects proxies.
PROXY_METHODS = (
    "call_module", "create_arg", "proxy", "create_proxy", "getattr", "create_args_for_root", "to_bool", "iter", "keys",
    "path_of_module",
)  # fmt: skip


class MaseTracer(fx.Tracer):
    """An fx tracer that runs the real forward on meta tensors instead of proxies.

    custom_leaf_layers: module classes that become one node.  custom_leaf_modules: Python modules; each call of one
    of their functions becomes one node.  custom_leaf_functions: the same for single functions.
    param_shapes_constant: accepted for fx; recorded shapes of parameters are always numbers.  A subclass that
    overrides one of PROXY_METHODS is traced with proxies, as in fx; `create_node` is called for every recorded node,
    with `scope` set to the node's.
    Source: `chop.ir.graph.mase_graph.MaseTracer`.

    >>> graph = MaseTracer().trace(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_module', 'output']
    """

    def __init__(
        self,
        custom_leaf_modules: tuple[ModuleType, ...] = (),
        custom_leaf_layers: tuple[type[nn.Module], ...] = (),
        custom_leaf_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__(custom_leaf_modules, custom_leaf_functions, param_shapes_constant)  # type: ignore[arg-type]
        self.custom_leaf_layers = tuple(custom_leaf_layers)
        self.custom_leaf_functions = (*custom_leaf_functions, *_functions_of(custom_leaf_modules))
        self.scope: Any = Scope("", None)
        self.run: Run | None = None
        self.probed: Probed | None = None
        self.builder: GraphBuilder | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Does a module become one node? Those of torch.nn and of `custom_leaf_layers` do; all others are run
        through."""
        return isinstance(m, self.custom_leaf_layers) or is_torch_leaf(m, module_qualified_name)

    def leaf_functions(self, root: nn.Module) -> tuple[Callable[..., Any], ...]:
        """The Python functions whose calls become one node each when `root` is traced."""
        return self.custom_leaf_functions

    def trace(self, root: nn.Module | Callable[..., Any], concrete_args: Mapping[str, Any] | None = None) -> fx.Graph:
        """The graph of `root`'s forward on these arguments, generic in the symbols that probing finds.

        Without tensors among `concrete_args`, a search finds inputs. Proxies, as in fx, trace functions, arguments
        that hold `fx.PH`, and everything for a subclass that overrides how proxies work.
        """
        self.node_name_to_scope.clear()
        if not isinstance(root, nn.Module) or _wants_proxies(type(self)) or _holds_placeholder(concrete_args):
            return self._trace_proxies(root, concrete_args)
        from mase_server.tracing.inputs.examples import example_arguments

        session = Session(root, example_arguments(root, concrete_args), is_leaf=self.is_leaf_module)
        self.root = root
        with as_leaves(self.leaf_functions(root)):
            self.run = session.record()
            self.probed = session.probe(self.run, for_graph=True)
        self.builder = GraphBuilder(self.run, self.probed, self._create_recorded, self._enter)
        self.graph = self.builder.graph
        self.scope = Scope("", None)
        return self.builder.build()

    def _create_recorded(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: Kwargs) -> fx.Node:
        if kind != "call_module":
            return self.create_node(kind, target, args, kwargs)
        # As in fx, a leaf's node is inside that leaf's scope.
        with ScopeContextManager(self.scope, attribute(self.root, target), target):
            return self.create_node(kind, target, args, kwargs)

    def _enter(self, scope: Scope) -> None:
        self.scope.module_path, self.scope.module_type = scope.module_path, scope.module_type

    def _trace_proxies(self, root: Any, concrete_args: Mapping[str, Any] | None) -> fx.Graph:
        """Trace with proxies, as fx does; example tensors become inputs, because proxies cannot be mixed with
        constants."""
        concrete = {name: value for name, value in (concrete_args or {}).items() if not holds_tensor(value)}
        return super().trace(root, concrete or None)


def _functions_of(modules: tuple[ModuleType, ...]) -> Iterator[Callable[..., Any]]:
    """The public Python functions of modules."""
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and not name.startswith("_"):
                yield value


def _wants_proxies(kind: type[fx.Tracer]) -> bool:
    """Does a subclass from outside fx and this package override a method that works on proxies?"""
    return any(
        name in vars(base)
        for base in kind.__mro__
        if not base.__module__.startswith(("torch.fx.", "mase_server.")) and base is not object
        for name in PROXY_METHODS
    )


def _holds_placeholder(value: Any) -> bool:
    """Is fx.PH somewhere in nested arguments?"""
    if isinstance(value, Mapping):
        return any(map(_holds_placeholder, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_placeholder, value))
    return value is PH
