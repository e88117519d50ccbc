"""Reports tell the truth about the graph, to the log and to files, and print nothing."""

import logging

import pytest
import torch

from mase_server import MaseGraph, passes
from mase_server.passes.report.report_graph import format_table, format_tree
from mase_server.tools import get_logger
from tests.ir.models import Mlp


@pytest.fixture
def graph():
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)}, add_metadata_args={})
    return passes.add_hardware_metadata_analysis_pass(graph)[0]


def test_the_summary_counts_nodes_modules_and_parameters(graph, tmp_path):
    file = tmp_path / "report.txt"
    _, found = passes.report_graph_analysis_pass(graph, {"file_name": file})
    assert found["nodes"] == {"placeholder": 1, "call_function": 3, "call_module": 3, "output": 1}
    assert found["modules"] == {"Linear": 3}
    assert found["parameters"] == sum(p.numel() for p in Mlp().parameters())
    assert file.read_text() == found["report"] + "\n"
    assert "nodes: 8 (1 placeholder, 3 call_function, 3 call_module, 1 output)" in found["report"]


def test_the_types_of_all_nodes_are_told(graph):
    _, found = passes.report_node_type_analysis_pass(graph)
    assert [(row["name"], row["mase_op"], row["mase_type"]) for row in found["rows"]][:4] == [
        ("x", "placeholder", "placeholder"),
        ("flatten", "flatten", "implicit_func"),
        ("fc1", "linear", "module_related_func"),
        ("relu", "relu", "module_related_func"),
    ]


def test_the_shapes_of_all_nodes_are_told(graph):
    _, found = passes.report_node_shape_analysis_pass(graph)
    row = found["rows"][2]
    assert row["inputs"] == "data_in_0 [1, 784], weight [784, 784], bias [784]"
    assert row["outputs"] == "data_out_0 [1, 784]"


def test_the_hardware_of_all_nodes_is_told(graph):
    _, found = passes.report_node_hardware_type_analysis_pass(graph)
    assert [(row["implicit"], row["module"]) for row in found["rows"]][:3] == [
        (True, None),
        (True, None),
        (False, "fixed_linear"),
    ]


@pytest.mark.parametrize(
    ("which", "columns"),
    [
        (("all",), ["common", "hardware", "software"]),
        (("hardware",), ["hardware"]),
        (("software", "common"), ["common", "software"]),
        ("common", ["common"]),
    ],
)
def test_chosen_parts_of_the_metadata_are_told(graph, which, columns, tmp_path):
    file = tmp_path / "meta.txt"
    _, found = passes.report_node_meta_param_analysis_pass(graph, {"which": which, "save_path": file})
    assert list(found["rows"][0])[4:] == columns
    assert file.read_text().rstrip("\n") == found["report"]


def test_an_unknown_part_is_named(graph):
    text = "which has 'comon'; the parts of metadata are common, hardware, software, or all"
    with pytest.raises(ValueError, match=text):
        passes.report_node_meta_param_analysis_pass(graph, {"which": ("comon",)})


def test_a_report_before_initialising_says_what_to_run():
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)}, skip_init_metadata=True)
    with pytest.raises(ValueError, match="node 'x' has no metadata: run init_metadata_analysis_pass first"):
        passes.report_node_type_analysis_pass(graph)


REPORTS = [name for name in passes.__all__ if name.startswith("report")]


@pytest.mark.parametrize("name", REPORTS)
def test_reports_and_other_passes_print_nothing(graph, name, capsys):
    _, found = getattr(passes, name)(graph)
    assert found["report"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", REPORTS)
def test_reports_reach_the_log_where_it_listens(graph, name, capsys):
    logger = get_logger("mase")
    level = logger.level
    logger.setLevel("INFO")
    try:
        _, found = getattr(passes, name)(graph)
    finally:
        logger.setLevel(level)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"INFO     {found['report']}\n"


def test_columns_are_as_wide_as_their_widest_cell():
    assert format_table(("a", "b"), [("long", 1), ("x", 22)]) == "a     b\n----  --\nlong  1\nx     22"


def test_metadata_is_written_in_one_line():
    text = format_tree({"shape": [1, 2], "torch_dtype": torch.float32, "value": "y" * 300})
    assert text == "{shape: [1, 2], torch_dtype: float32, value: str}"


# The logger


def test_a_logger_of_one_name_is_one_logger_and_writes_once(capsys):
    logger = get_logger("tests.once")
    assert get_logger("tests.once") is logger
    logger.setLevel("INFO")
    logger.info("seen")
    logger.debug("hidden")
    assert capsys.readouterr().err == "INFO     seen\n"


def test_a_logger_leaves_the_roots_handlers_alone():
    before = list(logging.getLogger().handlers)
    get_logger("tests.root").warning("something")
    assert logging.getLogger().handlers == before
