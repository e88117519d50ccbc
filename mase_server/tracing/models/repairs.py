"""Changes of constructor arguments that the error of the last ones suggests: a bounded search.

Each row of `ROWS` reads one kind of complaint of constructors and forwards, and proposes changes.

The change that gets further is followed first; an error that a change did not alter is not followed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import math
import pkgutil
import re
import string
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.models.classes import find_compared_words, get_entry_name, read_definition
from mase_server.tracing.models.clues import Clue, Step, defaults_of
from mase_server.tracing.models.configs import (
    AnyConfig,
    LackingError,
    guess_entry_value,
    is_configuration,
    reads_of,
    replace_entry,
)
from mase_server.tracing.models.constructions import key_of_arguments, list_required_parameters
from mase_server.tracing.models.guesses import Arguments, Made
from mase_server.tracing.models.names import (
    STEPS,
    number_words,
    other_arguments,
    usual_argument,
    usual_list,
    usual_text,
)

#: New values of some arguments and entries of configurations, by their names; `DROPPED` leaves an argument out.
Change = Mapping[str, Any]
Changes = Iterator[Change]

#: The most arguments that are changed at once for one error, and the most proposals for it.
MAX_CULPRITS = 6
MAX_PROPOSALS = 24
#: The value that means "leave this argument out".
DROPPED = object()
#: Names of sizes that have a number for each direction of space.
_SIDES = re.compile(
    r"(window|win|kernel|patch|grid|image|img|input|pool|shift)_?(size|res|resolution|shape)s?$|^stride$"
)
#: Names of square matrices, and of their sides.
_MATRIX = re.compile(r"matrix|adj|laplacian|^a$|graph", re.IGNORECASE)
_SIDE_OF_MATRIX = re.compile(r"node|vert|joint|sensor|station|^in(put)?_?(dim|features|size)$|^n$", re.IGNORECASE)
#: The words of a vocabulary with pretrained vectors.
MAX_WORDS = 1000
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


def propose_arguments(clue: Clue) -> list[Arguments]:
    """Arguments to try next, the likeliest first; every one differs from those that failed."""
    rows = ((row, match) for pattern, row in ROWS if (match := re.search(pattern, clue.text)))
    changes = itertools.chain.from_iterable(row(clue, match) for row, match in rows)
    found = []
    for change in itertools.islice(changes, MAX_PROPOSALS):
        changed = _apply_change(clue, change)
        if key_of_arguments(changed) != key_of_arguments(clue.given):
            found.append(changed)
    return found


def _apply_change(clue: Clue, change: Change) -> Arguments:
    """The arguments with a change; entries of configurations are changed in place."""
    changed: Any = {name: value for name, value in clue.given.items() if change.get(name) is not DROPPED}
    for name, value in change.items():
        place = clue.places.get(name, (name,))
        if isinstance(value, Made) and len(place) > 1:  # a configuration holds the object itself
            try:
                value = value.make()
            except RAISED:  # the border to the user's constructors
                continue
        if value is not DROPPED:
            changed = replace_entry(changed, place, value)
    return dict(changed)


def _propose_lacking_entry(clue: Clue, match: re.Match[str]) -> Changes:
    """An entry that a guessed configuration lacks."""
    if isinstance(clue.error, LackingError):
        *path, key = clue.error.path
        if path and path[0] in clue.given:
            known = clue.entry([*path[-1:], key] if len(path) > 1 else [key])
            holder = _get_held_value(clue.given, path)
            for value in (known, _guess_entry(clue, key)) if holder is not None else ():
                if value is not None and (value is known or known is None or len(path) == 1):
                    yield {path[0]: replace_entry(clue.given[path[0]], (*path[1:], key), value)}


def _propose_known(clue: Clue, match: re.Match[str]) -> Changes:
    """Arguments that are None take the values that the settings of the workspace have, or their defaults."""
    defaults = defaults_of(clue.function) if clue.function is not None else {}
    for name in [each for each in clue.culprits if clue.arguments[each] is None][:MAX_CULPRITS]:
        if (known := clue.entry([name])) is not None:
            yield {name: known}
    if dropped := [name for name, value in clue.given.items() if value is None and defaults.get(name) is not None]:
        yield dict.fromkeys(dropped, DROPPED)


def _propose_lacking_attribute(clue: Clue, match: re.Match[str]) -> Changes:
    """An attribute that the user's own configuration lacks."""
    for name, value in clue.given.items():
        if isinstance(clue.error, AttributeError) and value is clue.error.obj and is_configuration(value):
            yield {name: replace_entry(value, (match[1],), _guess_entry(clue, match[1]))}


def _propose_other_branch(clue: Clue, match: re.Match[str]) -> Changes:
    """The other value of a flag under whose test alone the constructor sets an attribute that a forward reads."""
    tree = read_definition(clue.function) if clue.function is not None else ast.Module([], [])
    for test in (node for node in ast.walk(tree) if isinstance(node, ast.If)):
        set_here = {each.attr for each in ast.walk(test) if isinstance(each, ast.Attribute) and _is_stored(each)}
        names = {get_entry_name(each) for each in ast.walk(test.test) if isinstance(each, ast.expr)}
        if match[1] in set_here:
            flags = (name for name in clue.arguments if name in names and isinstance(clue.arguments[name], bool))
            yield from ({name: not clue.arguments[name]} for name in flags)


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _guess_entry(clue: Clue, key: str, *functions: Callable[..., Any]) -> Any:
    """A value for an entry: the first text that the class or one of these functions, or a function that failed,
    compares it with, else the usual one."""
    functions = (*functions, clue.function) if clue.function is not None else functions
    trees = (*map(read_definition, functions), *(step.function for step in clue.steps))
    return next((word for tree in trees for word in find_compared_words(tree, key)), None) or guess_entry_value(key)


def _get_held_value(holder: Any, path: list[str]) -> Any:
    for key in path:
        holder = holder.get(key) if isinstance(holder, Mapping) else getattr(holder, key, None)
    return holder


def _propose_missing(clue: Clue, match: re.Match[str]) -> Changes:
    names = [name for name in re.findall(r"'(\w+)'", match[1]) if name != "self"]
    yield {name: 16 if (usual := usual_argument(name)) is None else usual for name in names}


def _propose_keyword(clue: Clue, match: re.Match[str]) -> Changes:
    """A key that the constructor takes out of its `**kwargs`."""
    if clue.takes_any and match[1] not in clue.arguments:
        usual = usual_argument(match[1])
        yield {match[1]: 16 if usual is None else usual}
        yield {match[1]: None}


def _propose_entry(clue: Clue, match: re.Match[str]) -> Changes:
    """An entry for a dictionary that the code copies into another one, where its lack is a plain KeyError."""
    for name in sorted(clue.given, key=lambda name: name not in clue.culprits)[:MAX_CULPRITS]:
        held = clue.given[name]
        if isinstance(held, dict) and match[1] not in held:
            known = clue.entry([match[1]])
            yield {name: replace_entry(held, (match[1],), _guess_entry(clue, match[1]) if known is None else known)}


def _propose_matrices(clue: Clue, match: re.Match[str]) -> Changes:
    """A matrix of pretrained vectors, as wide as the configuration says that embeddings are."""
    wide = {name: value for name, value in clue.arguments.items() if "emb" in name and _is_whole(value)}
    for name in clue.culprits[:MAX_CULPRITS]:
        width = next((value for other, value in wide.items() if other != name), 64)
        if _is_number(clue.arguments[name]) or isinstance(clue.arguments[name], bool):
            yield {name: Made(partial(torch.zeros, MAX_WORDS, width), f"torch.zeros({MAX_WORDS}, {width})")}


def _propose_table(clue: Clue, match: re.Match[str]) -> Changes:
    """Vectors of all words for an argument that becomes the weight of an embedding, as large as that is made."""
    tree = read_definition(clue.function) if clue.function is not None else ast.Module([], [])
    made: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Attribute(attr="Embedding"), args=[*sizes])):
                made[f"{ast.unparse(target)}.weight"] = sizes[:2]
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Attribute() as weight], value=given):
                pass
            case ast.Call(func=ast.Attribute(value=weight, attr="copy_"), args=[given, *_]):
                pass
            case _:
                continue
        named = [clue.arguments.get(each.id, 0) if isinstance(each, ast.Name) else getattr(each, "value", 0)
                 for each in made.get(ast.unparse(weight).removesuffix(".data"), ())]  # fmt: skip
        names = {each.id for each in ast.walk(given) if isinstance(each, ast.Name)}
        is_table = len(named) == 2 and all(map(_is_whole, named))
        for name in (each for each in clue.arguments if is_table and each in names):
            if "ndarray" in clue.text:  # so that numpy is there
                make = partial(importlib.import_module("numpy").zeros, tuple(named), "float32")
                yield {name: Made(make, f"numpy.zeros({tuple(named)}, 'float32')")}
            elif not isinstance(clue.arguments[name], Made | torch.Tensor):
                yield {name: Made(partial(torch.zeros, *named), f"torch.zeros{tuple(named)}")}


def _propose_tensors(clue: Clue, match: re.Match[str]) -> Changes:
    """A tensor for an argument of which a tensor's method is called."""
    if hasattr(torch.Tensor, match[1]):
        for name in clue.culprits[:MAX_CULPRITS]:
            if hasattr(nn.Module, match[1]) and not _MATRIX.search(name):
                continue
            if clue.arguments[name] is None or isinstance(clue.arguments[name], int | float | list | tuple):
                for size in _list_sides(clue) if _MATRIX.search(name) else ():
                    yield {name: Made(partial(torch.eye, size), f"torch.eye({size})")}
                yield {name: Made(partial(torch.ones, 64), "torch.ones(64)")}


def _propose_operands(clue: Clue, match: re.Match[str]) -> Changes:
    """A square matrix for a number that is an operand of a product."""
    for name in [each for each in clue.culprits if _is_number(clue.arguments[each])][:MAX_CULPRITS]:
        yield from ({name: Made(partial(torch.eye, size), f"torch.eye({size})")} for size in _list_sides(clue))


def _propose_record(clue: Clue, match: re.Match[str]) -> Changes:
    """A record for an argument of which only attributes are read, such as a data set that knows its columns."""
    for name in clue.culprits[:MAX_CULPRITS]:
        reads = [read for step in clue.steps for read in reads_of(name, step.function)]
        keys = dict.fromkeys(read.path[0] for read in reads if len(read.path) == 1)
        if _is_number(clue.arguments[name]) and match[1] in keys:
            yield {name: AnyConfig({key: _guess_entry(clue, key) for key in keys}).at((name,))}


def _list_sides(clue: Clue) -> list[int]:
    """Sizes that a square matrix may have: those of nodes and of inputs."""
    named = [name for name, value in clue.arguments.items() if _is_whole(value) and _SIDE_OF_MATRIX.search(name)]
    return list(dict.fromkeys(clue.arguments[name] for name in named)) or [16]


def _propose_letters(clue: Clue, match: re.Match[str]) -> Changes:
    """`labels.index("_")`: an alphabet with that letter."""
    for name in clue.culprits[:MAX_CULPRITS]:
        if isinstance(clue.arguments[name], list | tuple):
            yield {name: [match[1], *string.ascii_lowercase]}


def _propose_own_config(clue: Clue, match: re.Match[str]) -> Changes:
    """The configuration class that a model of transformers names, with the entries that are known."""
    kind = getattr(clue.function, "config_class", None)
    for name, value in clue.given.items():
        if isinstance(kind, type) and not isinstance(value, kind):
            entries = dict(value) if isinstance(value, dict) else {}
            yield {name: Made(partial(kind, **entries), f"{kind.__name__}(...)")}


def _propose_mappings(clue: Clue, match: re.Match[str]) -> Changes:
    """A dictionary for an argument whose entries the code looks up by names that it gives itself."""
    for name in clue.culprits[:MAX_CULPRITS]:
        value = clue.arguments[name]
        if not _is_number(value) and not isinstance(value, list | tuple):
            continue
        if numbers := number_words(name, _list_words_looked_up(clue, name)):
            yield {name: numbers}
        elif _is_looked_up(clue, name):
            size = value if _is_whole(value) else 16
            yield {name: {"one": size, "two": size}}
    calls = (
        (step, node) for step in reversed(clue.steps) for node in ast.walk(step.node) if isinstance(node, ast.Call)
    )
    for step, call in calls:
        for each in call.keywords:  # `Activation(**activation)`: what that takes
            name = ast.unparse(each.value).removeprefix("self.") if each.arg is None else ""
            if name in clue.arguments and callable(kind := step.value(call.func)):
                names = [parameter.name for parameter in list_required_parameters(kind)]
                yield {name: AnyConfig({key: _guess_entry(clue, key, kind) for key in names}).at((name,))}


def _list_words_looked_up(clue: Clue, name: str) -> list[str]:
    """The words under which the functions that failed look up entries of an argument: `self.numbers[START]`."""
    items = ((step, node) for step in clue.steps for node in ast.walk(step.function) if isinstance(node, ast.Subscript))
    keys = (step.value(node.slice) for step, node in items if ast.unparse(node.value).removeprefix("self.") == name)
    return list(dict.fromkeys(key for key in keys if isinstance(key, str)))


def _is_looked_up(clue: Clue, name: str) -> bool:
    """Does the code read entries of an argument by a variable key, or its items?"""
    for step in clue.steps:
        for node in ast.walk(step.function):
            match node:
                case (
                    ast.Subscript(value=held, slice=ast.Name())
                    | ast.Call(func=ast.Attribute(value=held, attr="items" | "keys" | "values"))
                ):
                    if ast.unparse(held).removeprefix("self.") == name:
                        return True
    return False


def _propose_positive(clue: Clue, match: re.Match[str]) -> Changes:
    """Positive sizes for those that mean "not yet known", such as a vocabulary of -1; of those that are 0, for names
    whose usual value is positive."""
    whole = {name: value for name, value in clue.arguments.items() if type(value) is int and value <= 0}
    open_ones = [name for name, value in whole.items() if value or usual_argument(name) != 0]
    yield {name: guess_entry_value(name) for name in open_ones}


def _propose_parsed_numbers(clue: Clue, match: re.Match[str]) -> Changes:
    """Numbers in the text form of a command line, which the program parses later."""
    for name, value in clue.arguments.items():
        if isinstance(value, str) and (numbers := re.findall(r"\d+", value)) and not re.search(r"[A-Za-z/]", value):
            yield {name: [int(number) for number in numbers]}
            yield {name: int(numbers[0])}


def _propose_dropped(clue: Clue, match: re.Match[str]) -> Changes:
    if match[1] in clue.given:
        yield {match[1]: DROPPED}


def _propose_sequences(clue: Clue, match: re.Match[str]) -> Changes:
    """A list instead of a number: all similar arguments at once, then one by one."""
    kind = list if "concatenate list" in clue.text else tuple
    if kind is list:  # more of what the code has one of, which may be none
        yield from ({name: []} for name in clue.culprits[:MAX_CULPRITS] if _is_number(clue.arguments[name]))
    scalars = [name for name in clue.culprits if _is_number(clue.arguments[name])][:MAX_CULPRITS]
    for name in scalars:
        if _SIDES.search(name.lower()):
            yield from ({name: (clue.arguments[name],) * length} for length in (2, 3) if clue.arguments[name])
    for length, name in itertools.product(_guess_lengths(clue), scalars):
        yield {name: kind(_list_of(name, clue.arguments[name], length))}


def _propose_nested(clue: Clue, match: re.Match[str]) -> Changes:
    """A list inside of a list, where the failing statement takes a member of one, or goes over pairs:
    `len(feature_dims[0])`, `for states, actions in sizes`."""
    step = clue.last()
    for node in ast.walk(step.node) if step else ():
        match node:
            case ast.Subscript(value=held, slice=ast.Constant(value=int(at))):
                name = ast.unparse(held).removeprefix("self.")
                value = clue.arguments.get(name)
                if isinstance(value, list | tuple) and 0 <= at < len(value) and _is_whole(value[at]):
                    yield {name: (*value[:at], [value[at]] * 2, *value[at + 1 :])}
            case (
                ast.For(target=ast.Tuple(elts=parts), iter=held)
                | ast.comprehension(target=ast.Tuple(elts=parts), iter=held)
            ):
                name = ast.unparse(held).removeprefix("self.")
                value = clue.arguments.get(name)
                if isinstance(value, list | tuple) and value and all(map(_is_whole, value)):
                    yield {name: [(size,) * len(parts) for size in value]}


def _guess_lengths(clue: Clue) -> list[int]:
    told = re.search(r"(?:tuples?|lists?|length|sequence)\D{0,12}?\b(\d+|one|two|three|four|five)\b", clue.text)
    if told:
        return [_NUMBERS.get(told[1]) or int(told[1])]
    others = [len(value) for value in clue.given.values() if isinstance(value, list | tuple) and value]
    return list(dict.fromkeys([*others, 4, 3, 2]))


def _list_of(name: str, value: Any, length: int) -> tuple[Any, ...]:
    """So many values around one: counts of layers and steps between sizes stay small, widths grow."""
    if STEPS.search(name.lower()):
        return (2,) * length
    if not _is_number(value) or not value:
        usual = usual_argument(name)
        value = usual if _is_whole(usual) else 16
    return tuple(value * (2**index if value >= 16 else 1) for index in range(length))


def _propose_scalars(clue: Clue, match: re.Match[str]) -> Changes:
    for name in clue.culprits:
        value = clue.arguments[name]
        if isinstance(value, list | tuple) and value and (name in clue.given or name in clue.places):
            yield {name: value[0]}


def _propose_resized(clue: Clue, match: re.Match[str]) -> Changes:
    """Lists of another length: the required one, else one more or one less."""
    wanted = next((int(group) for group in match.groups() if group and group.isdigit()), None)
    lists = [name for name in clue.culprits if isinstance(clue.arguments[name], list | tuple)]
    lists += [name for name, value in clue.given.items() if isinstance(value, list | tuple) and name not in lists]
    for name in lists:
        value = list(clue.arguments[name])
        for length in [wanted] if wanted else [len(value) + 1, len(value) - 1, len(value) + 2]:
            yield {name: tuple((value + value[-1:] * length)[:length])}


def _propose_reversed(clue: Clue, match: re.Match[str]) -> Changes:
    for name in clue.culprits:
        if isinstance(clue.arguments[name], list | tuple):
            yield {name: tuple(reversed(clue.arguments[name]))}


def _propose_counts(clue: Clue, match: re.Match[str]) -> Changes:
    """`range(stage_modules)`: a small number where a class or a list was guessed."""
    names = [name for name in clue.culprits if inspect.isclass(clue.arguments[name]) or _is_list(clue.arguments[name])]
    yield from (dict.fromkeys(chosen, 2) for chosen in (names, *([name] for name in names)) if chosen)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _propose_whole_numbers(clue: Clue, match: re.Match[str]) -> Changes:
    for name in clue.culprits:
        if isinstance(clue.arguments[name], float):
            yield {name: max(1, int(clue.arguments[name]))}


def _propose_options(clue: Clue, match: re.Match[str]) -> Changes:
    """Values that the code compares an argument with, texts that it looks for in it, or keys of the table in which it
    looks the argument up."""
    for step in reversed(clue.steps):
        yield from _list_options(clue, step, step.function)


def _propose_allowed(clue: Clue, match: re.Match[str]) -> Changes:
    """The same for the failing statement only: `assert mode in ("mean", "sum")`."""
    if (step := clue.last()) is not None:
        yield from _list_options(clue, step, step.node.test if isinstance(step.node, ast.If) else step.node)


def _list_options(clue: Clue, step: Step, code: ast.AST) -> Changes:
    for node in ast.walk(code):
        choices: list[Any] = []
        match node:
            case ast.Compare(left=ast.Constant(value=str(word)), ops=[ast.In() | ast.NotIn()], comparators=[read]):
                choices = [word]
            case ast.Compare(left=read, ops=[ast.Eq() | ast.In() | ast.NotIn()], comparators=[right]):
                held = step.value(right)
                choices = list(held) if isinstance(held, list | tuple | set | frozenset | dict) else [held]
            case (
                ast.Subscript(value=table, slice=read)
                | ast.Call(func=ast.Attribute(value=table, attr="get"), args=[read, *_])
            ) if isinstance(step.value(table), dict):
                choices = list(step.value(table))
            case _:
                continue
        held_as = get_entry_name(read)
        fitting = [each for each in choices if isinstance(each, str | int) or (each is None and len(choices) > 1)]
        for name in (name for name in clue.arguments if held_as and held_as in clue.names_at(step, name)):
            yield from ({name: choice} for choice in fitting[:4])


def _propose_text(clue: Clue, match: re.Match[str]) -> Changes:
    """A text where a number was guessed: one that the code compares the argument with, else the usual one."""
    for name in [each for each in clue.culprits if _is_number(clue.arguments[each])][:MAX_CULPRITS]:
        words = (
            word
            for step in clue.steps
            for other in clue.names_at(step, name)
            for word in find_compared_words(step.function, other)
        )
        yield {name: next(words, usual_text(name))}


def _propose_members(clue: Clue, match: re.Match[str]) -> Changes:
    """`getattr(module, name)`: a name that the module has, the same one in other letters first."""
    step = clue.last()
    for node in ast.walk(step.node) if step else ():
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[held, _, *_]) if step and (module := step.value(held)):
                own = [key for key, value in vars(module).items() if _is_own_function(value, module)]
                alike = [key for key in dir(module) if key.lower() == match[1].lower()]
                texts = [name for name in clue.arguments if clue.arguments[name] == match[1]]
                for name, key in itertools.product(texts, (*alike, *own[:4])):
                    yield {name: key}


def _is_own_function(value: Any, module: Any) -> bool:
    """Is it a function or class of this module, or of one inside of it?"""
    return callable(value) and str(getattr(value, "__module__", "")).startswith(getattr(module, "__name__", "?"))


def _propose_other_sequence(clue: Clue, match: re.Match[str]) -> Changes:
    """A list for a tuple, or the other way round."""
    for name in clue.culprits[:MAX_CULPRITS]:
        value = clue.arguments[name]
        if isinstance(value, list | tuple):
            yield {name: list(value) if isinstance(value, tuple) else tuple(value)}


def _propose_divisible(clue: Clue, match: re.Match[str]) -> Changes:
    """For `a % b` in the failing statement: an `a` that `b` divides, whatever argument it was computed from."""
    step = clue.last()
    for node in ast.walk(step.node) if step else ():
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and step):
            continue
        left, right = step.value(node.left), step.value(node.right)
        if not (_is_whole(left) and _is_whole(right)) or left % right == 0:
            continue
        factor = math.lcm(left, right) // left
        numbers = [name for name in clue.culprits if _is_whole(clue.arguments[name])][:MAX_CULPRITS]
        yield from ({name: clue.arguments[name] * factor} for name in numbers if clue.arguments[name] != right)
        yield from ({name: math.gcd(left, right)} for name in numbers if clue.arguments[name] == right)


def _propose_groups(clue: Clue, match: re.Match[str]) -> Changes:
    """Channels that the groups of a normalisation or convolution divide."""
    channels, groups = (int(group) for group in match.groups()[:2])
    numbers = [name for name, value in clue.arguments.items() if _is_whole(value)]
    yield from ({name: -(-channels // groups) * groups} for name in numbers if clue.arguments[name] == channels)
    yield from ({name: math.gcd(channels, groups)} for name in numbers if clue.arguments[name] == groups)
    factor = math.lcm(channels, groups) // channels
    culprits = [name for name in clue.culprits if name in numbers][:MAX_CULPRITS]
    yield from ({name: clue.arguments[name] * factor} for name in culprits)


def _propose_equal(clue: Clue, match: re.Match[str]) -> Changes:
    """For `a == b` (also of lengths) in the failing statement: one made equal to the other."""
    step = clue.last()
    for node in ast.walk(step.node) if step else ():
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.GtE() | ast.LtE()], comparators=[right]):
                yield from _made_equal(clue, step.value(left) if step else None, step.value(right) if step else None)


def _made_equal(clue: Clue, one: Any, other: Any) -> Changes:
    if _is_whole(one) and type(other) is int and other == 0:
        alike = [name for name, value in clue.arguments.items() if _is_whole(value) and value == one]
        yield from ({name: 0} for name in alike or clue.culprits[:MAX_CULPRITS])
    if not (_is_whole(one) and _is_whole(other)) or one == other:
        return
    for name in clue.culprits[:MAX_CULPRITS]:
        value = clue.arguments[name]
        if isinstance(value, list | tuple) and value and len(value) in (one, other):
            length = other if len(value) == one else one
            yield {name: tuple((list(value) + [value[-1]] * length)[:length])}
        elif _is_whole(value) and value in (one, other):
            yield {name: other if value == one else one}


def _propose_agreeing_sizes(clue: Clue, match: re.Match[str]) -> Changes:
    """For two sizes that should agree: arguments equal to one of them, or dividing it, scaled accordingly."""
    yield from _iterate_agreeing(clue, *(int(group) for group in match.groups()[:2]))


def _propose_channels(clue: Clue, match: re.Match[str]) -> Changes:
    """A convolution on meta does not report its input's channels: its frame does."""
    trace = clue.error.__traceback__
    while trace is not None:
        held = trace.tb_frame.f_locals
        layer, given = held.get("self"), held.get("input")
        shape, wanted = list(getattr(given, "shape", [])), getattr(layer, "in_channels", None)
        if wanted is not None and len(shape) > 1:
            yield from _iterate_agreeing(clue, int(wanted), int(shape[1]))
            return
        trace = trace.tb_next


def _iterate_agreeing(clue: Clue, first: int, second: int) -> Changes:
    yield from (change for pair in ((second, first), (first, second)) for change in _resize_parts(clue, *pair))
    numbers = [name for name, value in clue.arguments.items() if _is_whole(value) and value > 1]
    for name, (had, wants) in itertools.product(numbers, ((second, first), (first, second))):
        value = clue.arguments[name]
        if had and had % value == 0 and wants % (had // value) == 0 and wants != had:
            yield {name: wants // (had // value)}
    # Both sides of a map: `channels * height * width`.
    pairs = [pair for pair in itertools.combinations(numbers, 2) if len({clue.arguments[name] for name in pair}) == 1]
    for pair, (had, wants) in itertools.product(pairs, ((second, first), (first, second))):
        area = clue.arguments[pair[0]] ** 2
        side = math.isqrt(wants * area // had) if had and had % area == 0 and wants != had else 0
        if side and side * side * had == wants * area:
            yield dict.fromkeys(pair, side)


def _resize_parts(clue: Clue, had: int, wants: int) -> Changes:
    """Models among the arguments that have a size of their own: all with another one, then each."""
    changed: dict[str, Any] = {}
    for name, part in clue.given.items():
        same = {key: wants for key, size in part.sizes.items() if size == had > 1} if isinstance(part, Made) else {}
        if same and (again := part.resize(same)) is not None:
            changed[name] = again
    if len(changed) > 1:
        yield changed
    yield from ({name: part} for name, part in changed.items())


def _propose_optional(clue: Clue, match: re.Match[str]) -> Changes:
    """Optional arguments that turn out to be required: the first one named, all candidates, each."""
    absent = [name for name in clue.culprits if clue.arguments[name] is None]
    values = {name: usual_list(name) if _means_list(name) else usual_argument(name) for name in absent}
    known = {name: 16 if value is None else value for name, value in values.items()}
    told = next((word for word in re.findall(r"\w+", str(clue.error)) if word in known), None)
    if told is not None:
        yield {told: known[told]}
    if known:
        yield known
    yield from ({name: value} for name, value in known.items())


def _means_list(name: str) -> bool:
    return bool(re.search(r"sizes$|dims$|depths$|(?<!num)_layers$", name.lower()))


def _propose_other_values(clue: Clue, match: re.Match[str]) -> Changes:
    """Another usual value for the argument that the error is about."""
    for name in clue.culprits[:MAX_CULPRITS]:
        if isinstance(clue.arguments[name], bool):
            yield {name: not clue.arguments[name]}
        elif _is_number(clue.arguments[name]):
            yield from ({name: value} for value in other_arguments(name) if value != clue.arguments[name])


def _propose_parts(clue: Clue, match: re.Match[str]) -> Changes:
    """A class, a function or a module instead of a number; no class first where a forward calls it."""
    lacked = re.search(r"has no attribute '(\w+)'", clue.text)
    last = clue.last()
    in_forward = last is not None and last.function.name != "__init__" and "not callable" in clue.text
    for name in clue.culprits[:MAX_CULPRITS]:
        parts = list(itertools.islice(clue.parts(name, lacked[1] if lacked else ""), 8))
        yield from ({name: part} for part in sorted(parts, key=lambda part: in_forward and inspect.isclass(part)))


def _instance_of(clue: Clue, match: re.Match[str]) -> Changes:
    """For `isinstance(argument, Kind)` in the failing statement: an instance of it, or the value turned into one."""
    step = clue.last()
    for node in ast.walk(step.node) if step else ():
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), wanted]) if name in clue.arguments:
                held = step.value(wanted) if step else None
                for kind in held if isinstance(held, tuple) else (held,):
                    yield from _propose_converted(clue, name, kind)


def _propose_converted(clue: Clue, name: str, kind: Any) -> Changes:
    if kind in (int, float, str):
        yield {name: kind(usual_argument(name) or 16)}
    elif kind in (list, tuple):
        value = clue.arguments[name]
        lists = (
            [value]
            if isinstance(value, list | tuple)
            else [_list_of(name, value, each) for each in _guess_lengths(clue)]
        )
        yield from ({name: kind(each)} for each in lists)
    elif isinstance(kind, type) and issubclass(kind, nn.Module):
        yield from ({name: part} for part in itertools.islice(clue.parts(name, kind), 1))


def _other_norm(clue: Clue, match: re.Match[str]) -> Changes:
    """A normalisation of the last dimension where images are normalised by their channels."""
    for name, value in clue.arguments.items():
        if value is nn.LayerNorm:
            yield from ({name: kind} for kind in (nn.BatchNorm2d, nn.BatchNorm1d))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _propose_texts(clue: Clue, match: re.Match[str]) -> Changes:
    """`"models." + name`: a text, whose value the next error asks for."""
    yield from ({name: ""} for name in clue.culprits[:MAX_CULPRITS] if not isinstance(clue.arguments[name], str))


def _propose_modules(clue: Clue, match: re.Match[str]) -> Changes:
    """`importlib.import_module("models." + name)`: the modules of that package, for a text of which no module has the
    name."""
    package = sys.modules.get(match[1])
    texts = [name for name, value in clue.arguments.items() if str(value) == match[2]]
    found = sorted(module.name for module in pkgutil.iter_modules(getattr(package, "__path__", ())))
    for module, name in itertools.product(found, [*texts, *clue.culprits[:MAX_CULPRITS]]):
        if isinstance(clue.arguments[name], str | int):
            yield {name: module}


Row = tuple[str, Callable[[Clue, re.Match[str]], Changes]]

#: Pattern of `Type: message` -> what could be changed. Every row that fits is asked, in order.
ROWS: tuple[Row, ...] = (
    (r"^(AssertionError|KeyError|NotImplementedError|TypeError|ValueError)", _propose_allowed),
    (r"^AssertionError|NoneType|^ValueError|None$", _propose_known),
    (r"^AttributeError: '\w+' object has no attribute '(\w+)'", _propose_lacking_attribute),
    (r"^AttributeError: '\w+' object has no attribute '(\w+)'", _propose_other_branch),
    (r"^KeyError: '(\w+)'", _propose_keyword),
    (r"^KeyError: '(\w+)'", _propose_entry),
    (r"^ValueError: '(.+)' is not in list", _propose_letters),
    (r"should be an instance of class `\w*Config`", _propose_own_config),
    (r"can only concatenate str \(not", _propose_texts),
    (
        r"'(int|float|bool|NoneType)' object has no attribute '("
        + "|".join(name for name in dir(str) if not name.startswith("_"))
        + r")'|(attribute name|argument|path) (must|should) be (a )?str|str, bytes,? or os.PathLike"
        r"|argument of type '(int|float|NoneType|bool)' is not",
        _propose_text,
    ),
    (r"^AttributeError: (?:partially initialized )?module '[\w.]+' has no attribute '(\w*)'", _propose_members),
    (r"^ModuleNotFoundError: No module named '([\w.]+)\.(\w*)'", _propose_modules),
    (r"parameter is expected to be 2-dimensional|'(int|bool)' object has no attribute 'dim'", _propose_matrices),
    (
        r"object is not (subscriptable|iterable)|has no attribute '(items|keys|values)'|indices must be|be a mapping",
        _propose_mappings,
    ),
    (r"expected np.ndarray|^(?:Attribute|Type)Error: .*'?int\b", _propose_table),
    (r"^AttributeError: '(?:int|float|bool|list|tuple|NoneType)' object has no attribute '(\w+)'", _propose_tensors),
    (r"expected Tensor as element \d+ in argument|must be Tensor, not (int|float)", _propose_operands),
    (r"^AttributeError: '(?:int|float|bool)' object has no attribute '(\w+)'", _propose_record),
    (r"configuration guessed here has no", _propose_lacking_entry),
    (r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)", _propose_missing),
    (r"(?i)negative dimension|must be positive|non-negative|nonnegative|dimension 0 with size 0", _propose_positive),
    (r"\bstr\b", _propose_parsed_numbers),
    (r"unexpected keyword argument '(\w+)'", _propose_dropped),
    (r"^AssertionError|^ValueError|^TypeError", _instance_of),
    (r"num_channels \((\d+)\) must be divisible by num_groups \((\d+)\)", _propose_groups),
    (r"^AssertionError|^ValueError|divisible", _propose_divisible),
    (r"^AssertionError|^ValueError", _propose_equal),
    (r"type 'int' has no len|'int' object is not (iterable|subscriptable)|unpack non-iterable int", _propose_nested),
    (
        r"can only concatenate (list|tuple) \(not \"(tuple|list)\"|'tuple' object (has no|does not)",
        _propose_other_sequence,
    ),
    (
        r"can only concatenate list"
        r"|object of type '\w+' has no len|object is not subscriptable|is not iterable|non-iterable|must be an iterable"
        r"|(?i:be an? (tuple|list|sequence)|be (tuples?|lists?)\b)",
        _propose_sequences,
    ),
    (r"not enough values to unpack \(expected (\d+)|too many values to unpack \(expected (\d+)", _propose_resized),
    (r"(list|tuple) index out of range|argument 2 is (shorter|longer)", _propose_resized),
    (
        r"found element of type (list|tuple)|'(list|tuple)' (object|and)|and '(list|tuple)'|by non-int of type"
        r"|of ints, ?but got (list|tuple)",
        _propose_scalars,
    ),
    (
        r"object is not callable|^AttributeError: (type object )?'\w+' .*has no|is not a Module subclass|^StopIteration"
        r"|missing \d+ required|unsupported operand",
        _propose_parts,
    ),
    (r"'(type|list|tuple)' object cannot be interpreted as an integer", _propose_counts),
    (r"found element of type float|'float' object", _propose_whole_numbers),
    (r"(?i)\border|sort|decreas|descend|ascend|increas", _propose_reversed),
    (r"^AssertionError|NoneType|^ValueError|None$", _propose_optional),
    (
        r"^(KeyError|ValueError|AssertionError|NotImplementedError|UnboundLocalError|AttributeError|Exception)"
        r"|argument of type '\w+' is not|'NoneType' object is not callable",
        _propose_options,
    ),
    (r"\(\d+x(\d+) and (\d+)x\d+\)", _propose_agreeing_sizes),
    (r"Invalid channel dimensions", _propose_channels),
    (r"to have (\d+) channels, but got (\d+) channels", _propose_agreeing_sizes),
    (r"reduction dim, but got \[\d+, (\d+)\] X \[(\d+), \d+\]", _propose_agreeing_sizes),
    (r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", _propose_agreeing_sizes),
    (r"normalized_shape", _other_norm),
    (r"normalized_shape=\[(\d+)\].*, (\d+)\]\)$", _propose_agreeing_sizes),
    (r"Expected (?:size )?(\d+) (?:in dimension \d+ )?but got (?:size )?(\d+)", _propose_agreeing_sizes),
    (r"must be equal to input_size\. Expected (\d+), got (\d+)", _propose_agreeing_sizes),
    (
        r"embed_dim.* (\d+).*num_heads.* (\d+)|^AssertionError|^ValueError|^RuntimeError|^EinopsError",
        _propose_other_values,
    ),
)
