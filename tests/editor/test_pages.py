"""The parts of the extension's pages that need no editor, by their own tests in TypeScript."""

import os
import subprocess

import code_server

CLIENT = code_server.ROOT / "mase_client_vscode"


def test_the_extension_s_own_tests_pass() -> None:
    environment = os.environ | {"PATH": f"{code_server.TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(["npm", "test"], cwd=CLIENT, env=environment, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
