"""Rewriting a module so that every binding, parameter, return and expression reports its value, and compiling it.

It only adds calls of `__mase__`: around values where the form allows it, else as statements (or, in comprehensions,
as a condition that is always true) right after the binding; and, in functions, marks of what ran (see `segments`). It
does not move, repeat or remove the user's own code, and every added node has the position of the node that it reports,
so tracebacks stay as they were.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple, TypeVar, cast

from mase_server import notebooks
from mase_server.protocol.snapshot import KINDS
from mase_server.tracing.importing.segments import COMPOUND, LEAVING, MARKS, Reason, Segment, describe_test
from mase_server.tracing.importing.source import Names, Places, Span, decode_source, is_plain, walk_tree

REPORTER = "__mase__"
PARAMETER, BINDING, RETURN, EXPRESSION = range(len(KINDS))

_REPORTED_EXPRESSIONS = (
    ast.Call, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.BoolOp,
    ast.Await,
)  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Loop = TypeVar("_Loop", ast.For, ast.AsyncFor)
_With = TypeVar("_With", ast.With, ast.AsyncWith)


class Start(NamedTuple):
    """The place at which code begins: the statement that starts at a line and column, or the one after it.

    end: where that statement ends, if the code begins after it.  undecorated: the lines of decorators that are left
    out.  function: the first line of the function whose rest it is; 0 for the module's.  names: the function's
    variables so far, which become its parameters.  call: the span of a call in the statement; the value of the variable
    `GIVEN` takes its place.
    """

    line: int = 0
    column: int = 0
    end: tuple[int, int] | None = None
    undecorated: frozenset[int] = frozenset()
    function: int = 0
    names: tuple[str, ...] = ()
    call: tuple[int, int, int, int] | None = None


#: The whole of a module.
BEGINNING = Start()
#: The variable with the value of a call that has been made already.
GIVEN = "__mase_given__"
#: The variable of the loop that is executed for the rest of a round.
ROUND = "__mase_round__"
#: The variable with the exception that is raised at the end of the round of a loop that is not gone on with.
OVER = "__mase_over__"
LOOPS = (ast.For, ast.AsyncFor, ast.While)


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
    node: _Function | None = None


class Rewriter(ast.NodeTransformer):
    """Rewrites one module's tree in place; afterwards `sites` and `segments` give the meaning of each index."""

    def __init__(self, names: Names, places: Places, *, expressions: bool, order: Order | None = None) -> None:
        self.sites: list[Site] = []
        self.segments: list[Segment] = []
        #: The segment around the node being visited, and the one at the entry of its function.
        self._segment = self._entry = -1
        self._names = names
        self._find_model_places = places
        self._expressions, self._order = expressions, order
        self._scopes = [_Scope("", "")]

    def visit(self, node: ast.AST) -> ast.AST:
        """Rewrite a node and, if it is an expression worth it, wrap it in a report."""
        if not (self._expressions and isinstance(node, _REPORTED_EXPRESSIONS) and self._worth_reporting(node)):
            return self._rewrite_inside(node)
        return self._make_report(
            EXPRESSION, "", node, self._find_model_places.span(node), self._expression_inside(node)
        )

    def _worth_reporting(self, node: ast.expr) -> bool:
        if not isinstance(getattr(node, "ctx", None), ast.Load | None):
            return False
        if isinstance(node, ast.Name) and node.id == self._scopes[-1].receiver:
            return False
        return self._names.may_be_tensor(node)

    def _rewrite_inside(self, node: ast.AST) -> ast.AST:
        """Rewrite what is inside a node, without reporting the node itself."""
        rewritten: ast.AST = super().visit(node)
        return rewritten

    def _expression_inside(self, node: ast.expr) -> ast.expr:
        rewritten = self._rewrite_inside(node)
        assert isinstance(rewritten, ast.expr)
        return rewritten

    def _rewrite_expression(self, node: ast.expr) -> ast.expr:
        rewritten = self.visit(node)
        assert isinstance(rewritten, ast.expr)
        return rewritten

    def _rewrite_condition(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression that is only tested for truth.

        Python tests each operand of `a or b` there once and throws it away; wrapping the whole would test it twice.
        """
        match node:
            case ast.BoolOp():
                node.values = [self._rewrite_condition(value) for value in node.values]
            case ast.UnaryOp(op=ast.Not()):
                node.operand = self._rewrite_condition(node.operand)
            case ast.IfExp():
                node.test, node.body = self._rewrite_condition(node.test), self._rewrite_condition(node.body)
                node.orelse = self._rewrite_condition(node.orelse)
            case ast.Compare(ops=[_, _, *_]):
                return self._expression_inside(node)
            case _:
                return self._rewrite_expression(node)
        return node

    def _rewrite_block(self, statements: Sequence[ast.stmt], reason: Reason | None = None) -> list[ast.stmt]:
        """Rewrite the statements of a block, with the marks of its segments. reason: why it may not have run."""
        out: list[ast.stmt] = []
        marked = self._is_marked()
        before, begins = self._segment, marked
        for statement in statements:
            if begins or (marked and isinstance(statement, COMPOUND)):
                out.append(self._begin_segment(statement, statements[-1].end_lineno or 0, reason))
                reason = None
            begins = marked and isinstance(statement, (*COMPOUND, *LEAVING))
            if marked and isinstance(statement, LEAVING):
                leaving = Reason(statement.lineno, "", type(statement).__name__.lower(), " comes first")
                self.segments[self._segment] = self.segments[self._segment]._replace(leaving=leaving)
            rewritten = self.visit(statement)
            if isinstance(rewritten, list):
                out += rewritten
            elif isinstance(rewritten, ast.stmt):
                out.append(rewritten)
        self._segment = before
        return out

    # Segments.

    def _is_marked(self) -> bool:
        """Does the code here have marks: the code of functions, not that of modules and classes?"""
        return bool(self._scopes[-1].function) and not self._scopes[-1].is_class

    def _begin_segment(self, first: ast.stmt, end_line: int, reason: Reason | None) -> ast.stmt:
        """The mark of a segment, which goes before its first statement."""
        column = 0 if self._find_model_places.starts_line(first) else self._find_model_places.span(first)[1]
        segment = Segment(first.lineno, column, end_line, self._segment, self._entry, reason=reason)
        return self._add_mark(first, segment)

    def _add_mark(self, at: ast.expr | ast.stmt, segment: Segment) -> ast.stmt:
        self._segment = len(self.segments)
        self.segments.append(segment)
        number = self._segment if self._order is None else self._order.segments[self._segment]
        index = _locate_node(at, ast.Constant(number))
        item = _locate_node(at, ast.Subscript(_locate_node(at, ast.Name(MARKS, ast.Load())), index, ast.Store()))
        return _locate_node(at, ast.Assign([item], _locate_node(at, ast.Constant(1))))

    def _rewrite_branches(self, node: ast.If | ast.While, test: ast.expr, reasons: Sequence[Reason | None]) -> None:
        """Rewrite the two blocks of a test; an `else` that is not written is added for its mark."""
        before, first = self._segment, len(self.segments)
        node.body = self._rewrite_block(node.body, reasons[0])
        second = len(self.segments)
        if not self._is_marked():
            node.orelse = self._rewrite_block(node.orelse)
            return
        if node.orelse:
            node.orelse = self._rewrite_block(node.orelse, reasons[1])
        else:
            node.orelse = [self._add_mark(test, Segment(0, 0, 0, before, self._entry, reason=reasons[1]))]
            self._segment = before
        for one, other in ((first, second), (second, first)):
            self.segments[one] = self.segments[one]._replace(other=other)

    def _describe_test(self, node: ast.If | ast.While) -> list[Reason]:
        text, scope = self._find_model_places.text(node.test), self._scopes[-1]
        optional = [] if scope.node is None else _list_optional(scope.node, node)
        return describe_test(node.test, text, node.test.lineno, optional, scope.receiver)

    # Reports.

    def _make_report(self, kind: int, name: str, at: Located, span: Span, value: ast.expr) -> ast.Call:
        self.sites.append(Site(*span, name, kind, self._scopes[-1].function))
        number = len(self.sites) - 1
        number = number if self._order is None else self._order.sites[number]
        index = _locate_node(at, ast.Constant(number))
        return _locate_node(at, ast.Call(_locate_node(at, ast.Name(REPORTER, ast.Load())), [index, value], []))

    def _report_name(self, kind: int, target: Target) -> ast.Call:
        read = _locate_node(target.node, ast.Name(target.name, ast.Load()))
        return self._make_report(kind, target.name, target.node, target.span, read)

    def _make_report_statements(self, kind: int, targets: Iterable[Target]) -> list[ast.stmt]:
        return [_locate_node(target.node, ast.Expr(self._report_name(kind, target))) for target in targets]

    def _report_binding(self, target: ast.Name, value: ast.expr, at: ast.expr) -> ast.expr:
        return self._make_report(BINDING, target.id, at, self._find_model_places.span(target), value)

    # Scopes.

    def _make_qualname(self, name: str) -> str:
        outer = self._scopes[-1]
        if not outer.qualname or name in outer.global_names:
            return name
        return f"{outer.qualname}.{name}" if outer.is_class else f"{outer.qualname}.<locals>.{name}"

    def _enter_function(
        self,
        name: str,
        arguments: ast.arguments,
        body: Sequence[ast.AST],
        *,
        bound: bool,
        node: _Function | None = None,
    ) -> None:
        qualname = self._make_qualname(name)
        first = [*arguments.posonlyargs, *arguments.args][:1]
        receiver = first[0].arg if bound and first else ""
        # A function inside a method still sees the method's `self`.
        receiver = receiver or ("" if self._scopes[-1].is_class else self._scopes[-1].receiver)
        self._scopes.append(_Scope(qualname, qualname, False, receiver, _declared_global(body), node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Report parameters at entry; decorators, defaults and annotations stay as they are."""
        return self._rewrite_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """As visit_FunctionDef."""
        return self._rewrite_function(node)

    def _rewrite_function(self, node: _Function) -> ast.AST:
        if self._names.compiled_elsewhere(node):
            return node
        method = self._scopes[-1].is_class and not _is_static(node)
        self._enter_function(node.name, node.args, node.body, bound=method, node=node)
        documented = int(ast.get_docstring(node, clean=False) is not None)
        entry = self._make_report_statements(
            PARAMETER, list_parameters(node.args, self._find_model_places, skip=int(method))
        )
        around, self._entry = self._entry, len(self.segments)
        uncalled = Reason(0, "", node.name, " was not called")
        node.body = [*node.body[:documented], *entry, *self._rewrite_block(node.body[documented:], uncalled)]
        if self._entry < len(self.segments):
            first_line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            self.segments[self._entry] = self.segments[self._entry]._replace(first_line=first_line)
        self._entry = around
        self._scopes.pop()
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """`lambda x: v` becomes `lambda x: (report x, report v)[-1]`."""
        self._enter_function("<lambda>", node.args, (), bound=False)
        reports: list[ast.expr] = [
            self._report_name(PARAMETER, p) for p in list_parameters(node.args, self._find_model_places)
        ]
        body = self._rewrite_returned(node.body)
        self._scopes.pop()
        last = _locate_node(node.body, ast.UnaryOp(ast.USub(), _locate_node(node.body, ast.Constant(1))))
        every = _locate_node(node.body, ast.Tuple([*reports, body], ast.Load()))
        node.body = _locate_node(node.body, ast.Subscript(every, last, ast.Load())) if reports else body
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Rewrite only the body: bases, keywords and decorators hold no tensors worth a hint."""
        self._scopes.append(_Scope(self._make_qualname(node.name), self._scopes[-1].function, is_class=True))
        node.body = self._rewrite_block(node.body)
        self._scopes.pop()
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Report the returned expression, once, as a return."""
        if node.value is not None:
            node.value = self._rewrite_returned(node.value)
        return node

    def _rewrite_returned(self, value: ast.expr) -> ast.expr:
        if is_plain(value):
            return value
        return self._make_report(RETURN, "", value, self._find_model_places.span(value), self._expression_inside(value))

    # Bindings.

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        """Names report around the value, names inside tuples by statements after the assignment."""
        plain, at = is_plain(node.value), node.value
        node.value = self._rewrite_expression(node.value)
        after: list[Target] = []
        for target in node.targets:
            if isinstance(target, ast.Name):
                node.value = node.value if plain else self._report_binding(target, node.value, at)
            else:
                after += [] if plain else list_bound_names(target, self._find_model_places)
        node.targets = [self._rewrite_target(target) for target in node.targets]
        return [node, *self._make_report_statements(BINDING, last_of_each(after))]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """As a plain assignment; the annotation stays as it is."""
        if node.value is not None:
            plain, at = is_plain(node.value), node.value
            node.value = self._rewrite_expression(node.value)
            if isinstance(node.target, ast.Name) and not plain:
                node.value = self._report_binding(node.target, node.value, at)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        """The new value is known only after the statement."""
        node.value = self._rewrite_expression(node.value)
        after = self._make_report_statements(BINDING, list_bound_names(node.target, self._find_model_places))
        self._rewrite_target(node.target)
        return [node, *after]

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        """Report around the value."""
        plain, at = is_plain(node.value), node.value
        node.value = self._rewrite_expression(node.value)
        if not plain:
            node.value = self._report_binding(node.target, node.value, at)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        """Report the targets at the start of every turn."""
        return self._rewrite_loop(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        """As visit_For."""
        return self._rewrite_loop(node)

    def _rewrite_loop(self, node: _Loop) -> _Loop:
        empty: Reason = Reason(node.lineno, "runs for each element of ", self._find_model_places.text(node.iter), "")
        node.iter = self._rewrite_expression(node.iter)
        reports: list[ast.stmt] = self._make_report_statements(
            BINDING, last_of_each(list_bound_names(node.target, self._find_model_places))
        )
        node.target = self._rewrite_target(node.target)
        node.body = [*reports, *self._rewrite_block(node.body, empty)]
        node.orelse = self._rewrite_block(node.orelse)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        """Report what `as` binds as soon as its context has been entered."""
        return self._rewrite_with(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        """As visit_With."""
        return self._rewrite_with(node)

    def _rewrite_with(self, node: _With) -> _With:
        """`with a as x, b as y:` becomes the equivalent nested statements, because b may bind x again."""
        entered: list[tuple[ast.withitem, list[ast.stmt]]] = []
        for item in node.items:
            item.context_expr = self._rewrite_expression(item.context_expr)
            reports: list[ast.stmt] = []
            if item.optional_vars is not None:
                reports = self._make_report_statements(
                    BINDING, last_of_each(list_bound_names(item.optional_vars, self._find_model_places))
                )
                item.optional_vars = self._rewrite_target(item.optional_vars)
            entered.append((item, reports))
        body: list[ast.stmt] = self._rewrite_block(node.body)
        for item, reports in reversed(entered[1:]):
            inner: ast.stmt = _locate_node(node, type(node)([item], [*reports, *body]))
            body = [inner]
        node.items, node.body = [entered[0][0]], [*entered[0][1], *body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """A tuple of reports as the first condition: never empty, hence always true."""
        node.iter = self._rewrite_expression(node.iter)
        reports: list[ast.expr] = [
            self._report_name(BINDING, t) for t in last_of_each(list_bound_names(node.target, self._find_model_places))
        ]
        node.target = self._rewrite_target(node.target)
        node.ifs = [self._rewrite_condition(condition) for condition in node.ifs]
        if reports:
            node.ifs.insert(0, _locate_node(node.target, ast.Tuple(reports, ast.Load())))
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        """Report what the pattern captured at the start of the case's body; the pattern itself stays as it is."""
        names = {
            target.name: target
            for target in reversed(list(iterate_captured_names(node.pattern, self._find_model_places)))
        }
        text = self._find_model_places.text(node.pattern)
        text += f" if {self._find_model_places.text(node.guard)}" if node.guard is not None else ""
        unmatched = Reason(node.pattern.lineno, "runs in the case ", text, "")
        if node.guard is not None:
            node.guard = self._rewrite_condition(node.guard)
        reports = self._make_report_statements(BINDING, reversed(names.values()))
        node.body = [*reports, *self._rewrite_block(node.body, unmatched)]
        return node

    def _rewrite_target(self, target: ast.expr) -> ast.expr:
        """Rewrite the expressions inside a target: `x` in `x[i] = v` is read, and may be a tensor."""
        return target if isinstance(target, ast.Name) else self._expression_inside(target)

    # Expressions whose parts are not all values.

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The callee itself is no tensor, but the object before the dot may be one: `x.view(...)`."""
        if not isinstance(node.func, ast.Name):
            node.func = self._expression_inside(node.func)
        node.args = [self._rewrite_expression(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self._rewrite_expression(keyword.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Rewrite the expression before the dot, unless it is a module or class."""
        if not self._names.rooted_outside(node.value):
            node.value = self._rewrite_expression(node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Rewrite the expression before the bracket, unless it is a module or class, and the parts of the index."""
        if not self._names.rooted_outside(node.value):
            node.value = self._rewrite_expression(node.value)
        node.slice = self._rewrite_expression(node.slice)
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
        """Rewrite only the body: the types stay as they are."""
        kind = "" if node.type is None else self._find_model_places.text(node.type)
        nothing = Reason(node.lineno, "runs on " if kind else "runs on errors", kind, "")
        node.body = self._rewrite_block(node.body, nothing)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        """Only the blocks have values."""
        return self._rewrite_try(node)

    def visit_TryStar(self, node: ast.TryStar) -> ast.AST:
        """As visit_Try."""
        return self._rewrite_try(node)

    def _rewrite_try(self, node: ast.Try | ast.TryStar) -> ast.AST:
        node.body = self._rewrite_block(node.body)
        for handler in node.handlers:
            self.visit(handler)
        node.orelse, node.finalbody = self._rewrite_block(node.orelse), self._rewrite_block(node.finalbody)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Rewrite only the condition."""
        node.test = self._rewrite_condition(node.test)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """The test is a condition, not a value."""
        reasons, test = self._describe_test(node), node.test
        node.test = self._rewrite_condition(node.test)
        self._rewrite_branches(node, test, reasons)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """As visit_If; the `else` of a loop says nothing about its test."""
        reasons, test = self._describe_test(node), node.test
        node.test = self._rewrite_condition(node.test)
        self._rewrite_branches(node, test, [reasons[0], None])
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """The test is a condition, the branches are values."""
        node.test = self._rewrite_condition(node.test)
        node.body, node.orelse = self._rewrite_expression(node.body), self._rewrite_expression(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """All operands but the last are tested."""
        *tested, last = node.values
        node.values = [*(self._rewrite_condition(value) for value in tested), self._rewrite_expression(last)]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """`not` tests, the others compute."""
        inner = self._rewrite_condition if isinstance(node.op, ast.Not) else self._rewrite_expression
        node.operand = inner(node.operand)
        return node

    def _untouched(self, node: ast.AST) -> ast.AST:
        return node

    # Before Python 3.12 the nodes inside f-strings carry wrong positions.
    visit_JoinedStr = visit_TemplateStr = _untouched
    visit_Raise = visit_Delete = visit_TypeAlias = visit_Import = visit_ImportFrom = _untouched


_Node = TypeVar("_Node", bound=ast.expr | ast.stmt)


def _locate_node(place: Located | ast.stmt, node: _Node) -> _Node:
    node.lineno, node.col_offset = place.lineno, place.col_offset
    node.end_lineno, node.end_col_offset = place.end_lineno, place.end_col_offset
    return node


def _is_static(node: _Function) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list)


def _list_optional(function: _Function, test: ast.If | ast.While) -> set[str]:
    """The parameters that are None by default, and that nothing binds before a test; its own blocks may."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(reversed(named), reversed(arguments.defaults), strict=False)]
    pairs += [(each, value) for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    found = {each.arg for each, value in pairs if isinstance(value, ast.Constant) and value.value is None}
    if not found:
        return found
    nodes, own = walk_tree(function), set(walk_tree(test))
    turns = any(
        isinstance(each, ast.For | ast.AsyncFor | ast.While) for each in nodes
    )  # what follows comes before, too
    return found - {
        each.id
        for each in nodes
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load) and each not in own
        and (turns or each.lineno < test.lineno)
    }  # fmt: skip


def _declared_global(body: Sequence[ast.AST]) -> frozenset[str]:
    """Names in a `global` statement of a function's own body (not of the functions and classes inside it)."""
    found: set[str] = set()
    pending = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif not isinstance(node, _Function | ast.ClassDef | ast.expr):
            pending += ast.iter_child_nodes(node)
    return frozenset(found)


# The names that syntax binds: parameters, assignment and loop targets, pattern captures.

#: Nodes that have a position and are a value or a name.
Located = ast.expr | ast.arg | ast.pattern


class Target(NamedTuple):
    """One bound name: the node whose position its report carries, and where the name itself is."""

    name: str
    node: Located
    span: Span


def list_parameters(arguments: ast.arguments, places: Places, *, skip: int = 0) -> list[Target]:
    """Every parameter, including `*args` and `**kwargs`, without the first `skip` positional ones."""
    nodes = [*arguments.posonlyargs, *arguments.args][skip:]
    nodes += [node for node in (arguments.vararg, *arguments.kwonlyargs, arguments.kwarg) if node]
    return [Target(node.arg, node, places.argument(node)) for node in nodes]


def list_bound_names(target: ast.expr, places: Places) -> list[Target]:
    """The names that an assignment target binds, left to right; attributes and items are not names."""
    match target:
        case ast.Name(id=name):
            return [Target(name, target, places.span(target))]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [name for part in parts for name in list_bound_names(part, places)]
        case ast.Starred(value=value):
            return list_bound_names(value, places)
    return []


def iterate_captured_names(pattern: ast.pattern, places: Places) -> Iterator[Target]:
    """The names that a pattern captures; each alternative of an or-pattern captures them again."""
    for node in ast.walk(pattern):
        match node:
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield Target(name, node, places.capture(node))


def last_of_each(targets: Sequence[Target]) -> list[Target]:
    """In `a, a = ...` the name holds the last value only."""
    return list({target.name: target for target in targets}.values())


# Instrumenting: the user's module, compiled so that every name it binds reports its value.
#
# The code calls the module global `__mase__(site index, value)`, which must return the value, wherever a parameter
# arrives, a name is bound, a value is returned or (with `expressions`) an expression is evaluated. Everything else,
# including tracebacks and `inspect`, behaves as if the file had been compiled plainly.

__all__ = ["REPORTER", "VERSION", "Instrumented", "Site", "instrument", "instrument_functions", "provide_default"]

#: Part of the key of cached code: raise it whenever the same source would be rewritten differently.
VERSION = 4


@dataclass(frozen=True, slots=True)
class Instrumented:
    """The code of a module and the meaning of its indices; without any if it had to be compiled plainly."""

    code: CodeType
    sites: tuple[Site, ...]
    segments: tuple[Segment, ...] = ()


def iterate_code(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions, classes and the like inside some code."""
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield value
            yield from iterate_code(value)


class Order(NamedTuple):
    """The indices of a text's sites and segments, in its order, where they are not 0, 1, 2 and so on."""

    sites: Sequence[int]
    segments: Sequence[int]


def instrument(
    source: bytes | str, path: str, *, expressions: bool = True, start: Start = BEGINNING, order: Order | None = None
) -> Instrumented:
    """Compile a module so that it reports; `path` becomes its `co_filename`.

    Raises exactly what `compile(source, path, "exec")` raises for a file with errors. A file that is nested too
    deeply for the added calls reports less: no expressions, then nothing. start: leave out the statements before
    this line and column, without changing the sites.  order: the indices that the code uses.
    """
    text = decode_source(source)
    levels = (True, False) if expressions else (False,)
    for level in levels:
        try:
            return _instrument_text(text, path, start, order, expressions=level)
        except RecursionError:
            continue
        except SyntaxError:
            break
    # There is nothing left to try, or the error should be about the user's own text.
    return Instrumented(_compile_tree(cut_statements_before(ast.parse(text, path), start), path), ())


def instrument_functions(text: str, path: str, names: Names, lines: Set[int], before: Instrumented) -> Instrumented:
    """The code of some functions of a module or its classes, in a module that is not to be executed.

    Its indices go on after those of `before`, whose sites and segments come first. lines: where the functions begin,
    with their decorators. Raises SyntaxError, and RecursionError for functions that are nested too deeply.
    """
    tree = ast.parse(text, path)
    rewriter = Rewriter(names, Places(text), expressions=True)
    rewriter.sites, rewriter.segments = list(before.sites), list(before.segments)
    tree.body = [*_list_future_imports(tree), *_keep_functions(tree.body, lines)]
    rewriter.visit(tree)
    return Instrumented(_compile_tree(tree, path), tuple(rewriter.sites), tuple(rewriter.segments))


def _keep_functions(body: Sequence[ast.stmt], lines: Set[int]) -> list[ast.stmt]:
    """Some functions of a block, in the classes around them: these change names that begin with `__`."""
    kept: list[ast.stmt] = []
    for each in body:
        match each:
            case ast.FunctionDef() if start_of(each)[0] in lines:
                kept.append(each)
            case ast.ClassDef(body=inner) if found := _keep_functions(inner, lines):
                each.body = found
                kept.append(each)
    return kept


def _list_future_imports(tree: ast.Module) -> list[ast.stmt]:
    return [each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module == "__future__"]


def cut_statements_before(tree: ast.Module, start: Start) -> ast.Module:
    """The module from a statement on, under the same `__future__`; or a module that defines the rest of a function."""
    future = _list_future_imports(tree)
    if start.call is not None:
        _Giving(start.call).visit(tree)
    rest = _cut_to_function(tree.body, start) if start.function else list_statements_from(tree.body, start)
    tree.body = [*(each for each in future if each not in rest), *rest]
    for node in walk_tree(tree) if start.undecorated else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = [each for each in node.decorator_list if each.lineno not in start.undecorated]
        if isinstance(node, ast.arguments):
            _leave_out_defaults(node, start.undecorated)
    return tree


def list_statements_from(body: Sequence[ast.stmt], start: Start) -> list[ast.stmt]:
    """The statements of a block from a place on, which may be in a block inside it.

    The rest of that comes first. A loop around it goes on to the end of a round, and raises `OVER` then. A context is
    entered again.
    """
    at = start[:2]
    for index, each in enumerate(body):
        if start_of(each) >= (start.end or at):
            return list(body[index:])
        for block in list_blocks(each):
            if block and start_of(block[0]) <= at <= max(map(end_of, block)):
                return [*_continue_block(each, list_statements_from(block, start)), *body[index + 1 :]]
    return []


def _continue_block(around: ast.stmt, rest: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that take the place of one around the rest of a block."""
    match around:
        case ast.With(items=items):
            return [_locate_node(around, ast.With(items, rest))] if rest else []
        case ast.For() | ast.While():
            once = ast.Tuple([ast.Constant(None)], ast.Load())
            round_ = ast.For(ast.Name(ROUND, ast.Store()), once, rest or [ast.Pass()], [])
            added = round_, ast.Raise(ast.Name(OVER, ast.Load()))
            return [ast.fix_missing_locations(_locate_node(around, each)) for each in added]
        case _:
            return rest


def list_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement whose rest can be executed: branches, and the bodies of loops and contexts."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Try(body=body) | ast.With(body=body) | ast.For(body=body) | ast.While(body=body):
            return [body]
        case _:
            return []


def end_of(node: ast.stmt | ast.expr) -> tuple[int, int]:
    """The line and column where a statement or an expression ends."""
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def start_of(node: ast.stmt | ast.expr) -> tuple[int, int]:
    """The line and column where a statement, with its decorators, or an expression begins."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)]), node.col_offset


def _cut_to_function(body: Sequence[ast.stmt], start: Start) -> list[ast.stmt]:
    """The definition of the rest of a function, in the classes around it: these change names that begin with `__`."""
    for each in body:
        match each:
            case ast.FunctionDef() if start_of(each)[0] == start.function:
                rest = list_statements_from(each.body, start)
                inside = {node for statement in rest for node in walk_tree(statement)}
                declared = [
                    node
                    for node in walk_tree(each)
                    if isinstance(node, ast.Global) and node not in inside and not set(node.names) & set(start.names)
                ]
                each.body = [*declared, *rest] or [ast.Pass()]
                names = [ast.arg(name) for name in start.names]
                each.args = ast.arguments([], [], None, names, [None] * len(names), None, [])
                each.decorator_list, each.returns = [], None
                return [ast.fix_missing_locations(each)]
            case ast.ClassDef() | ast.FunctionDef() if each.lineno <= start.function <= (each.end_lineno or 0):
                each.body = _cut_to_function(each.body, start)
                return [each]
    return [found for each in body for block in list_blocks(each) for found in _cut_to_function(block, start)]


class _Giving(ast.NodeTransformer):
    """Puts the variable `GIVEN` in the place of the call with a span."""

    def __init__(self, span: tuple[int, int, int, int]) -> None:
        self._span = span

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if (*start_of(node), *end_of(node)) != self._span:
            return node
        self._span = (0, 0, 0, 0)
        return _locate_node(node, ast.Name(GIVEN, ast.Load()))


def list_defaults(arguments: ast.arguments) -> list[ast.expr]:
    """The defaults of a function's parameters."""
    return [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]


def _leave_out_defaults(arguments: ast.arguments, lines: Set[int]) -> None:
    """Make parameters required whose defaults are calls on some lines; before others with a default, as far as that
    goes: `inspect` sees it so."""
    out = {each for each in list_defaults(arguments) if isinstance(each, ast.Call) and each.lineno in lines}
    arguments.kw_defaults = [None if each in out else each for each in arguments.kw_defaults]
    for at, each in enumerate(arguments.defaults):
        if each in out:
            empty = ast.parse("__import__('inspect').Parameter.empty", mode="eval").body
            arguments.defaults[at] = ast.fix_missing_locations(ast.copy_location(empty, each))


def _instrument_text(text: str, path: str, start: Start, order: Order | None, *, expressions: bool) -> Instrumented:
    tree = ast.parse(text, path)
    rewriter = Rewriter(Names.of(tree), Places(text), expressions=expressions, order=order)
    rewriter.visit(tree)
    code = _compile_tree(cut_statements_before(tree, start), path)
    return Instrumented(code, tuple(rewriter.sites), tuple(rewriter.segments))


def _compile_tree(tree: ast.Module, path: str) -> CodeType:
    flags = notebooks.FLAGS if notebooks.is_notebook(path) else 0
    return cast("CodeType", compile(tree, path, "exec", flags, dont_inherit=True))


def provide_default() -> None:
    """Let instrumented code run without a reporter: in other globals, or before one is set."""
    if not hasattr(builtins, REPORTER):
        setattr(builtins, REPORTER, _ignore_report)
        setattr(builtins, MARKS, _NoMarks())


class _NoMarks:
    def __setitem__(self, index: int, value: int) -> None:
        pass


def _ignore_report(_site: int, value: Any) -> Any:
    return value
