"""The workspace's own modules report when imported, and importing works as it does without the importer."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
import os
import pickle
import runpy
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mase_server.tracing.importing import importer as codecache
from mase_server.tracing.importing import rewrite
from mase_server.tracing.importing.importer import WorkspaceImporter, install, load_code
from mase_server.tracing.importing.rewrite import Site


class Workspace:
    """A folder on sys.path with the importer installed; `reports` holds (file name, bound name, value)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "workspace"
        self.cache = folder / "cache"
        self.folder.mkdir()
        self.reports: list[tuple[str, str, Any]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    def reporter(self, path: str, sites: tuple[Site, ...]) -> Callable[[int, Any], Any]:
        def report(index: int, value: Any) -> Any:
            if sites[index].name:
                self.reports.append((Path(path).name, sites[index].name, value))
            return value

        return report

    def install(self, *roots: Path) -> WorkspaceImporter:
        return install(
            [str(root) for root in roots or (self.folder,)],
            codecache.prepare_cache_folder(str(self.cache)),
            self.reporter,
        )


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.import_module("torch")  # the importer needs it, and no process can import it twice
    before = set(sys.modules)
    space = Workspace(tmp_path)
    monkeypatch.syspath_prepend(str(space.folder))
    yield space
    for name in set(sys.modules) - before:
        del sys.modules[name]


VALUE = "value = [1]\n"


def test_a_big_package_is_rewritten_little_by_little(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (workspace.write(f"{name}_part.py", "value = list((1,))\n") for name in ("first", "second"))
    monkeypatch.setattr("mase_server.tracing.importing.importer.MAX_REWRITING", 0.0)
    for reported in (["first_part.py"], ["first_part.py", "second_part.py"]):
        importer = workspace.install()
        workspace.reports.clear()
        assert [importlib.import_module(name).value for name in ("first_part", "second_part")] == [[1], [1]]
        assert [file for file, _, _ in workspace.reports] == reported
        assert importer.imported == [str(first), str(second)]
        importer.uninstall()
        del sys.modules["first_part"], sys.modules["second_part"]


def test_a_module_of_the_workspace_reports_and_is_listed(workspace: Workspace) -> None:
    path = workspace.write("ours.py", VALUE)
    importer = workspace.install()
    module = importlib.import_module("ours")
    assert module.value == [1]
    assert importer.imported == [str(path)]
    assert list(vars(module)).count("__mase__") == 1


def test_bindings_of_an_imported_function_are_reported(workspace: Workspace) -> None:
    workspace.write("ours.py", "def f(x):\n    y = x\n    return y\n")
    workspace.install()
    importlib.import_module("ours").f([7])
    assert workspace.reports == [("ours.py", "x", [7]), ("ours.py", "y", [7])]


@pytest.mark.parametrize("foreign", ["site-packages", "dist-packages", ".venv/lib", "node_modules", "elsewhere"])
def test_other_peoples_code_stays_plain(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, foreign: str) -> None:
    path = workspace.write(f"{foreign}/theirs.py", VALUE)
    monkeypatch.syspath_prepend(str(path.parent))
    importer = workspace.install(workspace.folder / "own" if foreign == "elsewhere" else workspace.folder)
    module = importlib.import_module("theirs")
    assert not hasattr(module, "__mase__") or vars(module).get("__mase__") is None
    assert importer.imported == []


def test_the_standard_library_is_never_the_workspaces_own(workspace: Workspace) -> None:
    """An interpreter may lie inside the folder that is open."""
    importer = workspace.install(Path("/"))
    assert not importer.owns(inspect.getfile(pickle))
    assert importer.owns(str(workspace.folder / "ours.py"))
    packages = sysconfig.get_path("purelib")
    assert not importer.owns(f"{packages}/torch/nn/functional.py")
    assert workspace.install(Path(packages) / "torch").owns(f"{packages}/torch/nn/functional.py")


def test_a_library_folder_may_itself_be_the_workspace(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workspace.write("site-packages/theirs.py", VALUE)
    monkeypatch.syspath_prepend(str(path.parent))
    importer = workspace.install(path.parent)
    importlib.import_module("theirs")
    assert importer.imported == [str(path)]


def test_packages_relative_imports_namespaces_and_init_chains(workspace: Workspace) -> None:
    paths = [
        workspace.write("package/__init__.py", "from .inner import deep\nfrom . import side\n"),
        workspace.write("package/inner/__init__.py", "from .deep import value as deep\n"),
        workspace.write("package/inner/deep.py", "from .. import side\nvalue = side.value, 2\n"),
        workspace.write("package/side.py", "from namespace.part import value\n"),
        workspace.write("namespace/part.py", VALUE),
    ]
    importer = workspace.install()
    module = importlib.import_module("package")
    assert module.deep == ([1], 2)
    assert sorted(importer.imported) == sorted(map(str, paths))
    assert module.inner.deep is module.deep
    assert module.__path__ == [str(workspace.folder / "package")]
    assert list(sys.modules["namespace"].__path__) == [str(workspace.folder / "namespace")]


def test_reloading_sees_the_new_text_and_is_listed_once(workspace: Workspace) -> None:
    path = workspace.write("ours.py", VALUE)
    importer = workspace.install()
    module = importlib.import_module("ours")
    workspace.write("ours.py", "value = [1, 2]\n")
    assert importlib.reload(module).value == [1, 2]
    assert importer.imported == [str(path)]


def test_resources_source_and_pickles_work(workspace: Workspace) -> None:
    workspace.write("package/__init__.py", "def f(x):\n    return x\n")
    workspace.write("package/data.txt", "content")
    workspace.install()
    package = importlib.import_module("package")
    assert importlib.resources.files(package).joinpath("data.txt").read_text() == "content"
    assert inspect.getsource(package.f) == "def f(x):\n    return x\n"
    assert pickle.loads(pickle.dumps(package.f)) is package.f


def test_runpy_runs_a_module_and_a_path(workspace: Workspace) -> None:
    text = "name = [__name__]\ndef f(x): return x\nresult = f(name)\n"
    path = workspace.write("ours.py", text)
    workspace.install()
    assert runpy.run_module("ours")["result"] == ["ours"]
    assert runpy.run_module("ours", run_name="__main__")["result"] == ["__main__"]
    assert runpy.run_path(str(path))["name"] == ["<run_path>"]


def test_finders_behind_ours_are_asked_as_for_an_editable_install(workspace: Workspace) -> None:
    path = workspace.write("source/hidden.py", VALUE)

    class Editable:
        @staticmethod
        def find_spec(name: str, path_: Any = None, target: Any = None) -> Any:
            return importlib.util.spec_from_file_location(name, path) if name == "hidden" else None

    sys.meta_path.append(Editable)
    importer = workspace.install()
    importlib.import_module("hidden")
    assert importer.imported == [str(path)]


def test_a_workspace_reached_through_a_link_is_still_its_own(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write("ours.py", VALUE)
    link = tmp_path / "link"
    link.symlink_to(workspace.folder)
    importer = install([str(link)], None, workspace.reporter)
    importlib.import_module("ours")
    assert [os.path.realpath(path) for path in importer.imported] == [os.path.realpath(workspace.folder / "ours.py")]


def test_a_missing_module_and_a_failing_one_raise_as_ever(workspace: Workspace) -> None:
    workspace.write("broken.py", "value = 1\nvalue / 0\n")
    workspace.write("wrong.py", "value = (\n")
    workspace.install()
    with pytest.raises(ModuleNotFoundError, match="No module named 'absent_altogether'"):
        importlib.import_module("absent_altogether")
    with pytest.raises(ZeroDivisionError) as caught:
        importlib.import_module("broken")
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 2
    assert "broken" not in sys.modules
    with pytest.raises(SyntaxError) as refused:
        importlib.import_module("wrong")
    assert refused.value.filename == str(workspace.folder / "wrong.py")


def test_after_uninstalling_modules_are_imported_plainly(workspace: Workspace) -> None:
    workspace.write("ours.py", VALUE)
    importer = workspace.install()
    importer.uninstall()
    importer.uninstall()
    importlib.import_module("ours")
    assert importer.imported == []


# The cache


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were compiled because no cache entry would do."""
    paths: list[str] = []

    def counting(source: bytes, path: str) -> rewrite.Instrumented:
        paths.append(path)
        return rewrite.instrument(source, path)

    monkeypatch.setattr(codecache, "instrument", counting)
    return paths


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir())


def test_the_second_load_comes_from_the_cache_and_is_the_same(tmp_path: Path, compiled: list[str]) -> None:
    path, cache = tmp_path / "m.py", tmp_path / "deep" / "cache"
    path.write_text("x = y = [1]\ndef f(a): return lambda b: a\n")
    first, second = (load_code(str(path), codecache.prepare_cache_folder(str(cache))) for _ in range(2))
    assert compiled == [str(path)]
    assert second.sites == first.sites
    assert second.code == first.code
    assert isinstance(second.sites[0], Site)
    assert second.code.co_filename == str(path)
    assert entries(cache)[0].parent.stat().st_mode & 0o077 == 0


def test_new_content_replaces_the_entry(tmp_path: Path, compiled: list[str]) -> None:
    path, cache = tmp_path / "m.py", tmp_path / "cache"
    for text in ("x = [1]", "x = [2]", "x = [2]"):
        path.write_text(text)
        found = load_code(str(path), codecache.prepare_cache_folder(str(cache)))
    assert len(compiled) == 2
    assert len(entries(cache)) == 1
    namespace: dict[str, Any] = {"__mase__": lambda _site, value: value}
    exec(found.code, namespace)
    assert namespace["x"] == [2]


def test_files_with_the_same_content_keep_their_own_names(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("")
        assert load_code(str(tmp_path / name), codecache.prepare_cache_folder(str(cache))).code.co_filename == str(
            tmp_path / name
        )


@pytest.mark.parametrize("harm", ["empty", "cut", "flipped", "junk", "other python", "not code"])
def test_a_harmed_entry_is_ignored_and_written_again(tmp_path: Path, compiled: list[str], harm: str) -> None:
    path, cache = tmp_path / "m.py", tmp_path / "cache"
    path.write_text("x = [1]\n" * 20)
    first = load_code(str(path), codecache.prepare_cache_folder(str(cache)))
    (entry,) = entries(cache)
    good = entry.read_bytes()
    harmed = {
        "empty": b"",
        "cut": good[: len(good) // 2],
        "flipped": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
        "junk": b"\xff" * len(good),
        "other python": good.replace(b"mase", b"mase9", 1),
        "not code": good[:40],
    }
    entry.write_bytes(harmed[harm])
    assert load_code(str(path), codecache.prepare_cache_folder(str(cache))).code == first.code
    assert len(compiled) == 2
    assert entry.read_bytes() == good


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("x = list()\n")
    (tmp_path / "file").write_text("")
    assert load_code(str(path), str(tmp_path / "file" / "cache")).sites[-1].name == "x"
    assert load_code(str(path), None).sites[-1].name == "x"


def test_many_processes_may_write_the_same_entry(tmp_path: Path) -> None:
    path, cache = tmp_path / "m.py", tmp_path / "cache"
    path.write_text("x = list()\n" * 500)
    root = Path(__file__).parents[2]
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "from mase_server.tracing.importing.importer import load_code\n"
        f"assert len(load_code({str(path)!r}, {codecache.prepare_cache_folder(str(cache))!r}).sites) == 1000\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(entries(cache)) == 1


def test_importing_is_light(tmp_path: Path) -> None:
    """The child pays for these imports at every save: no torch, no transformers."""
    root = Path(__file__).parents[2]
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        "import mase_server.tracing.importing.importer\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
