"""The file of tensors is what the safetensors library writes and reads."""

from __future__ import annotations

import io

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mase_server.ir.allowed import CheckpointError
from mase_server.ir.tensors_file import can_hold, is_pickle, read_tensors, write_tensors

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool]  # fmt: skip
ANY_FOLDER = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tensors(pick):
    shape = pick(st.lists(st.integers(0, 4), max_size=3))
    tensor = torch.randint(0, 2, shape) if pick(st.booleans()) else torch.randn(shape) * 10
    tensor = tensor.to(pick(st.sampled_from(DTYPES)))
    return tensor.transpose(0, -1) if tensor.dim() > 1 and pick(st.booleans()) else tensor


NAMED = st.dictionaries(
    st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__"), tensors(), max_size=4
)


def same(one, other):
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and torch.equal(one[name].nan_to_num(), other[name].nan_to_num())
        for name in one
    )


@ANY_FOLDER
@given(named=NAMED)
def test_the_library_reads_what_is_written_here(named):
    file = io.BytesIO()
    write_tensors(file, named)
    assert same(safetensors.torch.load(file.getvalue()), named)


@ANY_FOLDER
@given(named=NAMED)
def test_what_the_library_writes_is_read_here(named, tmp_path):
    plain = {name: tensor.contiguous() for name, tensor in named.items()}
    (tmp_path / "file").write_bytes(safetensors.torch.save(plain))
    assert same(read_tensors(tmp_path / "file"), named)


@ANY_FOLDER
@given(named=NAMED)
def test_what_is_written_here_is_read_here_and_aligned(named, tmp_path):
    with (tmp_path / "file").open("wb") as file:
        write_tensors(file, named)
    found = read_tensors(tmp_path / "file")
    assert same(found, named)
    assert all(tensor.data_ptr() % tensor.element_size() == 0 for tensor in found.values())


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x0480, 0x0580])
def test_a_header_whose_length_looks_like_a_pickle_is_read(length, tmp_path):
    name = "x"
    while True:
        file = io.BytesIO()
        write_tensors(file, {name: torch.ones(1)})
        found = int.from_bytes(file.getvalue()[:8], "little")
        if found >= length:
            break
        name += "x"
    assert found == length
    (tmp_path / "file").write_bytes(file.getvalue())
    assert list(read_tensors(tmp_path / "file")) == [name]


def test_a_read_tensor_does_not_hang_on_the_file(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        write_tensors(file, {"x": torch.arange(100)})
    found = read_tensors(tmp_path / "file")["x"]
    found.add_(1)
    (tmp_path / "file").write_bytes(b"")
    assert found.tolist() == list(range(1, 101))


def test_conjugate_and_negative_views_are_written_as_their_values(tmp_path):
    value = torch.randn(3, dtype=torch.complex64)
    with (tmp_path / "file").open("wb") as file:
        write_tensors(file, {"conj": value.conj(), "imag": value.conj().imag})
    found = read_tensors(tmp_path / "file")
    assert torch.equal(found["conj"], value.conj().resolve_conj())
    assert torch.equal(found["imag"], -value.imag)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(2).to_sparse(),
        torch.empty(2, device="meta"),
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
    ],
    ids=["sparse", "meta", "quantised"],
)
def test_what_the_layout_does_not_have_is_known_before(tensor):
    assert not can_hold(tensor)


@given(st.binary(max_size=60))
def test_any_bytes_are_tensors_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    try:
        assert isinstance(read_tensors(path), dict)
    except CheckpointError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right


def test_a_pickle_is_known_by_its_first_bytes():
    import pickle

    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert is_pickle(pickle.dumps({}, protocol))
    file = io.BytesIO()
    torch.save({}, file)
    assert is_pickle(file.getvalue())
    assert not is_pickle(safetensors.torch.save({"x": torch.ones(1)}))
    assert not is_pickle(b"")
