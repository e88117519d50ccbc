"""Arrays as they cross: bytes with a type and a shape, put together from pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mase_server.client.asynchronous import AsyncClient
    from mase_server.client.blocking import Client


@dataclass(frozen=True, slots=True)
class Array:
    """One array. dtype: as torch calls it, e.g. "float32".  data: row-major, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray

    def numpy(self) -> Any:
        """As a numpy array over the same memory; bfloat16, which numpy does not have, as float32.

        ImportError without numpy; TypeError for the eight-bit floats, whose bytes are in `data`.
        """
        import numpy

        if self.dtype == "bfloat16":
            wide = numpy.frombuffer(self.data, "<u2").astype("<u4") << 16
            return wide.view("<f4").reshape(self.shape)
        kind = numpy.dtype(self.dtype).newbyteorder("<")
        return numpy.frombuffer(self.data, kind).reshape(self.shape)


_FIRST: int | None = 0


class _Pages:
    """The pages that have arrived so far."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def add(self, page: Mapping[str, Any]) -> int | None:
        """Take a page; where the next one starts."""
        for told in page["arrays"]:
            if told["name"] not in self.arrays:
                made = Array(told["dtype"], tuple(told["shape"]), bytearray(told["size"]))
                self.arrays[told["name"]] = made
            array, offset = self.arrays[told["name"]], told["offset"]
            assert isinstance(array.data, bytearray)
            array.data[offset : offset + len(told["data"])] = told["data"]
        following: int | None = page["next"]
        return following


def fetch(
    client: Client, path: str, model: str | None = None, names: Sequence[str] | None = None, original: bool = False
) -> dict[str, Array]:
    """The parameters and buffers of a model by name, whole; see `Client.weights`."""
    pages, start = _Pages(), _FIRST
    wanted = None if names is None else list(names)
    while start is not None:
        start = pages.add(client.weights(path, model, names=wanted, original=original, start=start))
    return pages.arrays


async def fetch_async(
    client: AsyncClient, path: str, model: str | None = None, names: Sequence[str] | None = None, original: bool = False
) -> dict[str, Array]:
    """The same, awaited."""
    pages, start = _Pages(), _FIRST
    wanted = None if names is None else list(names)
    while start is not None:
        start = pages.add(await client.weights(path, model, names=wanted, original=original, start=start))
    return pages.arrays
