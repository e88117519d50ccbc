"""The API is additive: what was promised in docs/api.json stays."""

import copy

import pytest

from docs.api import FILE, breakages, present, promised, written


def test_nothing_that_was_promised_is_gone_or_another():
    assert breakages(promised(), present()) == []


def test_what_is_new_is_written_down():
    assert FILE.read_text() == written(present()), "run: python -m docs.api"


PROMISE = {
    "mase/x": {
        "since": "0.1",
        "params": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "all": {"type": "boolean"}},
            "required": ["path"],
            "additionalProperties": False,
        },
        "result": {
            "type": "object",
            "properties": {
                "next": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "rows": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                },
            },
            "required": ["next", "rows"],
        },
    }
}


def changed(*path, to=None, drop=False):
    made = copy.deepcopy(PROMISE)
    place = made["mase/x"]
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return made


ROW = ("result", "properties", "rows", "items")


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({}, "mase/x is gone"),
        (changed("since", to="0.2"), "mase/x: since was 0.1, now 0.2"),
        (changed("params", "properties", "all", drop=True), "mase/x: params.all is gone"),
        (changed("params", "required", to=["path", "all"]), "mase/x: the parameter all has to be given now"),
        (changed("params", "properties", "path", to={"type": "integer"}),
         "mase/x: params.path was string, now integer"),
        (changed("result", "properties", "rows", drop=True), "mase/x: result.rows is gone"),
        (changed("result", "required", to=["rows"]), "mase/x: result.next may be missing now"),
        (changed(*ROW, "properties", to={}), "mase/x: result.rows[].name is gone"),
        (changed(*ROW, "properties", "name", to={}), "mase/x: result.rows[].name was string, now anything"),
        (changed("result", "properties", "next", to={"type": "integer"}),
         "mase/x: result.next was anything, now integer"),
        (changed("result", "properties", "next", "anyOf", to=[{"type": "null"}]),
         "mase/x: result.next was one of 2 types, now of 1"),
    ],
)  # fmt: skip
def test_what_breaks_a_client_is_named(now, told):
    assert breakages(PROMISE, now) == [told]


@pytest.mark.parametrize(
    "now",
    [
        PROMISE,
        PROMISE | {"mase/y": PROMISE["mase/x"]},
        changed("params", "properties", "more", to={"type": "string"}),
        changed("params", "required", to=[]),
        changed("result", "properties", "more", to={"type": "string"}),
        changed(*ROW, "properties", "more", to={"type": "string"}),
        changed("result", "required", to=["next", "rows", "more"]),
    ],
)
def test_what_is_added_breaks_nobody(now):
    assert breakages(PROMISE, now) == []
