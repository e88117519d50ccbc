"""Imports point one way, as ARCHITECTURE.md says; and the server's process holds no torch, numpy or user code."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mase_server"

COMPILER = ("ops", "tracing", "ir", "formats", "passes", "hardware")
#: What any part may use: what is said between processes, and how files and texts of others are read.
SHARED = (
    "protocol", "dependencies", "visible", "notebooks", "paths", "reading", "private", "building", "suggestions",
    "system",
)  # fmt: skip
#: part of the package -> the other parts that it may import, from the bottom to the top.
MAY_IMPORT = {
    **dict.fromkeys(("dtypes", "programs", "reading", "suggestions", "tools", "visible"), ()),
    "system": ("programs",),
    "private": ("reading", "system"),
    "notebooks": ("reading",),
    "paths": ("reading",),
    "dependencies": ("reading",),
    "building": ("paths", "protocol", "suggestions"),
    "protocol": ("suggestions", "visible"),
    "telemetry": ("private", "visible"),
    "formats": ("suggestions",),
    "ops": ("formats", "visible"),
    "tracing": ("ops", "dtypes", *SHARED),
    "ir": ("formats", "ops", "tracing", "dtypes", *SHARED),
    "hardware": ("formats", "ops", "ir", "building", "protocol", "visible"),
    "passes": ("formats", "ops", "tracing", "ir", "hardware", "tools", "dtypes", *SHARED),
    "worker": (*COMPILER, "dtypes", *SHARED),
    "simulation": ("building", "private", "programs", "system"),
    "daemon": ("telemetry", "programs", "simulation", "worker.jobs", "dtypes", *SHARED),
    "rpc": ("telemetry", "daemon", *SHARED),
    "client": ("rpc.frames", "rpc.registry", *SHARED),
    "sweep": ("daemon", "programs", *SHARED),
    "lsp": ("telemetry", "daemon", "rpc", "dtypes", *SHARED),
    "cli": ("telemetry", "programs", "daemon", "lsp", "simulation", "client", "rpc", "sweep", *SHARED),
    "jupyter": ("programs", "cli.attached", "cli.reports", "rpc.registry", "lsp", "ir", *SHARED),
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


IMPORTS = {path: imports(path) for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"}


def test_imports_point_one_way():
    assert [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path, modules in IMPORTS.items()
        for module in modules
        if module.startswith("mase_server.") and not may_import(part_of(path), module.removeprefix("mase_server."))
    ] == []


def may_import(part, name):
    """May this part of the package import that module, or something that a module has?"""
    allowed = {part, *MAY_IMPORT[part]}
    fits = name.split(".")[0] in allowed or any(name == one or name.startswith(f"{one}.") for one in allowed)
    return fits or any(one.startswith(f"{name}.") for one in allowed) or name in ("PROJECT_URL", "__version__")


def test_a_library_is_imported_only_where_it_belongs():
    assert [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path, modules in IMPORTS.items()
        for module in modules
        if part_of(path) not in LIBRARIES.get(module.split(".")[0], (part_of(path),))
    ] == []


def test_the_rules_speak_of_every_part_of_the_package():
    assert {part_of(path) for path in IMPORTS} == set(MAY_IMPORT)


def test_the_architecture_page_has_the_same_rules():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("| package |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)/` \| .* \| ([^|]*) \|$", page, re.M)
    words = {"shared": SHARED, "the compiler half": COMPILER}
    told = {
        part: {*re.findall(r"`([\w.]+)`", cell)}.union(*(words[each] for each in words if each in cell))
        for part, cell in rows
    }
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert told == {part: set(may) for part, may in MAY_IMPORT.items() if part in packages}


#: What not every system has; `system` alone may use it, and code after `if sys.platform == ...: raise`, or `hasattr`.
NOT_EVERYWHERE = re.compile(
    r"^(fcntl|resource|grp|pwd|termios|msvcrt"
    r"|os\.(getuid|geteuid|killpg|setsid|getpgid|sysconf|getloadavg|setpriority|sched_\w+)"
    r"|signal\.(SIGKILL|SIGSTOP|SIGHUP|SIGALRM|setitimer)|socket\.(AF_UNIX|SO_PEERCRED)|\w+\.add_signal_handler)$"
)


def test_one_module_knows_what_not_every_system_has():
    used = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {name}"
        for path in IMPORTS
        if path.name not in ("system.py", "guard.py")  # that one replaces them in traced programs
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Import)
        for name in ([ast.unparse(node)] if isinstance(node, ast.Attribute) else [each.name for each in node.names])
        if NOT_EVERYWHERE.match(name)
    ]
    assert used == []


def test_one_module_knows_the_units_of_columns():
    knows = [path for path in (PACKAGE / "lsp").glob("*.py") if "0x10000" in path.read_text()]
    assert [path.name for path in knows] == ["text.py"]


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


def test_no_import_runs_into_a_cycle_and_no_cycle_crosses_packages():
    """Cycles of imports that run while modules load: none. With imports inside functions: within one package alone."""
    modules = {
        ".".join(path.with_suffix("").parts[len(ROOT.parts) :]).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }

    def targets(path, eager):
        tree = ast.parse(path.read_text())
        nodes = tree.body if eager else ast.walk(tree)
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in modules else node.module

    def reached(edges, start):
        seen, waiting = set(), [start]
        while waiting:
            for each in edges[waiting.pop()] - seen:
                seen.add(each)
                waiting.append(each)
        return seen

    for eager in (True, False):
        edges = {name: set(targets(path, eager)) & set(modules) - {name} for name, path in modules.items()}
        reach = {name: reached(edges, name) for name in edges}
        rings = [(one, other) for one in reach for other in reach[one] if one < other and one in reach[other]]
        assert [each for each in rings if eager or len({name.split(".")[1] for name in each}) > 1] == []
