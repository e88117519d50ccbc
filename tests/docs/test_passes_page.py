"""The page on passes: its blocks run, its commands and names are those that there are."""

import re
from pathlib import Path

import pytest

from mase_server.cli.steps import UsageError, find_pass
from mase_server.passes.registry import built_in
from mase_server.passes.workspace import workspace_passes
from mase_server.protocol.arguments import ArgumentError, Step

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "passes.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
OWN = next(block for block in BLOCK.findall(PAGE) if "def squared_relu" in block)


def test_every_block_runs_in_order():
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == 6
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "passes.md", "exec"), names)


def test_the_pass_of_the_page_is_found_as_the_page_says(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    [own] = workspace_passes(str(tmp_path), str(tmp_path / "model.py"), built_in()).values()
    [scale] = own.arguments
    assert (own.name, own.title) == ("squared_relu", "Squared relu")
    assert (scale.kind, scale.default, scale.help) == ("number", 1.0, "a factor for the square")
    assert own.needs == {"metadata"}


def test_every_pass_on_a_command_line_of_the_page_takes_its_arguments():
    lines = re.findall(r"^mase-server apply (\S+) (.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    for file, words in lines:
        assert (ROOT / file).is_file()
        for name in re.findall(r"(?:^|\s)(\w+)(?=\s|$)", words.partition("--")[0]):
            assert name in built_in()


def test_every_step_of_the_page_is_one():
    steps = [Step.parse(text) for text in re.findall(r'"(\w+\([^"]*\))"', PAGE) if text.partition("(")[0] in built_in()]
    assert len(steps) >= 3
    for step in steps:
        built_in()[step.name].checked({**step.arguments})


def test_the_errors_of_the_page_are_told_as_it_says():
    told = [each.to_wire() for each in built_in().values()]
    with pytest.raises(UsageError) as no_pass:
        find_pass("quantise", told)
    with pytest.raises(ArgumentError) as no_rank:
        built_in()["insert_lora_adapter"].checked({"rank": "0"})
    for error in (no_pass, no_rank):
        assert f"\nerror: {error.value}\n" in PAGE


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#\s]+)\)", BLOCK.sub("", PAGE)):
        assert (ROOT / "docs" / target).is_file()
