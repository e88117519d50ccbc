"""Imports point one way, as ARCHITECTURE.md says; and the server's process holds no torch, numpy or user code."""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mase_server"

COMPILER = ("ops", "tracing", "ir", "inputs", "formats", "passes", "hardware")
SHARED = (
    *(
        "dependencies",
        "visible",
        "notebooks",
        "paths",
        "reading",
        "private",
        "snapshot",
        "steps",
        "arguments",
        "building",
        "kinds",
        "suggestions",
    ),
    *("wire", "dtypes"),
)
#: part of the package -> the other parts that it may import.
MAY_IMPORT = {
    "snapshot": ("visible",),
    "steps": (),
    "notebooks": ("reading",),
    "paths": ("reading",),
    "reading": (),
    "arguments": ("kinds", "suggestions"),
    "suggestions": (),
    "building": ("suggestions",),
    "answers": (),
    "dependencies": ("reading",),
    "kinds": (),
    "visible": (),
    "wire": (),
    "dtypes": (),
    "directories": ("private",),
    "components": (),
    "codes": (),
    "observe": ("private", "visible"),
    "priority": (),
    "private": (),
    "programs": (),
    "descendants": (),
    "ops": ("formats", "dtypes", "snapshot", "visible"),
    "tracing": ("ops", *SHARED),
    "ir": ("formats", "ops", "tracing", "inputs", *SHARED),
    "inputs": ("ops", "tracing", "worker.request", "priority", *SHARED),
    "formats": ("suggestions",),
    "hardware": ("ops", "ir", "formats", "building", "components", "visible"),
    "simulation": ("building", "priority", "private", "programs"),
    "passes": ("ops", "tracing", "ir", "formats", "hardware", "tools", *SHARED),
    "tools": (),
    "worker": (*COMPILER, *SHARED, "priority", "descendants"),
    "daemon": (
        *(
            "observe",
            "priority",
            "programs",
            "private",
            "descendants",
            "answers",
            "worker.request",
            "worker.jobs",
            "directories",
            "simulation",
        ),
        *SHARED,
    ),
    "lsp": ("observe", "daemon", "rpc", *SHARED, "worker.request", "directories", "components"),
    "rpc": ("observe", "daemon", *SHARED, "worker.request", "directories"),
    "client": (*SHARED, "answers", "directories", "rpc.frames", "rpc.addresses", "rpc.registry"),
    "sweep": ("daemon", "programs", *SHARED, "worker.request", "directories"),
    "jupyter": ("programs", "cli.attached", "cli.reports", "rpc.registry", "lsp", "ir", *SHARED),
    "cli": (
        *("observe", "codes", "programs", "daemon", "lsp", "simulation", "client", "rpc", "sweep"),
        *(*SHARED, "worker.request", "directories"),
    ),
    "__main__": ("cli",),
}
#: library -> the parts that may import it.
LIBRARIES = {
    "lsprotocol": ("lsp",),
    "pygls": ("lsp",),
    "typer": ("cli",),
    "rich": ("cli",),
    "torch": (*COMPILER, "worker", "jupyter"),
    "numpy": (*COMPILER, "worker", "client"),
    "watchdog": ("daemon",),
    "sqlite3": ("sweep",),
    "IPython": ("jupyter",),
}


def part_of(path):
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports(path):
    """Every module that a file imports at any depth, apart from those that are only for the type checker."""
    found = []

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found.append(node.module)
            found.extend(f"{node.module}.{alias.name}" for alias in node.names if node.module.startswith("mase_server"))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    allowed = {part, *MAY_IMPORT[part]}
    for module in imports(path):
        if not module.startswith("mase_server."):
            continue
        name = module.removeprefix("mase_server.")
        fits = name.split(".")[0] in allowed or any(name == one or name.startswith(f"{one}.") for one in allowed)
        holds = any(one.startswith(f"{name}.") for one in allowed)
        assert fits or holds or name == "__version__", f"{part} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_library_is_imported_only_where_it_belongs(path):
    for module in imports(path):
        library = module.split(".")[0]
        if library in LIBRARIES:
            assert part_of(path) in LIBRARIES[library], f"{path.name} imports {module}"


def test_the_rules_speak_of_every_part_of_the_package():
    assert {part_of(path) for path in FILES} == set(MAY_IMPORT)


def test_one_module_knows_the_units_of_columns():
    knows = [path for path in (PACKAGE / "lsp").glob("*.py") if "0x10000" in path.read_text()]
    assert [path.name for path in knows] == ["encoding.py"]


def loaded_by(code):
    """The names in sys.modules of a fresh process after `code`."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_server_does_not_load_torch_or_what_only_the_command_line_needs():
    loaded = loaded_by("import mase_server.lsp.process, mase_server.daemon.daemon")
    assert "pygls.lsp.server" in loaded
    assert not loaded & {"torch", "numpy", "typer", "rich", "transformers"}
    compiler = {name for name in loaded if name.startswith(tuple(f"mase_server.{part}" for part in COMPILER))}
    assert not compiler


def test_the_package_itself_loads_neither_half():
    assert not loaded_by("import mase_server") & {"torch", "pygls", "mase_server.daemon", "mase_server.lsp"}


def test_no_two_test_files_have_one_name():
    """Folders of tests without an `__init__.py` are all on the path: pytest imports only one of two alike."""
    files = [file for file in Path(__file__).parent.rglob("test_*.py") if not (file.parent / "__init__.py").exists()]
    names = Counter(file.name for file in files)
    assert {name for name, count in names.items() if count > 1} == set()
