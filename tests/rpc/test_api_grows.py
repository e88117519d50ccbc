"""The API is additive: what was promised in docs/api.json stays."""

import copy
import json
import re
from pathlib import Path
from typing import Annotated, Literal, get_args

import pytest
from jsonschema import Draft202012Validator
from rpc_answers import closed

from docs.api import FILE, breakages, present, promised, written
from mase_server.daemon.api import get_info
from mase_server.daemon.events import TOPICS
from mase_server.daemon.methods import ApiMethod
from mase_server.protocol import answers
from mase_server.protocol.codes import ERRORS, ErrorCode
from mase_server.protocol.records import Life
from mase_server.rpc import dispatch

ROOT = Path(__file__).parents[2]


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
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "kind": {"enum": ["a", "b"]}, "any": {}},
                        "required": ["name"],
                    },
                },
                "old": {"type": "string", "deprecated": True, "until": "0.3"},
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
        (changed(*ROW, "properties", "name", drop=True), "mase/x: result.rows[].name is gone"),
        (changed(*ROW, "properties", "name", to={}), "mase/x: result.rows[].name was string, now anything"),
        (changed("params", "properties", "path", to={"enum": ["a"]}), "mase/x: params.path was string, now anything"),
        (changed(*ROW, "properties", "kind", "enum", to=["a"]), "mase/x: result.rows[].kind is never 'b' now"),
        (changed("until", to="0.3"), "mase/x: until is 0.3, which is not later than 0.3"),
        (changed("result", "properties", "next", to={"type": "integer"}),
         "mase/x: result.next was anything, now integer"),
        (changed("result", "properties", "next", "anyOf", to=[{"type": "null"}]),
         "mase/x: result.next was one of 2 types, now of 1"),
    ],
)  # fmt: skip
def test_what_breaks_a_client_is_named(now, told):
    assert breakages(PROMISE, now, "0.3") == [told]


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
        changed("until", to="0.4"),
        changed(*ROW, "properties", "name", to={"enum": ["a", "b"]}),
        changed(*ROW, "properties", "kind", "enum", to=["a", "b", "c"]),
        changed(*ROW, "properties", "any", to={"type": "integer"}),
        changed("result", "properties", "old", drop=True),
    ],
)
def test_what_is_added_or_was_deprecated_for_long_enough_breaks_nobody(now):
    assert breakages(PROMISE, now, "0.3") == []


def test_what_is_deprecated_stays_until_the_named_version():
    deprecated = changed("until", to="0.4")
    assert breakages(deprecated, {}, "0.3.9") == ["mase/x is gone"]
    assert breakages(deprecated, {}, "0.4.0") == []
    assert breakages(PROMISE, changed("result", "properties", "old", drop=True), "0.2.5") == [
        "mase/x: result.old is gone"
    ]


def test_a_deprecated_parameter_says_so_in_its_schema():
    life = Annotated[int, Life("0.2", until="0.4")]
    method = ApiMethod("mase/x", {"old?": life, "kind?": Annotated[str, Literal["a", "b"]]}, get_info, answers.Closed)
    assert method.described()["params"]["properties"] == {
        "old": {"type": "integer", "since": "0.2", "deprecated": True, "until": "0.4"},
        "kind": {"enum": ["a", "b"]},
    }
    assert method.checked(None, {"old": 1}) == {"old": 1}
    with pytest.raises(ValueError, match="old is 'x', expected int"):
        method.checked(None, {"old": "x"})


def test_the_table_has_every_error_that_the_source_can_answer_with():
    source = "".join(path.read_text() for path in (ROOT / "mase_server").rglob("*.py"))
    used = set(re.findall(r'(?:ApiError|error_map)\(\s*"([\w-]+)"', source)) | set(dispatch._CODES.values())
    assert used == set(ERRORS) == set(get_args(ErrorCode))


@pytest.mark.asyncio(loop_scope="session")
async def test_every_event_has_the_shape_that_is_promised(served, client):
    told = json.loads(FILE.read_text())
    schemas = {
        each["properties"]["topic"]["enum"][0]: closed(each) for each in told["notifications"]["mase/event"]["anyOf"]
    }
    assert schemas.keys() == set(TOPICS)
    await client.result("mase/subscribe")
    path = served.write("shapes.py", "PROBLEMS = [('error', 'bad', 'no')]\nx = 1  # shape f32[2, 3]\n")
    client.send([2, "mase/open", [{"path": path}]])
    seen = {}
    while "failed" not in {event.get("state") for event in seen.values()}:
        _, method, [event] = await client.next()
        assert method == "mase/event"
        Draft202012Validator({**schemas[event["topic"]], "$defs": told["$defs"]}).validate(event)
        seen[event["topic"]] = event
    served.daemon.events.verilog_changed(path, "Net")
    served.daemon.events.pass_progress(path, "Net", "half", 0.5)
    while seen.keys() < set(TOPICS):
        _, _, [event] = await client.next()
        Draft202012Validator({**schemas[event["topic"]], "$defs": told["$defs"]}).validate(event)
        seen[event["topic"]] = event
