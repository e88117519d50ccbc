"""What a grid means: its models, its pipelines with values filled in, its budgets, and what is wrong with it."""

import pytest

from mase_server.sweep.grid import Grid, GridError, models_of, read_grid
from mase_server.sweep.points import Point

NET = Point("/work/net.py")


@pytest.fixture
def folder(tmp_path):
    for name in ("mlp.py", "lenet.py", "notes.txt"):
        (tmp_path / name).write_text("")
    return tmp_path


def written(folder, text):
    (folder / "grid.toml").write_text(text)
    return read_grid(folder / "grid.toml")


def test_a_grid_is_the_product_of_models_pipelines_and_budgets(folder):
    grid = written(
        folder,
        """
        models = ["mlp.py", { file = "lenet.py", model = "LeNet", inputs = ["x: f32[1, 1, 28, 28]"] }]
        [pipelines]
        plain = []
        small = ["prune(weight={'sparsity': 0.5})", "quantize(default='fixed(8,4)')"]
        [hardware]
        multipliers = [16, 64]
        interval = 100
        """,
    )
    small = ("prune(weight={'sparsity': 0.5})", "quantize(default='fixed(8,4)')")
    builds = [{"multipliers": 16, "interval": 100}, {"multipliers": 64, "interval": 100}]
    models = [(str(folder / "mlp.py"), "", ()), (str(folder / "lenet.py"), "LeNet", ("x: f32[1, 1, 28, 28]",))]
    expected = [Point(*model, steps, build) for model in models for steps in ((), small) for build in builds]
    assert grid.points() == expected


def test_a_name_in_a_pipeline_takes_each_of_its_values_and_others_do_not_multiply():
    vary = {"w": (4, 8), "f": (2, 3), "unused": (1, 2, 3)}
    grid = Grid((NET,), (("quantize(default='fixed({w},{f})')", "prune(weight={'sparsity': 0.5})"), ()), vary)
    assert [point.pipeline[:1] for point in grid.points()] == [
        ("quantize(default='fixed(4,2)')",),
        ("quantize(default='fixed(4,3)')",),
        ("quantize(default='fixed(8,2)')",),
        ("quantize(default='fixed(8,3)')",),
        (),
    ]


def test_one_name_means_one_value_in_all_steps_of_a_pipeline():
    grid = Grid((NET,), (("quantize(default='mxint({w})')", "gptq(default='mxint({w})')"),), {"w": (4, 8)})
    assert tuple(grid.filled) == (
        ("quantize(default='mxint(4)')", "gptq(default='mxint(4)')"),
        ("quantize(default='mxint(8)')", "gptq(default='mxint(8)')"),
    )


def test_without_pipelines_the_models_are_measured_as_they_are():
    assert Grid((NET,)).points() == [NET]


def test_pipelines_that_become_equal_are_one():
    assert len(Grid((NET,), (("prune()",), ("prune()",))).points()) == 1


@pytest.mark.parametrize(
    ("hardware", "objectives", "builds", "compared"),
    [
        (None, (), (None,), ["sqnr", "weight_bits"]),
        (None, ("latency",), ({},), ["latency"]),
        ({"multipliers": (8,)}, (), ({"multipliers": 8},), ["sqnr", "luts", "cycles"]),
        ({}, (), ({},), ["sqnr", "luts", "cycles"]),
        ({"multipliers": (8,)}, ("sqnr",), ({"multipliers": 8},), ["sqnr"]),
    ],
)
def test_hardware_is_made_where_it_is_given_or_compared(hardware, objectives, builds, compared):
    grid = Grid((NET,), hardware=hardware, objectives=objectives)
    assert (grid.builds, [each.name for each in grid.compared]) == (builds, compared)


def test_a_pattern_names_every_file_that_fits(folder):
    assert [point.file for point in models_of(["*.py"], folder)] == [
        str(folder / "lenet.py"),
        str(folder / "mlp.py"),
    ]


def test_files_are_meant_from_the_grids_folder(folder, monkeypatch):
    monkeypatch.chdir("/")
    grid = written(folder, 'models = "mlp.py"\ndepends = ["mlp.pt"]')
    assert (grid.models, grid.depends) == ((Point(str(folder / "mlp.py")),), (str(folder / "mlp.pt"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the grid names no model; write e.g. models = ['mlp.py']"),
        (
            "model = 'mlp.py'",
            "a grid has no 'model'; did you mean 'models'? It has models, pipelines, vary, hardware, objectives, "
            "depends",
        ),
        ("models = 'nat.py'", "there is no file 'nat.py' in {folder}"),
        ("models = [3]", "3 is no model; an example: {{file = 'mlp.py', model = 'MLP'}}"),
        (
            "models = [{{file = 'mlp.py', modell = 'A'}}]",
            "a model has no 'modell'; did you mean 'model'? It has file, model, inputs",
        ),
        (
            "models = 'mlp.py'\npipelines = [['quantize(']]",
            "'quantize(' is no step: '(' was never closed; an example: quantize(default='fixed(8,4)')",
        ),
        (
            "models = 'mlp.py'\npipelines = [[3]]",
            "3 is no step; an example of a pipeline: [\"quantize(default='fixed(8,4)')\"]",
        ),
        (
            "models = 'mlp.py'\npipelines = [[\"quantize(default='fixed({{w}},4)')\"]]",
            "{{w}} stands in \"quantize(default='fixed({{w}},4)')\", but it has no values",
        ),
        ("models = 'mlp.py'\nvary = 3", "vary is 3; it is a table of lists"),
        ("models = 'mlp.py'\n[hardware]\nmultipliers = -1", "multipliers is -1; it takes a whole number from 0"),
        (
            "models = 'mlp.py'\n[hardware]\ndsps = 3",
            "a build has no dsps; it has bus, copies, data, interval, max_memory_bits, max_multipliers, multipliers, "
            "precision, reset_style, scope, target, weights",
        ),
        (
            "models = 'mlp.py'\nobjectives = ['speed']",
            "there is no figure 'speed' to compare; there are sqnr, max_error, data_bits, weight_bits, parameters, "
            "parameter_bytes, multipliers, luts, memory_bits, cycles, latency",
        ),
        ("models = [", "Invalid value (at end of document)"),
    ],
)
def test_what_is_wrong_is_told_with_what_would_be_right(folder, text, message):
    with pytest.raises(GridError) as caught:
        written(folder, text.format())
    assert str(caught.value) == f"{folder / 'grid.toml'}: {message.format(folder=folder)}"
