"""Results on disk: what they are kept by, what they rest on, and who else reads the file."""

import math
import sqlite3
import subprocess
import sys

import pytest

from mase_server.sweep.bench import environment_of
from mase_server.sweep.points import Hashes, Point, Result, Surroundings
from mase_server.sweep.running import Store, StoreError

Q8 = ("quantize(default='fixed(8,4)')",)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text("one")
    (tmp_path / "parts.py").write_text("two")
    return tmp_path


@pytest.fixture
def around(folder):
    return Surroundings(str(folder), "torch-2.13.0")


@pytest.fixture
def store(folder, around):
    with Store(folder / "results.sqlite", around) as found:
        yield found


def point_of(folder, **more):
    return Point(str(folder / "net.py"), **more)


def key_of(folder, around, **more):
    return around.key(point_of(folder, **more), Hashes())


def test_a_result_comes_back_as_it_was(store, folder):
    figures = {"sqnr": math.inf, "max_error": 0.0625, "luts": 8020, "cycles": 16}
    sources = Hashes().of(str(folder / "net.py"))
    result = Result("Net", figures, "", "", {"torch": "2.13.0"}, {str(folder / "net.py"): sources}, 0.5)
    store.put(point_of(folder), "k", result)
    assert store.find("k", Hashes()) == result
    assert isinstance(store.find("k", Hashes()).figures["luts"], int)
    failed = Result("Net", {}, "it broke", "pass")
    store.put(point_of(folder), "k", failed)
    assert store.find("k", Hashes()) == failed
    assert store.find("other", Hashes()) is None


def test_a_result_holds_while_every_file_it_rests_on_is_the_same(store, folder):
    files = [str(folder / name) for name in ("net.py", "parts.py")]
    result = Result("Net", {"sqnr": 1.5}, sources={path: Hashes().of(path) for path in files})
    store.put(point_of(folder), "k", result)
    (folder / "parts.py").write_text("three")
    assert store.find("k", Hashes()) is None
    (folder / "parts.py").write_text("two")
    assert store.find("k", Hashes()) == result
    (folder / "parts.py").unlink()
    assert store.find("k", Hashes()) is None


@pytest.mark.parametrize(
    "other",
    [
        {"model": "Net"},
        {"inputs": ("x: f32[1, 8]",)},
        {"pipeline": ("quantize(default='fixed(8,3)')",)},
        {"pipeline": ()},
        {"pipeline": Q8 * 2},
        {"build": {}},
        {"build": {"multipliers": 8}},
    ],
)
def test_every_part_of_a_point_has_a_key_of_its_own(folder, around, other):
    assert key_of(folder, around, **{"pipeline": Q8, **other}) != key_of(folder, around, pipeline=Q8)


def test_texts_torch_and_data_are_part_of_the_key_and_the_order_of_a_build_is_not(folder, around):
    first = key_of(folder, around, build={"multipliers": 8, "interval": 4})
    assert key_of(folder, around, build={"interval": 4, "multipliers": 8}) == first
    assert key_of(folder, Surroundings(str(folder), "torch-2.14.0"), build={"multipliers": 8, "interval": 4}) != first
    data = Surroundings(str(folder), "torch-2.13.0", (str(folder / "parts.py"),))
    second = key_of(folder, data)
    assert second != key_of(folder, around)
    (folder / "parts.py").write_text("three")
    assert key_of(folder, data) != second
    (folder / "net.py").write_text("four")
    assert key_of(folder, around, build={"multipliers": 8, "interval": 4}) != first


def test_a_folder_that_moves_keeps_its_results(folder, around, tmp_path_factory):
    with Store(folder / "results.sqlite", around) as store:
        sources = {str(folder / "net.py"): Hashes().of(str(folder / "net.py"))}
        store.put(point_of(folder), key_of(folder, around), Result("Net", {"sqnr": 2.5}, sources=sources))
    moved = tmp_path_factory.mktemp("elsewhere") / "project"
    folder.rename(moved)
    there = Surroundings(str(moved), "torch-2.13.0")
    with Store(moved / "results.sqlite", there) as store:
        found = store.find(key_of(moved, there), Hashes())
    assert found.figures == {"sqnr": 2.5}
    assert list(found.sources) == [str(moved / "net.py")]


def test_other_tools_read_every_figure_as_a_column(store, folder):
    store.put(point_of(folder, pipeline=Q8, build={"multipliers": 8}), "k", Result("Net", {"sqnr": 20.5, "luts": 300}))
    with sqlite3.connect(store.path) as connection:
        query = "SELECT file, model, pipeline, budget, sqnr, luts, latency, error FROM results"
        [row] = connection.execute(query).fetchall()
    assert row == (
        "net.py", "Net", '["quantize(default=\'fixed(8,4)\')"]', '{"multipliers": 8}', 20.5, 300, None, "",
    )  # fmt: skip


def test_many_processes_write_one_file_at_once(store, folder):
    program = """
import sys
from pathlib import Path
from mase_server.sweep.points import Point, Result, Surroundings
from mase_server.sweep.running import Store
with Store(Path(sys.argv[1]), Surroundings(sys.argv[3])) as store:
    for index in range(50):
        store.put(Point("/net.py"), f"{index % 40 if index < 40 else sys.argv[2]} {index}", Result("Net"))
"""
    command = [sys.executable, "-c", program, str(store.path)]
    writers = [subprocess.Popen([*command, str(number), str(folder)]) for number in range(3)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        # Forty keys are the same for all, ten are each one's own.
        assert connection.execute("SELECT count(*) FROM results").fetchone() == (40 + 3 * 10,)


def test_a_database_of_somebody_else_is_refused_and_left_alone(folder, around):
    with sqlite3.connect(folder / "mine.sqlite") as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = (folder / "mine.sqlite").read_bytes()
    with pytest.raises(StoreError) as caught:
        Store(folder / "mine.sqlite", around)
    assert str(caught.value) == (f"{folder / 'mine.sqlite'} does not hold results of sweeps: name another file")
    assert (folder / "mine.sqlite").read_bytes() == before


def test_a_folder_that_is_not_there_is_told(folder, around):
    with pytest.raises(StoreError, match="unable to open database file"):
        Store(folder / "none" / "results.sqlite", around)


def test_torch_is_told_from_the_files_of_the_interpreter(folder):
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert environment_of(str(folder / "net.py"), str(python)) == ""
    (folder / "env" / "lib" / "python3.12" / "site-packages" / "torch-2.9.1.dist-info").mkdir(parents=True)
    assert environment_of(str(folder / "net.py"), str(python)) == "torch-2.9.1"
    assert environment_of(str(folder / "net.py"), sys.executable).startswith("torch-")
