"""Write the typed methods of the Python client from the table of the API: `python -m docs.client`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args

from mase_server.daemon.api import API, ApiMethod

FOLDER = Path(__file__).parent.parent / "mase_server" / "client"
_HEAD = '''"""The API as methods: made by `python -m docs.client` from the server's table, not to be edited.

Every parameter that is None is left out; `mase/info` with `methods` describes all that they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from mase_server.answers import {answers}


def _given(**params: Any) -> dict[str, Any]:
    return {key.rstrip("_"): value for key, value in params.items() if value is not None}
'''
_CLASSES = {
    "methods.py": ("BlockingMethods", "def", "", "Each waits for its answer."),
    "async_methods.py": ("AsyncMethods", "async def", "await ", "Each is awaited."),
}
#: What a client does by itself.
_OWN = frozenset({"mase/authenticate", "mase/cancel"})


def sources() -> dict[str, str]:
    """The modules as they have to be, by their names."""
    names = ", ".join(
        sorted(set(re.findall(r"answers\.\w+\.(\w+)", " ".join(str(method.gives) for method in API))), key=str.lower)
    )
    head = _HEAD.replace("{answers}", names)
    return {name: _formatted(f"{head}\n\n{_class(*each)}") for name, each in _CLASSES.items()}


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _class(name: str, define: str, wait: str, how: str) -> str:
    parts = [f'class {name}:\n    """The methods of a client. {how}"""\n', _call(define)]
    parts += [_method(method, define, wait) for method in API if method.name not in _OWN]
    return "\n".join(parts)


def _call(define: str) -> str:
    return f'''    {define} call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Any method by its name."""
        raise NotImplementedError
'''


def _method(method: ApiMethod, define: str, wait: str) -> str:
    result = _typed(method.gives)
    required = [f"{_named(key)}: {_typed(kind)}" for key, kind in method.params.items() if not key.endswith("?")]
    optional = [
        f"{_named(key[:-1])}: {_typed(kind)} | None = None" for key, kind in method.params.items() if key.endswith("?")
    ]
    given = ", ".join(f"{name}={name}" for name in (_named(key.rstrip("?")) for key in method.params))
    summary = (inspect.getdoc(method.function) or "").split("\n\n")[0].replace("\n", " ")
    lines = [
        f"    {define} {snake(method.name)}({', '.join(('self', *required, *optional))}) -> {result}:",
        f'        """{_wrapped(summary)}"""',
        f'        result = {wait}self.call("{method.name}", _given({given}))',
        f'        return cast("{result}", result{chr(91) + repr(method.answer) + chr(93) if method.answer else ""})',
        "",
    ]
    return "\n".join(lines)


def snake(name: str) -> str:
    """`mase/nodeAt` as a Python name: node_at."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name.removeprefix("mase/")).lower()


def _named(key: str) -> str:
    return f"{key}_" if key == "pass" else key


def _typed(kind: Any) -> str:
    plain = {dict: "dict[str, Any]", list: "list[Any]"}
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return plain.get(kind) or re.sub(r"typing\.|mase_server\.answers\.\w+\.", "", text)


def _wrapped(summary: str) -> str:
    """At most 104 characters a line, indented as a docstring is."""
    lines = textwrap.wrap(summary, 104)
    return "\n        ".join(lines) + ("\n        " if len(lines) > 1 else "")


def write() -> None:
    """Write both modules."""
    for name, text in sources().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
