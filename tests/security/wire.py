"""A client of the language server that writes bytes: what no library for clients would send, and what comes back."""

import contextlib
import json
import os
import queue
import subprocess
import threading

from hostile import SERVER

#: Seconds within which whatever is expected of a server has come.
PATIENCE = 60


class Wire:
    """A real server over stdio. asked: what the server asked and told; its questions are answered with null."""

    def __init__(self, environment, *arguments):
        command = (*SERVER, "lsp", *arguments)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, env={**os.environ, **environment}, **pipes)
        self.asked, self._number, self._heard = [], 0, queue.SimpleQueue()
        self.log = b""
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_log)]
        for thread in self._threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait(PATIENCE)

    def _read(self):
        while head := self.process.stdout.readline():
            while (line := self.process.stdout.readline()).strip():
                head += line
            length = int(head.partition(b"Content-Length:")[2].split()[0])
            self._heard.put(json.loads(self.process.stdout.read(length)))
        self._heard.put(None)

    def _read_log(self):
        while data := self.process.stderr.read1():
            self.log += data

    def write(self, data):
        """Bytes as they are."""
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        """One message as the protocol has it."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def tell(self, method, **params):
        """A notification."""
        self.send({"method": method, "params": params})

    def next(self):
        """The next message; None at the end of the stream."""
        return self._heard.get(timeout=PATIENCE)

    def ask(self, method, params):
        """The answer to a request: its result, or its error."""
        self._number += 1
        self.send({"id": self._number, "method": method, "params": params})
        while (heard := self.next()) is not None:
            if "method" in heard:
                self.asked.append(heard)
                if "id" in heard:
                    self.send({"id": heard["id"], "result": None})
            elif heard["id"] == self._number:
                return heard.get("error") or heard["result"]
        raise AssertionError(f"the stream ended, and {method} has no answer: {self.log.decode()}")

    def initialize(self, folders=(), **options):
        """Shake hands. folders: URIs."""
        told = [{"uri": uri, "name": uri} for uri in folders]
        params = {"processId": os.getpid(), "rootUri": None, "capabilities": {}, "workspaceFolders": told or None}
        answer = self.ask("initialize", params | {"initializationOptions": options})
        self.tell("initialized")
        return answer

    def open(self, uri, text=""):
        """Open a document."""
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.tell("textDocument/didOpen", textDocument=item)

    def end_state(self, uri):
        """The end state of a document that was opened."""
        return self.ask("mase/open", {"uri": uri})["state"]
