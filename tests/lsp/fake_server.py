"""The real server process over stdio, with the fake daemon behind it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fake_daemon import FakeDaemon

from mase_server.lsp.process import serve_editor

if __name__ == "__main__":
    serve_editor(
        daemon=FakeDaemon, state_dir=Path(sys.argv[1]), cache_dir=Path(sys.argv[1]), trusted="--trust" in sys.argv
    )
