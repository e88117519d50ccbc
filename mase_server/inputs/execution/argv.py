"""The command line of a program that nobody gave one: what has no default is made up, unless it may be a size."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mase_server.tracing.loading.placeholders import Absent, Placeholder

#: Numbers that give no shape: ranks, seeds, counts of steps.
_HARMLESS = re.compile(
    r"rank|gpu|seed|epoch|batch|bs$|worker|step|iter|port|node|world|device|log|save|eval|print|interval|freq|thread"
    r"|fold|run|trial|patience|warmup|^lr|rate|decay|momentum|dropout|alpha|beta|gamma|lambda|temp|eps"
)
_TEXTS = ("0", "1", "data", "True", "2020-01-01", "1,2")


@contextmanager
def plausible_arguments() -> Iterator[list[str]]:
    """Inside, parsers find arguments for what they require; gives what was made up, as it would be written."""
    made_up: list[str] = []
    original = argparse.ArgumentParser.parse_known_args

    def parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        if args is not None and list(args):
            return original(self, args, namespace)
        texts, unknown = _required(self)
        parsed, rest = original(self, texts, namespace)
        for name in unknown:
            setattr(parsed, name, Placeholder(_absent(name), name, made=True))
        made_up.extend(texts)
        return parsed, rest

    with patch.object(argparse.ArgumentParser, "parse_known_args", parse):
        yield made_up


def _required(parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """The texts for what a parser requires, and the names of those whose value stays unknown."""
    texts, unknown = list[str](), list[str]()
    groups = [group for group in parser._mutually_exclusive_groups if group.required]
    actions = [each for each in parser._actions if each.required] + [group._group_actions[0] for group in groups]
    for action in sorted(actions, key=lambda each: not each.option_strings):
        if isinstance(action, argparse._SubParsersAction):
            name, inner = next(iter(action.choices.items()))
            more, also = _required(inner)
            texts, unknown = [*texts, name, *more], [*unknown, *also]
            continue
        count = action.nargs if isinstance(action.nargs, int) else 1
        texts += [*action.option_strings[:1], *[_text(action)] * count]
        if action.type in (int, float) and action.choices is None and not _HARMLESS.search(action.dest):
            unknown.append(action.dest)
    return texts, unknown


def _text(action: argparse.Action) -> str:
    """A text that the action takes."""
    if action.choices:
        return str(next(iter(action.choices)))
    read: Callable[[str], Any] = action.type if callable(action.type) else str
    order: Sequence[str] = _TEXTS if action.type is not None else ("data",)
    return next((text for text in order if _takes(read, text)), order[0])


def _takes(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except Exception:  # noqa: BLE001 - the person's own function
        return False
    return True


def _absent(name: str) -> Absent:
    return Absent("", lambda thing: None, lambda path: False, f"the argument {name} has no default")
