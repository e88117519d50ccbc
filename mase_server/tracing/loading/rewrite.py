"""Rewriting a syntax tree so that every binding, parameter, return and expression reports its value.

Only calls of `__mase__` are added: around values where the form allows it, else as statements (or, in comprehensions,
as a condition that is always true) right after the binding. Nothing of the person's own is moved, repeated or left out,
and every added node carries the position of the node that it reports, so tracebacks stay as they were.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from mase_server.snapshot import KINDS
from mase_server.tracing.loading.names import Names, is_plain
from mase_server.tracing.loading.source import Places, Span
from mase_server.tracing.loading.targets import Located, Target, bound, captured, last_of_each, parameters

REPORTER = "__mase__"
PARAMETER, BINDING, RETURN, EXPRESSION = range(len(KINDS))

_REPORTED_EXPRESSIONS = (
    ast.Call, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.BoolOp,
    ast.Await,
)  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Loop = TypeVar("_Loop", ast.For, ast.AsyncFor)
_With = TypeVar("_With", ast.With, ast.AsyncWith)


class Site(NamedTuple):
    """A place that reports values. Lines from 1, columns from 0 in code points; `kind` indexes `snapshot.KINDS`.

    name: the bound name, "" for returns and expressions.  function: qualified name of the enclosing function as Python
    writes it (`GPT.forward`, `outer.<locals>.inner`), "" at module and class level.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: int
    function: str


@dataclass(slots=True)
class _Scope:
    """A function or class around the node being visited.

    qualname: as Python writes it.  function: that of the innermost function.  receiver: name of a method's own first
    parameter.  global_names: what `global` declares there.
    """

    qualname: str
    function: str
    is_class: bool = False
    receiver: str = ""
    global_names: frozenset[str] = frozenset()


class Rewriter(ast.NodeTransformer):
    """Rewrites one module's tree in place; `sites` says afterwards what each index means."""

    def __init__(self, names: Names, places: Places, *, expressions: bool) -> None:
        self.sites: list[Site] = []
        self._names = names
        self._places = places
        self._expressions = expressions
        self._scopes = [_Scope("", "")]

    def visit(self, node: ast.AST) -> ast.AST:
        """Rewrite a node and, if it is an expression worth it, wrap it in a report."""
        if not (self._expressions and isinstance(node, _REPORTED_EXPRESSIONS) and self._worth_reporting(node)):
            return self._inside(node)
        return self._report(EXPRESSION, "", node, self._places.span(node), self._expression_inside(node))

    def _worth_reporting(self, node: ast.expr) -> bool:
        if not isinstance(getattr(node, "ctx", None), ast.Load | None):
            return False
        if isinstance(node, ast.Name) and node.id == self._scopes[-1].receiver:
            return False
        return self._names.may_be_tensor(node)

    def _inside(self, node: ast.AST) -> ast.AST:
        """Rewrite what is inside a node, without reporting the node itself."""
        rewritten: ast.AST = super().visit(node)
        return rewritten

    def _expression_inside(self, node: ast.expr) -> ast.expr:
        rewritten = self._inside(node)
        assert isinstance(rewritten, ast.expr)
        return rewritten

    def _expression(self, node: ast.expr) -> ast.expr:
        rewritten = self.visit(node)
        assert isinstance(rewritten, ast.expr)
        return rewritten

    def _condition(self, node: ast.expr) -> ast.expr:
        """Rewrite what is only tested for truth.

        Python tests each operand of `a or b` there once and throws it away; wrapping the whole would test it twice.
        """
        match node:
            case ast.BoolOp():
                node.values = [self._condition(value) for value in node.values]
            case ast.UnaryOp(op=ast.Not()):
                node.operand = self._condition(node.operand)
            case ast.IfExp():
                node.test, node.body = self._condition(node.test), self._condition(node.body)
                node.orelse = self._condition(node.orelse)
            case ast.Compare(ops=[_, _, *_]):
                return self._expression_inside(node)
            case _:
                return self._expression(node)
        return node

    def _block(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            rewritten = self.visit(statement)
            if isinstance(rewritten, list):
                out += rewritten
            elif isinstance(rewritten, ast.stmt):
                out.append(rewritten)
        return out

    # Reports

    def _report(self, kind: int, name: str, at: Located, span: Span, value: ast.expr) -> ast.Call:
        self.sites.append(Site(*span, name, kind, self._scopes[-1].function))
        index = _at(at, ast.Constant(len(self.sites) - 1))
        return _at(at, ast.Call(_at(at, ast.Name(REPORTER, ast.Load())), [index, value], []))

    def _report_name(self, kind: int, target: Target) -> ast.Call:
        read = _at(target.node, ast.Name(target.name, ast.Load()))
        return self._report(kind, target.name, target.node, target.span, read)

    def _statements(self, kind: int, targets: Iterable[Target]) -> list[ast.stmt]:
        return [_at(target.node, ast.Expr(self._report_name(kind, target))) for target in targets]

    def _bind(self, target: ast.Name, value: ast.expr, at: ast.expr) -> ast.expr:
        return self._report(BINDING, target.id, at, self._places.span(target), value)

    # Scopes

    def _qualname(self, name: str) -> str:
        outer = self._scopes[-1]
        if not outer.qualname or name in outer.global_names:
            return name
        return f"{outer.qualname}.{name}" if outer.is_class else f"{outer.qualname}.<locals>.{name}"

    def _enter_function(self, name: str, arguments: ast.arguments, body: Sequence[ast.AST], *, bound: bool) -> None:
        qualname = self._qualname(name)
        first = [*arguments.posonlyargs, *arguments.args][:1]
        receiver = first[0].arg if bound and first else ""
        # A function inside a method still sees the method's `self`.
        receiver = receiver or ("" if self._scopes[-1].is_class else self._scopes[-1].receiver)
        self._scopes.append(_Scope(qualname, qualname, False, receiver, _declared_global(body)))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Report parameters at entry; decorators, defaults and annotations stay as they are."""
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """As visit_FunctionDef."""
        return self._function(node)

    def _function(self, node: _Function) -> ast.AST:
        if self._names.compiled_elsewhere(node):
            return node
        method = self._scopes[-1].is_class and not _is_static(node)
        self._enter_function(node.name, node.args, node.body, bound=method)
        documented = int(ast.get_docstring(node, clean=False) is not None)
        entry = self._statements(PARAMETER, parameters(node.args, self._places, skip=int(method)))
        node.body = [*node.body[:documented], *entry, *self._block(node.body[documented:])]
        self._scopes.pop()
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """`lambda x: v` becomes `lambda x: (report x, report v)[-1]`."""
        self._enter_function("<lambda>", node.args, (), bound=False)
        reports: list[ast.expr] = [self._report_name(PARAMETER, p) for p in parameters(node.args, self._places)]
        body = self._returned(node.body)
        self._scopes.pop()
        last = _at(node.body, ast.UnaryOp(ast.USub(), _at(node.body, ast.Constant(1))))
        every = _at(node.body, ast.Tuple([*reports, body], ast.Load()))
        node.body = _at(node.body, ast.Subscript(every, last, ast.Load())) if reports else body
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Only the body: bases, keywords and decorators hold no tensors worth a hint."""
        self._scopes.append(_Scope(self._qualname(node.name), self._scopes[-1].function, is_class=True))
        node.body = self._block(node.body)
        self._scopes.pop()
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Report the returned expression, once, as a return."""
        if node.value is not None:
            node.value = self._returned(node.value)
        return node

    def _returned(self, value: ast.expr) -> ast.expr:
        if is_plain(value):
            return value
        return self._report(RETURN, "", value, self._places.span(value), self._expression_inside(value))

    # Bindings

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        """Names report around the value, names inside tuples by statements after the assignment."""
        plain, at = is_plain(node.value), node.value
        node.value = self._expression(node.value)
        after: list[Target] = []
        for target in node.targets:
            if isinstance(target, ast.Name):
                node.value = node.value if plain else self._bind(target, node.value, at)
            else:
                after += [] if plain else bound(target, self._places)
        node.targets = [self._target(target) for target in node.targets]
        return [node, *self._statements(BINDING, last_of_each(after))]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """As a plain assignment; the annotation stays as it is."""
        if node.value is not None:
            plain, at = is_plain(node.value), node.value
            node.value = self._expression(node.value)
            if isinstance(node.target, ast.Name) and not plain:
                node.value = self._bind(node.target, node.value, at)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        """The new value is known only after the statement."""
        node.value = self._expression(node.value)
        after = self._statements(BINDING, bound(node.target, self._places))
        self._target(node.target)
        return [node, *after]

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        """Report around the value."""
        plain, at = is_plain(node.value), node.value
        node.value = self._expression(node.value)
        if not plain:
            node.value = self._bind(node.target, node.value, at)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        """Report the targets at the start of every turn."""
        return self._loop(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        """As visit_For."""
        return self._loop(node)

    def _loop(self, node: _Loop) -> _Loop:
        node.iter = self._expression(node.iter)
        reports: list[ast.stmt] = self._statements(BINDING, last_of_each(bound(node.target, self._places)))
        node.target = self._target(node.target)
        node.body = [*reports, *self._block(node.body)]
        node.orelse = self._block(node.orelse)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        """Report what `as` binds as soon as its context has been entered."""
        return self._with(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        """As visit_With."""
        return self._with(node)

    def _with(self, node: _With) -> _With:
        """`with a as x, b as y:` becomes the nested statements that it stands for: b may bind x again."""
        entered: list[tuple[ast.withitem, list[ast.stmt]]] = []
        for item in node.items:
            item.context_expr = self._expression(item.context_expr)
            reports: list[ast.stmt] = []
            if item.optional_vars is not None:
                reports = self._statements(BINDING, last_of_each(bound(item.optional_vars, self._places)))
                item.optional_vars = self._target(item.optional_vars)
            entered.append((item, reports))
        body: list[ast.stmt] = self._block(node.body)
        for item, reports in reversed(entered[1:]):
            inner: ast.stmt = _at(node, type(node)([item], [*reports, *body]))
            body = [inner]
        node.items, node.body = [entered[0][0]], [*entered[0][1], *body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """A tuple of reports as the first condition: never empty, hence always true."""
        node.iter = self._expression(node.iter)
        reports: list[ast.expr] = [
            self._report_name(BINDING, t) for t in last_of_each(bound(node.target, self._places))
        ]
        node.target = self._target(node.target)
        node.ifs = [self._condition(condition) for condition in node.ifs]
        if reports:
            node.ifs.insert(0, _at(node.target, ast.Tuple(reports, ast.Load())))
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        """Report what the pattern captured at the start of the case's body; the pattern itself stays as it is."""
        names = {target.name: target for target in reversed(list(captured(node.pattern, self._places)))}
        if node.guard is not None:
            node.guard = self._condition(node.guard)
        node.body = [*self._statements(BINDING, reversed(names.values())), *self._block(node.body)]
        return node

    def _target(self, target: ast.expr) -> ast.expr:
        """Rewrite the expressions inside a target: `x` in `x[i] = v` is read, and may be a tensor."""
        return target if isinstance(target, ast.Name) else self._expression_inside(target)

    # Expressions whose parts are not all values

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The callee itself is no tensor, but what it is looked up on may be one: `x.view(...)`."""
        if not isinstance(node.func, ast.Name):
            node.func = self._expression_inside(node.func)
        node.args = [self._expression(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self._expression(keyword.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """What stands before the dot, unless it is a module or class."""
        if not self._names.rooted_outside(node.value):
            node.value = self._expression(node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """What stands before the bracket, unless it is a module or class, and the parts of the index."""
        if not self._names.rooted_outside(node.value):
            node.value = self._expression(node.value)
        node.slice = self._expression(node.slice)
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """The awaitable is no tensor, its result may be one."""
        node.value = self._expression_inside(node.value)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        """The iterator that is delegated to is no tensor."""
        node.value = self._expression_inside(node.value)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        """Only the body: the types stay as they are."""
        node.body = self._block(node.body)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Only the condition."""
        node.test = self._condition(node.test)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """The test is a condition, not a value."""
        node.test = self._condition(node.test)
        node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """As visit_If."""
        node.test = self._condition(node.test)
        node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """The test is a condition, the branches are values."""
        node.test = self._condition(node.test)
        node.body, node.orelse = self._expression(node.body), self._expression(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """All operands but the last are tested."""
        *tested, last = node.values
        node.values = [*(self._condition(value) for value in tested), self._expression(last)]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """`not` tests, the others compute."""
        inner = self._condition if isinstance(node.op, ast.Not) else self._expression
        node.operand = inner(node.operand)
        return node

    def _untouched(self, node: ast.AST) -> ast.AST:
        return node

    # Before Python 3.12 the nodes inside f-strings carry wrong positions.
    visit_JoinedStr = visit_TemplateStr = _untouched
    visit_Raise = visit_Delete = visit_TypeAlias = visit_Import = visit_ImportFrom = _untouched


_Node = TypeVar("_Node", bound=ast.expr | ast.stmt)


def _at(place: Located | ast.stmt, node: _Node) -> _Node:
    node.lineno, node.col_offset = place.lineno, place.col_offset
    node.end_lineno, node.end_col_offset = place.end_lineno, place.end_col_offset
    return node


def _is_static(node: _Function) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list)


def _declared_global(body: Sequence[ast.AST]) -> frozenset[str]:
    """Names under a `global` statement of a function's own body (not of the functions and classes inside it)."""
    found: set[str] = set()
    pending = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif not isinstance(node, _Function | ast.ClassDef | ast.expr):
            pending += ast.iter_child_nodes(node)
    return frozenset(found)
