"""The page on sweeps and the example of a grid say what there is."""

import re
import shlex
import sqlite3
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

from mase_server.cli.commands import build_app
from mase_server.cli.steps import parse_steps
from mase_server.sweep.grid import Grid, read_grid
from mase_server.sweep.points import FIGURES, Surroundings
from mase_server.sweep.running import Store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sweep.md").read_text("utf-8")


def test_the_grid_of_the_page_means_what_the_page_says(tmp_path):
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for name in ("mlp.py", "lenet.py", "grid.toml"):
        (tmp_path / name).write_text(text)
    grid = read_grid(tmp_path / "grid.toml")
    # Two models; one plain pipeline, and one of two widths and two fractions; three budgets.
    assert len(grid.points()) == 2 * (1 + 2 * 2) * 3
    assert [each.name for each in grid.compared] == ["sqnr", "luts", "cycles"]


def test_the_table_of_the_page_has_every_figure_and_which_way_is_better():
    rows = re.findall(r"^\| (`[^|]*`) \| (more|less) \|", PAGE, re.MULTILINE)
    told = {name: way == "more" for names, way in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {name: figure.more_is_better for name, figure in FIGURES.items()}


def test_every_command_of_the_page_has_options_that_there_are():
    known = {name for each in get_command(build_app()).commands["sweep"].params for name in each.opts}
    lines = re.findall(r"^mase-server sweep (.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        words = shlex.split(line)
        assert {word for word in words if word.startswith("--")} <= known
        for option, value in pairwise(words):
            if option == "--pipeline":
                assert parse_steps(shlex.split(value))
    assert set(re.findall(r"`(--[a-z]+)`", PAGE)) <= known


def test_the_query_of_the_page_runs_on_a_file_of_results(tmp_path):
    [query] = re.findall(r'^sqlite3 sweep\.sqlite "(.*)"$', PAGE, re.MULTILINE)
    with (
        Store(tmp_path / "sweep.sqlite", Surroundings(str(tmp_path))),
        sqlite3.connect(tmp_path / "sweep.sqlite") as db,
    ):
        assert db.execute(query).fetchall() == []


def test_the_example_is_a_grid_of_examples():
    grid = read_grid(ROOT / "examples" / "sweep.toml")
    assert isinstance(grid, Grid)
    assert {Path(point.file).name for point in grid.models} == {"mlp.py", "lenet.py"}
    assert len(grid.points()) == 2 * 2 * 3 * 4


@pytest.mark.parametrize("name", ["dask", "jupyter"])
def test_the_extras_that_the_pages_name_are_there(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert name in project["optional-dependencies"]
    pages = PAGE + (ROOT / "docs" / "notebook.md").read_text("utf-8")
    assert f"mase-server[{name}]" in pages
