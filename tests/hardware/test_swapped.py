"""Which orders in time a buffer of rows and columns serves: compared with trying all of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from mase_server.hardware.design import find_divisors
from mase_server.hardware.kinds.swap import _find_swap


def tried(places):
    """The smallest blocks of rows, columns and elements, by trying every one."""
    size = len(places)
    for block in find_divisors(size):
        for inner in find_divisors(block):
            for columns in find_divisors(block // inner):
                rows = block // inner // columns
                one = torch.arange(block).reshape(rows, columns, inner).transpose(0, 1).reshape(-1)
                whole = torch.cat([one + start for start in range(0, size, block)])
                if rows > 1 < columns and torch.equal(whole, places):
                    return rows, columns, inner
    return None


sizes = st.integers(1, 5)


@given(blocks=sizes, rows=sizes, columns=sizes, inner=sizes)
def test_a_swap_of_rows_and_columns_is_found_in_its_smallest_blocks(blocks, rows, columns, inner):
    indices = torch.arange(blocks * rows * columns * inner)
    places = indices.reshape(blocks, rows, columns, inner).transpose(1, 2).reshape(-1)
    assert _find_swap(places) == tried(places)


@given(order=st.integers(1, 12).flatmap(lambda size: st.permutations(range(size))))
def test_other_orders_are_not_taken_for_one(order):
    places = torch.tensor(order)
    assert _find_swap(places) == tried(places)


@given(shape=st.tuples(sizes, sizes, sizes, sizes), way=st.permutations(range(4)))
def test_permuted_dimensions_are_found_where_two_neighbours_change_places(shape, way):
    places = torch.arange(torch.Size(shape).numel()).reshape(shape).permute(way).reshape(-1)
    assert _find_swap(places) == tried(places)
