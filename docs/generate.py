"""Write the reference pages: `python -m docs.generate`, in the root of the project."""

from __future__ import annotations

from pathlib import Path

from docs.library import Public, public_names
from docs.library import library_pages as _library
from docs.tools import tool_pages as _tools

REFERENCE = Path(__file__).parent / "reference"
_TOOLS = {
    "cli.md": "The command line", "comments.md": "`# mase:` comments", "diagnostics.md": "Diagnostics",
    "requests.md": "Requests of the editor's protocol", "settings.md": "Settings",
    "shapes-json.md": "The JSON of `shapes`", "apply-json.md": "The JSON of `apply`",
    "verilog-json.md": "The JSON of `verilog`", "passes.md": "Passes by name",
}  # fmt: skip


def pages() -> dict[str, str]:
    """Every page by its path under the reference folder."""
    return {"README.md": _index(), **_library(), **_tools()}


def _index() -> str:
    names = public_names()
    parts = [
        "# Reference\n",
        "Made by `make docs` from docstrings and tables of the source. Begin with [tutorial 1](../tutorial_1.md).\n",
        "## The library: `from mase_server import ...`\n",
        _listed([public for public in names if public.folder == "library"]),
        "## Passes: `from mase_server import passes`\n",
        "A pass takes a graph and options, and gives the graph and a dict of what it found; "
        "[how passes work](../passes.md), and [all of them by the names that editors use](passes.md).\n",
        _listed([public for public in names if public.folder == "passes"]),
        "## Tools\n",
        "\n".join(f"- [{title}]({name})" for name, title in _TOOLS.items()) + "\n",
    ]
    return "\n".join(parts)


def _listed(names: list[Public]) -> str:
    return "\n".join(f"- [`{public.called}`]({public.page}): {public.described.summary}" for public in names) + "\n"


def write(folder: Path = REFERENCE) -> None:
    """Write every page, and take away those that are no longer any."""
    made = pages()
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
