"""Clients that are not ours, in other languages: any that speaks MessagePack-RPC is served."""

import asyncio
import json
import shutil

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def said(*command):
    """(status, standard output, standard error) of a program; the server runs meanwhile."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


LUA = """
local channel = vim.fn.sockconnect("pipe", "{socket}", {{rpc = true}})
vim.rpcrequest(channel, "mase/session", {{errors = "pair"}})
local info = vim.rpcrequest(channel, "mase/info", vim.empty_dict())
local none = vim.rpcrequest(channel, "mase/files")
local opened = vim.rpcrequest(channel, "mase/open", {{path = "{path}"}})
local place = vim.rpcrequest(channel, "mase/nodeAt", {{path = "{path}", line = 3, column = 0}})
local ok, refused = pcall(vim.rpcrequest, channel, "mase/nodeAt", {{path = "/nowhere.py", line = 1, column = 0}})
print(vim.json.encode({{info.name, opened.state, place.place, ok, tostring(refused)}}))
vim.cmd("qall!")
"""


@pytest.mark.skipif(shutil.which("nvim") is None, reason="needs Neovim")
async def test_neovim(served, tmp_path):
    path = served.write("nvim.py", "x = 1  # shape f32[2, 3]\n")
    script = tmp_path / "ask.lua"
    script.write_text(LUA.format(socket=served.path, path=path))
    _, out, err = await said("nvim", "--headless", "--clean", "-c", f"luafile {script}")
    name, state, place, ok, refused = json.loads((out + err).strip())
    assert (name, state, ok) == ("mase-server", "ready", False)
    assert (place["name"], place["values"][0]["value"][:2]) == ("x", ["f32", [2, 3]])
    assert "/nowhere.py is not open: open it with mase/open first" in refused


async def test_the_client_library_of_neovim_for_python(served):
    library = pytest.importorskip("pynvim.msgpack_rpc")
    path = served.show("pynvim.py")

    def work():
        session = library.socket_session(served.path)
        try:
            session.request("mase/session", {"errors": "pair"})
            graph = session.request("mase/graph", {"path": path})
            with pytest.raises(Exception, match="not-open"):
                session.request("mase/tensors", {"path": "/nowhere.py"})
            return graph
        finally:
            session.close()

    graph = await asyncio.get_running_loop().run_in_executor(None, work)
    assert graph["columns"]["mase_op"][:3] == ["placeholder", "linear", "relu"]
