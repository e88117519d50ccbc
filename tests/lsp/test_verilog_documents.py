"""Documents of hardware by themselves: their URIs, and whose come first."""

from types import SimpleNamespace

import pytest
from pygls.uris import from_fs_path, to_fs_path

from mase_server.lsp.verilog import Sheet, Verilog, emissions_of_file


@pytest.mark.parametrize("component", ["", "fixed_linear"])
@pytest.mark.parametrize("title", ["Net", "Net 2", "a/b#c?d"])
def test_the_uri_of_a_document_leads_back_to_it(title, component):
    verilog = Verilog(FakeServer)
    sheet = Sheet("/w/my nets/net.py", title, component)
    uri = verilog.uri(sheet)
    assert not set(uri) & set(" #?")
    assert (verilog.sheet(uri), verilog.path(uri)) == (sheet, sheet.path)


@pytest.mark.parametrize("picked", [None, "Net", "Other", "Third"])
def test_the_hardware_of_the_picked_model_comes_first(picked):
    made = [SimpleNamespace(title=title, snapshot=SimpleNamespace(sha256_of={"/w/net.py": "1"}.get))
            for title in ("Net", "Other", "Third")]  # fmt: skip
    snapshots = [SimpleNamespace(hardware=dict(enumerate(made)))]
    store = SimpleNamespace(view=lambda path: SimpleNamespace(picked=picked), snapshots=lambda: snapshots)
    ls = SimpleNamespace(daemon=SimpleNamespace(store=store))
    titles = [each.title for each in emissions_of_file(ls, "/w/net.py")]
    assert (titles[0], sorted(titles)) == (picked or "Net", ["Net", "Other", "Third"])
    assert emissions_of_file(ls, "/w/other.py") == []


class FakeServer:
    """What documents ask of a server."""

    contents = SimpleNamespace(document=lambda uri: uri)
    uri_of, path_of = staticmethod(from_fs_path), staticmethod(to_fs_path)
