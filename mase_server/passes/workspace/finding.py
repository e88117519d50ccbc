"""The passes that a workspace's files define: what they are called, what they take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mase_server.passes.declaration import Need, Pass
from mase_server.passes.workspace.files import trees
from mase_server.passes.workspace.loading import LazyFunction
from mase_server.passes.workspace.reading import PassSyntax, documentation, functions

_SUFFIX = re.compile(r"_(transform|analysis)_pass$")


def workspace_passes(folder: str, path: str, taken: Mapping[str, Pass]) -> Mapping[str, Pass]:
    """Name -> pass, for the file `path` and those below `folder`; nothing is imported before a pass is called.

    A pass is a function at a file's top, `def NAME_transform_pass(graph, pass_args={...})` or `..._analysis_pass`, that
    gives the graph and a dict.  taken: passes whose names are theirs; one of the same name has its file's in front.
    """
    found: dict[str, Pass] = {}
    for file, syntax in _functions(folder, path):
        short = _SUFFIX.sub("", syntax.function.name)
        name = next((name for name in _names(short, file) if name not in taken and name not in found), None)
        if name is not None:
            found[name] = _declared(name, file, syntax)
    return found


def _functions(folder: str, path: str) -> Iterator[tuple[str, PassSyntax]]:
    for file, tree in trees(folder, path):
        for syntax in functions(tree):
            yield file, syntax


def _names(short: str, file: str) -> Iterator[str]:
    """What a pass may be called, the shortest first."""
    yield short
    words = [re.sub(r"\W", "_", part) for part in Path(file).with_suffix("").parts[1:]]
    for count in range(1, len(words) + 1):
        yield "_".join([*words[-count:], short])


def _declared(name: str, file: str, syntax: PassSyntax) -> Pass:
    function = syntax.function
    arguments, others = syntax.arguments()
    needs: frozenset[Need] = frozenset({"metadata", "weights"} if syntax.reads_values() else {"metadata"})
    words = _SUFFIX.sub("", function.name).replace("_", " ").strip()
    return Pass(
        name=name,
        title=words[:1].upper() + words[1:],
        kind="transform" if function.name.endswith("_transform_pass") else "analysis",
        function=LazyFunction(file, function.name, function.lineno, documentation(syntax), syntax.takes_arguments),
        arguments=arguments,
        others=others,
        needs=needs,
        source=file,
    )
