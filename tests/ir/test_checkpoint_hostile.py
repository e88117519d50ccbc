"""Files that are damaged, foreign, old or made to harm: one clear error each, and nothing of them runs."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from mase_server.ir.allowed import CheckpointError
from mase_server.ir.checkpoint import FORMAT, MAGIC, export, load_module
from mase_server.protocol import wire
from tests.ir.checkpoints import around, body_of, forge, small, write_body, write_tensors_again


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The bytes of a good pair: (.pt, .mz)."""
    path = tmp_path_factory.mktemp("good") / "graph"
    export(small(), path)
    return Path(f"{path}.pt").read_bytes(), Path(f"{path}.mz").read_bytes()


def placed(folder, good, pt=None, mz=None):
    """The pair on disk, one file replaced."""
    (folder / "graph.pt").write_bytes(good[0] if pt is None else pt)
    (folder / "graph.mz").write_bytes(good[1] if mz is None else mz)
    return folder / "graph"


def error_of(path, allow=()):
    with pytest.raises(CheckpointError) as caught:
        load_module(path, allow)
    return str(caught.value)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


# Damaged, foreign, old


@pytest.mark.parametrize("kept", [0, 4, 8, 20, 44, 60, 0.5, -1])
def test_a_cut_off_graph_file_is_told(kept, good, tmp_path):
    size = int(kept * len(good[1])) if isinstance(kept, float) else kept
    message = error_of(placed(tmp_path, good, mz=good[1][:size]))
    assert message.startswith(f"{tmp_path}/graph.mz ")
    assert "cut off" in message or "not a checkpoint" in message or "has format" in message


@pytest.mark.parametrize("kept", [0, 3, 8, 40, 0.5, -1])
def test_a_cut_off_tensor_file_is_told(kept, good, tmp_path):
    size = int(kept * len(good[0])) if isinstance(kept, float) else kept
    message = error_of(placed(tmp_path, good, pt=good[0][:size]))
    assert message.startswith(f"{tmp_path}/graph.pt ")
    assert "cut off" in message or "is not a file of tensors" in message


def test_a_flipped_weight_is_noticed(good, tmp_path):
    damaged = bytearray(good[0])
    damaged[-5] ^= 1
    assert error_of(placed(tmp_path, good, pt=bytes(damaged))) == (
        f"{tmp_path}/graph.pt is not the file that graph.mz was written with: take both from one export"
    )


def test_files_of_two_exports_are_not_mixed(good, tmp_path):
    export(around(nn.Linear(2, 2)), tmp_path / "other")
    path = placed(tmp_path, good, pt=(tmp_path / "other.pt").read_bytes())
    assert "take both from one export" in error_of(path)


@pytest.mark.parametrize("version", [0, FORMAT + 1, 2**32 - 1])
def test_another_format_version_is_told_with_what_to_do(version, tmp_path):
    path = forge(tmp_path, lambda body: None)
    write_body(path, wire.pack(body_of(path)), version)
    assert error_of(path) == (
        f"{path}.mz has format {version}, this version of mase_server reads format {FORMAT}: export the graph again"
    )


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00" * 100, b"<svg></svg>", b"MASE", MAGIC], ids=repr)
def test_any_other_file_is_told_to_be_foreign_or_cut_off(content, good, tmp_path):
    message = error_of(placed(tmp_path, good, mz=content))
    assert "is not a checkpoint of mase_server" in message or "has format 0" in message


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_bomb_in_either_file_does_not_go_off(protocol, good, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "boom"), protocol)
    assert "is a pickle, as MASE writes them" in error_of(placed(tmp_path, good, mz=bomb))
    assert "graph.pt is" in error_of(placed(tmp_path, good, pt=bomb))
    assert not (tmp_path / "boom").exists()


def test_what_torch_save_writes_is_told_to_be_a_pickle_and_is_not_read(good, tmp_path):
    torch.save({"x": Bomb(tmp_path / "boom")}, tmp_path / "saved")
    saved = (tmp_path / "saved").read_bytes()
    path = placed(tmp_path, good, pt=saved)
    assert "graph.pt is a pickle, as torch.save and MASE write them; reading one executes it" in error_of(path)
    assert "graph.mz is a pickle" in error_of(placed(tmp_path, good, mz=saved))
    assert not (tmp_path / "boom").exists()


# Made to harm: what a graph may call


def with_target(target, op="call_function", args=None, kwargs=None):
    """Changes the first call_module of the body to something else."""

    def change(body):
        row = next(row for row in body["nodes"] if row[0] == "call_module")
        row[0], row[2] = op, target
        row[3] = row[3] if args is None else args
        row[4] = row[4] if kwargs is None else kwargs

    return change


@pytest.mark.parametrize(
    "name",
    ["os.system", "builtins.eval", "builtins.exec", "builtins.__import__", "posix.system", "subprocess.Popen",
     "torch.load", "torch.hub.load", "torch.from_file", "torch.compile", "torch.ops.load_library", "operator.call",
     "operator.methodcaller", "operator.attrgetter", "torch.serialization.load", "torch.Tensor.apply_", "torch.Tensor",
     "functools.partial", "builtins.open", "builtins.setattr", "torch.save", "torch.utils.cpp_extension.load",
     "torch.ops.aten.__class__.__init__", "torch.nn.functional.sys.exit", "torch.nn.functional.os.system"],
)  # fmt: skip
def test_a_graph_cannot_call_what_is_no_tensor_function(name, tmp_path):
    path = forge(tmp_path, with_target(["function", name]))
    assert error_of(path) == (
        f"{path}.mz cannot be loaded: it names the callable {name!r}, which is not a tensor function; "
        f"where you trust it, pass it: mase_server.ir.checkpoint.load(path, allow=[...])"
    )


@pytest.mark.parametrize("name", ["os._wrap_close", "subprocess.Popen", "builtins.object", "types.FunctionType"])
def test_a_graph_cannot_make_an_object_of_a_class_that_is_not_allowed(name, tmp_path):
    assert "no known class of results" in error_of(forge(tmp_path, with_target(["class", name])))


@pytest.mark.parametrize("name", ["__reduce__", "__class__", "__getattribute__", "__init_subclass__", "_make_subclass",
                                  "apply_", "map_", "x(); import os", "a.b", "", "nothing_like_this"])  # fmt: skip
def test_a_graph_cannot_call_methods_that_lead_out_of_tensors(name, tmp_path):
    path = forge(tmp_path, with_target(name, "call_method"))
    assert f"it calls a method {name!r}, which tensors do not have" in error_of(path)


@pytest.mark.parametrize("name", ["__class__", "_backward_hooks", "__dict__", "x y", 7])
def test_a_graph_cannot_read_private_attributes(name, tmp_path):
    args = ["tuple", [["node", 0], name]]
    path = forge(tmp_path, with_target(["function", "builtins.getattr"], args=args))
    assert "reads the attribute" in error_of(path)


@pytest.mark.parametrize(
    "change",
    [
        with_target(["named", "f(x)\n    import os", ["function", "torch.relu"]]),
        with_target(["function", "torch.relu"], kwargs=["dict", ["a=1, b", 2]]),
        lambda body: body["nodes"][0].__setitem__(2, "x): import os; os.abort() #"),
        lambda body: body["nodes"][0].__setitem__(1, "x\nimport os"),
        lambda body: body["nodes"][0].__setitem__(1, "__import__"),
        lambda body: body["nodes"][0].__setitem__(2, "lambda"),
        lambda body: body.__setitem__("targets", {"layers.0; import os": ["module", 0]}),
    ],
)
def test_no_name_can_smuggle_code_into_the_generated_source(change, tmp_path):
    assert "cannot be loaded" in error_of(forge(tmp_path, change))


@pytest.mark.parametrize("path_of", ["__class__.__init__", "layers.0.__dict__", "../../etc/passwd", "", ".."])
def test_targets_are_only_what_the_file_itself_holds(path_of, tmp_path):
    def change(body):
        body["targets"][path_of] = ["module", 0]
        body["nodes"][1][2] = path_of

    message = error_of(forge(tmp_path, change))
    assert "it has a target" in message or "its graph is not whole" in message


def test_a_target_that_the_file_does_not_hold_is_told(tmp_path):
    message = error_of(forge(tmp_path, with_target("layers.9", "call_module")))
    assert "a call_module names 'layers.9', which it does not have" in message


# Made to harm: what modules may be


@pytest.mark.parametrize("name", ["subprocess.Popen", "torch.fx.graph_module.GraphModule", "torch.jit.ScriptModule",
                                  "torch.hub.load", "nn.Linear", None, 3])  # fmt: skip
def test_a_module_is_only_torch_nns_or_the_callers(name, tmp_path):
    path = forge(tmp_path, lambda body: body["modules"][0].__setitem__("class", name))
    assert "which is not torch.nn's; where you trust it, pass it" in error_of(path)


@pytest.mark.parametrize("name", ["__class__", "__call__", "forward", "_forward_hooks", "_modules", "train", "a.b"])
def test_a_module_gets_no_attribute_that_changes_what_modules_do(name, tmp_path):
    path = forge(tmp_path, lambda body: body["modules"][0]["attributes"].__setitem__(name, 1))
    assert f"a module in it has an attribute {name!r}" in error_of(path)


def chained(children):
    """Makes containers of the body's modules: one for each row, with those of its children, the first in module 0."""

    def change(body):
        rows, first = body["modules"], len(body["modules"])
        empty = {"class": "torch.nn.modules.container.Sequential", "training": False} | {
            key: {} for key in ("attributes", "parameters", "buffers")
        }
        for row in children:
            inner = {f"m{number}": first + child for number, child in enumerate(row)}
            rows.append(empty | {"fleeting": [], "modules": inner})
        rows[0]["modules"] = {"inner": first}

    return change


HELD = {
    "itself": ([[0]], "holds itself, or is nested deeper than 60"),
    "each other": ([[1], [0]], "holds itself, or is nested deeper than 60"),
    "deep": ([[number + 1] for number in range(5000)] + [[]], "holds itself, or is nested deeper than 60"),
    "deep, inner first": ([[5000], [], *([number] for number in range(1, 5000))], "nested deeper than 60"),
    "again and again": ([[number + 1] * 2 for number in range(40)] + [[]], "in more than 1000000 ways"),
}


@pytest.mark.parametrize(("children", "words"), HELD.values(), ids=HELD)
def test_modules_that_hold_each_other_without_end_are_told(children, words, tmp_path):
    assert words in error_of(forge(tmp_path, chained(children)))


def test_modules_that_share_others_are_loaded(tmp_path):
    shared = forge(tmp_path, chained([[number + 1] * 2 for number in range(10)] + [[]]))
    assert len(dict(load_module(shared).model.named_modules(remove_duplicate=False))) > 1024
    assert load_module(forge(tmp_path, chained([[number + 1] for number in range(50)] + [[]]))).model.eval()


def test_a_modules_activation_is_only_a_tensor_function(tmp_path):
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    harm = ["function", "os.system"]
    path = forge(tmp_path, lambda body: body["modules"][0]["attributes"].__setitem__("activation", harm), around(layer))
    assert "it names the callable 'os.system'" in error_of(path)


# Sizes and depth


@pytest.mark.parametrize("depth", [100, 400, 100_000])
def test_deep_nesting_is_an_error_not_a_crash(depth, tmp_path):
    path = forge(tmp_path, lambda body: None)
    body = body_of(path)
    marker = "the place where it goes"
    body["nodes"][1][3] = marker
    packed = wire.pack(body)
    deep = b"\x92\xa4list\x91" * depth + b"\x01"
    write_body(path, packed.replace(wire.pack(marker), deep))
    message = error_of(path)
    assert "nested deeper than 60" in message or "is not a checkpoint" in message


@pytest.mark.parametrize(
    "header",
    [
        b"\xdd\xff\xff\xff\xff",  # an array of 2**32 - 1
        b"\xdf\xff\xff\xff\xff",  # a map
        b"\xc6\xff\xff\xff\xff",  # bytes
        b"\xdb\xff\xff\xff\xff",  # a text
        b"\xc9\x7f\xff\xff\xff\x01",  # an extension type
    ],
)
def test_announced_sizes_are_not_believed(header, tmp_path):
    path = forge(tmp_path, lambda body: None)
    write_body(path, header)
    assert "is not a checkpoint" in error_of(path)


def tensor_file(header, data=b""):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}, "cut off"),
        ({"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}, "has 4 bytes, not 4398046511104"),
        ({"dtype": "F32", "shape": [0, 1 << 61, 1 << 61], "data_offsets": [0, 0]}, "cannot be made"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "the shape [-1]"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "the shape [True]"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}, "tensor '0' of shape [1]"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}, "has -4 bytes, not 4"),
        ({"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}, "which is not understood"),
        ({"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}, "which is not understood"),
        ([], "which is not understood"),
    ],
)
def test_a_tensors_size_is_checked_before_it_is_made(entry, words, tmp_path):
    path = forge(tmp_path, lambda body: None)
    write_tensors_again(path, tensor_file({"0": entry}, b"\x00" * 8))
    assert words in error_of(path)


@pytest.mark.parametrize("length", [1 << 62, (1 << 64) - 1, 65 << 20])
def test_a_header_of_any_announced_length_is_not_believed(length, tmp_path):
    path = forge(tmp_path, lambda body: None)
    write_tensors_again(path, struct.pack("<Q", length) + b"{}")
    assert "is not a file of tensors" in error_of(path)


def test_a_deeply_nested_header_is_an_error(tmp_path):
    path = forge(tmp_path, lambda body: None)
    text = b"[" * 500_000
    write_tensors_again(path, struct.pack("<Q", len(text)) + text)
    assert "is not a file of tensors" in error_of(path)


def test_strides_cannot_reach_outside_of_a_tensor(tmp_path):
    path = forge(tmp_path, lambda body: body["tensors"][0].__setitem__("stride", [1 << 40, 1]))
    assert "its tensor 0 cannot be made" in error_of(path)


def test_a_bool_of_any_byte_is_true_or_false(tmp_path):
    module = nn.Identity()
    module.register_buffer("mask", torch.zeros(4, dtype=torch.bool))
    path = forge(tmp_path, lambda body: None, around(module))
    header = {"0": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}
    write_tensors_again(path, tensor_file(header, b"\x00\x01\x02\xff"))
    assert load_module(path).model.m.mask.view(torch.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "key", ["nodes", "modules", "tensors", "targets", "name"],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [[]], [None], {"a": None}, [{}]], ids=repr)
def test_any_wrong_table_is_one_clear_error(key, value, tmp_path):
    if key == "name" and value == "x":
        pytest.skip("a good name")
    message = error_of(forge(tmp_path, lambda body: body.__setitem__(key, value)))
    assert message.startswith(f"{tmp_path}/forged.mz cannot be loaded: ")


# Fuzzing


FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=0, max_size=6)), min_size=1, max_size=4
)


def edited(data, edits):
    """Bytes with some pieces written over, or cut out where the piece is empty."""
    found = bytearray(data)
    for where, piece in edits:
        place = int(where * len(found)) if found else 0
        found[place : place + max(len(piece), 1)] = piece
    return bytes(found)


def loads_or_says_why(path):
    """A load ends in a graph or in a CheckpointError; anything else passes through and fails the test."""
    try:
        return load_module(path).model
    except CheckpointError:
        return None


@FUZZ
@given(edits=EDITS)
def test_no_bytes_in_the_graph_file_crash_the_loader(edits, good, tmp_path):
    path = placed(tmp_path, good)
    write_body(path, edited(good[1][len(MAGIC) + 36 :], edits))
    loads_or_says_why(path)


@FUZZ
@given(edits=EDITS)
def test_no_bytes_in_the_tensor_file_crash_the_loader(edits, good, tmp_path):
    path = placed(tmp_path, good)
    write_tensors_again(path, edited(good[0][:600], edits) + good[0][600:])
    loads_or_says_why(path)


@FUZZ
@given(edits=EDITS, second=st.booleans())
def test_damage_without_a_new_checksum_is_always_noticed(edits, second, good, tmp_path):
    damaged = edited(good[second], edits)
    path = placed(tmp_path, good, **{"mz" if second else "pt": damaged})
    if damaged == good[second]:
        assert loads_or_says_why(path) is not None
    else:
        assert loads_or_says_why(path) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["node", "tensor", "module", "list", "tuple", "dict", "function", "class", "object", "rebuild",
                       "slot", "slice", "range", "size", "device", "dtype", "record", "scope", "int", "torch.relu"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=8,
)  # fmt: skip


@FUZZ
@given(value=VALUES, where=st.integers(0, 5), row=st.integers(0, 6))
def test_no_value_in_a_node_crashes_the_loader(value, where, row, good, tmp_path):
    path = placed(tmp_path, good)
    body = body_of(path)
    body["nodes"][row][where] = value
    write_body(path, wire.pack(body))
    loads_or_says_why(path)


@FUZZ
@given(value=VALUES, key=st.sampled_from(["class", "attributes", "parameters", "buffers", "modules", "fleeting"]))
def test_no_value_in_a_module_crashes_the_loader(value, key, good, tmp_path):
    path = placed(tmp_path, good)
    body = body_of(path)
    body["modules"][0][key] = value
    write_body(path, wire.pack(body))
    loads_or_says_why(path)


def test_nothing_is_left_open_after_a_load(good, tmp_path):
    path = placed(tmp_path, good)
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    model = load_module(path).model
    for name in ("graph.pt", "graph.mz"):
        os.truncate(tmp_path / name, 0)
    assert torch.isfinite(model(torch.randn(5, 4))[0]).all()
    if before:
        assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_path_that_would_be_code_is_refused_before_it_is_compiled(way, tmp_path, monkeypatch):
    """torch.fx writes paths into the text of `forward` as they are: this one would end it, or be called in it."""
    monkeypatch.setattr(json, "ran", [], raising=False)
    call = 'getattr(getattr(__import__("json"), "ran"), "append")(1)'
    bad = {
        "in": f'scale") or {call} or ("',
        "out": f'scale");  return x\n{call}\ndef other(self, x):\n    x = ("',
    }[way]

    def change(body):
        assert "scale" in body["targets"]
        body["targets"] = {bad if path == "scale" else path: value for path, value in body["targets"].items()}
        for row in body["nodes"]:
            row[2] = bad if row[2] == "scale" else row[2]

    message = error_of(forge(tmp_path, change))
    assert "cannot be written in Python code" in message
    assert json.ran == []
