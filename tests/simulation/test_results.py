"""Integers in files: numpy reads what was written without it."""

import numpy as np
import pytest

from mase_server.simulation import SimulationError, simulating, write_results
from mase_server.simulation.simulating import Integers, Stream, encode_npy, read_streams, write_npz


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4), (2, 1, 3)])
def test_numpy_reads_every_shape(tmp_path, shape):
    values = [(-1) ** index * index * 2**40 for index in range(int(np.prod(shape)))]
    write_npz(tmp_path / "a.npz", {"x": Integers(shape, values)})
    read = np.load(tmp_path / "a.npz")["x"]
    assert (read.shape, read.dtype) == (shape, np.int64)
    assert read.flatten().tolist() == values


def test_it_is_byte_for_byte_what_numpy_writes(tmp_path):
    np.save(tmp_path / "theirs.npy", np.arange(-3, 9, dtype=np.int64).reshape(3, 4))
    assert encode_npy(Integers((3, 4), range(-3, 9))) == (tmp_path / "theirs.npy").read_bytes()


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_npz(tmp_path / name, {"x": Integers((2,), [1, 2])})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_values_that_do_not_fill_the_shape_are_refused():
    with pytest.raises(ValueError, match="3 values are no array of shape"):
        Integers((2, 2), [1, 2, 3])


def stream(**more):
    known = {"name": "data_out_0", "kind": "out", "lanes": 2, "width": 4, "spacing": 4, "fraction_width": 1}
    return Stream(**known | more)


def test_beats_are_signed_integers_with_element_0_in_the_low_bits():
    assert list(stream(shape=(4,), order=None).elements(["8f", "07"])) == [-1, -8, 7, 0]


def test_a_packet_of_a_bus_has_each_element_in_bytes_and_a_last_beat_that_is_not_full():
    """Three elements of 4 bits in bytes, two in a beat; above them TKEEP and TLAST."""
    packet = stream(shape=(3,), order=None, spacing=8)
    assert list(packet.samples(["3f807", "5ff", "3f00f", "501"])) == [[7, -8, -1], [-1, 0, 1]]


def test_elements_that_flow_in_another_order_are_put_back():
    """Of a matrix [[1, 2], [3, 4]] the columns flow: 1, 3, 2, 4."""
    turned = stream(shape=(2, 2), order=(0, 2, 1, 3))
    assert list(turned.samples(["31", "42", "31", "4f", "12"])) == [[1, 2, 3, 4], [1, -1, 3, 4]]


def test_results_are_those_of_the_last_run(folder, tmp_path):
    out = read_streams(folder)[-1]
    (folder / "sim" / "data_out_0.hex.got").write_text("\n".join(out.expected(folder)[: 2 * out.size // out.lanes]))
    write_results(folder, tmp_path / "r.npz")
    read = np.load(tmp_path / "r.npz")
    assert read["data_out_0"].tolist() == list(out.samples(out.expected(folder)))[:2]
    assert (read["data_out_0_width"], read["data_out_0_fraction_width"]) == (8, 4)
    assert set(simulating.results(folder)) == set(read)


@pytest.mark.parametrize("text", ["", "[]", '{"data_in_0": {}}', '{"data_in_0": {"lanes": "x"}}'])
def test_a_description_of_streams_that_is_none_is_told(tmp_path, text):
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "streams.json").write_text(text)
    with pytest.raises(SimulationError, match="was not emitted by mase-server"):
        read_streams(tmp_path)
