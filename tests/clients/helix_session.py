"""What a person does in Helix with a file that has a mistake; what the screen shows goes to a file, as JSON.

Run as `helix_session.py HELIX`: tmux draws the screen and types.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

SOURCE, OUT = map(Path, json.loads(os.environ["MASE_TEST"]))
SOCKET = str(OUT.with_name("tmux"))


def tmux(*words: str) -> str:
    """Run a command of the terminal, and return what it prints."""
    return subprocess.run(["tmux", "-S", SOCKET, *words], capture_output=True, text=True, check=True).stdout


def until(text: str) -> str:
    """The screen once it shows a text."""
    end = time.monotonic() + 60
    while not re.search(text, screen := tmux("capture-pane", "-p", "-t", "helix")):
        if time.monotonic() > end:
            sys.exit(f"never: {text}\n{screen}")
    return screen


def keys(*keys: str) -> None:
    """Type keys; a text of several letters is typed as it stands."""
    for each in keys:
        tmux("send-keys", "-t", "helix", *(["-l"] if len(each) > 1 and each not in ("Enter", "Escape") else []), each)


told = {
    "version": subprocess.run([sys.argv[1], "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
}
tmux("-f", "/dev/null", "new-session", "-d", "-s", "helix", "-x", "150", "-y", "50", sys.argv[1], str(SOURCE))
try:
    until(r"class Net")
    until("●")
    keys("]d")
    told["problem"] = until(r"expects 33 features")
    keys(" ", "a")
    told["offered"] = until(r"Change `width \+ 1`")
    keys("Enter")
    until(r"nn\.Linear\(width, classes\)")
    keys(":w", "Enter")
    until(r"^[^●]*$")
    keys("o")  # Helix asks for hints when a text changes
    until(" INS ")
    keys("Escape")
    until(" NOR ")
    keys("u")
    told["hints"] = until(r"f32\[B, 5\]")
    keys(":11", "Enter", "f", "x", " ", "k")
    told["hover"] = until(r"f32\[B, 16\].*\n(.*\n)*.*size")
finally:
    subprocess.run(["tmux", "-S", SOCKET, "kill-server"], check=False)
told["saved"] = SOURCE.read_text()
OUT.write_text(json.dumps(told))
