"""What comments, options and settings ask for, class by class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mase_server.inputs.comments import BadComment, Wish
from mase_server.inputs.spec import Inputs
from mase_server.inputs.text import parse
from mase_server.worker.request import TraceOptions


@dataclass(slots=True)
class ClassWishes:
    """What is asked for one class. call: text of the constructor call; arguments: texts by parameter name."""

    inputs: Inputs | None = None
    inputs_from: str = "comment"
    call: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)

    def constructor(self, name: str) -> str | None:
        """The constructor call as text, None where nothing is asked for."""
        if self.call or not self.arguments:
            return self.call
        return f"{name}({', '.join(f'{key}={text}' for key, text in self.arguments.items())})"

    def any(self) -> bool:
        """Is anything asked for?"""
        return self.inputs is not None or bool(self.call or self.arguments)


class Wishes:
    """The comments of a file and the options of a request; SpecError if the options' inputs cannot be read."""

    def __init__(self, options: TraceOptions, comments: Iterable[Wish | BadComment]) -> None:
        self.options = options
        self.comments = [comment for comment in comments if isinstance(comment, Wish)]
        self.given = parse("\n".join(options.inputs)) if options.inputs else None

    def skips_file(self) -> bool:
        """Is the whole file to be left out?"""
        return any(wish.skip and wish.owner is None for wish in self.comments)

    def wants(self, name: str) -> bool:
        """Is this class to be shown?"""
        skipped = any(wish.skip and wish.owner == name for wish in self.comments)
        return not skipped and self.options.model in (None, name)

    def of(self, name: str) -> ClassWishes:
        """What is asked for a class: an option beats a comment, a comment beats a setting, a later one an earlier."""
        found = ClassWishes(self.given, self.options.inputs_from, arguments=self.options.arguments)
        for wish in self.comments:
            if wish.owner not in (None, name):
                continue
            found.call = wish.call or found.call
            if wish.inputs is not None and not (self.given and self.options.inputs_from == "option"):
                found.inputs, found.inputs_from = wish.inputs, "comment"
        return found
