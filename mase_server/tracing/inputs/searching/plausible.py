"""The inputs that an expert would expect: what the source shows of their ranks, and what no input has.

Candidates that the source speaks for are tried first, and inputs that run but that an expert would reject are shown
only if none of the next tries gives better ones.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from mase_server.tracing.inputs.searching.consumers import ANYTHING
from mase_server.tracing.inputs.searching.forward import (
    Source,
    Wanted,
    first_use,
    forward_of,
    in_order,
    read_function,
)
from mase_server.tracing.inputs.searching.words import UNKNOWN, Told, read_docstring, read_words, value_of
from mase_server.tracing.inputs.spec import Inputs, SequenceSpec, Spec, TensorSpec
from mase_server.tracing.models.constructions import arguments_of

#: Deeper nesting of modules than this is not read.
MAX_DEPTH = 4
#: Methods and functions whose result has the shape of their tensor.
_KEEPING = frozenset((
    "long", "float", "int", "bool", "to", "type", "contiguous", "clone", "detach", "cuda", "half", "sigmoid", "tanh",
    "relu", "gelu", "exp", "abs", "softmax", "log_softmax", "logsigmoid", "dropout", "clamp", "normalize",
))  # fmt: skip
#: Layers that do the same.
_KEEPING_LAYERS = (
    nn.Sigmoid, nn.Softmax, nn.LogSoftmax, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.Dropout, nn.Identity,
)  # fmt: skip
_HEADS = re.compile(
    r"\.(?:view|reshape)\((?:[^()]|\([^()]*\))*,(?:[^()]|\([^()]*\))*,(?:[^()]|\([^()]*\))*\)\s*\\?\s*"
    r"\.(?:transpose\(\s*1\s*,\s*2\s*\)|permute\(\s*(?:0\s*,\s*2\s*,\s*1\s*,\s*3|2\s*,\s*0\s*,\s*3\s*,\s*1\s*,\s*4))"
)
#: Names of one vector for each sample, beside the tokens of a model.
VECTOR = re.compile(
    r"^(c|y|z|t|w|s|v|g|vec|temb?|t_?emb|time_?emb\w*|cond\w*|style\w*|latents?|pooled\w*|global\w*|emb)$"
)
_AUDIO = re.compile(r"^(\w+_)?(wavs?|waveforms?|audios?|audio_data|speech|mix|mixture)\d?$")
_INDICES = re.compile(r"^(\w+_)?(ids|idx|indices|input_ids|tokens)$")


@dataclass(slots=True)
class Seen:
    """The facts that a source shows of a parameter: its dimensions, at least so many, and the columns that it reads.

    0: nothing.  sizes: the names that the code gives its shape.  joins_space: are the places of a map made tokens, of
    which the channels are the features?  asks_rank: does it ask for more than two dimensions, which it need not have?
    takes_channel: does it read the first channel alone?  classes: does it make them one-hot, or ask which there are?
    """

    rank: int = 0
    least: int = 0
    columns: int = 0
    sizes: set[str] = field(default_factory=set)
    joins_space: bool = False
    asks_rank: bool = False
    takes_channel: bool = False
    classes: bool = False

    def fits(self, spec: TensorSpec) -> bool:
        """Could the source read a tensor like this?"""
        count = len(spec.dims)
        return count == self.rank if self.rank else count >= self.least


def read_source(model: nn.Module, name: str) -> Seen:
    """Signs of a parameter in the forward of a model, and in the modules and functions that this hands it to."""
    seen = Seen()
    for source, node, called in iterate_reads(Source.of(model, model.forward), name):
        _read_node(node, called, seen, source)
    return seen


def read_told(model: nn.Module, name: str) -> Told | None:
    """The words about a parameter, also of the functions that it is handed to; None if there are none."""
    if (told := read_words(model, name)) is not None or name not in inspect.signature(model.forward).parameters:
        return told
    reads = iterate_reads(Source.of(model, model.forward), name)
    handed = [(source.owner, node, called) for source, node, called in reads if isinstance(node, ast.FunctionDef)]
    for part, _, called in handed:
        own = isinstance(part, nn.Module) and part is not model
        if own and (told := read_words(part, called)) is not None and UNKNOWN not in told.sizes:
            sizes = tuple(str(value_of(part, size) or size) for size in told.sizes)
            return replace(told, sizes=sizes, source=f"{told.source} in {type(part).__name__}")
    for _, node, called in handed:
        if text := ast.get_docstring(node):
            source = f"the docstring of {node.name} says"
            alone = len([each for each in node.args.args if each.arg not in ("self", "cls")]) == 1
            found = read_docstring(model, text, called, source, alone=alone)
            if (told := next((each for each in found if len(each.sizes) > 1), None)) is not None:
                whole = re.search(rf"\b{re.escape(name)}\.long\(\)", read_function(model.forward)[0])
                return replace(told, kind="i64") if whole else told
    return None


def iterate_reads(source: Source | None, name: str, depth: int = 0) -> Iterator[tuple[Source, ast.AST, str]]:
    """The nodes of a method before a parameter gets another shape, and of what it hands it to; each with its method,
    and with the name that the parameter has there."""
    if source is None:
        return
    for node in iterate_run(source):
        if isinstance(node, ast.Assign) and _stores(node, name) and not _keeps_shape(source, node.value, name):
            return
        yield source, node, name
        if isinstance(node, ast.Call) and depth < MAX_DEPTH:
            for inner, called in _iterate_handed(source, node, name):
                yield inner, inner.node, called
                yield from iterate_reads(inner, called, depth + 1)


def iterate_run(source: Source) -> Iterator[ast.AST]:
    """The nodes of a method, without the branches that the module's attributes rule out."""
    out: set[int] = set()
    for node in ast.walk(source.node):
        if isinstance(node, ast.IfExp | ast.If) and (held := _decide(source, node.test)) is not None:
            dead = node.orelse if held else node.body
            for part in dead if isinstance(dead, list) else [dead]:
                out |= {id(each) for each in ast.walk(part)}
    return (node for node in in_order(source.node) if id(node) not in out)


def _decide(source: Source, test: ast.expr) -> bool | None:
    """The answer of `hasattr(self, "x")`, `self.flag` or `self.layer is not None`; None if it is not known."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            held = _decide(source, inner)
            return None if held is None else not held
        case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id="self"), ast.Constant(value=str(name))]):
            return hasattr(source.owner, name)
        case ast.Compare(left=ast.Attribute(value=ast.Name(id="self"), attr=name), ops=[ast.Is() | ast.IsNot() as how],
                         comparators=[ast.Constant(value=None)]) if name in vars(source.owner):  # fmt: skip
            return (vars(source.owner)[name] is None) == isinstance(how, ast.Is)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            held = vars(source.owner).get(name)
            return held if isinstance(held, bool) else None
    return None


def _stores(node: ast.Assign, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for target in node.targets for each in ast.walk(target))


def _keeps_shape(source: Source, node: ast.expr, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=attr)) if owner == name:
            return attr in _KEEPING
        case ast.Call(func=func, args=[ast.Name(id=given), *_]) if given == name:
            attr = func.attr if isinstance(func, ast.Attribute) else ""
            return attr in _KEEPING or isinstance(source.resolve(func), _KEEPING_LAYERS)
    return False


def _iterate_handed(source: Source, node: ast.Call, name: str) -> Iterator[tuple[Source, str]]:
    """The module, method or function of the person's own that a call hands a parameter to, with its name there."""
    called = source.resolve(node.func)
    if called is None and isinstance(node.func, ast.Name):
        called = source.globals.get(node.func.id)
    owner, bound = source.owner, True
    if isinstance(called, nn.Module):
        owner, called = called, forward_of(called)
    elif inspect.ismethod(called):
        owner = called.__self__
    else:
        bound = False
    if not (bound or inspect.isfunction(called)) or called.__module__.partition(".")[0] == "torch":
        return
    inner = Source.of(owner, called)
    names = inner.parameters(bound=bound) if inner is not None else []
    given = [*zip(names, node.args, strict=False), *((each.arg, each.value) for each in node.keywords if each.arg)]
    for parameter, argument in given if inner is not None else ():
        held = isinstance(argument, ast.Name) and argument.id == name
        if inner is not None and (held or _keeps_shape(source, argument, name)):
            yield inner, parameter


def _read_node(node: ast.AST, name: str, seen: Seen, source: Source | None = None) -> None:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value) if _is_size(value, name):
            if not any(isinstance(each, ast.Starred) for each in targets):
                seen.rank = seen.rank or len(targets)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=owner), attr="view" | "reshape"), args=[ast.UnaryOp(), *kept]
        ):
            # `x.view(-1, x.size(-1))` makes one dimension of several.
            last = [f"{name}.size({at})|{name}.shape[{at}]".split("|") for at in range(-len(kept), 0)]
            if owner == name and kept and all(ast.unparse(each) in own for each, own in zip(kept, last, strict=True)):
                seen.least = max(seen.least, len(kept) + 2)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=owner), attr="view" | "reshape"),
            args=[first, ast.Constant(value=1), ast.UnaryOp(), last],
        ) if owner == name and (isinstance(first, ast.Name) or ast.unparse(first).startswith(f"{name}.")):
            # `x.view(x.size(0), 1, -1, 80)` makes images of one channel of frames.
            seen.rank, seen.least = seen.rank or 3, max(seen.least, 3)
            seen.columns = max(seen.columns, _find_number(last, source))
        case ast.Call(func=func, args=[ast.Name(id=owner), *_]) if owner == name and (
            ast.unparse(func).endswith("pack_padded_sequence")
        ):
            seen.rank = seen.rank or 3
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=owner), attr="view" | "reshape"),
            args=[ast.Tuple(elts=[_, _, *_, ast.UnaryOp()])] | [_, _, *_, ast.UnaryOp()],
        ) if owner == name:
            seen.asks_rank = True  # the dimensions of space become one
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="size"), args=[at]) if owner == name:
            seen.least = max(seen.least, _least(at))
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=owner), attr="shape"), slice=at) if owner == name:
            seen.least = max(seen.least, _least(at))
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[given, *_]) as inner, attr="permute"), args=order) if (
            ast.unparse(inner.func).endswith("one_hot") and _is_as_given(given, name)
        ):
            order = order[0].elts if order and isinstance(order[0], ast.Tuple | ast.List) else order
            seen.rank, seen.classes = seen.rank or len(order) - 1, True
        case (
            ast.Call(func=ast.Attribute(value=ast.Subscript(value=held, slice=ast.Name() | ast.Constant())), args=[])
            | ast.Call(func=ast.Attribute(), args=[ast.Subscript(value=held, slice=ast.Name() | ast.Constant())])
        ) if ast.unparse(node.func).endswith(".unique") and _is_as_given(held, name):
            seen.rank, seen.classes = seen.rank or 3, True  # the objects in the picture of each sample
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="permute"), args=order) if owner == name:
            if len(order) > 1 and not any(isinstance(each, ast.Starred) for each in order):
                seen.rank = seen.rank or len(order)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="transpose"), args=order) if owner == name:
            seen.least = max([seen.least, *map(_least, order)])
        case ast.Call(func=ast.Name(id="rearrange"), args=[ast.Name(id=owner), ast.Constant(value=str(pattern)), *_]):
            left = re.sub(r"\([^)]*\)", "_", pattern.partition("->")[0]).split()
            if owner == name and "..." not in left:
                seen.rank = seen.rank or len(left)
        case (
            ast.BinOp(left=held, op=ast.Mult(), right=ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[at]))
            | ast.BinOp(left=ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[at]), op=ast.Mult(), right=held)
        ) if _is_as_given(held, name):
            seen.least = max(seen.least, _least(at))  # a weight of each place: `weights.unsqueeze(2) * x`
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=int(count))])):
            if _is_rank(left, name):
                seen.rank = seen.rank or count
        case ast.Compare(left=left, ops=[ast.Gt()], comparators=[ast.Constant(value=2)]) if _is_rank(left, name):
            seen.asks_rank = True
        case ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]) if _is_rank(right, name):
            seen.asks_rank |= not isinstance(left, ast.Constant) or left.value == 2
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="flatten"), args=[ast.Constant(value=int(at))]):
            if owner == name and at >= 0:
                seen.least, seen.joins_space = max(seen.least, at + 2), seen.joins_space or at == 2
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="unsqueeze"), args=[_]), attr="repeat"
            ),
            args=[*times],
        ) if owner == name and not any(isinstance(each, ast.Starred) for each in times):
            seen.rank = seen.rank or len(times) - 1
        case ast.Subscript(value=ast.Name(id=owner), slice=ast.Tuple(elts=parts)) if owner == name:
            _read_columns(parts, seen)
        case ast.Assign(targets=[ast.Name(id=given)], value=value) if _is_size(value, name):
            seen.sizes.add(given)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=2),
                      ast.Call(func=ast.Name(id="len"), args=[value])]):  # fmt: skip
            # The dimensions of space, of which an image has two.
            if _is_size(value, name) or (isinstance(value, ast.Name) and value.id in seen.sizes):
                seen.least = max(seen.least, 4)
        case ast.Call(func=ast.Attribute(attr="einsum") | ast.Name(id="einsum"),
                      args=[ast.Constant(value=str(pattern)), *operands]) if "." not in pattern:  # fmt: skip
            letters = re.sub(r"\s", "", pattern).partition("->")[0].split(",")
            for each, operand in zip(letters, operands, strict=False):
                if isinstance(operand, ast.Name) and operand.id == name:
                    seen.rank = seen.rank or len(each)


def _find_number(node: ast.expr, source: Source | None) -> int:
    """The number that is written, or that an attribute of the module or of a name of its file has; 0 for none."""
    match node:
        case ast.Constant(value=held):
            pass
        case ast.Attribute(value=ast.Name(id=owner), attr=attr) if source is not None:
            held = getattr(source.owner if owner == "self" else source.globals.get(owner), attr, None)
        case _:
            held = None
    return held if type(held) is int and held > 0 else 0


def _read_columns(parts: Sequence[ast.expr], seen: Seen) -> None:
    """`x[:, :, 3]`: at least three dimensions, the last of at least four columns; so does `x[..., 3]`."""
    match parts:
        case [ast.Constant(value=value), ast.Constant(value=int(column))] if value is ... and column >= 0:
            seen.least, seen.columns = max(seen.least, 3), max(seen.columns, column + 1)
    if any(isinstance(each, ast.Constant) and each.value in (None, ...) for each in parts):
        return
    seen.least = max(seen.least, len(parts))
    seen.takes_channel |= len(parts) == 2 and ast.unparse(parts[0]) == ":" and ast.unparse(parts[1]) == "0"
    match parts[-1]:
        case ast.Constant(value=int(column)) if len(parts) > 2 and len(parts) == seen.least and column >= 0:
            seen.columns = max(seen.columns, column + 1)


def _is_as_given(node: ast.expr, name: str) -> bool:
    """Is it the parameter, or the same with another type or on another device: `target.long()`?"""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _KEEPING:
            return _is_as_given(inner, name)
    return isinstance(node, ast.Name) and node.id == name


def _is_rank(node: ast.expr, name: str) -> bool:
    return ast.unparse(node) in (f"{name}.dim()", f"{name}.ndim", f"len({name}.shape)", f"len({name}.size())")


def _is_size(node: ast.expr, name: str) -> bool:
    return ast.unparse(node) in (f"{name}.shape", f"{name}.size()")


def _least(at: ast.expr) -> int:
    """The least number of dimensions that have this one."""
    try:
        index = ast.literal_eval(at)
    except (ValueError, TypeError, SyntaxError):
        return 0
    return (index + 1 if index >= 0 else -index) if type(index) is int else 0


def takes_tokens(model: nn.Module) -> bool:
    """Does a part of the model split tokens of features into heads, or is it a feed-forward layer by its name?"""
    if re.search(r"Feed_?Forward|FFN", type(model).__name__, re.IGNORECASE):
        return True
    kinds = {type(part) for part in model.modules()}
    own = (kind for kind in kinds if not kind.__module__.startswith("torch."))
    return any(issubclass(kind, nn.MultiheadAttention) for kind in kinds) or any(
        _HEADS.search(read_function(kind.forward)[0]) for kind in own
    )


#: Words of a name that tell which of several an input is: `x_enc` and `x_dec`, `x` and `x_mark`.
_SIDES = frozenset((
    "enc", "dec", "encoder", "decoder", "mark", "past", "future", "left", "right", "src", "tgt", "source", "target",
    "a", "b", "prev", "cur", "next", "pos", "neg", "hist", "history",
))  # fmt: skip


def find_partners(model: nn.Module, name: str) -> list[str]:
    """The other parameters of a forward that have the same name but for the side that they are of."""
    stem = _get_stem(name)
    return [each for each in inspect.signature(model.forward).parameters if each != name and stem == _get_stem(each)]


def _get_stem(name: str) -> tuple[str, ...]:
    words = [re.sub(r"\d+$", "", word) for word in name.lower().split("_")]
    return tuple(word for word in words if word not in _SIDES) or (name,)


#: Names of what a loss compares predictions with.
_TRUTH = re.compile(r"y|y_true|gt|gts|ground_?truth|labels?|targets?")


def _is_beside_map(model: nn.Module, name: str) -> bool:
    """Is another parameter of a loss an image of scores, as far as its source shows?"""
    others = (_read_loss(model, each) for each in inspect.signature(model.forward).parameters if each != name)
    return any(4 in (each.rank, each.least) for each in others)


def is_loss(model: nn.Module) -> bool:
    """Does a model only compare what it is given?"""
    return next(model.parameters(), None) is None and len(inspect.signature(model.forward).parameters) > 1


def _read_loss(model: nn.Module, name: str) -> Seen:
    """Signs of a parameter of a loss: if its own source shows no number of dimensions, those of another loss of its
    file. Scores that may have more than two dimensions are likelier of pixels."""
    seen = read_source(model, name)
    if not is_loss(model) or seen.rank or seen.least > 2:
        return seen
    if seen.asks_rank:
        seen.least = 4
        return seen
    others = (read_source(model, each) for each in inspect.signature(model.forward).parameters if each != name)
    if count := next((other.rank for other in others if other.classes), 0):
        seen.rank = count + 1  # scores of these classes
        return seen
    space = sys.modules.get(type(model).__module__)
    for kind in list(vars(space).values()) if space is not None else ():
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__ == type(model).__module__:
            tree = read_function(kind.forward)[1]
            found = Seen()
            for node in ast.walk(tree) if tree is not None else ():
                _read_node(node, name, found)
            if found.rank > 2:
                return found
    return seen


def order_by_source(model: nn.Module, name: str, specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Candidates for a parameter, those first that its source could read."""
    seen = _read_loss(model, name)
    tokens = takes_tokens(model) and not VECTOR.match(name.lower())
    more = abs if seen.least > 2 else lambda _: 0  # the last dimension that is read is likelier the last one of all
    partners = {read_source(model, each).rank for each in find_partners(model, name)} - {0}
    ordered = sorted(
        specs,
        key=lambda spec: (
            not seen.fits(spec),
            tokens and _is_rows(spec),
            bool(partners) and len(spec.dims) not in partners,
            more(len(spec.dims) - seen.least),
        ),
    )
    tokens_of = [spec for spec in specs if spec.dtype == "f32" and len(spec.dims) == 3 and spec not in ANYTHING]
    features = [spec.dims[-1] for spec in tokens_of]
    if seen.classes and seen.rank in _PLACES:
        ordered.insert(0, TensorSpec("i64", _PLACES[seen.rank], "below", 2))
    elif seen.joins_space and seen.fits(TensorSpec("f32", ("B", 1, "H", "W"))) and features:
        ordered.insert(0, TensorSpec("f32", ("B", features[0], "H", "W")))
    elif seen.least == 3 and "mask" in name.lower():
        ordered.insert(0, TensorSpec("bool", ("B", "H", "W"), "zeros"))
    elif is_loss(model) and _TRUTH.fullmatch(name.lower()) and seen.least < 4 and _is_beside_map(model, name):
        channel = (1,) * seen.takes_channel
        ordered.insert(0, TensorSpec("i64", ("B", *channel, "H", "W"), "below", 2))
    elif seen.columns and ordered:
        kind = specs[0] if specs[0].dtype == "i64" else TensorSpec("f32", ())
        lengths = ("T", "S", "U")[: seen.least - 2]
        ordered.insert(0, replace(kind, dims=("B", *lengths, seen.columns)))
    elif (rank := seen.rank or seen.least) > 2 and not any(map(seen.fits, specs)):
        use = first_use(model, Wanted(name))
        looks_up = use is not None and isinstance(use.layer, nn.Embedding)
        whole = [replace(ordered[0], dims=("B", "T", "S", "U")[:rank])] if ordered and looks_up else []
        floats = [TensorSpec("f32", _put_channels(dims, model, specs)) for dims in _USUAL.get(rank, ())]
        ordered[:0] = whole or floats
    return ordered


#: Shapes of as many dimensions as a source reads; "C" for channels or features.
_USUAL: dict[int, tuple[tuple[str, ...], ...]] = {
    3: (("B", "T", "C"), ("B", "C", "L")), 4: (("B", "C", "H", "W"),), 5: (("B", "C", "D", "H", "W"),),
}  # fmt: skip
#: Shapes of the class of each place, by their number of dimensions.
_PLACES = {1: ("B",), 2: ("B", "T"), 3: ("B", "H", "W"), 4: ("B", "D", "H", "W")}
_CHANNELS = re.compile(r"(in(put)?_|img_|image_|n_|num_)?(channels?|chans?|ch)|c_?in|in_?c|in_?(dim|features|size)|dim")


def _put_channels(dims: Sequence[str], model: nn.Module, others: Sequence[TensorSpec]) -> tuple[int | str, ...]:
    """A usual shape with as many channels as the constructor got, or as the features of another candidate."""
    given = [value for key, value in arguments_of(model).items() if _CHANNELS.fullmatch(key) and type(value) is int]
    known = [spec.dims[-1] for spec in others if len(spec.dims) > 2 and spec not in ANYTHING]
    widths = [size for size in (*given, *known) if isinstance(size, int)]
    count = next(iter(widths), 64 if len(dims) == 3 else 3)
    return tuple(count if dim == "C" else dim for dim in dims)


def _is_rows(spec: TensorSpec) -> bool:
    return spec.dtype == "f32" and len(spec.dims) == 2 and spec.dims[0] == "B" and isinstance(spec.dims[1], int)


def count_faults(model: nn.Module, inputs: Inputs) -> int:
    """The number of things that an expert would reject of inputs that run."""
    return sum(1 for name, spec in inputs.entries.items() for _ in _iterate_faults(model, name, spec, inputs))


def _iterate_faults(model: nn.Module, name: str, spec: Spec, inputs: Inputs) -> Iterator[str]:
    if isinstance(spec, SequenceSpec):
        for item in spec.items:
            yield from _iterate_faults(model, name, item, inputs) if _AUDIO.match(name) else ()
    if not isinstance(spec, TensorSpec):
        return
    dims, is_float = spec.dims, spec.dtype.startswith("f")
    if _AUDIO.match(name.lower()) and (len(dims) > 3 or (len(dims) == 3 and dims[1] not in (1, 2))):
        yield "audio with many channels"
    if is_float and not spec.fill:
        yield from _iterate_shape_faults(dims, inputs.sizes)
        if _INDICES.match(name.lower()):
            yield "indices that are no integers"
    if spec.dtype == "i64" and len(set(dims)) < len(dims) and "T" in dims:
        yield "as many columns as tokens"
    if name in inspect.signature(model.forward).parameters:
        if not read_source(model, name).fits(spec):
            yield "a rank that the source does not read"
        if _is_rows(spec) and takes_tokens(model) and not VECTOR.match(name.lower()):
            yield "rows where heads are split"
    if is_float and not spec.fill and _has_other_rank(model, name, spec, inputs):
        yield "another rank than its partner"
    told = read_told(model, name)
    if told is not None and len(told.sizes) != len(dims):
        yield "another rank than a person wrote"


def _has_other_rank(model: nn.Module, name: str, spec: TensorSpec, inputs: Inputs) -> bool:
    """Has an input fewer dimensions than another one of the same name but for its side?"""
    held = (inputs.entries.get(each) for each in find_partners(model, name))
    floats = (each for each in held if isinstance(each, TensorSpec) and each.dtype == spec.dtype and not each.fill)
    return any(len(each.dims) > len(spec.dims) for each in floats)


def _iterate_shape_faults(dims: Sequence[int | str], sizes: Mapping[str, int]) -> Iterator[str]:
    numbers = [sizes.get(dim, 8) if isinstance(dim, str) else dim for dim in dims]
    last = tuple(dims[1:3]) == ("H", "W")  # channels come last
    if len(dims) == 4 and not last and min(numbers[2:]) > 1 and max(numbers[2:]) >= 8 * min(numbers[2:]):
        yield "an image that is much wider than high"
    if len(dims) == 1 and isinstance(dims[0], int):
        yield "features without a batch"
    if len(dims) == 2 and isinstance(dims[0], int) and isinstance(dims[1], int):
        yield "a matrix without a batch"
