"""What comments, options and settings ask for, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mase_server.inputs.comments import BadComment, Wish
from mase_server.inputs.spec import Inputs
from mase_server.inputs.text import parse
from mase_server.worker.request import EVERY, TraceOptions, owner_of


@dataclass(slots=True)
class ClassWishes:
    """What is asked for one class. call: text of the constructor call; arguments: texts by parameter name.

    called_at: the comment that says the call.  inputs_set: the named set that the inputs are of.
    """

    inputs: Inputs | None = None
    inputs_from: str = "comment"
    inputs_set: str = ""
    call: str | None = None
    called_at: Wish | None = None
    arguments: dict[str, str] = field(default_factory=dict)

    def constructor(self, name: str) -> str | None:
        """The constructor call as text, None where nothing is asked for."""
        if self.call or not self.arguments:
            return self.call
        return f"{name}({', '.join(f'{key}={text}' for key, text in self.arguments.items())})"

    def said(self) -> str:
        """Where the inputs come from, as the end of a sentence."""
        return f"inputs from {self.inputs_from}" + (f" [{self.inputs_set}]" if self.inputs_set else "")

    def any(self) -> bool:
        """Is anything asked for?"""
        return self.inputs is not None or bool(self.call or self.arguments)


class Wishes:
    """The comments of a file and the options of a request; SpecError if the options' inputs cannot be read."""

    def __init__(self, options: TraceOptions, comments: Sequence[Wish | BadComment]) -> None:
        self.options = options
        #: The classes above which a template stands whose blanks are not filled in yet.
        self.templates = {each.blank_of for each in comments if isinstance(each, BadComment)}
        #: What is said for the file, then what is said for a class; each in the order of the file.
        self.comments = sorted((each for each in comments if isinstance(each, Wish)), key=lambda each: bool(each.owner))
        self.given = parse("\n".join(options.inputs)) if options.inputs else None

    def skips_file(self) -> bool:
        """Is the whole file to be left out?"""
        return any(wish.skip and wish.owner is None for wish in self.comments)

    def wants(self, name: str) -> bool:
        """Is this class to be shown?"""
        skipped = any(wish.skip and wish.owner == name for wish in self.comments)
        return not skipped and self.options.model in (None, name)

    def about(self, name: str) -> list[Wish]:
        """The comments that say something of a model, by the name of its class, function or variable."""
        names = {None, name, owner_of(name)}
        return sorted((each for each in self.comments if each.owner in names), key=lambda each: each.line)

    def sets(self, name: str) -> list[str]:
        """The named sets of a model's inputs, in the order of the file."""
        return list(dict.fromkeys(each.set for each in self.about(name) if each.set))

    def active(self, name: str) -> str:
        """The set that is used: the one that was picked; else the first, unless comments without a set say enough."""
        picked, sets = self.options.sets.get(owner_of(name), self.options.sets.get(EVERY)), self.sets(name)
        if picked is not None and picked in ("", *sets):
            return picked
        said = any(not (each.set or each.skip or each.data) for each in self.about(name))
        return "" if said or not sets else sets[0]

    def of(self, name: str) -> ClassWishes:
        """What is asked for a class: an option beats a comment, a comment beats a setting.

        Of comments, a set's beats those without a name, one for the class beats one for the file, a later an earlier.
        """
        found = ClassWishes(self.given, self.options.inputs_from, arguments=self.options.arguments)
        active = self.active(name)
        mine = (each for each in self.comments if each.owner in (None, name) and each.set in ("", active))
        for wish in sorted(mine, key=lambda each: bool(each.set)):
            if wish.call:
                found.call, found.called_at = wish.call, wish
            if wish.inputs is not None and not (self.given and self.options.inputs_from == "option"):
                found.inputs, found.inputs_from, found.inputs_set = wish.inputs, "comment", wish.set
        return found
