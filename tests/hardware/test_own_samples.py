"""A person's own samples: rounded to the input's format, integers as they are, and told where they do not fit."""

import re

import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.hardware.lowering import lower_graph
from mase_server.passes.verilog.told import arguments_of, build, own_inputs
from tests.hardware.test_lowering import config, quantised

numpy = pytest.importorskip("numpy")


class Pair(nn.Module):
    """Two inputs."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, first, second):
        return self.left(first) + self.right(second)


def pair():
    from mase_server import passes

    graph = MaseGraph(Pair().eval(), {"first": torch.randn(2, 3), "second": torch.randn(2, 4)})
    return passes.quantize_transform_pass(graph, config())[0]


def one():
    return quantised(nn.Sequential(nn.Linear(3, 2)), torch.randn(2, 3), config())


def read(path, graph):
    return own_inputs(str(path), lower_graph(graph), arguments_of(graph))


#: Worked by hand for 8 bits, 4 of them after the point: half to even, saturated.
REAL = [[0.03125, 0.09375, -0.03125], [100.0, -100.0, 1.0]]
INTEGERS = [[0, 2, 0], [127, -128, 16]]


def test_numbers_with_a_point_are_rounded_to_the_format(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.array(REAL, dtype=numpy.float32))
    assert read(tmp_path / "x.npy", one())[0].tolist() == INTEGERS


def test_integers_are_integers_of_the_format(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.array(INTEGERS, dtype=numpy.int16))
    assert read(tmp_path / "x.npy", one())[0].tolist() == INTEGERS


def test_one_sample_needs_no_batch(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.array(REAL[1]))
    assert read(tmp_path / "x.npy", one())[0].tolist() == INTEGERS[1:]


@pytest.mark.parametrize("names", [("second", "first"), ("arr_0", "arr_1")], ids=["by name", "in order"])
def test_inputs_go_by_name_or_in_order(tmp_path, names):
    arrays = {"first": numpy.ones((5, 3)), "second": numpy.zeros((5, 4))}
    given = {name: arrays[name] if name in arrays else list(arrays.values())[int(name[-1])] for name in names}
    numpy.savez(tmp_path / "x.npz", **given)
    first, second = read(tmp_path / "x.npz", pair())
    assert (first.unique().tolist(), second.unique().tolist()) == ([16], [0])
    assert (first.shape, second.shape) == ((5, 3), (5, 4))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"first": numpy.ones((5, 3))}, "holds first; it needs one array for each of first, second"),
        ({"first": numpy.ones((5, 3)), "second": numpy.ones((5, 3))},
         "second in .* is [5, 3]; a batch of samples of [4] is needed"),
        ({"first": numpy.ones((5, 3)), "second": numpy.ones((4, 4))}, "has 4 and 5 samples; every input needs as many"),
        ({"first": numpy.ones((0, 3)), "second": numpy.ones((0, 4))},
         "first in .* is [0, 3]; a batch of samples of [3] is needed"),
        ({"first": numpy.full((5, 3), 128), "second": numpy.ones((5, 4))},
         "first in .* holds the integer 128; integers are those of fixed(8,4), -128 to 127, each worth 0.0625;"
         " numbers with a point are rounded to it"),
        ({"first": numpy.ones((5, 3)), "third": numpy.ones((5, 4))},
         "holds first, third; it needs one array for each of first, second"),
        ({"first": numpy.ones((5, 3), dtype=complex), "second": numpy.ones((5, 4))},
         "first in .* is torch.complex128; an array of real numbers is needed"),
        ({"first": numpy.full((5, 3), numpy.nan), "second": numpy.ones((5, 4))},
         "first in .* holds NaN at [0, 0]; hardware has no such number"),
    ],
    ids=["missing", "shape", "counts", "none", "range", "another name", "complex", "nan"],
)  # fmt: skip
def test_what_does_not_fit_is_told(tmp_path, arrays, message):
    numpy.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=re.escape(message).replace(r"\.\*", ".*")):
        read(tmp_path / "x.npz", pair())


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"^there is no file"):
        read(tmp_path / "x.npz", one())


def words():
    model, values = nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 2)), torch.zeros(1, 3, dtype=torch.long)
    return quantised(model, values, config())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, 4, 5], r"the integer 5; an index is 0 to 4$"),
        ([0, 4, -1], r"the integer -1; an index is 0 to 4$"),
        ([0.0, 4.0, 5.0], r"the integer 5; an index is 0 to 4$"),
        ([0.0, 1.5, 4.0], r"holds 1.5 at \[0, 1\]; an index is a whole number$"),
        ([0.0, 1.0, numpy.inf], r"holds inf at \[0, 2\]; an index is a whole number$"),
    ],
)
def test_indices_are_whole_and_stay_below_the_tables_length(tmp_path, row, message):
    numpy.save(tmp_path / "x.npy", numpy.array([row]))
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "x.npy", words())


def test_indices_may_be_written_with_a_point(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.array([[0.0, 4.0, 2.0]]))
    assert read(tmp_path / "x.npy", words())[0].tolist() == [[0, 4, 2]]


def test_a_file_that_holds_no_arrays_is_told_without_advice_to_unpickle_it(tmp_path):
    (tmp_path / "x.npz").write_text("no arrays")
    with pytest.raises(
        ValueError, match=r"x.npz cannot be read \(ValueError: it holds Python objects, or is no file of"
    ):
        read(tmp_path / "x.npz", one())


def test_they_are_the_vectors_of_the_folder(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.array(REAL, dtype=numpy.float32))
    graph = MaseGraph(nn.Sequential(nn.Linear(3, 2)).eval(), {"input": torch.randn(2, 3)})
    build(graph, Build(precision="fixed(8,4)"), "One", folder=str(tmp_path / "made"), inputs=str(tmp_path / "x.npy"))
    words = (tmp_path / "made" / "sim" / "data_in_0.hex").read_text().split()
    assert [int(word, 16) for word in words] == [value % 256 for row in INTEGERS for value in row]
