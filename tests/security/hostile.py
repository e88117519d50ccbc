"""A folder in which every file that a tool might run has a trap: running it changes the time of a canary."""

import json
import os
import pickle
import sys
import zipfile

_LONG_AGO = 1_000_000_000
MODEL = """\
{trap}
import torch
from torch import nn

class Net(nn.Module):
    # mase: x = {call}
    {trap}
    def __init__(self):
        super().__init__()
        {trap}
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        {trap}
        y = self.fc(x)
        return y

if __name__ == "__main__":
    {trap}
    Net()(torch.zeros(3, 4))
"""
PASS = """\
{trap}
def bomb_pass(graph, pass_args=None):
    {trap}
    return graph, {{}}
PASS = bomb_pass
"""


class Bomb:
    """Unpickling it touches a canary."""

    def __init__(self, canary):
        self.canary = str(canary)

    def __reduce__(self):
        return (os.utime, (self.canary,))


class Hostile:
    """The folder, its traps by name, and which of them went off."""

    def __init__(self, home):
        self.folder, self._canaries = home / "workspace", home / "canaries"
        self.folder.mkdir()
        self._canaries.mkdir()
        self.python = {}
        self._models()
        self._modules()
        self._interpreters()
        self._pickles(home)
        self._settings()
        self._repository()

    def _canary(self, name):
        canary = self._canaries / name
        canary.touch()
        os.utime(canary, (_LONG_AGO, _LONG_AGO))
        return canary

    def _trap(self, name):
        return f"__import__('os').utime({str(self._canary(name))!r})"

    def _write(self, path, text):
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def _write_python(self, path, text):
        self.python[path.replace("/", "-")] = self._write(path, text)

    def _models(self):
        trap = self._trap("model.py")
        self.model = self._write("model.py", MODEL.format(trap=trap, call=trap))
        self.python["model.py"] = self.model
        cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "id": "a",
                "source": MODEL.format(trap=self._trap("net.ipynb"), call="f32[3, 4]")}  # fmt: skip
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        self.notebook = self._write("net.ipynb", json.dumps(notebook))
        self._write_python("passes/bomb.py", PASS.format(trap=self._trap("passes-bomb.py")))

    def _modules(self):
        """What Python or a tool would import by itself, where the folder were on its path."""
        for name in ("sitecustomize", "usercustomize", "json", "msgpack", "typing", "torch", "asyncio", "pygls",
                     "mase_server/__init__", "mase_server/__main__", "conftest", "setup"):  # fmt: skip
            self._write_python(f"{name}.py", self._trap(f"{name}.py".replace("/", "-")))

    def _interpreters(self):
        for name in (".venv", "venv", "elsewhere"):
            script = self._write(f"{name}/bin/python", f"#!/bin/sh\ntouch {self._canary(name)}\n")
            script.chmod(0o755)
            (script.parent / "python3").symlink_to("python")
            self._write(f"{name}/pyvenv.cfg", "home = /usr/bin\nversion = 3.99.0\n")
            self._write(f"{name}/lib/python3.11/site-packages/evil.pth", "import os; os.abort()\n")
        self.interpreter = str(self.folder / "elsewhere" / "bin" / "python")
        self.scripts = [self.folder / name / "bin" / "python" for name in (".venv", "venv", "elsewhere")]

    def _pickles(self, home):
        bomb = pickle.dumps(Bomb(self._canary("pickle")))
        for name in ("graph.pt", "graph.mz", "inputs.npy", "inputs.pt"):
            (self.folder / name).write_bytes(bomb)
        with zipfile.ZipFile(self.folder / "inputs.npz", "w") as file:
            file.writestr("x.npy", bomb)
            file.writestr("../../outside.npy", bomb)
        (home / "outside.py").write_text(self._trap("outside.py"))
        (self.folder / "linked.py").symlink_to(home / "outside.py")
        self.pickle = bomb

    def _settings(self):
        told = {"mase.interpreter": self.interpreter, "mase.server.command": [str(self.scripts[0])]}
        self._write(".vscode/settings.json", json.dumps(told))
        self._write(".env", f"PYTHONPATH={self.folder}\nPATH={self.scripts[0].parent}\n")
        self._write("pyproject.toml", f"[tool.mase]\ntrusted = true\ninterpreter = {self.interpreter!r}\n")
        self._write("setup.cfg", f"[mase]\ntrusted = true\ninterpreter = {self.interpreter}\n")
        self._write("trusted.json", json.dumps([str(self.folder), "/"]))
        self._write(".mase/trusted.json", json.dumps(["/"]))

    def _repository(self):
        hook = self._write(".git/hooks/post-index-change", f"#!/bin/sh\ntouch {self._canary('git')}\n")
        hook.chmod(0o755)
        self._write(".git/HEAD", "ref: refs/heads/main\n")
        for name in ("objects", "refs"):
            (self.folder / ".git" / name).mkdir()
        self._write(".git/config", f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = {hook}\n")
        self.hook = hook

    def gone_off(self):
        """The names of the canaries that something touched."""
        return sorted(each.name for each in self._canaries.iterdir() if each.stat().st_mtime != _LONG_AGO)

    def traps(self):
        """The names of all of them."""
        return sorted(each.name for each in self._canaries.iterdir())

    def rearm(self):
        """Forget what went off."""
        for each in self._canaries.iterdir():
            os.utime(each, (_LONG_AGO, _LONG_AGO))


#: Python without the folder of its script on its path, as the extension starts the server.
SERVER = (sys.executable, "-P", "-m", "mase_server")
