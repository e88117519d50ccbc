"""Our own clients: typed answers, errors with codes, and connections that come back."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from docs.client import FILE, source
from mase_server.client import AsyncClient, Client, ClientError, RpcError
from mase_server.rpc.listening import Listening

pytestmark = pytest.mark.asyncio(loop_scope="session")
ROOT = Path(__file__).parent.parent.parent


def thread(work, *arguments):
    """The blocking client blocks: the server of these tests has to run meanwhile."""
    return asyncio.to_thread(work, *arguments)


async def test_the_methods_are_those_of_the_table():
    assert FILE.read_text() == source(), "run: python -m docs.client"


async def test_a_client_needs_no_torch_no_numpy_and_no_daemon():
    code = "import sys, mase_server.client; print([n for n in sys.modules if n.startswith(('torch', 'numpy', 'pygls'))"
    code += " or n.startswith(('mase_server.daemon', 'mase_server.lsp', 'mase_server.ir'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


async def test_a_file_is_opened_and_asked_about(served):
    path = served.write("client.py", "x = 1  # shape f32[2, 3]\n")

    def work():
        with Client(f"unix:{served.path}") as client:
            assert client.open(path)["state"] == "ready"
            place = client.node_at(path, line=3, column=0)
            assert client.node_at(path, line=1, column=0) is None
            return place

    place = await thread(work)
    assert (place["name"], place["values"][0]["value"]) == ("x", ["f32", [2, 3], None])


async def test_a_refusal_has_a_code_a_text_and_data(served):
    def work():
        with Client(served.path) as client, pytest.raises(RpcError) as caught:
            client.graph("/nowhere/x.py")
        return caught.value

    error = await thread(work)
    assert (error.code, error.data) == ("not-open", {"path": "/nowhere/x.py"})
    assert str(error) == "/nowhere/x.py is not open: open it with mase/open first"


async def test_a_call_has_its_time(served):
    path = served.write("late.py", "import time; time.sleep(5)\n")

    def work():
        with Client(served.path) as client, pytest.raises(ClientError, match=r"mase/open had no answer within 0.2 s"):
            client.call("mase/open", {"path": path}, timeout=0.2)
        with Client(served.path) as client:
            assert client.info()["name"] == "mase-server"

    await thread(work)
    served.daemon.cancel(path)


async def test_several_threads_share_a_client(served):
    path = served.show("threads.py", blocks=3)

    def work(client, counts):
        for _ in range(50):
            counts.append(len(client.graph(path)["columns"]["name"]))

    def all_of_them():
        counts = []
        with Client(served.path) as client:
            threads = [threading.Thread(target=work, args=(client, counts)) for _ in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        return counts

    assert await thread(all_of_them) == [10] * 200


async def test_news_reach_a_blocking_client(served):
    def work(subscribed):
        with Client(served.path) as client:
            client.subscribe(topics=["graph"])
            subscribed.set()
            return next(client.events(timeout=20))

    subscribed = threading.Event()
    hearing = asyncio.create_task(thread(work, subscribed))
    await thread(subscribed.wait)
    path = served.show("heard.py")
    assert (await hearing)["path"] == path


async def test_news_that_do_not_come_end_the_wait(served):
    def work():
        with Client(served.path) as client:
            client.subscribe(topics=["verilog"])
            return list(client.events(timeout=0.1))

    assert await thread(work) == []


async def test_nobody_listening_is_said(tmp_path):
    with pytest.raises(ClientError, match="cannot connect to the daemon"):
        Client(str(tmp_path / "none.sock"), reconnect=False).info()


async def test_no_daemon_for_a_workspace_is_said(served, tmp_path):
    with pytest.raises(ClientError, match=f"no daemon serves {tmp_path}: open it in an editor, or run"):
        Client(workspace=tmp_path, reconnect=False).info()


async def restarted(served):
    """The server at the same address, anew: every connection is lost."""
    await served.listening.close()
    served.listening = Listening(served.front, served.listening.address)
    await served.listening.start()


async def test_after_a_lost_connection_the_next_question_is_answered(limited):
    served = await limited()
    path = served.write("again.py", "x = 1  # shape f32[2, 3]\n")
    client = Client(served.path)
    await thread(client.open, path)
    await restarted(served)
    assert not served.daemon.file(path).open
    assert (await thread(client.tensors, path))["sites"][0]["name"] == "x"
    assert served.daemon.file(path).open
    client.close_connection()


async def test_what_changes_something_is_not_asked_twice(limited):
    served = await limited()
    client = Client(served.path)
    await thread(client.info)
    await restarted(served)
    with pytest.raises(ClientError, match="mase/restartWorkers: the connection was lost"):
        await thread(client.restart_workers)
    assert await thread(client.restart_workers) == {"folders": []}
    client.close_connection()


async def test_a_client_without_reconnecting_says_that_it_lost_it(limited):
    served = await limited()
    client = Client(served.path, reconnect=False)
    await thread(client.info)
    await restarted(served)
    with pytest.raises(ClientError, match="mase/info: the connection was lost: the daemon ended it: the server ends"):
        await thread(client.info)


async def test_many_calls_at_once_over_one_connection(served):
    path = served.show("at_once.py", blocks=5)
    async with AsyncClient(served.path) as client:
        answers = await asyncio.gather(*(client.graph(path, start=number) for number in range(16)))
        assert [answer["columns"]["row"][0] for answer in answers] == list(range(16))


async def test_cancelling_a_call_cancels_it_in_the_daemon(served):
    path = served.write("stopped.py", "import time; time.sleep(30)\n")
    async with AsyncClient(served.path) as client:
        asking = asyncio.create_task(client.open(path))
        while served.daemon.file(path) is None:
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await client.info()
        [connection] = [one for one in served.front.connections if one._session.opened]
        assert not connection._running
    served.daemon.cancel(path)


async def test_an_async_client_comes_back_with_its_subscriptions(limited):
    served = await limited()
    async with AsyncClient(served.path) as client:
        await client.subscribe(topics=["graph"])
        news = client.events()
        path = served.show("back.py")
        assert (await anext(news))["path"] == path
        await restarted(served)
        assert await anext(news) == {"topic": "reconnected"}
        served.show("back.py", text="2")
        assert (await anext(news))["path"] == path


async def test_an_async_call_has_its_time(served):
    path = served.write("late2.py", "import time; time.sleep(5)\n")
    async with AsyncClient(served.path) as client:
        with pytest.raises(ClientError, match=r"mase/open had no answer within 0.2 s"):
            await client.call("mase/open", {"path": path}, timeout=0.2)
        assert await client.files()
    served.daemon.cancel(path)
