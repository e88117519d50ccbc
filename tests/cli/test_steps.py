"""Words of a command line as steps of a pipeline. What they mean is written by hand."""

from pathlib import Path

import pytest

from mase_server.cli.steps import UsageError, find_pass, parse_steps, resolve_steps
from mase_server.protocol.arguments import Argument, Step

PASSES = [
    {
        "name": "thin", "mase": "thin_transform_pass", "others": None,
        "arguments": [each.to_wire() for each in (
            Argument("share", "number", "how much", default=0.5, minimum=0, maximum=1),
            Argument("weight.way", "choice", "by what", choices=("size", "luck")),
            Argument("only", "texts", "where"),
            Argument("data", "file", "on what"),
        )],
    },
    {
        "name": "round", "mase": "round_transform_pass",
        "others": Argument("operator", "format", "its format").to_wire(),
        "arguments": [Argument("default", "format", "of the rest", required=True).to_wire()],
    },
]  # fmt: skip


def steps(*words):
    return [str(step) for step in resolve_steps(parse_steps(words), PASSES)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["thin"], ["thin()"]),
        (["thin_transform_pass"], ["thin()"]),
        (["thin", "share=1e-1"], ["thin(share=0.1)"]),
        (["thin", "only=a,b.c"], ["thin(only=['a', 'b.c'])"]),
        (["thin", "weight.way=luck"], ["thin(**{'weight.way': 'luck'})"]),
        (["thin", "weight={'way': 'luck'}"], ["thin(**{'weight.way': 'luck'})"]),
        (["round", "default=fixed(8,4)", "thin"], ["round(default='fixed(8,4)')", "thin()"]),
        (["round", "default=fixed(8,4)", "h.0=mxint(8)"], ["round(default='fixed(8,4)', **{'h.0': 'mxint(8)'})"]),
        (["round", "default={'name': 'fixed'}"], ["round(default={'name': 'fixed'})"]),
        (["thin(share=0.25)", "only=a"], ["thin(share=0.25, only=['a'])"]),
        (["round(default='fixed(8,4)')", "thin"], ["round(default='fixed(8,4)')", "thin()"]),
    ],
)
def test_words_are_steps_with_values(words, expected):
    assert steps(*words) == expected


def test_a_path_is_made_absolute():
    assert steps("thin", "data=data.pt") == [f"thin(data={str(Path('data.pt').absolute())!r})"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no pass is named; `mase-server passes` lists them"),
        (["share=1", "thin"], "'share=1' stands before any pass; write: mase-server apply FILE PASS share=1"),
        (["thin", "share=1", "share=0"], "thin has share twice"),
        (["thni"], "there is no pass 'thni'; did you mean 'thin'?"),
        (["quantise"], "there is no pass 'quantise'; `mase-server passes` lists them"),
        (["thin", "shrae=1"], "thin has no argument 'shrae'; did you mean 'share'?"),
        (["thin", "share=2"], "thin: share is '2', expected a number from 0 to 1"),
        (["thin", "weight.way=lick"], "thin: weight.way is 'lick', expected one of size, luck"),
        (["round"], "round needs default: a number format such as fixed(8,4) (of the rest)"),
        (["thin(share=)"], "'thin(share=)' is no step"),
        (["thin(0.5)"], "'thin(0.5)' is no step"),
        ([""], "'' is no step"),
        (["thin", "=1"], "thin has no argument ''; it takes share, weight.way, only, data"),
    ],
)
def test_what_cannot_be_meant_is_told(words, message):
    with pytest.raises(UsageError) as error:
        steps(*words)
    assert str(error.value).startswith(message)


def test_only_what_was_given_stands_in_the_step():
    """Defaults are the pass's business: a pipeline in a project's settings should say what a person said."""
    [step] = resolve_steps([Step("thin", {"share": "0.25"})], PASSES)
    assert step == Step("thin", {"share": 0.25})


def test_a_pass_is_found_by_name():
    assert find_pass("round", PASSES)["mase"] == "round_transform_pass"
