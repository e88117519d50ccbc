"""What a class is made with and among: its file, its workspace, and the time there is."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from mase_server.inputs.budget import FILE_SECONDS, Budget
from mase_server.inputs.making.settings import Settings
from mase_server.inputs.making.workspace import Workspace
from mase_server.tracing.shadow import Shadows

#: Models that are made to make another one are nested so deep.
MAX_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a class is made with and among.

    workspace: an empty one, where only the file counts.  budget: how long ways to make a model may be looked for.
    depth: how many models wait for this one, as parts of each other.
    """

    namespace: dict[str, Any]
    tree: ast.Module
    shadows: Shadows
    on_trial: Callable[[], AbstractContextManager[None]] = nullcontext
    workspace: Workspace = field(default_factory=lambda: Workspace(""))
    budget: Budget = field(default_factory=lambda: Budget.of(FILE_SECONDS))
    depth: int = 0

    def settings(self) -> Settings:
        """The settings that the file and its workspace keep."""
        return self.workspace.kept(("settings", id(self.tree)), lambda: Settings(self.workspace, self.tree))

    def inner(self, namespace: dict[str, Any]) -> Surroundings:
        """Those of a part, which is made among the names of its own file."""
        return replace(self, namespace=namespace, depth=self.depth + 1, budget=self.budget.part(0.5))
