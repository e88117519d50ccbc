"""Candidates for one tensor or plain value: by its first consumer, by its name, else like the others, then anything."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from mase_server.tracing.inputs.searching.consumers import ANYTHING, hidden_states, list_candidates
from mase_server.tracing.inputs.searching.forward import Source, Use, Wanted, first_use
from mase_server.tracing.inputs.searching.plausible import VECTOR, order_by_source, read_told
from mase_server.tracing.inputs.searching.words import apply_words
from mase_server.tracing.inputs.spec import ConstantSpec, Inputs, Spec, TensorSpec
from mase_server.tracing.models.constructions import arguments_of, list_required_parameters
from mase_server.tracing.models.names import STATE, usual_inputs

DEFAULT_VOCABULARY = 10
#: Names of indices of which each sample has one.
SINGLE = re.compile(
    r"^(t|ts|time|timesteps?|y|labels?|class(es)?|class_?labels?|cond|users?|items?|action|step|(target|cand|pos|neg)_(?!seq)\w+"
    r"|\w*(user|item)(_ids?)?)$"
)


#: Words in names that tell more than the layer that is first given the input.
NAMED_FIRST = (
    "sigma", "noise_level", "timestep", "guidance", "mask", "len", "edge", "adj", "label", "class", "index", "rays",
    "dirs", "grid",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """One candidate for one parameter, and why. told: a person wrote its shape in words."""

    spec: Spec
    why: str
    told: bool = False


def leaf_choices(model: nn.Module, name: str, wanted: Wanted, others: Inputs | None = None) -> list[Choice]:
    """Candidates for one tensor: by its first consumer, by its name, else like the others, then anything."""
    by_name = [Choice(_fill_vocabulary(spec, model), f"by its name {name!r}") for spec in usual_inputs(name)]
    if STATE.search(name.lower()) and (states := hidden_states(model)):
        return [Choice(spec, f"the state {name!r} of its recurrent layer") for spec in states]
    use = first_use(model, wanted)
    by_use = list_consumer_choices(use) if use is not None else []
    if use is not None and not use.flat and len(list_required_parameters(model.forward)) == 1:
        by_use = [*_list_told_channels(model, by_use), *by_use]
    if use is not None and use.joined is not None:
        by_use = [*_list_joined_channels(model, name, use), *by_use]
    if _is_handed_states(model):
        by_name, by_use = _time_first(by_name), _time_first(by_use)
    if SINGLE.search(name.lower()):
        by_use = sorted(
            by_use, key=lambda choice: isinstance(choice.spec, TensorSpec) and choice.spec.dims == ("B", "T")
        )
    if "mask" in name.lower():
        by_use = [*_of_one_channel(by_use), *by_use]
        if any(map(_KEPT_STATE.search, inspect.signature(model.forward).parameters)):
            by_name = [Choice(TensorSpec("f32", ("B", 1), "ones"), "whether each state goes on"), *by_name]
    special = any(word in name.lower() for word in NAMED_FIRST)
    ordered = (by_name, by_use) if special else (by_use, by_name)
    mixed = [choice for pair in itertools.zip_longest(*ordered) for choice in pair if choice is not None]
    found = mixed or [
        *_list_parameter_choices(model), *_list_similar_choices(model, name, others), *list_any_choices(),
    ]  # fmt: skip
    rank = 2 if VECTOR.match(name.lower()) else 3 if _SEQUENCE.match(name.lower()) else 0
    if (of_space := re.search(r"([123])[dD]$", type(model).__name__)) is not None:
        rank = 2 + int(of_space[1])  # `MaxPooling1d`
    if rank and (not mixed or _STATES.match(name.lower())):
        found.sort(key=lambda choice: not (isinstance(choice.spec, TensorSpec) and len(choice.spec.dims) == rank))
    found = _order_by_source(model, wanted, _drop_duplicates(found))
    return _drop_duplicates([*_list_told_choices(model, name, found), *found])


def _order_by_source(model: nn.Module, wanted: Wanted, found: list[Choice]) -> list[Choice]:
    """Candidates whose number of dimensions the forward reads come first."""
    if wanted.key is not None:
        return found
    whys = {choice.spec: choice.why for choice in reversed(found) if isinstance(choice.spec, TensorSpec)}
    if len(whys) < len(found):
        return found
    specs = [choice.spec for choice in found if isinstance(choice.spec, TensorSpec)]
    ordered = order_by_source(model, wanted.name, specs)
    return [Choice(spec, whys.get(spec, f"{_describe_shape(spec)}, as its columns are read")) for spec in ordered]


def _of_one_channel(choices: list[Choice]) -> list[Choice]:
    """A mask has one channel for all of those that it is multiplied with."""
    pairs = ((each, each.spec) for each in choices)
    return [
        replace(each, spec=TensorSpec("f32", (spec.dims[0], 1, *spec.dims[2:]), "ones"))
        for each, spec in pairs
        if isinstance(spec, TensorSpec) and len(spec.dims) > 2 and isinstance(spec.dims[1], int)
    ]


#: Names of vectors for each token.
_SEQUENCE = re.compile(
    r"^(hidden\w*|memory|context|(query|key|value|token|word|node)s?(_(emb\w*|feat\w*|states?))?|queries|seq(uence)?s?"
    r"|(enc|dec)(oder)?_\w+)$"
)
#: Those that are vectors for each token even if the layer that takes them would take one vector for each sample.
_STATES = re.compile(r"^(memory|((enc|dec)(oder)?_)?hidden_states|(enc|dec)(oder)?_out(put)?s)$")
#: Names of the states that a policy keeps over the steps of several episodes.
_KEPT_STATE = re.compile(r"^rnn_(hxs?|states?|hidden)|^(hxs|hidden_states)$")
#: Names of a constructor's number of channels of the input.
_IN_CHANNELS = re.compile(r"(in|input|image|img)_?(channels?|chans?|nc|ch)|n_?channels|c_in")


def _list_told_channels(model: nn.Module, choices: list[Choice]) -> list[Choice]:
    """The first map with the channels that the constructor was given: the forward may cut or join them itself."""
    told = [(key, size) for key, size in arguments_of(model).items() if _IN_CHANNELS.fullmatch(key.lower())]
    first = next((each.spec for each in choices), None)
    if len(told) != 1 or type(told[0][1]) is not int or not isinstance(first, TensorSpec):
        return []
    if len(first.dims) < 4 and not (len(first.dims) == 3 and isinstance(first.dims[1], int)):
        return []
    key, size = told[0]
    spec = replace(first, dims=(first.dims[0], size, *first.dims[2:]))
    return [Choice(spec, f"{_describe_shape(spec)}, as {key} says")] if spec != first else []


def _list_told_choices(model: nn.Module, name: str, found: list[Choice]) -> list[Choice]:
    """Candidates by what is written of a parameter, with what the words leave open from the other candidates."""
    told = read_told(model, name)
    if told is None:
        return []
    others = [choice.spec for choice in found if isinstance(choice.spec, TensorSpec)]
    specs = list(apply_words(told, model, others))[:3]
    # Words about videos or batches of pieces may be about a forward that is also given one frame or piece of each.
    single = [replace(spec, dims=tuple(dim for dim in spec.dims if dim != "T")) for spec in specs
              if len(spec.dims) > 4 and "T" in spec.dims]  # fmt: skip
    return [Choice(spec, told.why(), told=True) for spec in (*specs[:1], *single[:1], *specs[1:])]


def _list_similar_choices(model: nn.Module, name: str, others: Inputs | None) -> list[Choice]:
    """Candidates for a parameter without evidence: first the same as the others."""
    if others is not None:
        found = [spec for spec in others.entries.values() if isinstance(spec, TensorSpec)]
        return [Choice(spec, f"{_describe_shape(spec)}, like the others") for spec in found[:1]]
    if re.fullmatch(r"h|w|height|width", name.lower()):
        return [Choice(ConstantSpec(value), f"{name} = {value}, a guess") for value in list_scalar_values(name)]
    for other in inspect.signature(model.forward).parameters:
        if other != name and (use := first_use(model, Wanted(other))) is not None:
            return list_consumer_choices(use)[:1]
    return []


#: Names of a constructor's number of features, which stand last.
_FEATURES = re.compile(r"(n|num)_?(features|variates|series)|d_model|(embed|feature)_?(dim|size)")
#: Shapes of a parameter that has a size for each channel alone -> the input that it is made for.
_BROADCAST = {
    (0, 1, 0): ("B", "C", "L"), (0, 0, 1): ("B", "T", "C"), (0, 1, 0, 0): ("B", "C", "H", "W"),
    (1, 0, 0): ("B", "C", "H", "W"), (0, 0, 0, 1): ("B", "H", "W", "C"), (0, 1, 0, 0, 0): ("B", "C", "D", "H", "W"),
}  # fmt: skip


def _list_parameter_choices(model: nn.Module) -> list[Choice]:
    """Candidates that a parameter of the model's own is broadcast to, such as a scale of [1, C, 1]."""
    for name, held in model.named_parameters(recurse=False):
        shape = () if nn.parameter.is_lazy(held) else held.shape
        dims = _BROADCAST.get(tuple(int(size > 1) for size in shape))
        if dims is not None:
            spec = TensorSpec("f32", tuple(max(held.shape) if dim == "C" else dim for dim in dims))
            return [Choice(spec, f"{_describe_shape(spec)}, as its parameter {name} has so many channels")]
    told = arguments_of(model).items() if next(model.parameters(), None) is None else ()
    specs = [
        (key, TensorSpec("f32", ("B", "T", size)))
        for key, size in told
        if _FEATURES.fullmatch(key) and type(size) is int
    ]
    return [Choice(spec, f"{_describe_shape(spec)}, as {key} says") for key, spec in specs]


def _is_handed_states(model: nn.Module) -> bool:
    """Does a forward take the states of a recurrent layer with time as its first dimension?"""
    layer = next((part for part in model.modules() if isinstance(part, nn.RNNBase)), None)
    names = inspect.signature(model.forward).parameters
    return layer is not None and not layer.batch_first and any(STATE.search(name.lower()) for name in names)


def _time_first(choices: list[Choice]) -> list[Choice]:
    """The tokens of such a model have time as their first dimension too."""
    return [
        replace(each, spec=replace(each.spec, dims=("T", "B")))
        if isinstance(each.spec, TensorSpec) and each.spec.dims == ("B", "T")
        else each
        for each in choices
    ]


def _parts_of(spec: TensorSpec, joined: tuple[int, int] | None) -> list[TensorSpec]:
    """Candidates for one of several joined parts of a layer's features: as many as the others, or a few; then all."""
    count, dim = joined or (1, 0)
    if not -len(spec.dims) <= dim < len(spec.dims):
        return [spec]
    at = dim % len(spec.dims)
    size = spec.dims[at]
    if count < 2 or not isinstance(size, int) or size % count:
        return [spec]
    return [replace(spec, dims=(*spec.dims[:at], size // count, *spec.dims[at + 1 :])), spec]


def _list_joined_channels(model: nn.Module, name: str, use: Use) -> list[Choice]:
    """An image, and a vector that is joined with it, if a convolution takes the usual channels of an image and as many
    more as one argument of the constructor says."""
    layer = use.layer
    if not isinstance(layer, nn.Conv2d) or use.joined is None or use.joined[0] != 2:
        return []
    told = {key: size for key, size in arguments_of(model).items() if type(size) is int and size > 0}
    pairs = [(key, size) for key, size in told.items() if layer.in_channels - size in (1, 3)]
    if len(pairs) != 1:
        return []
    key, size = pairs[0]
    rest = layer.in_channels - size
    spec = TensorSpec("f32", ("B", size) if VECTOR.match(name.lower()) else ("B", rest, "H", "W"))
    return [Choice(spec, f"{_describe_shape(spec)}, as {key} says")]


def list_consumer_choices(use: Use) -> list[Choice]:
    """Candidates for the input of a layer."""
    found = [part for spec in list_candidates(use.layer) for part in _parts_of(spec, use.joined)]
    found = _drop_added(found, use.added) or found
    if use.is_vector:
        found = [*(replace(spec, dims=spec.dims[:2]) for spec in found if isinstance(spec.dims[1], int)), *found]
    if not use.flat:
        # Only what is flattened may be an image of as many values as a layer takes.
        found = sorted(found, key=lambda spec: len(spec.dims) == 4 and isinstance(spec.dims[2], int))
    if use.dims:
        found = sorted(found, key=lambda spec: len(spec.dims) != use.dims)
    return [Choice(spec, f"{_describe_shape(spec)}, first used by {use.path}") for spec in found]


def _drop_added(specs: list[TensorSpec], added: tuple[int, ...]) -> list[TensorSpec]:
    """The candidates that have those dimensions of one element, without them: the forward puts them in itself."""
    for at in reversed(added):
        fit = [spec for spec in specs if -len(spec.dims) <= at < len(spec.dims) and spec.dims[at] == 1]
        specs = [replace(s, dims=tuple(dim for i, dim in enumerate(s.dims) if i != at % len(s.dims))) for s in fit]
    return specs


def list_any_choices() -> list[Choice]:
    """Candidates without any evidence."""
    return [Choice(spec, f"{_describe_shape(spec)}, a guess") for spec in ANYTHING]


def _describe_shape(spec: TensorSpec) -> str:
    kind = "tensor" if spec.dims[-2:] != ("H", "W") else ("video" if "D" in spec.dims else "image")
    return f"{kind} [{', '.join(map(str, spec.dims))}]"


def _fill_vocabulary(spec: TensorSpec, model: nn.Module) -> TensorSpec:
    """The candidate with the model's own vocabulary in place of `V`."""
    if spec.argument != "V" and "V" not in spec.dims:
        return spec
    tables = [part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)]
    count = tables[0] if tables else DEFAULT_VOCABULARY
    dims = tuple(count if dim == "V" else dim for dim in spec.dims)
    return replace(spec, dims=dims, argument=count if spec.argument == "V" else spec.argument)


def _drop_duplicates(choices: list[Choice]) -> list[Choice]:
    seen: dict[Any, Choice] = {}
    for choice in choices:
        seen.setdefault(choice.spec, choice)
    return list(seen.values())


# Values of inputs that are no tensors: numbers, flags, words, by their names and by the forward's comparisons.

#: Pattern of a name -> values, likeliest first; the first match counts.
NAMES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"^(?!\w*_(size|shape|resolution)$)(use|is|has|do|with|return|output|need|apply|enable|no)_|^(training|train|causal|is_?causal|deterministic"
     r"|sample|verbose|reverse|inverse|normali[sz]e|flag|mask_only|sampling|eval)$", (False, True)),
    (r"^(h|w|height|width|h_?w|nh|nw|ph|pw|hp|wp)$", (4, 8, 32, 16)),
    (r"^(start|offset|cur)_?(pos|idx|index|position)?$|(_pos|_offset|_start|_index|_idx)$|^(i|j|idx|index|layer(_id)?|stage"
     r"|pos|level)$", (0, 1)),
    (r"size|shape|resolution|^hw$", (8, (8, 8), (4, 4), (2, 8, 8))),
    (r"^(t|seq_?len(gth)?|max_?(\w+_)?len(gth)?|(src|tgt|mel|text)_len(gth)?|length|len|seq|l)$", (16, 8)),
    (r"^(b|bs|batch(_?size)?)$", (2,)),
    (r"alpha|beta|gamma|lam|temp|eps|scale|factor|weight|strength|ratio|prob|^p$|rate|coef|sigma|threshold|^tau$|^w$",
     (0.5, 1.0)),
    (r"", (2, 1, 4, 0)),
)  # fmt: skip
#: Annotation, or its text -> values of that type.
TYPES: dict[str, tuple[Any, ...]] = {"bool": (False, True), "int": (2, 1, 4), "float": (0.5, 1.0), "str": ()}


def list_scalar_values(name: str, annotation: Any = None) -> list[Any]:
    """Values of a name, those of the type that it is annotated with first."""
    usual = next(values for pattern, values in NAMES if re.search(pattern, name.lower()))
    kind = type_of(annotation)
    if kind is None:
        return list(usual)
    fitting = [value for value in usual if type(value).__name__ == kind]
    return list(dict.fromkeys([*fitting, *TYPES[kind]]))


def type_of(annotation: Any) -> str | None:
    """The word of `TYPES` that an annotation is, also inside Optional; None for any other."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if str(annotation).startswith("typing.Optional"):
        text = str(annotation)
    found = re.fullmatch(r"(?:(?:typing\.)?Optional\[)?(bool|int|float|str)\]?(?: \| None)?", text)
    return found[1] if found else None


def list_compared_words(model: nn.Module, name: str) -> list[Any]:
    """Words that a forward compares a parameter with."""
    source = Source.of(model, model.forward)
    found: dict[Any, None] = {}
    for node in ast.walk(source.node) if source else ():
        match node:
            case ast.Compare(
                left=ast.Name(id=owner), ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=str(word))]
            ):
                if owner == name:
                    found.setdefault(word)
            case ast.Compare(left=ast.Name(id=owner), comparators=[other]) if owner == name:
                found |= {each.value: None for each in ast.walk(other) if isinstance(each, ast.Constant)}
            case ast.Subscript(value=table, slice=ast.Name(id=owner)) if owner == name and source:
                held = source.resolve(table)
                found |= dict.fromkeys(held.keys() if hasattr(held, "keys") else ())
    return [word for word in found if isinstance(word, str)]
